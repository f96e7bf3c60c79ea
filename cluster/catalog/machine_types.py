"""Machine types: sizes that slurm.conf must have before a machine has booted for the first time.

Slurm drains a node that reports less than slurm.conf has. So the memory is the least that the kernel reports (`free
-m`), and not the size that is sold.
"""

import math
from dataclasses import dataclass

from cluster.catalog import nebius_machine_types as presets
from cluster.catalog.fabrics import LineRate
from cluster.catalog.machine_families import Family, family_of
from cluster.catalog.storage import limit


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """GPUs of one kind in a machine."""

    type: str
    """Slurm's gres type, as in `--gpus=h100:8`."""
    count: int


@dataclass(frozen=True, kw_only=True)
class MachineType:
    """A row of the catalog: one size of a family, whose row has the rest."""

    name: str
    family: Family
    sockets: int
    cores_per_socket: int
    threads_per_core: int
    memory_mib: int
    real_memory: int
    """MiB for jobs: RealMemory in slurm.conf."""
    gpu: Gpu | None = None
    line_rate: LineRate | None = None
    """The rate of the NICs of its GPUs' fabric; None without a fabric."""
    source: str

    @property
    def cpus(self) -> int:
        """Logical processors, hardware threads included."""
        return self.sockets * self.cores_per_socket * self.threads_per_core

    @property
    def platform(self) -> str:
        return self.family.platform

    @property
    def egress_mbps(self) -> int:
        """Most MB/s that it sends."""
        return limit(self.family.egress, self.cpus)

    def takes(self, disk_type: str) -> bool:
        """Return whether a disk of that type can be attached."""
        return self.cpus >= self.family.disks.get(disk_type, math.inf)


GCP_DOCS = "cloud.google.com/compute/docs"


def gcp_real_memory(memory_mib: int) -> int:
    """Return the least MiB that a Compute Engine machine of `memory_mib` reports.

    Kernel and firmware use up to 400 MiB plus 30 MiB per GiB: the formula of slurm-gcp (scripts/conf.py). Measurements
    agree: `free -m` shows 15990 of 16384 on e2-standard-4 (formula 15504) and 3661 of 3840 on n1-standard-1 (formula
    3328).
    """
    return memory_mib - (400 + 30 * memory_mib // 1024)


_Topology = tuple[int, int, int]
"""Sockets, cores per socket, threads per core."""


def _row(
    name: str,
    topology: _Topology,
    memory_mib: int,
    real_memory: int,
    *,
    gpu: Gpu | None,
    source: str,
    has_fabric: bool = True,
) -> MachineType:
    sockets, cores, threads = topology
    return MachineType(
        name=name,
        family=family_of(name),
        sockets=sockets,
        cores_per_socket=cores,
        threads_per_core=threads,
        memory_mib=memory_mib,
        real_memory=real_memory,
        gpu=gpu,
        line_rate=family_of(name).fabric.line_rate(gpu.count) if gpu and has_fabric else None,
        source=source,
    )


def _gcp(name: str, topology: _Topology, memory_mib: int, *, gpu: Gpu | None = None, source: str) -> MachineType:
    return _row(name, topology, memory_mib, gcp_real_memory(memory_mib), gpu=gpu, source=f"{GCP_DOCS}/{source}")


def _local(name: str, *, cores: int, memory_mib: int, gpu: Gpu | None = None) -> MachineType:
    return _row(name, (1, cores, 1), memory_mib, memory_mib, gpu=gpu, source=family_of(name).source)


def _nebius(platform: presets.NebiusComputePlatform, preset: presets.Preset) -> MachineType:
    """Return the row of a preset. RealMemory is the memory of slurmd's container, as in Soperator
    (internal/render/common). Only presets with all GPUs of a host can join a GPU cluster."""
    memory = presets.slurmd_resources(presets.allocatable(preset.vcpus, preset.memory_gib)).memory
    gpu = Gpu(type=platform.gpu, count=preset.gpus) if preset.gpus else None
    name, memory_mib = f"{platform.name}/{preset.name}", preset.memory_gib * 1024
    source, has_fabric = presets.SOURCE, preset.clusterable
    return _row(name, preset.topology, memory_mib, memory, gpu=gpu, source=source, has_fabric=has_fabric)


# fmt: off
_ROWS = (
    # Rehearsal. Stand-in GPUs are device nodes that Slurm counts and confines; nothing can compute on them.
    _local("local-1c", cores=1, memory_mib=1024),
    _local("local-2c", cores=2, memory_mib=2048),
    _local("local-4c", cores=4, memory_mib=4096),
    _local("local-2c-2gpu", cores=2, memory_mib=2048, gpu=Gpu(type="standin", count=2)),
    _local("local-2c-8gpu", cores=2, memory_mib=2048, gpu=Gpu(type="standin", count=8)),
    # Compute Engine.
    _gcp(
        "a3-megagpu-8g", (2, 52, 2), 1872 * 1024, gpu=Gpu(type="h100", count=8),
        source="accelerator-optimized-machines#a3-mega-vms"),
    _gcp("c2-standard-4", (1, 2, 2), 16 * 1024, source="compute-optimized-machines#c2_machine_types"),
    _gcp("c2-standard-8", (1, 4, 2), 32 * 1024, source="compute-optimized-machines#c2_machine_types"),
    _gcp("c2-standard-16", (1, 8, 2), 64 * 1024, source="compute-optimized-machines#c2_machine_types"),
    _gcp("c2-standard-30", (1, 15, 2), 120 * 1024, source="compute-optimized-machines#c2_machine_types"),
    _gcp("c2-standard-60", (2, 15, 2), 240 * 1024, source="compute-optimized-machines#c2_machine_types"),
    _gcp("e2-standard-2", (1, 1, 2), 8 * 1024, source="general-purpose-machines#e2-standard"),
    _gcp("e2-standard-4", (1, 2, 2), 16 * 1024, source="general-purpose-machines#e2-standard"),
    _gcp("e2-standard-8", (1, 4, 2), 32 * 1024, source="general-purpose-machines#e2-standard"),
    _gcp("n2-standard-2", (1, 1, 2), 8 * 1024, source="general-purpose-machines#n2-standard"),
    _gcp("n2-standard-4", (1, 2, 2), 16 * 1024, source="general-purpose-machines#n2-standard"),
    _gcp("n2-standard-8", (1, 4, 2), 32 * 1024, source="general-purpose-machines#n2-standard"),
    _gcp("n2-standard-16", (1, 8, 2), 64 * 1024, source="general-purpose-machines#n2-standard"),
    _gcp("n2-standard-32", (1, 16, 2), 128 * 1024, source="general-purpose-machines#n2-standard"),
    _gcp("n2-standard-48", (1, 24, 2), 192 * 1024, source="general-purpose-machines#n2-standard"),
    _gcp("n2-standard-64", (2, 16, 2), 256 * 1024, source="general-purpose-machines#n2-standard"),
    _gcp("n2-standard-80", (2, 20, 2), 320 * 1024, source="general-purpose-machines#n2-standard"),
    # A single vCPU is one hardware thread, so Slurm sees one core with one thread, as `lscpu` shows there.
    _gcp("n1-standard-1", (1, 1, 1), 3840, source="general-purpose-machines#n1-standard"),
    _gcp("n1-standard-4", (1, 2, 2), 15 * 1024, source="general-purpose-machines#n1-standard"),
    # Known for what it is, though no cluster on Google Cloud can have it (fabrics.py: set_up).
    _gcp(
        "a3-highgpu-8g", (2, 52, 2), 1872 * 1024, gpu=Gpu(type="h100", count=8),
        source="accelerator-optimized-machines#a3-high-vms"),
    _gcp(
        "a3-ultragpu-8g", (2, 56, 2), 2952 * 1024, gpu=Gpu(type="h200", count=8),
        source="accelerator-optimized-machines#a3-ultra-vms"),
    _gcp(
        "a4-highgpu-8g", (2, 56, 2), 3968 * 1024, gpu=Gpu(type="b200", count=8),
        source="accelerator-optimized-machines#a4-vms"),
    # Nebius: PLATFORM/PRESET.
    *(_nebius(platform, preset) for platform in presets.PLATFORMS.values() for preset in platform.presets),
)
# fmt: on

MACHINE_TYPES: dict[str, MachineType] = {row.name: row for row in _ROWS}
ARM64 = presets.ARM64
"""Families of arm64 machines: known, and refused."""
