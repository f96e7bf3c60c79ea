"""What a compute node is created with: the set-up, keys and the controller's name. It does the rest itself."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cluster.roster import MachineSpec
from components.machine import Boot, BootFile
from components.slurm import payload
from components.slurm.keys import ClusterKeys

UNITS = ("hpc-node.service", "hpc-watch.service")


def boot_files(
    keys: ClusterKeys, *, mounts: Sequence[Mapping[str, Any]], controller: str
) -> Callable[[MachineSpec], Boot]:
    """A function from a machine to the files it is made with; empty for machines that are set up over SSH."""

    def files(machine: MachineSpec) -> Boot:
        if machine.roles != ("node",):
            return {}
        boot: dict[str, BootFile] = {
            f"{payload.SETUP}/{name}": BootFile(content=text) for name, text in payload.setup_files().items()
        }
        for unit in UNITS:
            boot[f"/etc/systemd/system/{unit}"] = BootFile(content=payload.setup_files()[unit])
            boot[f"/etc/systemd/system/multi-user.target.wants/{unit}"] = BootFile(link=f"/etc/systemd/system/{unit}")
        boot["/etc/hpc/node.json"] = BootFile(content=payload.node_json(mounts=mounts, controller=controller))
        boot[payload.MUNGE_KEY] = BootFile(content=keys.munge.apply(lambda key: key + "\n"), mode=0o600)
        boot["/root/.ssh/authorized_keys2"] = BootFile(content=keys.cluster.public_key_openssh, mode=0o600)
        return boot

    return files
