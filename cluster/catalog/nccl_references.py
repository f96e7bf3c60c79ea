"""What nccl-tests should measure, by machine type, collective and number of nodes. Bandwidths are busbw in GB/s.

busbw is what nccl-tests computes from the time of a collective so that it can be compared with the hardware
(github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md). The average that nccl-tests prints depends on the sizes that a run
has: a run from 256 B to 8 GiB averages 53.9 where one from 8 MiB to 8 GiB averages 126.4, on the same machines. So
every minimum here says which sizes it is about.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

MIB, GIB = 2**20, 2**30


@dataclass(frozen=True, kw_only=True)
class Minimum:
    """What the average busbw of sizes has to reach: out-of-place and in-place, as nccl-tests averages."""

    low: int
    high: int
    """Smallest and largest size in bytes. One size where they are the same."""
    busbw: float
    source: str

    @property
    def sizes(self) -> frozenset[int]:
        """Each is twice the one before, as all sources measure (`-f 2`): a run needs all of them. With other steps
        between, small sizes weigh more or less in the average."""
        return frozenset(self.low << number for number in range((self.high // self.low).bit_length()))


@dataclass(frozen=True, kw_only=True)
class Reference:
    """One row: what is known of a collective on so many nodes of a machine type."""

    machine_type: str
    collective: str
    nodes: int
    network_only: bool = False
    """With NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1, which sends what NVLink would carry through the NICs."""
    busbw: Mapping[int, float] = field(default_factory=dict)
    """A measured curve: size in bytes -> busbw out of place."""
    curve_source: str = ""
    minimums: tuple[Minimum, ...] = ()
    inactive: float = 0.0
    """Average busbw of the curve's sizes below which the GPUs' network is not in use; 0 if unknown."""

    @property
    def average(self) -> float:
        """Average of the curve, out of place only."""
        return sum(self.busbw.values()) / len(self.busbw) if self.busbw else 0.0


_GUIDE = "guide of A3 Mega with Lustre, section 4, 2 x a3-megagpu-8g, all_gather_perf -b 8M -e 8G -f 2 -g 1"
_TOOLKIT = "github.com/GoogleCloudPlatform/cluster-toolkit, v1.95.0"
_SCANNER = "github.com/GoogleCloudPlatform/cluster-health-scanner, 81c525d"
_AZURE = "github.com/Azure/azurehpc-health-checks, conf"
_NEBIUS = "github.com/nebius/nebius-solutions-library, 0616445, soperator"


def _curve(first: int, *values: float) -> dict[int, float]:
    """Values of sizes that double from `first` bytes on."""
    return {first << number: value for number, value in enumerate(values)}


def _scanner(machine_type: str, chart: str, busbw: float) -> Minimum:
    """Minimum of the Cluster Health Scanner's pairwise test, from 2 GiB to 8 GiB."""
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
    """The row, or None where nothing with a source is known."""
    return REFERENCES.get((machine_type, collective, nodes, network_only))


def references_of(machine_type: str) -> tuple[Reference, ...]:
    """Every row of a machine type."""
    return tuple(row for row in REFERENCES.values() if row.machine_type == machine_type)
