"""Google's price list beside the catalog. A SKU names no machine type: CHARGES has what a row's unit is charged for, by
the descriptions of SKUs. components/gcp/price_list.py sends the requests."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any

from cluster.catalog import MACHINE_TYPES, prices
from cluster.catalog.prices import GOOGLE_LIST, PriceRow
from cluster.cloud_checks import CloudCheck, Seen
from cluster.config.cluster import ClusterConfig
from cluster.cost_parts import WAYS
from cluster.platforms.gcp.cost import parts
from cluster.platforms.gcp.names import place

COMPUTE, NETWORKING = "6F81-5844-456A", "E505-1604-58F8"
"""Ids of Compute Engine and Networking in the list (Cyclenerd/google-cloud-pricing-cost-calculator dac31281f2a4,
build/skus.sh). That of Managed Lustre has no source."""
GLOBAL = "global"
"""The region of a SKU that all regions have."""
Skus = Mapping[tuple[str, str, str], set[tuple[float, str]]]
"""Price and unit, such as `USD/h`, by name, way and region."""


@dataclass(frozen=True)
class Charge:
    """An amount of a SKU, which has one of these names."""

    names: tuple[str, ...]
    amount: float = 1
    unit: str = "h"


def _machine(name: str, *core: str, gpu: tuple[str, ...] = ()) -> tuple[Charge, ...]:
    """Return the charges of a machine with GPUs; of another one, those of each vCPU."""
    kind = MACHINE_TYPES[name]
    ram, by = tuple(text.replace("Core", "Ram") for text in core), 1 if kind.gpu else kind.cpus
    gpus = (Charge(gpu, kind.gpu.count),) if kind.gpu else ()
    return Charge(core, kind.cpus / by), Charge(ram, kind.memory_mib / 1024 / by, "GiBy.h"), *gpus


def _stored(name: str) -> tuple[Charge, ...]:
    return (Charge((name,), 1, "GiBy.mo"),)


_H100_MEGA = ("Nvidia H100 80GB Mega GPU", "Nvidia H100 Mega 80GB GPU", "Nvidia H100 80GB Plus GPU")
_H200 = ("Nvidia H200 141GB GPU", "H200 141GB GPU")
CHARGES: Mapping[str, tuple[Charge, ...]] = {
    "c2-standard": _machine("c2-standard-4", "Compute optimized Core", "Compute optimized Instance Core"),
    "e2-standard": _machine("e2-standard-4", "E2 Instance Core"),
    "n1-standard": _machine("n1-standard-4", "N1 Predefined Instance Core"),
    "n2-standard": _machine("n2-standard-4", "N2 Instance Core"),
    "a3-megagpu-8g": _machine("a3-megagpu-8g", "A3Plus Instance Core", gpu=_H100_MEGA),
    "a3-ultragpu-8g": _machine("a3-ultragpu-8g", "A3Ultra Instance Core", gpu=_H200),
    "a4-highgpu-8g": (Charge(("A4 Nvidia B200 (1 gpu slice)",), 8),),
    **{f"gpu-{name.lower()}": (Charge((f"Nvidia Tesla {name} GPU",)),) for name in ("T4", "P4", "P100")},
    "local-ssd": _stored("SSD backed Local Storage"),
    "pd-standard": _stored("Storage PD Capacity"),
    "pd-balanced": _stored("Balanced PD Capacity"),
    "pd-ssd": _stored("SSD backed PD Capacity"),
    **{f"lustre-{tier}": _stored(f"Managed Lustre Capacity {tier}-Perf") for tier in (125, 250, 500, 1000)},
    "address": (Charge(("External IP Charge on a Standard VM",)),),
    "nat": (Charge(("Networking Cloud Nat Gateway Uptime",)),),
}
"""Charges of one unit of a row. Names: Cyclenerd/google-cloud-pricing-cost-calculator dac31281f2a4,
build/mapping.csv and gcp.yml; skypilot-org/skypilot 21fd5541, sky/catalog/data_fetchers/fetch_gcp.py (GPUs); of A3
Plus, as SKUs call A3 Mega: dstackai/gpuhunt 22bb64ee, src/gpuhunt/providers/gcp.py (the first two take vCPUs and memory
of A3 for it, which cost less: cloud.google.com/spot-vms/pricing has both). A4 has no other SKUs than its slices. Of
Managed Lustre: the source `pricing-export`."""
_NAMES = {name for charges in CHARGES.values() for charge in charges for name in charge.names}


def by_name(skus: Iterable[Mapping[str, Any]]) -> Skus:
    """Return the prices of SKUs that are charged, by name: the description without its place and without the way of
    buying it. Those of commitments have other usage types, free amounts count as no price."""
    found = defaultdict[tuple[str, str, str], set[tuple[float, str]]](set)
    for sku in skus:
        text, usage = sku["description"], sku["category"].get("usageType")
        # Some of spot machines have the usage type OnDemand.
        way = "spot" if "Preemptible" in text or usage == "Preemptible" else "on_demand"
        name = re.sub(r"^(Spot )?Preemptible | attached to (Spot )?Preemptible VMs?\b", "", text)
        name = re.sub(r"( running)? in .*$|(?<=-Perf) .*$", "", name)
        if name not in _NAMES or usage not in ("OnDemand", "Preemptible"):
            continue
        # The timeline of prices is in chronological order.
        expression = sku["pricingInfo"][-1]["pricingExpression"]
        for tier in expression["tieredRates"]:
            rate = tier["unitPrice"]
            unit = f"{rate['currencyCode']}/{expression['usageUnit']}"
            if price := int(rate.get("units", 0)) + rate.get("nanos", 0) / 1e9:
                for region in sku["serviceRegions"]:
                    found[name, way, region].add((price, unit))
    return found


def listed(item: str, way: str, region: str, skus: Skus) -> float | str:
    """Return the price of an item in USD; why there is none for certain."""
    total = 0.0
    for charge in CHARGES[item]:
        places = [(name, way, place) for name in charge.names for place in (region, GLOBAL)]
        found = {price for key in places for price in skus.get(key, ())}
        if len(found) != 1:
            return f"Google's list has {len(found)} prices of {charge.names[0]}"
        ((price, unit),) = found
        if unit != f"USD/{charge.unit}":
            return f"Google's list has {charge.names[0]} in {unit}, not in USD/{charge.unit}"
        total += charge.amount * price
    return total


def checks(config: ClusterConfig, today: date, found: list[PriceRow]) -> Iterator[CloudCheck]:
    """Yield a check for each item that has no rate in the stack file. A request is the id of a service, its answer the
    SKUs, and `found` gets the prices that are certain."""
    own = config.pricing.rates if config.pricing else {}
    items = {
        (prices.row_item("gcp", part.item), WAYS.get(way, way)): None
        for part in parts(config)
        for way in part.ways
        if part.count and part.item not in own
    }
    for item, way in items:
        has_sku = item in CHARGES and way in ("on_demand", "spot") and not item.startswith("lustre-")
        yield CloudCheck(
            id="price",
            asks=item if way == "on_demand" else f"{item} ({way})",
            requests=((NETWORKING if item == "nat" else COMPUTE),) if has_sku else (),
            read=partial(_read, item, way, region=place(config).region, today=today, found=found),
        )


def _read(item: str, way: str, skus: Skus | None = None, *, region: str, today: date, found: list[PriceRow]) -> Seen:
    todo = "write your own rate in `pricing.rates`, from cloud.google.com/skus"
    usd = "no SKU is known for certain" if skus is None else listed(item, way, region, skus)
    if isinstance(usd, str):
        return Seen(text=usd, todo=todo, unclear=True)
    unit = prices.unit("gcp", item)
    catalog = prices.price("gcp", region, item, way)
    theirs = (
        f"{catalog.value:.6g} in the catalog ({catalog.source}, {catalog.dated})" if catalog else "no catalog has one"
    )
    text = f"{usd:.6g} USD per {unit} in Google's list, {theirs}"
    if catalog and abs(usd - catalog.value) > catalog.value / 2:
        return Seen(text=f"{text}: more than half apart, and not taken", todo=todo, unclear=True)
    row = {"platform": "gcp", "item": item, "way": way, "unit": unit}
    found.append(PriceRow(**row, dated=today, source=GOOGLE_LIST, regions={region: usd}))
    is_same = catalog is not None and math.isclose(usd, catalog.value, rel_tol=1e-4)
    return Seen(text=text if is_same else f"{text}: previews and `./hpc cost` use that of the list")
