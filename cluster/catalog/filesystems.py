"""Sizes that file systems run by Google are sold in."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Capacities of one tier."""

    least: int
    most: int
    step: int
    """Capacities are multiples of it."""

    def fit(self, size: int) -> bool:
        """Whether that capacity is sold."""
        return self.least <= size <= self.most and size % self.step == 0

    def nearest(self, size: int) -> int:
        """The next larger capacity that is sold."""
        return max(self.least, min(self.most, -(-size // self.step) * self.step))


MANAGED: Mapping[int, Sizes] = {
    # cloud.google.com/managed-lustre/docs/increase-capacity: GiB by MB/s for each TiB.
    125: Sizes(least=72_000, most=7_632_000, step=72_000),
    250: Sizes(least=36_000, most=3_816_000, step=36_000),
    500: Sizes(least=18_000, most=1_908_000, step=18_000),
    1000: Sizes(least=9_000, most=954_000, step=9_000),
}
"""Managed Lustre, by throughput."""

FILESTORE: Mapping[str, Sizes] = {
    # cloud.google.com/filestore/docs/service-tiers: GiB.
    "BASIC_SSD": Sizes(least=2560, most=65_408, step=1),
    "ZONAL": Sizes(least=1024, most=102_400, step=256),
    "REGIONAL": Sizes(least=1024, most=102_400, step=256),
}
"""Filestore, by tier. Above 10 TiB the two larger tiers grow by 2560."""
