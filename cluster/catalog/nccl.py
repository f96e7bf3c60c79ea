"""nccl-tests: its version, its container, and reference results. Bandwidths are busbw in GB/s.

nccl-tests computes busbw from the time of a collective, so that it can be compared with the hardware
(github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md). The average that it prints depends on the sizes of the run: on the
same machines, one from 256 B to 8 GiB averages 53.9, and one from 8 MiB to 8 GiB 126.4. So every minimum here has its
sizes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, kw_only=True)
class ContainerImage:
    """An image of a registry."""

    registry: str
    name: str
    tag: str
    source: str

    @property
    def enroot(self) -> str:
        """The image's name for enroot."""
        return f"docker://{self.registry}#{self.name}:{self.tag}"

    @property
    def docker(self) -> str:
        """The image's name for apptainer and Docker."""
        return f"docker://{self.registry}/{self.name}:{self.tag}"

    @property
    def file_name(self) -> str:
        """The imported image's file name without its ending, as enroot forms it."""
        return f"{self.name.replace('/', '+')}+{self.tag}"


@dataclass(frozen=True, kw_only=True)
class NcclTests:
    """A version of nccl-tests."""

    version: str
    commit: str
    url: str
    collectives: tuple[str, ...]
    """Each is a program NAME_perf."""
    source: str


PYTORCH = ContainerImage(
    registry="nvcr.io",
    name="nvidia/pytorch",
    tag="24.04-py3",
    source="cluster-toolkit, examples/machine-learning/a3-megagpu-8g/nccl-tests/import_pytorch_container.sh; 18 GB",
)
NCCL_TESTS = NcclTests(
    version="2.13.11",
    commit="8dfeab9eb9bdfdf13503e71e1f33e7f8a208b540",
    url="https://github.com/NVIDIA/nccl-tests",
    collectives=tuple(
        "all_gather all_reduce alltoall broadcast gather reduce reduce_scatter scatter sendrecv hypercube".split()
    ),
    # The version of the reference measurements of A3 Mega. From 2.16.8 on the warm-up covers more sizes, which changes
    # what small messages measure.
    source="github.com/NVIDIA/nccl-tests, tag v2.13.11 of 2024-10-24, src/Makefile (BIN_FILES_LIST)",
)


MIB, GIB = 2**20, 2**30


@dataclass(frozen=True, kw_only=True)
class Minimum:
    """The minimum of the average busbw of some sizes, out of place and in place, as nccl-tests averages them."""

    low: int
    high: int
    """Smallest and largest size in bytes; one size if both are equal."""
    busbw: float
    source: str

    @property
    def sizes(self) -> frozenset[int]:
        """All sizes, each of which is twice the one before, as in all sources (`-f 2`). A run needs all of them: with
        other factors, small sizes would have another weight in the average."""
        return frozenset(self.low << number for number in range((self.high // self.low).bit_length()))


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A row: results of a collective on a number of nodes of a machine type."""

    machine_type: str
    collective: str
    nodes: int
    network_only: bool = False
    """True with NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1, which sends the traffic of NVLink through the NICs."""
    busbw: Mapping[int, float] = field(default_factory=dict)
    """A measured curve: busbw out of place by size in bytes."""
    curve_source: str = ""
    minimums: tuple[Minimum, ...] = ()
    inactive: float = 0.0
    """The average busbw of the curve's sizes below which the network of the GPUs is not in use; 0 if unknown."""

    @property
    def average(self) -> float:
        """The average of the curve, out of place only."""
        return sum(self.busbw.values()) / len(self.busbw) if self.busbw else 0.0


_GUIDE = "guide of A3 Mega with Lustre, section 4, 2 x a3-megagpu-8g, all_gather_perf -b 8M -e 8G -f 2 -g 1"
_TOOLKIT = "github.com/GoogleCloudPlatform/cluster-toolkit, v1.95.0"
_SCANNER = "github.com/GoogleCloudPlatform/cluster-health-scanner, 81c525d"
_AZURE = "github.com/Azure/azurehpc-health-checks, conf"
_NEBIUS = "github.com/nebius/nebius-solutions-library, 0616445, soperator"


def _curve(first: int, *values: float) -> dict[int, float]:
    """Return a curve whose sizes double from `first` bytes on."""
    return {first << number: value for number, value in enumerate(values)}


def _scanner(machine_type: str, chart: str, busbw: float) -> Minimum:
    """Return the minimum of the Cluster Health Scanner's pairwise test, from 2 GiB to 8 GiB."""
    source = f"{_SCANNER}, nccl_healthcheck/{chart}.yaml: BANDWIDTH_THRESHOLD of {machine_type}"
    return Minimum(low=2 * GIB, high=8 * GIB, busbw=busbw, source=source)


# fmt: off
_ROWS = (
    Reference(
        machine_type="a3-megagpu-8g", collective="all_gather", nodes=2,
        busbw=_curve(
            8 * MIB, 22.52, 39.24, 70.85, 86.62, 112.26, 142.56, 175.01, 181.72, 185.34, 187.19, 188.23),
        curve_source=_GUIDE,
        minimums=(
            # Also what the scanner's cluster-validation.sh requires of the same test on Slurm.
            Minimum(low=8 * MIB, high=8 * GIB, busbw=100, source=f"80 % of the average of the {_GUIDE}"),
            Minimum(low=8 * GIB, high=8 * GIB, busbw=170, source=f"90 % of the {_GUIDE}"),
            _scanner("a3-megagpu-8g", "a3plus", 150),
        ),
        # A fallback to TCP is an order of magnitude lower. (Google's own test of the blueprint only requires 30.)
        inactive=80,
    ),
    Reference(
        machine_type="a3-highgpu-8g", collective="all_gather", nodes=2,
        busbw=_curve(MIB, 0.99, 1.99, 4.17, 7.81, 14.79, 28.18, 47.14, 64.83, 69.44, 70.90),
        curve_source=f"{_TOOLKIT}, examples/gke-a3-highgpu/multi-node-test-plan.md",
        minimums=(_scanner("a3-highgpu-8g", "a3", 60),),
    ),
    Reference(
        machine_type="a3-ultragpu-8g", collective="all_gather", nodes=2,
        busbw=_curve(
            MIB, 12.33, 25.07, 47.26, 83.35, 128.02, 170.80, 213.51, 254.00, 286.80, 316.60, 324.13, 326.74, 327.22,
            328.85),
        curve_source=f"{_TOOLKIT}, examples/gke-consumption-options/dws-flex-start/README.md",
        minimums=(_scanner("a3-ultragpu-8g", "a3ultra", 250),),
    ),
    Reference(
        machine_type="a4-highgpu-8g", collective="all_gather", nodes=2,
        minimums=(_scanner("a4-highgpu-8g", "a4", 250),),
    ),
    Reference(
        machine_type="gpu-h100-sxm/8gpu-128vcpu-1600gb", collective="all_reduce", nodes=1,
        minimums=(
            Minimum(
                low=512 * MIB, high=8 * GIB, busbw=420,
                source=f"{_NEBIUS}/installations/example/terraform.tfvars: nccl_benchmark_min_threshold"),
        ),
    ),
    Reference(
        machine_type="gpu-h100-sxm/8gpu-128vcpu-1600gb", collective="all_reduce", nodes=1, network_only=True,
        minimums=(
            Minimum(
                low=512 * MIB, high=8 * GIB, busbw=45,
                source=f"{_NEBIUS}/modules/slurm/variables.tf: nccl_benchmark_min_threshold with InfiniBand"),
        ),
    ),
    Reference(
        machine_type="Standard_ND96isr_H100_v5", collective="all_reduce", nodes=1,
        minimums=(Minimum(low=16 * GIB, high=16 * GIB, busbw=460, source=f"{_AZURE}/nd96isr_h100_v5.conf"),),
    ),
    Reference(
        machine_type="Standard_ND96isr_H200_v5", collective="all_reduce", nodes=1,
        minimums=(Minimum(low=16 * GIB, high=16 * GIB, busbw=431, source=f"{_AZURE}/nd96isr_h200_v5.conf"),),
    ),
)
# fmt: on

REFERENCES: dict[tuple[str, str, int, bool], Reference] = {
    (row.machine_type, row.collective, row.nodes, row.network_only): row for row in _ROWS
}


def reference(machine_type: str, collective: str, nodes: int, *, network_only: bool = False) -> Reference | None:
    """Return the row; None if there is none with a source."""
    return REFERENCES.get((machine_type, collective, nodes, network_only))


def references_of(machine_type: str) -> tuple[Reference, ...]:
    """Return all rows of a machine type."""
    return tuple(row for row in REFERENCES.values() if row.machine_type == machine_type)


class Nvlinks(NamedTuple):
    """The NVLinks of each GPU."""

    count: int
    gbps: float
    """Speed of each link in one direction in GB/s, as `nvidia-smi nvlink --status` prints it."""


NVLINKS: Mapping[tuple[str, int], Nvlinks] = {
    ("h100", 8): Nvlinks(18, 26.562),
    ("h200", 8): Nvlinks(18, 26.562),
    ("b200", 8): Nvlinks(18, 53.125),
}
"""Links by GPU and their number in a machine, on boards whose NVSwitches use all of them. Others have links that are
inactive by design (Azure/azurehpc-health-checks, issue 162), or none. Sources: nvidia.com, NVLink (generations 4 and
5); aws-samples/awsome-distributed-ai, pull request 112 (18 links of H100); stas00/ml-engineering, its page on
debugging of NVIDIA GPUs (26.562 GB/s on H100); NVIDIA/k8s-test-infra, issue 371 (53.125 GB/s on NVLink 5)."""

SAME_BASEBOARD: Mapping[str, str] = {"a3-megagpu-8g": "gpu-h100-sxm/8gpu-128vcpu-1600gb"}
"""Machine types whose GPUs are on a baseboard of which another type has a reference: HGX H100 with eight GPUs."""
COLLECTIVE = "all_reduce"
"""The collective by which single nodes are measured (ours): it has the most traffic on NVLink."""
PAIR_COLLECTIVE, PAIR_SMALLEST, PAIR_LARGEST = "all_gather", "2G", "8G"
"""The measurement of pairs of nodes: the one for which the references of two nodes have a minimum. Source:
GoogleCloudPlatform/cluster-health-scanner, its pairwise test. all_reduce does not show the NICs between nodes
(cluster/report/nccl_run.py, shows_nics)."""


def default_collective(nodes: int) -> str:
    """Return the collective that is measured on that number of nodes: inside a node, else between nodes."""
    return COLLECTIVE if nodes == 1 else PAIR_COLLECTIVE


def min_pair_busbw(machine_type: str) -> int:
    """Return the least bus bandwidth in GB/s of two healthy nodes, averaged over 2 to 8 GiB; 0 without a reference."""
    row = REFERENCES.get((machine_type, PAIR_COLLECTIVE, 2, False))
    minimums = row.minimums if row else ()
    return int(min((m.busbw for m in minimums if (m.low, m.high) == (2 * GIB, 8 * GIB)), default=0))


def min_busbw(machine_type: str) -> int:
    """Return the least bus bandwidth in GB/s of COLLECTIVE on one healthy node; 0 if no reference has it."""
    for name in (machine_type, SAME_BASEBOARD.get(machine_type, "")):
        row = REFERENCES.get((name, COLLECTIVE, 1, False))
        if row and row.minimums:
            return int(min(minimum.busbw for minimum in row.minimums))
    return 0
