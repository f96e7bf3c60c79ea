"""docs/reference/costs.md: the price of each shipped stack, from the same rows as previews."""

from collections.abc import Iterable, Mapping

from cluster.catalog.prices import HOURS, OLD_DAYS, SOURCES
from cluster.config.cluster import ClusterConfig
from cluster.cost.estimate import Estimate, estimate
from cluster.cost.text import UNKNOWN, money

_HEAD = f"""\
# Costs

<!-- Written by `./hpc schema --write` from cluster/catalog/prices.csv and the stack files: change these, not this page.
-->

What the shipped stacks cost at list price in USD, before taxes. Every preview of a stack on a cloud ends with its
price, and `./hpc cost STACK` prints it alone: each part with its rate, date and source, and what has no known price.

A machine costs as long as it exists, with jobs or without. `./hpc destroy STACK` ends it; protected disks and file
systems cost until `--unprotect` deletes them ([destroy](../guides/operations.md#destroy-a-cluster-with-its-data)). File
systems that `destroy` keeps in the cloud cost until you delete them by the commands that it prints.

## The shipped stacks

A month has {HOURS} hours. *At most* has all elastic nodes, each in the dearest of its ways. No sum includes what has no
known price. Traffic, buckets, images, snapshots, logs and the machine that bakes the image are left out. `dev` and
rehearsals cost nothing.

"""
_OWN = """
## Your own prices

`pricing` in the stack file stands above the list prices
([all fields](stack-file/README.md)):

```yaml
pricing:
  rates: {a3-megagpu-8g: 61.0, exascaler-license: 2.5} # by item, as `./hpc cost` names it; whatever way it is bought in
  committed_use: {discount_percent: 37, share_percent: 80} # of list prices of machines on demand and of reservations
  currency: EUR
  exchange_rate: 0.92 # EUR for one USD, for list prices
```

A rate of a machine type is for one machine and hour, of storage for one GB and month. The rate of an item that the
cluster does not have is refused, and with `region` rates that are of another region. A reservation costs whether its
machines run or not. Committed use discounts are bought for a project and region, outside of this program, and apply to
whatever runs there; a reservation that is bought with one, or shared from another project, is named in `capacity`.

## Rates of these stacks

"""
_REST = f"""
All rows, of every region that the catalog names, are in cluster/catalog/prices.csv. A row older than {OLD_DAYS} days is
called old in previews. `./hpc test --outside price-list=FOLDER` compares the rows with the provider's own list, which
anybody may read with an API key ([outside checks](../development.md#outside-checks)). Sustained use discounts, of N1,
N2 and C2 machines that run most of a month, are in no sum. Flex start and future reservations in calendar mode have
prices of their own, which are not known here.

## Sources

"""


def page(stacks: Mapping[str, ClusterConfig]) -> str:
    """Return the page for these stacks, by their names."""
    found = {name: estimate(config) for name, config in stacks.items()}
    costs = {name: priced for name, priced in found.items() if priced.rows}
    return (
        _HEAD
        + _table(("stack", "region", "always, an hour", "at most, an hour", "at most, a month", "storage, a month",
                  "goes on after `destroy`, a month", UNKNOWN), (_stack(*item) for item in costs.items()))
        + _OWN
        + _table(("region", "item", "unit", "USD", "date", "source"), sorted(_rates(costs.values())))
        + _REST
        + "".join(f"- `{key}`: {text}.\n" for key, text in SOURCES.items())
    )  # fmt: skip


def _stack(name: str, found: Estimate) -> tuple[str, ...]:
    unknown = ", ".join(dict.fromkeys(f"`{part.item}`" for part in found.unknown))
    month = f"{found.most * HOURS:,.0f}"
    sums = (money(found.always), money(found.most), month, f"{found.storage:,.0f}", f"{found.protected:,.0f}")
    return f"`{name}`", found.region, *sums, unknown


def _rates(estimates: Iterable[Estimate]) -> set[tuple[str, ...]]:
    """Return the list prices that the stacks use, each once. An item that is bought in several ways has a row for each
    rate that counts."""
    return {
        (
            found.region,
            f"`{row.part.item}`",
            row.rate.unit,
            f"{row.rate.value:,.4f}",
            str(row.rate.dated),
            row.rate.source,
        )
        for found in estimates
        for row in found.rows
        if row.rate
    }


def _table(head: tuple[str, ...], lines: Iterable[tuple[str, ...]]) -> str:
    rows = [head, ("---",) * len(head), *lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in rows)
