"""Disks of the machines on Google Cloud: what the file says, and the defaults where it says nothing."""

from cluster.catalog import MachineType
from cluster.config.cluster import ClusterConfig
from cluster.config.machines import Disk
from cluster.roster import MachineSpec

BOOT_TYPES = {"controller": "pd-ssd", "login": "pd-balanced", "node": "pd-ssd"}
"""Type of boot disks by a machine's first role."""
NEWER = "hyperdisk-balanced"
"""Where machines take no persistent disks, as A3 Ultra and A4."""
BOOT_GB = 200
STATE_GB = 100


def boot_disk(config: ClusterConfig, spec: MachineSpec) -> tuple[str, int]:
    return boot(section(config, spec), spec.roles[0], spec.machine_type)


def boot(disk: Disk, role: str, kind: MachineType) -> tuple[str, int]:
    """Type and size in GB of a boot disk that a section describes, for machines of that role and type."""
    usual = BOOT_TYPES[role]
    return disk.type or (
        usual if usual in kind.family.disks or not kind.family.disks else NEWER
    ), disk.size_gb or BOOT_GB


def section(config: ClusterConfig, spec: MachineSpec) -> Disk:
    """What the file says of a machine's boot disk."""
    if spec.roles[0] == "controller":
        return config.controller.disk
    return config.nodesets[spec.nodeset].disk if spec.nodeset else config.login.disk


def state_disk(config: ClusterConfig) -> tuple[str, int]:
    said = config.controller.state_disk
    return said.type or BOOT_TYPES["controller"], said.size_gb or STATE_GB
