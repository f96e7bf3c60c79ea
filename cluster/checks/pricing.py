"""Checks of the stack file's own prices: the currency, the region, and items that the cluster has."""

from collections.abc import Iterator

from cluster import platform_interface
from cluster.config.cluster import ClusterConfig
from cluster.findings import Finding, Location, listing, nearest


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    pricing, platform = config.pricing, platform_interface.get(config.platform)
    if pricing is None:
        return
    at: Location = ("pricing",)
    if pricing.currency != "USD" and pricing.exchange_rate is None:
        yield Finding(
            id="pricing-exchange-rate",
            at=(*at, "exchange_rate"),
            given="nothing",
            allowed=f"units of {pricing.currency} for one USD, e.g. 0.92: list prices are in USD",
            todo="write it, or write the rates in USD",
        )
    if pricing.currency == "USD" and pricing.exchange_rate not in (None, 1):
        yield Finding(
            id="pricing-currency",
            at=(*at, "exchange_rate"),
            given=str(pricing.exchange_rate),
            allowed="nothing, of rates in USD",
            todo="remove it, or write the currency",
        )
    region = platform.region(config)
    if pricing.region not in (None, region):
        yield Finding(
            id="pricing-region",
            at=(*at, "region"),
            given=str(pricing.region),
            allowed=f"the cluster's region, {region}: rates of another one are other rates",
            todo="write the rates of this region",
        )
    items = sorted({part.item for part in platform.cost_parts(config) if part.count})
    for item in pricing.rates:
        if item not in items:
            yield Finding(
                id="pricing-item",
                at=(*at, "rates", item),
                given=item,
                allowed=f"an item that the cluster has: {listing(items)}",
                todo=f"write {close}" if (close := nearest(item, items)) else "remove it",
            )
