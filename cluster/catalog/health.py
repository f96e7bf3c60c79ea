"""What health checks expect of machine types, beside their figures in the catalog of machines."""

from collections.abc import Mapping

from cluster.catalog.nccl_references import GIB, REFERENCES

NVLINKS: Mapping[tuple[str, int], int] = {("h100", 8): 18, ("h200", 8): 18, ("b200", 8): 18}
"""Links of each GPU, by GPU and their number in a machine, on boards whose NVSwitches use all of them. Others have
links that are inactive by design (Azure/azurehpc-health-checks, issue 162), or none. Sources: nvidia.com, NVLink
(generations 4 and 5); aws-samples/awsome-distributed-ai, pull request 112 (18 links of H100)."""

SAME_BASEBOARD: Mapping[str, str] = {"a3-megagpu-8g": "gpu-h100-sxm/8gpu-128vcpu-1600gb"}
"""Machine types whose GPUs are on a baseboard of which another type has a reference: HGX H100 with eight GPUs."""
COLLECTIVE = "all_reduce"
"""What idle nodes are measured with, one by one; ours, as it says most of NVLink."""
PAIR_COLLECTIVE, PAIR_SMALLEST, PAIR_LARGEST = "all_gather", "2G", "8G"
"""What pairs of nodes are measured with: what the references of two nodes have a minimum of. Source:
GoogleCloudPlatform/cluster-health-scanner, its pairwise test."""


def min_pair_busbw(machine_type: str) -> int:
    """Bus bandwidth in GB/s that two sound nodes reach at least, on average of 2 to 8 GiB; 0 if no reference has it."""
    row = REFERENCES.get((machine_type, PAIR_COLLECTIVE, 2, False))
    of_sizes = (
        [minimum.busbw for minimum in row.minimums if (minimum.low, minimum.high) == (2 * GIB, 8 * GIB)] if row else []
    )
    return int(min(of_sizes, default=0))


def min_busbw(machine_type: str) -> int:
    """Bus bandwidth in GB/s that COLLECTIVE reaches at least on one sound node; 0 if no reference has it."""
    for name in (machine_type, SAME_BASEBOARD.get(machine_type, "")):
        row = REFERENCES.get((name, COLLECTIVE, 1, False))
        if row and row.minimums:
            return int(min(minimum.busbw for minimum in row.minimums))
    return 0
