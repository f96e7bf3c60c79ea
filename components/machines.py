"""Deploy a cluster on machines: make them, put Slurm on them. For platforms whose clusters are machines with SSH."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from cluster.config import ClusterConfig
from cluster.roster import MachineSpec
from cluster.slurm.script_tree import Tree
from components.deploy import Deployment
from components.edits import MUNGE_KEY
from components.machine import Machine
from components.slurm.cluster import SlurmCluster, SlurmClusterArgs
from components.slurm.keys import ClusterKeys

Mounts = Callable[[MachineSpec], Sequence[Mapping[str, pulumi.Input[str]]]]


@dataclass(frozen=True, kw_only=True)
class Machines:
    """Machines that answer SSH, and what Slurm's set-up must know of the platform."""

    machines: Sequence[Machine]
    """In the roster's order: controller, login machines, nodes."""
    mounts: Mounts
    """Shared file systems of a machine: source, target, fs_type, options."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Address of every machine by name, if the platform knows it beforehand; else empty, and names are resolved."""
    state: Mapping[str, Any] | None = None
    """What the controller keeps on a file system that outlives its machine."""
    exports: Mapping[str, Any] | None = None
    """What the controller shares by NFS."""
    ready: Sequence[pulumi.Resource] = ()
    """What machines are only configured after."""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """What the stack exports of the platform, beside what all stacks export."""


def deploy(config: ClusterConfig, scripts: Tree, make: Callable[[ClusterConfig, ClusterKeys], Machines]) -> Deployment:
    """Have a platform make the machines, and put Slurm on them."""
    keys = ClusterKeys(config.name, tokens=config.slurm.slurmrestd)
    made = make(config, keys)
    slurm = SlurmCluster(
        config.name,
        SlurmClusterArgs(
            config=config, machines=made.machines, keys=keys, mounts=made.mounts, state=made.state,
            exports=made.exports, after=made.ready, addresses=made.addresses, scripts=scripts,
        ),
    )  # fmt: skip
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
