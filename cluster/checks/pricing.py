"""Checks of the stack file's own prices and its budget: the currency, the region, items that the cluster has, and what
the budget can't hold."""

from collections.abc import Iterator

from cluster import platform_interface
from cluster.config.cluster import ClusterConfig
from cluster.cost.estimate import estimate
from cluster.findings import Finding, Level, listing, nearest
from cluster.slurm.power_saving import elastic_nodesets

LONGEST = 31 * 24
"""Hours of the longest month: the controller counts those that a month has."""


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    yield from _pricing(config)
    currency = config.pricing.currency if config.pricing else "USD"
    if config.budget and config.budget.currency != currency:
        yield Finding(
            id="budget-currency",
            at=("budget", "currency"),
            given=config.budget.currency,
            allowed=f"{currency}, the currency of the cluster's prices",
            todo=f"write the budget in {currency}, or `pricing: {{currency: {config.budget.currency}, exchange_rate: "
            "...}`",
        )
    yield from _stop(config)


def _stop(config: ClusterConfig) -> Iterator[Finding]:
    """The controller adds up the prices of elastic nodes: it would never stop those that have none."""
    if not (config.budget and config.budget.stop):
        return
    names, found = elastic_nodesets(config), estimate(config)
    allowed, todo = "nothing, as no node is elastic", "remove it, or write `count: {min, max}` in a nodeset"
    if unpriced := [name for name in names if found.node_hour(name, elastic=True) is None]:
        items = dict.fromkeys(part.item for part in found.unknown if part.elastic and part.nodeset in unpriced)
        allowed = f"a stop of nodes with a price in the catalog, which those of {listing(unpriced)} do not have"
        todo = f"write the price of {listing(items)} in `pricing.rates`"
    if unpriced or not names:
        yield Finding(id="budget-stop", at=("budget", "stop"), given=config.budget.stop, allowed=allowed, todo=todo)


def find_warnings(config: ClusterConfig) -> Iterator[Finding]:
    """Yield what the budget does not include, and that it does not suffice for what is always on."""
    if config.budget is None:
        return
    found, budget = estimate(config), config.budget
    if items := list(dict.fromkeys(part.item for part in found.unknown)):
        yield Finding(
            id="budget-unpriced",
            level=Level.WARNING,
            at=("budget",),
            what=f"the catalog has no price of {listing(items)}: counted as nothing",
            todo="write your own in `pricing.rates`",
        )
    if found.always * LONGEST > budget.month:
        yield Finding(
            id="budget-small",
            level=Level.WARNING,
            at=("budget", "month"),
            what=f"what is always on costs {found.always * LONGEST:,.0f} {found.currency} in a month of 31 days, and "
            f"the budget is {budget.month:,.0f}" + (": no elastic node is created then" if budget.stop else ""),
            todo="write a larger one, or fewer static nodes; `./hpc cost STACK` has each part",
        )


def _pricing(config: ClusterConfig) -> Iterator[Finding]:
    pricing, platform = config.pricing, platform_interface.get(config.platform)
    if pricing is None:
        return
    if pricing.currency != "USD" and pricing.exchange_rate is None:
        yield Finding(
            id="pricing-exchange-rate",
            at=("pricing", "exchange_rate"),
            given="nothing",
            allowed=f"units of {pricing.currency} for one USD, e.g. 0.92: list prices are in USD",
            todo="write it, or write the rates in USD",
        )
    if pricing.currency == "USD" and pricing.exchange_rate not in (None, 1):
        yield Finding(
            id="pricing-currency",
            at=("pricing", "exchange_rate"),
            given=str(pricing.exchange_rate),
            allowed="nothing, of rates in USD",
            todo="remove it, or write the currency",
        )
    region = platform.region(config)
    if pricing.region not in (None, region):
        yield Finding(
            id="pricing-region",
            at=("pricing", "region"),
            given=str(pricing.region),
            allowed=f"the cluster's region, {region}: rates of another one are other rates",
            todo="write the rates of this region",
        )
    items = sorted({part.item for part in platform.cost_parts(config) if part.count})
    for item in pricing.rates:
        if item not in items:
            yield Finding(
                id="pricing-item",
                at=("pricing", "rates", item),
                given=item,
                allowed=f"an item that the cluster has: {listing(items)}",
                todo=f"write {close}" if (close := nearest(item, items)) else "remove it",
            )
