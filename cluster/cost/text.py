"""The price of a cluster as text: the end of a preview, and the table of `./hpc cost`."""

from collections.abc import Iterator, Sequence
from datetime import date

from cluster.catalog.prices import HOURS, OLD_DAYS, OWN, SOURCES
from cluster.cost.estimate import Estimate, PriceChange, Row, differences
from cluster.findings import listing

PAGE = "docs/reference/costs.md"
"""The page with the sources."""
HEAD = ("part", "item", "count", "rate", "unit", "an hour", "a month", "date", "source")
RIGHT = frozenset({2, 3, 5, 6})
"""Columns of numbers."""
UNKNOWN = "price unknown"


def money(amount: float | None) -> str:
    """Return an amount with two decimals, or four of one below 0.1."""
    if amount is None:
        return UNKNOWN
    return f"{amount:,.2f}" if amount == 0 or abs(amount) >= 0.1 else f"{amount:,.4f}"


def _rate(value: float) -> str:
    """Return a rate with two decimals, or four of one below 1."""
    return f"{value:,.2f}" if value >= 1 else f"{value:.4f}".rstrip("0")


def table(found: Estimate) -> list[tuple[str, ...]]:
    """Return a line for each part, with a head."""
    return [HEAD, *(_line(row) for row in found.rows)]


def _line(row: Row) -> tuple[str, ...]:
    part, found = row.part, row.rate
    what = part.what + (", elastic, at most" if part.elastic else "") + (", protected" if part.protected else "")
    rate, unit, dated, source = (
        (_rate(found.value), found.unit, str(found.dated or ""), found.source) if found else ("",) * 4
    )
    count = f"{part.count:,.2f}".removesuffix(".00")
    return (what, part.item, count, rate, unit, money(row.hour), money(row.month), dated, source)


def totals(found: Estimate, before: Estimate | None, today: date) -> Iterator[str]:
    """Yield the sums, the parts without a price, old prices, and the difference from an earlier configuration."""
    unknown = " and what is unknown" if found.unknown else ""
    yield (
        f"always on: {_both(found.always)}{unknown}; storage of it {money(found.storage)} a month "
        f"({found.currency}, {found.region}, {HOURS} hours a month)"
    )
    if found.most > found.always or any(part.elastic for part in found.unknown):
        yield f"at most, with all elastic nodes: {_both(found.most)}{unknown}"
    if any(row.part.protected for row in found.rows):
        kept = [money(found.protected) + " a month", *dict.fromkeys(p.item for p in found.unknown if p.protected)]
        yield f"protected, and goes on costing after `destroy`: {' and '.join(kept)}"
    if items := list(dict.fromkeys(part.item for part in found.unknown)):
        yield f"{UNKNOWN}, in no sum: {listing(items)}; your own is a number in `pricing.rates`"
    if old := found.old(today):
        oldest = min(row.rate.dated for row in old if row.rate and row.rate.dated)
        yield (
            f"list prices of more than {OLD_DAYS} days ago, the oldest of {oldest}: "
            f"{listing(dict.fromkeys(row.part.item for row in old))}; compare them with your provider's"
        )
    if before is not None and before.currency != found.currency:
        yield f"this edit: prices were in {before.currency}, and are not compared"
    elif before is not None and (changes := differences(before, found)):
        gap = " and what is unknown" if any(None in (change.before, change.after) for change in changes) else ""
        yield f"this edit: {_change(before, found)}{gap}"
        yield from (f"  {text}" for text in map(_changed, changes))
    yield f"Not included: traffic, buckets, logs, taxes, sustained use discounts. Sources: {PAGE}"


def _both(hour: float) -> str:
    return f"{money(hour)} an hour, {hour * HOURS:,.0f} a month"


def _change(before: Estimate, after: Estimate) -> str:
    always, most = after.always - before.always, after.most - before.most
    text = f"{always:+,.2f} an hour, {always * HOURS:+,.0f} a month"
    return text if round(always, 4) == round(most, 4) else f"{text}; at most {most:+,.2f} an hour"


def _changed(change: PriceChange) -> str:
    elastic = ", elastic" if change.part.elastic else ""
    return f"{change.part.what}{elastic}, {change.part.item}: {money(change.before)} -> {money(change.after)} a month"


def preview(found: Estimate, before: Estimate | None, today: date) -> Sequence[str]:
    """Return the end of a preview: a line for each part, then the sums."""
    lines = []
    for what, item, count, rate, unit, hour, month, dated, source in table(found)[1:]:
        of = "your own rate" if source == OWN else f"list price of {dated} ({source})"
        each = "an hour" if unit == "hour" else f"a {unit}"
        priced = f"{rate} {each}, {hour} an hour, {month} a month; {of}" if rate else UNKNOWN
        lines.append(f"{what}: {count} x {item}, {priced}")
    return [*lines, *totals(found, before, today)]


def sources(found: Estimate) -> list[str]:
    """Return the sources of an estimate, in words."""
    keys = dict.fromkeys(row.rate.source for row in found.rows if row.rate)
    return [f"{key}: {SOURCES[key]}" for key in keys if key in SOURCES]
