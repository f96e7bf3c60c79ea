"""What health checks expect of machine types, beside their figures in the catalog of machines."""

from collections.abc import Mapping

NICS: Mapping[str, tuple[str, ...]] = {
    "a3-megagpu": (
        "enp0s12", "enp6s0", "enp7s0", "enp13s0", "enp14s0", "enp134s0", "enp135s0", "enp141s0", "enp142s0",
    ),
}  # fmt: skip
"""Names of all NICs, by family, the machine's own first. Source: GoogleCloudPlatform/cluster-toolkit, examples of
a3-megagpu-8g, NCCL_FASTRAK_CTRL_DEV and NCCL_FASTRAK_IFNAME; with other names NCCL finds no fabric (its pull request
2763: an image baked without local SSDs renames them)."""

MIN_BUSBW: Mapping[str, int] = {"a3-megagpu-8g": 420}
"""Bus bandwidth in GB/s that all_reduce_perf of 512 MiB to 8 GiB reaches at least on one sound node, by machine type.
Source: nebius-solutions-library, soperator, NCCL benchmark of HGX H100 with eight GPUs over NVLink (threshold 420);
A3 Mega has the same board."""
