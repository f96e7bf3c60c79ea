"""The program: read the stack's configuration, make its machines, put Slurm on them, export what people need."""

import pulumi

from components.config import load, load_scripts
from components.edits import MUNGE_KEY, refuse_impossible
from components.platform import make
from components.slurm.cluster import SlurmCluster, SlurmClusterArgs
from components.slurm.keys import ClusterKeys

config = load()
refuse_impossible(config)
scripts = load_scripts(config)
keys = ClusterKeys(config.name, tokens=config.slurm.slurmrestd)
platform = make(config, keys)
slurm = SlurmCluster(
    config.name,
    SlurmClusterArgs(
        config=config,
        machines=platform.machines,
        keys=keys,
        mounts=platform.mounts,
        state=platform.state,
        exports=platform.exports,
        after=platform.ready,
        addresses=platform.addresses,
        scripts=scripts,
    ),
)

pulumi.export("cluster", config.name)
pulumi.export("login", slurm.login)
pulumi.export("users", [user.name for user in config.users])
pulumi.export("machines", {machine.spec.name: machine.summary for machine in platform.machines})
pulumi.export("admin_key", keys.admin.private_key_openssh)
pulumi.export(MUNGE_KEY, slurm.munge_key)
pulumi.export("config_hash", slurm.config_hash)
# What this stack was made with: the next preview tells what an edit does, and `drift` what it should find.
pulumi.export("config", slurm.config)
pulumi.export("place", slurm.place)
for name, value in platform.outputs.items():
    pulumi.export(name, value)
