"""Tables of docs/reference/costs.md: the price of each shipped stack, from the same rows as previews."""

from collections.abc import Iterable, Mapping

from cluster.catalog.prices import HOURS, SOURCES
from cluster.config.cluster import ClusterConfig
from cluster.cost.estimate import Estimate, estimate
from cluster.cost.text import UNKNOWN, money


def page(stacks: Mapping[str, ClusterConfig], text: str) -> str:
    """Return the page with the tables of these stacks, by their names, between its marks."""
    found = {name: estimate(config) for name, config in stacks.items()}
    costs = {name: priced for name, priced in found.items() if priced.rows}
    head = ("stack", "region", "always, an hour", "at most, an hour", "at most, a month", "storage, a month")
    parts = {
        "stacks": _table(
            (*head, "goes on after `destroy`, a month", UNKNOWN), (_stack(*item) for item in costs.items())
        ),
        "rates": _table(("region", "item", "unit", "USD", "date", "source"), sorted(_rates(costs.values()))),
        "sources": "".join(f"- `{key}`: {source}.\n" for key, source in SOURCES.items()),
    }
    for name, part in parts.items():
        before, mark, rest = text.partition(f"<!-- {name} -->")
        text = f"{before}{mark}\n\n{part}\n{''.join(rest.partition(f'<!-- end of {name} -->')[1:])}"
    return text


def _stack(name: str, found: Estimate) -> tuple[str, ...]:
    unknown = ", ".join(dict.fromkeys(f"`{part.item}`" for part in found.unknown))
    month = f"{found.most * HOURS:,.0f}"
    sums = (money(found.always), money(found.most), month, f"{found.storage:,.0f}", f"{found.protected:,.0f}")
    return f"`{name}`", found.region, *sums, unknown


def _rates(estimates: Iterable[Estimate]) -> set[tuple[str, ...]]:
    """Return the list prices that the stacks use, each once. An item that is bought in several ways has a row for each
    rate that counts."""
    return {
        (found.region, f"`{row.part.item}`", rate.unit, f"{rate.value:,.4f}", str(rate.dated), rate.source)
        for found in estimates
        for row in found.rows
        if (rate := row.rate)
    }


def _table(head: tuple[str, ...], lines: Iterable[tuple[str, ...]]) -> str:
    rows = [head, ("---",) * len(head), *lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in rows)
