"""Platforms of Nebius with their presets, InfiniBand fabrics and disk types, and what Kubernetes keeps of a node.

A platform is what other clouds call a family of machine types, a preset one of its sizes. Sources, of 2026:
- platforms, presets, regions: nebius-solutions-library, soperator/modules/available_resources (platform.tf, preset.tf,
  cpu_topology.tf, gres.tf)
- disk types: nebius/api, compute/v1/disk.proto; available_resources/disk.tf; StorageClasses: helm-storageclasses
- what Kubernetes keeps: available_resources/reserve.tf (node), soperator/modules/slurm/locals.tf (slurmd, munge).
  Amounts are in milli-CPUs and MiB, so that they stay whole numbers.
"""

from dataclasses import dataclass

SOURCE = "nebius-solutions-library, soperator/modules/available_resources"


@dataclass(frozen=True)
class Preset:
    """A size of a platform."""

    vcpus: int
    """Hardware threads of one node."""
    memory_gib: int
    gpus: int = 0
    sockets: int = 1
    clusterable: bool = False
    """True if its nodes can join a GPU cluster (InfiniBand): those with all GPUs of a host."""

    @property
    def name(self) -> str:
        """Nebius's name of it."""
        gpus = f"{self.gpus}gpu-" if self.gpus else ""
        return f"{gpus}{self.vcpus}vcpu-{self.memory_gib}gb"

    @property
    def topology(self) -> tuple[int, int, int]:
        """Sockets, cores of each socket, threads of each core."""
        return self.sockets, self.vcpus // 2 // self.sockets, 2


@dataclass(frozen=True, kw_only=True)
class NebiusComputePlatform:
    """A platform of Nebius."""

    name: str
    presets: tuple[Preset, ...]
    regions: tuple[str, ...]
    gpu: str = ""
    """Gres type of its GPUs: the name that nvidia-smi prints, in lower case and with _ for blanks, which is what
    Soperator's slurmd registers (images/worker/slurmd_entrypoint.sh)."""


def _cpu(vcpus: int, most: int) -> Preset:
    """Return a preset without GPUs: 4 GiB for each vCPU, and a second socket with more than `most` vCPUs."""
    return Preset(vcpus, 4 * vcpus, sockets=2 if vcpus > most else 1)


def _gpu(gpus: int, vcpus: int, memory_gib: int, *, clusterable: bool = False) -> Preset:
    """Return a preset with GPUs, and a second socket with more than two of them."""
    return Preset(vcpus, memory_gib, gpus, sockets=2 if gpus > 2 else 1, clusterable=clusterable)


_E2 = tuple(_cpu(vcpus, 32) for vcpus in (2, 4, 8, 16, 32, 48, 64, 80))
_D3 = tuple(_cpu(vcpus, 128) for vcpus in (2, 4, 8, 16, 32, 48, 64, 96, 128, 160, 192, 224, 256))
_HOPPER = (_gpu(1, 16, 200), _gpu(8, 128, 1600, clusterable=True))
_B200 = (_gpu(1, 20, 224), _gpu(8, 160, 1792, clusterable=True))
_B300 = (_gpu(1, 24, 346), _gpu(8, 192, 2768, clusterable=True))
_L40S_INTEL = tuple(_gpu(1, vcpus, 4 * vcpus) for vcpus in (8, 16, 24, 32, 40))
_L40S_AMD = tuple(
    _gpu(gpus, vcpus, 6 * vcpus) for gpus, vcpus in ((1, 16), (1, 32), (1, 48), (2, 64), (2, 96), (4, 128), (4, 192))
)
_RTX6000 = (_gpu(1, 24, 218), _gpu(8, 192, 1744))

# fmt: off
REGIONS = (
    "eu-north1", "eu-north2", "eu-south1", "eu-west1", "eu-west2", "me-west1", "uk-south1", "uk-south2", "us-central1",
    "us-north1",
)
_ROWS = (
    NebiusComputePlatform(name="cpu-e2", presets=_E2, regions=("eu-north1",)),
    NebiusComputePlatform(name="cpu-d3", presets=_D3, regions=REGIONS),
    NebiusComputePlatform(name="gpu-h100-sxm", presets=_HOPPER, gpu="nvidia_h100_80gb_hbm3", regions=("eu-north1",)),
    NebiusComputePlatform(
        name="gpu-h200-sxm", presets=_HOPPER, gpu="nvidia_h200",
        regions=("eu-north1", "eu-north2", "eu-west1", "us-central1")),
    NebiusComputePlatform(name="gpu-b200-sxm", presets=_B200, gpu="nvidia_b200", regions=("us-central1",)),
    NebiusComputePlatform(name="gpu-b200-sxm-a", presets=_B200, gpu="nvidia_b200", regions=("me-west1",)),
    NebiusComputePlatform(
        name="gpu-b300-sxm", presets=_B300, gpu="nvidia_b300_sxm6_ac", regions=("eu-west2", "uk-south1", "us-north1")),
    NebiusComputePlatform(name="gpu-l40s-a", presets=_L40S_INTEL, gpu="nvidia_l40s", regions=("eu-north1",)),
    NebiusComputePlatform(name="gpu-l40s-d", presets=_L40S_AMD, gpu="nvidia_l40s", regions=("eu-north1",)),
    NebiusComputePlatform(
        name="gpu-rtx6000", presets=_RTX6000, gpu="nvidia_rtx_pro_6000_blackwell_server_edition",
        regions=("us-central1",)),
    # docs.nebius.com/compute/virtual-machines/types, as noted in the autumn of 2026.
    NebiusComputePlatform(
        name="gpu-rtx6000-a", presets=_RTX6000, gpu="nvidia_rtx_pro_6000_blackwell_server_edition",
        regions=("eu-south1", "uk-south2")),
)
# fmt: on

PLATFORMS: dict[str, NebiusComputePlatform] = {row.name: row for row in _ROWS}
ARM64 = ("cpu-g1", "gpu-gb300")
"""Platforms of arm64 (cpu_platform_by_platform of platform.tf at c1e21829), which this program has no clusters of: all
nodes share one jail, and the Job that populates it and login pods run on x86-64 nodes. populate_jail_entrypoint.sh of
nebius/soperator 4.1.7 restores a copy of its own image's architecture."""


def preset_of(machine_type: str) -> Preset:
    """Return the preset of a machine type, PLATFORM/PRESET. Raises KeyError for an unknown platform, StopIteration for
    an unknown preset."""
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
"""Platform and region of the known InfiniBand fabrics. Nebius adds fabrics without notice, so a check with this table
warns and never refuses. Source: docs.nebius.com/compute/clusters/gpu#fabrics; nebius-solutions-library, pull request
1142."""


def fabrics_of(platform: str, region: str) -> list[str]:
    """Return the names of the fabrics that a platform has in a region."""
    return [name for name, place in FABRICS.items() if place == (platform, region)]


REPLICATED_STEP = 93
"""GiB: the size of IO_M3 and non-replicated disks is a multiple of it."""
NEBIUS_DISKS: dict[str, int] = {
    "network-ssd": 1,
    "network-ssd-non-replicated": REPLICATED_STEP,
    "network-ssd-io-m3": REPLICATED_STEP,
}
"""GiB of which sizes are multiples, by disk type. The names are those of StorageClasses and stack files; Nebius's API
has NETWORK_SSD for network-ssd."""


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
        """The amounts as charts' values have them: cpu in m, whole GiB in Gi."""
        sizes = {"memory": self.memory, "ephemeralStorage": self.disk}
        return {
            "cpu": f"{self.cpu}m",
            **{key: f"{size // GIB}Gi" if size % GIB == 0 else f"{size}Mi" for key, size in sizes.items() if size},
        }


MUNGE = Resources(cpu=100, memory=512, disk=5 * GIB)
"""The munge container beside slurmd and slurmctld."""
DAEMON_SETS = Resources(cpu=1000, memory=GIB)
"""Room on every node for pods that every node has: Soperator's rebooter requests 500m and 256 MiB, the collector of
logs 100m and 200 MiB, the DCGM exporter 50m and 512 MiB, and Cilium, the CSI driver and others of Kubernetes the rest
of the CPUs. With less, one of these stays Pending, and the release that waits for it fails after 20 minutes. The recipe
has about the same: it takes whole CPUs, 14 of 15 of a controller (soperator/modules/slurm/main.tf). Jobs have all CPUs
of a worker, because Slurm's number of them is the machine's."""
DAEMON_CPU = 50
"""Milli-CPUs of OpenKruise's daemon on each node."""
DAEMON_MEMORY = 131
"""MiB of OpenKruise's daemon: 128 MB rounded up."""


def allocatable(vcpus: int, memory_gib: int, disk_gib: int = 0) -> Resources:
    """Return the resources for pods of a node: all but 1 vCPU, 95 % of the memory less 2 GiB, 85 % of the boot disk
    less 48 GiB; memory and disk in whole GiB."""
    return Resources(
        cpu=max(0, vcpus - 1) * 1000,
        memory=max(0, (memory_gib * 95 - 200) // 100) * GIB,
        disk=max(0, (disk_gib * 85 - 4800) // 100) * GIB,
    )


def slurmd_resources(node: Resources) -> Resources:
    """Return the resources of slurmd's container, in whole GiB: the node's jobs run in it, so its memory is
    RealMemory."""
    cpu = (node.cpu - DAEMON_SETS.cpu - MUNGE.cpu) // 1000 * 1000 - DAEMON_CPU
    memory = (node.memory - MUNGE.memory) // GIB * GIB - DAEMON_MEMORY
    return Resources(
        cpu=max(0, cpu), memory=max(0, memory) // GIB * GIB, disk=max(0, node.disk - (MUNGE.disk if node.disk else 0))
    )
