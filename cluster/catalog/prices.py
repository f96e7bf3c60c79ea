"""List prices of clouds by region, in USD: prices.csv, whose rows have a date and a key of SOURCES.

A row is an item in one way of buying it. An empty field is a price that the source does not have, and it stays unknown.
Machine types are rows of their own, or rows of their family by the vCPU or by the GPU, where a family's prices are
proportional to these. None includes local SSDs, sustained use discounts or taxes. Not here, because no source gives
one price for them: A4 on demand outside us-central1, V100, hyperdisks and pd-extreme (whose provisioned rates cost as
well), Filestore, Managed Lustre outside us-central1, EXAScaler's license, B300, RTX PRO 6000, preemptible nodes and
public addresses of Nebius.
"""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from pathlib import Path

from cluster.catalog.machine_types import MACHINE_TYPES

FILE = Path(__file__).with_name("prices.csv")
HOURS = 730
"""Hours of a month: Nebius states prices for "1 GiB per 730 hours" (docs.nebius.com/object-storage/resources/pricing),
and the months of pricing.yml, of Google's prices, have as many (0.05 an hour, 36.5 a month)."""
OLD_DAYS = 180
"""Days after which a row is called old (ours): Nebius's price of an H100 rose by half within a year."""
EVERYWHERE = "all"
"""The column of a price that does not depend on the region."""

GOOGLE_LIST = "Google's list, as your project saw it"
"""The source of prices that `./hpc check cloud` has read."""
OWN = "stack file"
"""The source of a rate in `pricing.rates`."""
SOURCES: Mapping[str, str] = {
    "calculator": "Cyclenerd/google-cloud-pricing-cost-calculator, pricing.yml at dac31281f2a4; A3 Mega as A3 High",
    "skypilot": "skypilot-org/skypilot-catalog, catalogs/v8/gcp/vms.csv at 006059e0f18a, but for flex start; A3 Mega "
    "is its machine, as A3 High, and H100-MEGA together, A4 its B200, which are slices of the machine",
    "slice-sku": "SKU `A4 Nvidia B200 (1 gpu slice) running in Americas`, 16.11, as a public program quotes it",
    "skypilot-nebius": "skypilot-org/skypilot-catalog, catalogs/v8/nebius/vms.csv at 0082b0435f39",
    "billing-catalog": "tanod/cloud-gpu-list-prices on Hugging Face, from Google's Billing Catalog API",
    "pricing-export": "SKUs `Managed Lustre Capacity N-Perf Iowa` of Google's export, as a public program quotes it",
    "nat-page": "cloud.google.com/nat/pricing",
    "nebius-compute": "docs.nebius.com/compute/resources/pricing, as quoted: 0.012 for a vCPU, 0.0032 for a GiB",
    "nebius-prices": "nebius.com/prices, column effective October 1, 2026, which gives no region",
    "nebius-console": "Nebius's console, in force since then or earlier, as a public program stores it",
}


@dataclass(frozen=True, kw_only=True)
class Price:
    """The price of one unit: in USD, but in an estimate in the stack's currency."""

    value: float
    unit: str
    """`machine hour`, `GB month` and the like."""
    dated: date | None
    """None for a rate of the stack file."""
    source: str
    """A key of SOURCES, GOOGLE_LIST, or OWN."""

    @property
    def hourly(self) -> float:
        """The price of a unit for one hour."""
        return self.value / HOURS if self.unit.endswith(" month") else self.value


@dataclass(frozen=True, kw_only=True)
class PriceRow:
    """A row of the file, with USD by region."""

    platform: str
    item: str
    way: str
    """on_demand or spot."""
    unit: str
    dated: date
    source: str
    regions: Mapping[str, float]


@cache
def rows() -> tuple[PriceRow, ...]:
    """Return the rows of the file, in its order."""
    named = ("platform", "item", "way", "unit", "source")
    with FILE.open(encoding="utf-8", newline="") as lines:
        return tuple(
            PriceRow(
                **{name: row[name] for name in named},
                dated=date.fromisoformat(row["date"]),
                regions={name: float(usd) for name, usd in row.items() if usd and name not in (*named, "date")},
            )
            for row in csv.DictReader(lines)
        )


def price(
    platform: str, region: str, item: str, way: str = "on_demand", *, kept: Sequence[PriceRow] = ()
) -> Price | None:
    """Return the list price of an item in a region; None if no source has it.

    The item is a machine type, or another item of the file. A machine's price is that of one machine an hour, with the
    GPUs that are part of its type, and without local SSDs and disks. Rows that are `kept` count above those of the
    file, unless these are newer.
    """
    key = (platform, row_item(platform, item), way)
    listed = [
        Price(value=usd, unit=row.unit, dated=row.dated, source=row.source)
        for row in (*kept, *rows())
        if (row.platform, row.item, row.way) == key
        and (usd := row.regions.get(region, row.regions.get(EVERYWHERE))) is not None
    ]
    found, kind = max(listed, key=lambda price: price.dated or date.min, default=None), MACHINE_TYPES.get(item)
    if found is None or kind is None:
        return found
    count = {"machine hour": 1, "vCPU hour": kind.cpus, "GPU hour": kind.gpu.count if kind.gpu else 0}[found.unit]
    return replace(found, value=found.value * count, unit="machine hour")


def unit(platform: str, item: str, usual: str = "") -> str:
    """Return the unit of an item's price in any region; the usual one if no row has one."""
    units = (row.unit for row in rows() if (row.platform, row.item) == (platform, item))
    return "machine hour" if item in MACHINE_TYPES else next(units, usual)


def row_item(platform: str, item: str) -> str:
    """Return the item whose rows have the price of an item: of a machine type without rows, its family."""
    has_rows = any((row.platform, row.item) == (platform, item) for row in rows())
    return item if has_rows or item not in MACHINE_TYPES else re.split(r"/|-(?=\d+$)", item)[0]
