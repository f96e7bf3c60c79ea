"""Platforms of Nebius with their presets, InfiniBand fabrics and disk types, and what Kubernetes keeps of a node.

A platform is what other clouds call a family of machine types, a preset one of its sizes. Sources, of 2026:
- platforms, presets, regions: nebius-solutions-library, soperator/modules/available_resources (platform.tf, preset.tf,
  cpu_topology.tf, gres.tf)
- disk types: nebius/api, compute/v1/disk.proto; available_resources/disk.tf; StorageClasses: helm-storageclasses
- what Kubernetes keeps: available_resources/reserve.tf (node), soperator/modules/slurm/locals.tf (slurmd, munge).
  Amounts are in milli-CPUs and MiB, so that they stay whole numbers.
"""

import re
from dataclasses import dataclass
from typing import Literal

SOURCE = "nebius-solutions-library, soperator/modules/available_resources"
Topology = tuple[int, int, int]
"""Sockets, cores of each socket, threads of each core."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A size of a platform."""

    name: str
    topology: Topology
    clusterable: bool = False
    """True if its nodes can join a GPU cluster (InfiniBand): those with all GPUs of a host."""

    @property
    def gpus(self) -> int:
        """GPUs of one node."""
        return _number("([0-9]+)gpu-", self.name)

    @property
    def vcpus(self) -> int:
        """Hardware threads of one node."""
        return _number("([0-9]+)vcpu-", self.name)

    @property
    def memory_gib(self) -> int:
        """GiB of one node."""
        return _number("([0-9]+)gb$", self.name)


@dataclass(frozen=True, kw_only=True)
class NebiusPlatform:
    """A platform of Nebius."""

    name: str
    presets: tuple[Preset, ...]
    regions: tuple[str, ...]
    gpu: str = ""
    """Gres type of its GPUs: the name that nvidia-smi prints, in lower case and with _ for blanks, which is what
    Soperator's slurmd registers (images/worker/slurmd_entrypoint.sh)."""
    architecture: Literal["x86_64", "arm64"] = "x86_64"


def _number(pattern: str, name: str) -> int:
    found = re.search(pattern, name)
    return int(found[1]) if found else 0


def _cpu(vcpus: int, most: int) -> Preset:
    """A preset without GPUs: 4 GiB for each vCPU, two threads for each core; one with more than `most` vCPUs has two
    sockets."""
    sockets = 2 if vcpus > most else 1
    return Preset(name=f"{vcpus}vcpu-{4 * vcpus}gb", topology=(sockets, vcpus // 2 // sockets, 2))


def _gpu(gpus: int, vcpus: int, memory_gib: int) -> Preset:
    """A preset with GPUs and no InfiniBand: two threads for each core, and two sockets with more than two GPUs."""
    sockets = 2 if gpus > 2 else 1
    return Preset(name=f"{gpus}gpu-{vcpus}vcpu-{memory_gib}gb", topology=(sockets, vcpus // 2 // sockets, 2))


_E2 = tuple(_cpu(vcpus, 32) for vcpus in (2, 4, 8, 16, 32, 48, 64, 80))
_D3 = tuple(_cpu(vcpus, 128) for vcpus in (2, 4, 8, 16, 32, 48, 64, 96, 128, 160, 192, 224, 256))
_HOPPER = (
    Preset(name="1gpu-16vcpu-200gb", topology=(1, 8, 2)),
    Preset(name="8gpu-128vcpu-1600gb", topology=(2, 32, 2), clusterable=True),
)
_B200 = (
    Preset(name="1gpu-20vcpu-224gb", topology=(1, 10, 2)),
    Preset(name="8gpu-160vcpu-1792gb", topology=(2, 40, 2), clusterable=True),
)
_B300 = (
    Preset(name="1gpu-24vcpu-346gb", topology=(1, 12, 2)),
    Preset(name="8gpu-192vcpu-2768gb", topology=(2, 48, 2), clusterable=True),
)
_L40S_INTEL = tuple(_gpu(1, vcpus, 4 * vcpus) for vcpus in (8, 16, 24, 32, 40))
_L40S_AMD = tuple(
    _gpu(gpus, vcpus, 6 * vcpus) for gpus, vcpus in ((1, 16), (1, 32), (1, 48), (2, 64), (2, 96), (4, 128), (4, 192))
)
_RTX6000 = (_gpu(1, 24, 218), _gpu(8, 192, 1744))
_GB300 = (Preset(name="4gpu-112vcpu-800gb", topology=(2, 56, 1), clusterable=True),)

REGIONS = (
    "eu-north1",
    "eu-north2",
    "eu-west1",
    "eu-west2",
    "me-west1",
    "uk-south1",
    "us-central1",
    "us-north1",
)
# fmt: off
_ROWS = (
    NebiusPlatform(name="cpu-e2", presets=_E2, regions=("eu-north1",)),
    NebiusPlatform(name="cpu-d3", presets=_D3, regions=REGIONS),
    NebiusPlatform(name="gpu-h100-sxm", presets=_HOPPER, gpu="nvidia_h100_80gb_hbm3", regions=("eu-north1",)),
    NebiusPlatform(
        name="gpu-h200-sxm", presets=_HOPPER, gpu="nvidia_h200",
        regions=("eu-north1", "eu-north2", "eu-west1", "us-central1")),
    NebiusPlatform(name="gpu-b200-sxm", presets=_B200, gpu="nvidia_b200", regions=("us-central1",)),
    NebiusPlatform(name="gpu-b200-sxm-a", presets=_B200, gpu="nvidia_b200", regions=("me-west1",)),
    NebiusPlatform(
        name="gpu-b300-sxm", presets=_B300, gpu="nvidia_b300_sxm6_ac", regions=("eu-west2", "uk-south1", "us-north1")),
    NebiusPlatform(name="gpu-l40s-a", presets=_L40S_INTEL, gpu="nvidia_l40s", regions=("eu-north1",)),
    NebiusPlatform(name="gpu-l40s-d", presets=_L40S_AMD, gpu="nvidia_l40s", regions=("eu-north1",)),
    NebiusPlatform(
        name="gpu-rtx6000", presets=_RTX6000, gpu="nvidia_rtx_pro_6000_blackwell_server_edition",
        regions=("us-central1",)),
    NebiusPlatform(
        name="gpu-gb300", presets=_GB300, gpu="nvidia_gb300", architecture="arm64", regions=("eu-north1",)),
)
# fmt: on

PLATFORMS: dict[str, NebiusPlatform] = {row.name: row for row in _ROWS}


def preset_of(machine_type: str) -> Preset:
    """The preset of a machine type, PLATFORM/PRESET. Raises KeyError for another platform, StopIteration for another
    preset."""
    platform, _, name = machine_type.partition("/")
    return next(preset for preset in PLATFORMS[platform].presets if preset.name == name)


FABRICS: dict[str, tuple[str, str]] = {
    **{f"fabric-{number}": ("gpu-h100-sxm", "eu-north1") for number in (2, 3, 4, 6)},
    "fabric-7": ("gpu-h200-sxm", "eu-north1"),
    "fabric-5": ("gpu-h200-sxm", "eu-west1"),
    "eu-north2-a": ("gpu-h200-sxm", "eu-north2"),
    "us-central1-a": ("gpu-h200-sxm", "us-central1"),
    "us-central1-b": ("gpu-b200-sxm", "us-central1"),
    "me-west1-a": ("gpu-b200-sxm-a", "me-west1"),
    "uk-south1-a": ("gpu-b300-sxm", "uk-south1"),
    "us-north1-a": ("gpu-b300-sxm", "us-north1"),
    "eu-west2-a": ("gpu-b300-sxm", "eu-west2"),
}
"""Platform and region of the InfiniBand fabrics that are known. Nebius adds fabrics without notice, so the table warns
and never refuses. Source: docs.nebius.com/compute/clusters/gpu#fabrics; nebius-solutions-library, pull request 1142."""


def fabrics_of(platform: str, region: str) -> list[str]:
    """Names of the fabrics that a platform has in a region."""
    return [name for name, place in FABRICS.items() if place == (platform, region)]


REPLICATED_STEP = 93
"""GiB: IO_M3 and non-replicated disks are made of parts of this size."""
NEBIUS_DISKS: dict[str, int] = {
    "network-ssd": 1,
    "network-ssd-non-replicated": REPLICATED_STEP,
    "network-ssd-io-m3": REPLICATED_STEP,
}
"""GiB that sizes are multiples of, by disk type as StorageClasses have it, and stack files too. Nebius's API has
NETWORK_SSD for network-ssd."""


GIB = 1024
"""MiB."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources of a container, as Kubernetes has them."""

    cpu: int
    """Milli-CPUs."""
    memory: int
    """MiB."""
    disk: int = 0
    """MiB of ephemeral storage."""

    @property
    def quantities(self) -> dict[str, str]:
        """The sizes as the charts' values write them: cpu in m, whole GiB in Gi."""
        sizes = {"memory": self.memory, "ephemeralStorage": self.disk}
        return {
            "cpu": f"{self.cpu}m",
            **{key: f"{size // GIB}Gi" if size % GIB == 0 else f"{size}Mi" for key, size in sizes.items() if size},
        }


MUNGE = Resources(cpu=100, memory=512, disk=5 * GIB)
"""The munge container beside slurmd and slurmctld."""
DAEMON_SETS_CPU = 1000
"""Milli-CPUs of a worker node for pods that every node has: Soperator's rebooter asks for 500, the DCGM exporter for
50, Cilium, the CSI driver and others of Kubernetes for what is left. Without them one of these stays Pending. Jobs have
all CPUs: Slurm's number of them is the machine's."""
DAEMON_CPU = 50
"""Milli-CPUs of OpenKruise's daemon on each node."""
DAEMON_MEMORY = 131
"""MiB of it: 128 MB rounded up."""


def allocatable(vcpus: int, memory_gib: int, disk_gib: int = 0) -> Resources:
    """Return what pods of a node can have: all but 1 vCPU, 95 % of the memory less 2 GiB, 85 % of the boot disk less 48
    GiB; memory and disk in whole GiB."""
    return Resources(
        cpu=max(0, vcpus - 1) * 1000,
        memory=max(0, (memory_gib * 95 - 200) // 100) * GIB,
        disk=max(0, (disk_gib * 85 - 4800) // 100) * GIB,
    )


def slurmd_resources(node: Resources) -> Resources:
    """Return what slurmd's container has of a node, in whole GiB: the node's jobs run in it, so its memory is
    RealMemory."""
    cpu = (node.cpu - DAEMON_SETS_CPU - MUNGE.cpu) // 1000 * 1000 - DAEMON_CPU
    memory = (node.memory - MUNGE.memory) // GIB * GIB - DAEMON_MEMORY
    return Resources(
        cpu=max(0, cpu), memory=max(0, memory) // GIB * GIB, disk=max(0, node.disk - (MUNGE.disk if node.disk else 0))
    )
