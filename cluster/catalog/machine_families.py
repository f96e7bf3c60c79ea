"""Families of machine types: the properties that all sizes of a family have in common.

Source: the pages that each row names.

A family's name is the beginning of its types' names: `n2` of n2-standard-8, and `a3-megagpu` of a3-megagpu-8g, since A3
machines have only their CPUs in common. On Nebius it is the platform: `cpu-d3` of cpu-d3/8vcpu-32gb.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cluster.catalog import fabrics
from cluster.catalog.fabrics import Fabric
from cluster.catalog.nebius_machine_types import PLATFORMS, SOURCE, NebiusComputePlatform
from cluster.catalog.storage import GBIT, Limit

# Zones with GPUs. Google adds zones from time to time. Add a zone to a row if `gcloud compute machine-types list
# --zones ZONE` (A3 Mega) or `gcloud compute accelerator-types list --filter zone:ZONE` (attached GPUs) lists them.
# Source: zones for which Google has a price, skypilot-catalog, catalogs/v8/gcp/vms.csv at 006059e0f18a. Google's own
# page is cloud.google.com/compute/docs/gpus/gpu-regions-zones.
A3_MEGA_ZONES = tuple(
    """
    asia-east1-c asia-northeast1-b asia-southeast1-b asia-southeast1-c australia-southeast1-c europe-north1-c
    europe-west1-b europe-west1-c europe-west3-c europe-west4-b europe-west4-c us-central1-a us-central1-b
    us-central1-c us-east4-a us-east4-b us-east4-c us-east5-a us-west1-a us-west1-b us-west4-a
    """.split()
)
T4_ZONES = tuple(
    """
    asia-east1-a asia-east1-c asia-east2-a asia-east2-c asia-northeast1-a asia-northeast1-c asia-northeast3-b
    asia-northeast3-c asia-south1-a asia-south1-b asia-southeast1-a asia-southeast1-b asia-southeast1-c
    asia-southeast2-a asia-southeast2-b australia-southeast1-a australia-southeast1-c europe-central2-b
    europe-central2-c europe-west1-b europe-west1-c europe-west1-d europe-west2-a europe-west2-b europe-west3-b
    europe-west4-a europe-west4-b europe-west4-c me-west1-b me-west1-c northamerica-northeast1-c
    southamerica-east1-a southamerica-east1-b southamerica-east1-c us-central1-a us-central1-b us-central1-c
    us-central1-f us-east1-b us-east1-c us-east1-d us-east4-a us-east4-b us-east4-c us-west1-a us-west1-b us-west2-b
    us-west2-c us-west3-b us-west4-a us-west4-b
    """.split()
)
P4_ZONES = tuple(
    """
    asia-southeast1-a asia-southeast1-b asia-southeast1-c australia-southeast1-a australia-southeast1-b
    europe-west4-b europe-west4-c northamerica-northeast1-a northamerica-northeast1-b northamerica-northeast1-c
    us-central1-a us-central1-c us-east4-a us-east4-b us-east4-c us-west2-b us-west2-c
    """.split()
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Family:
    """A row of the catalog; compared by identity."""

    name: str
    platform: str = "gcp"
    fabric: Fabric = fabrics.NONE
    """The network of the GPUs of its machines, with their NICs."""
    local_ssds: int = 0
    """Local NVMe disks of 375 GiB that come with each machine."""
    gpus: tuple[str, ...] = ()
    """GPU types that a nodeset may attach with `gpus:`."""
    zones: tuple[str, ...] = ()
    """Zones that have it; empty if unknown."""
    disks: Mapping[str, int] = field(default_factory=dict)
    """Disk types that it takes, each with the least vCPUs that a machine needs for that."""
    egress: tuple[Limit, ...] = ()
    """MB/s that a machine sends at most."""
    compact_placement: bool = True
    """True if a placement policy can keep its machines close to each other."""
    calendar: bool = False
    """True if future reservations in calendar mode have it."""
    reservation_bound: bool = False
    """True if every reservation of it comes of a future reservation, with which its machines end
    (cloud.google.com/compute/docs/instances/about-reservation-bound-instances)."""
    flex: bool = False
    """True if flex start gives it: accelerator-optimized machines but A4X and G4, and H4D
    (cloud.google.com/compute/docs/instances/about-flex-start-vms)."""
    flex_placement: bool = False
    """True if a workload policy can keep machines of flex start close to each other: A3 Ultra, A4 and H4D
    (GoogleCloudPlatform/cluster-toolkit, docs/slurm-dws-flex.md)."""
    boot_seconds: int = 900
    """Seconds that a machine may take from the request until its node has joined, its creation included. Source for A3
    and A4: ResumeTimeout in GoogleCloudPlatform/cluster-toolkit v1.95.0, examples/machine-learning. For others that has
    300, with GPUs 600 (docs/gpu-support.md), on images with all software; ours may install it at boot."""
    builds_images: bool = True
    """True if NVIDIA's open driver installs on it without a GPU, as it must where an image is baked."""
    source: str


def _nebius_fabric(platform: NebiusComputePlatform) -> Fabric:
    if not any(preset.clusterable for preset in platform.presets):
        return fabrics.NONE_IN_PODS
    return fabrics.INFINIBAND_XDR if platform.name == "gpu-b300-sxm" else fabrics.INFINIBAND


_DOCS = "cloud.google.com/compute/docs"
_ACCELERATED = f"{_DOCS}/accelerator-optimized-machines, {_DOCS}/gpus/gpu-network-bandwidth"
_PERSISTENT = {"pd-standard": 1, "pd-balanced": 1, "pd-ssd": 1}
_A3_DISKS = {"pd-balanced": 1, "pd-ssd": 1, "hyperdisk-balanced": 1, "hyperdisk-extreme": 1, "hyperdisk-throughput": 1}
_HYPERDISKS = {"hyperdisk-balanced": 1, "hyperdisk-extreme": 1}
"""A3 Ultra and A4 take no persistent disks."""

# Egress: default tier, not Tier_1. Placement: instances/placement-policies-overview. Calendar mode: instances/
# future-reservations-calendar-mode.
# fmt: off
_ROWS = (
    Family(
        name="local", platform="local", gpus=("standin",),
        source="ours: claims that Slurm schedules by; the host's memory and cores are shared by all its machines"),
    Family(
        name="a3-highgpu", fabric=fabrics.TCPX, local_ssds=16, disks=_A3_DISKS,
        egress=(Limit(cpus=1, mbps=200 * GBIT),), calendar=True, flex=True, source=_ACCELERATED),
    Family(
        name="a3-megagpu",
        fabric=fabrics.TCPXO,
        local_ssds=16,
        zones=A3_MEGA_ZONES,
        disks=_A3_DISKS,
        egress=(Limit(cpus=1, mbps=200 * GBIT),),
        calendar=True,
        flex=True,
        source=_ACCELERATED,
    ),
    Family(
        name="a3-ultragpu", fabric=fabrics.ROCE, local_ssds=32,
        disks=_HYPERDISKS, egress=(Limit(cpus=1, mbps=400 * GBIT),), calendar=True, reservation_bound=True, flex=True,
        flex_placement=True, boot_seconds=1200, source=_ACCELERATED),
    Family(
        name="a4-highgpu", fabric=fabrics.ROCE, local_ssds=32, disks=_HYPERDISKS,
        egress=(Limit(cpus=1, mbps=400 * GBIT),), calendar=True, reservation_bound=True, flex=True,
        flex_placement=True, boot_seconds=1200, source=_ACCELERATED),
    Family(
        name="c2", disks=_PERSISTENT,
        egress=(Limit(cpus=1, mbps=10 * GBIT), Limit(cpus=8, mbps=16 * GBIT), Limit(cpus=16, mbps=32 * GBIT)),
        source=f"{_DOCS}/compute-optimized-machines"),
    Family(
        name="e2", disks=_PERSISTENT,
        egress=(Limit(cpus=1, mbps=4 * GBIT), Limit(cpus=4, mbps=8 * GBIT), Limit(cpus=8, mbps=16 * GBIT)),
        compact_placement=False, source=f"{_DOCS}/general-purpose-machines"),
    # The open driver does not install on N machines: cluster-toolkit, examples of A3 Mega.
    Family(
        name="n1", gpus=("t4", "v100", "p4", "p100"), disks=_PERSISTENT,
        egress=(
            Limit(cpus=1, mbps=2 * GBIT),
            Limit(cpus=2, mbps=10 * GBIT),
            Limit(cpus=8, mbps=16 * GBIT),
            Limit(cpus=16, mbps=32 * GBIT),
        ),
        compact_placement=False, builds_images=False, source=f"{_DOCS}/general-purpose-machines"),
    Family(
        name="n2", disks={**_PERSISTENT, "pd-extreme": 64, "hyperdisk-extreme": 80, "hyperdisk-throughput": 4},
        egress=(Limit(cpus=1, mbps=10 * GBIT), Limit(cpus=8, mbps=16 * GBIT), Limit(cpus=16, mbps=32 * GBIT)),
        builds_images=False, source=f"{_DOCS}/general-purpose-machines"),
    *(
        Family(
            name=platform.name, platform="nebius",
            fabric=_nebius_fabric(platform), source=SOURCE)
        for platform in PLATFORMS.values()
    ),
)
# fmt: on

FAMILIES: dict[str, Family] = {row.name: row for row in _ROWS}


def family_of(machine_type: str) -> Family:
    """Return the family of a machine type: the one with the longest name that the type's begins with. Raises KeyError
    if there is none."""
    names = [name for name in FAMILIES if machine_type.startswith((f"{name}-", f"{name}/"))]
    return FAMILIES[max(names, key=len)] if names else FAMILIES[machine_type]


_GPU_DOCS = "cloud.google.com/compute/docs/gpus"


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    type: str
    """Slurm's gres type, and the type in the stack file."""
    name: str
    """Accelerator type of Compute Engine."""
    counts: tuple[int, ...]
    """The numbers of them that one machine can have."""
    open_driver: bool
    """True if NVIDIA's open kernel modules support it: GPUs before Turing need the proprietary ones (their README)."""
    zones: tuple[str, ...] = ()
    """Zones that have it; empty if unknown."""
    source: str = _GPU_DOCS


_ACCELERATORS = (
    Accelerator(type="t4", name="nvidia-tesla-t4", counts=(1, 2, 4), open_driver=True, zones=T4_ZONES),
    Accelerator(type="v100", name="nvidia-tesla-v100", counts=(1, 2, 4, 8), open_driver=False),
    Accelerator(type="p4", name="nvidia-tesla-p4", counts=(1, 2, 4), open_driver=False, zones=P4_ZONES),
    Accelerator(type="p100", name="nvidia-tesla-p100", counts=(1, 2, 4), open_driver=False),
)

ACCELERATORS: dict[str, Accelerator] = {row.type: row for row in _ACCELERATORS}
