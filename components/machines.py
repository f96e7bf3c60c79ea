"""Deploy a cluster on machines: make them, put Slurm on them. For platforms whose clusters are machines with SSH."""

from collections.abc import Callable

from cluster.config import ClusterConfig
from cluster.slurm.script_tree import Tree
from components.deploy import Deployment
from components.edits import MUNGE_KEY
from components.machine import Machines
from components.slurm.cluster import SlurmCluster, SlurmClusterArgs
from components.slurm.keys import ClusterKeys


def deploy(config: ClusterConfig, scripts: Tree, make: Callable[[ClusterConfig, ClusterKeys], Machines]) -> Deployment:
    """Have a platform make the machines, and put Slurm on them."""
    keys = ClusterKeys(config.name, tokens=config.slurm.slurmrestd)
    made = make(config, keys)
    slurm = SlurmCluster(
        config.name,
        SlurmClusterArgs(config=config, keys=keys, platform=made, scripts=scripts),
    )
    return Deployment(
        login=slurm.login,
        targets={machine.spec.name: machine.target for machine in made.machines},
        config=slurm.config,
        outputs={
            "machines": {machine.spec.name: machine.summary for machine in made.machines},
            "admin_key": keys.admin.private_key_openssh,
            MUNGE_KEY: slurm.munge_key,
            "config_hash": slurm.config_hash,
            "place": slurm.place,
            **made.outputs,
        },
    )
