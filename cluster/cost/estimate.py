"""The price of a configuration, row by row: list prices of the catalog, below the stack file's own rates."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any, NamedTuple

from cluster import platform_interface
from cluster.catalog import MACHINE_TYPES, prices
from cluster.catalog.prices import HOURS, OLD_DAYS, OWN, Price, PriceRow
from cluster.config.cluster import ClusterConfig
from cluster.config.pricing import Pricing
from cluster.cost_parts import WAYS, Group, Part

UNITS: Mapping[Group, str] = {
    "machines": "GPU hour", "storage": "GB month", "network": "hour", "license": "machine hour",
}  # fmt: skip
"""Units of rates of the stack file for items that the catalog has no price of, such as other GPUs and disks."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A part with its rate; None if that is unknown."""

    part: Part
    rate: Price | None

    @property
    def hour(self) -> float | None:
        return None if self.rate is None else self.part.count * self.rate.hourly

    @property
    def month(self) -> float | None:
        return None if self.hour is None else self.hour * HOURS


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The price of a cluster."""

    region: str
    currency: str
    rows: tuple[Row, ...]

    @property
    def always(self) -> float:
        """An hour of all that exists without jobs, as far as prices are known."""
        return _hours(row for row in self.rows if not row.part.elastic)

    @property
    def most(self) -> float:
        """An hour with all elastic nodes, as far as prices are known."""
        return _hours(self.rows)

    @property
    def storage(self) -> float:
        """A month of the storage that exists without jobs."""
        return HOURS * _hours(row for row in self.rows if row.part.group == "storage" and not row.part.elastic)

    @property
    def protected(self) -> float:
        """A month of the parts that `destroy` does not delete."""
        return HOURS * _hours(row for row in self.rows if row.part.protected)

    @property
    def unknown(self) -> tuple[Part, ...]:
        """The parts without a known price, which no sum includes."""
        return tuple(row.part for row in self.rows if row.rate is None)

    def old(self, today: date) -> tuple[Row, ...]:
        """Return the rows whose list price is older than OLD_DAYS."""
        oldest = today - timedelta(days=OLD_DAYS)
        return tuple(row for row in self.rows if row.rate and row.rate.dated and row.rate.dated < oldest)

    def node_hour(self, nodeset: str, *, elastic: bool = False, partly: bool = False) -> float | None:
        """Return the price of one node and hour, with its GPUs, local SSDs and disks; None if a price of these is
        unknown (`partly`: the sum of the others), or the nodeset has no such nodes."""
        own = [row for row in self.rows if row.part.nodeset == nodeset and row.part.elastic == elastic]
        nodes = sum(row.part.count for row in own if row.part.item in MACHINE_TYPES)
        return _hours(own) / nodes if nodes and (partly or all(row.rate for row in own)) else None

    def document(self) -> dict[str, Any]:
        """Return the estimate for programs."""
        return {
            "region": self.region,
            "currency": self.currency,
            "hours_of_a_month": HOURS,
            "always": _both(self.always),
            "most": _both(self.most),
            "storage_month": round(self.storage, 2),
            "protected_month": round(self.protected, 2),
            "unknown": [part.item for part in self.unknown],
            "rows": [_document(row) for row in self.rows],
        }


def _hours(rows: Iterable[Row]) -> float:
    return sum(row.hour for row in rows if row.hour is not None)


def _both(hour: float) -> dict[str, float]:
    return {"hour": round(hour, 4), "month": round(hour * HOURS, 2)}


def _document(row: Row) -> dict[str, Any]:
    part, rate = row.part, row.rate
    return {
        "part": part.what,
        "item": part.item,
        "count": part.count,
        "group": part.group,
        "elastic": part.elastic,
        "protected": part.protected,
        "rate": rate and round(rate.value, 6),
        "unit": rate and rate.unit,
        "date": rate and rate.dated and rate.dated.isoformat(),
        "source": rate and rate.source,
        **({"hour": None, "month": None} if row.hour is None else _both(row.hour)),
    }


def estimate(config: ClusterConfig, kept: Sequence[PriceRow] = ()) -> Estimate:
    """Return the price of a cluster; without rows on a platform that costs nothing. `kept` has prices that a cloud's
    list had: they are only for what people read, since other hosts do not have them."""
    platform, pricing = platform_interface.get(config.platform), config.pricing or Pricing()
    region = platform.region(config)
    counts: dict[Part, float] = {}
    for part in platform.cost_parts(config):
        kind = replace(part, count=0)
        counts[kind] = counts.get(kind, 0) + part.count
    rows = [
        Row(part=replace(part, count=count), rate=_rate(part, platform.name, region, pricing, kept))
        for part, count in counts.items()
        if count
    ]
    return Estimate(region=region, currency=pricing.currency, rows=tuple(rows))


def _rate(part: Part, platform: str, region: str, pricing: Pricing, kept: Sequence[PriceRow]) -> Price | None:
    """Return the rate of a part: that of the stack file, else the list price of its dearest way; None if the list price
    of a way is unknown."""
    listed = [prices.price(platform, region, part.item, WAYS.get(way, way), kept=kept) for way in part.ways]
    known = [price for price in listed if price]
    if part.item in pricing.rates:
        unit = prices.unit(platform, part.item, UNITS[part.group])
        return Price(value=pricing.rates[part.item], unit=unit, dated=None, source=OWN)
    if len(known) < len(listed):
        return None
    factor = pricing.exchange_rate or 1
    rates = [
        replace(price, value=price.value * factor * _committed(part, way, pricing))
        for price, way in zip(known, part.ways, strict=True)
    ]
    return max(rates, key=lambda rate: rate.value)


def _committed(part: Part, way: str, pricing: Pricing) -> float:
    """Return the factor of committed use discounts on a part."""
    committed = pricing.committed_use
    if committed is None or part.group != "machines" or WAYS.get(way, way) != "on_demand":
        return 1
    return 1 - committed.discount_percent / 100 * committed.share_percent / 100


class PriceChange(NamedTuple):
    """A part whose price of a month differs between two estimates: None is unknown, 0 no such part."""

    part: Part
    before: float | None
    after: float | None


def differences(before: Estimate, after: Estimate) -> Sequence[PriceChange]:
    """Return the parts whose monthly price or count differs, those of the second estimate first."""
    old, new = ({row.part.key: row for row in found.rows} for found in (before, after))
    changed = [(row.part, old.get(row.part.key), row) for row in after.rows]
    gone = [(row.part, row, None) for row in before.rows if row.part.key not in new]
    return [
        PriceChange(part, first.month if first else 0, second.month if second else 0)
        for part, first, second in (*changed, *gone)
        if first is None or second is None or (first.month, first.part.count) != (second.month, second.part.count)
    ]
