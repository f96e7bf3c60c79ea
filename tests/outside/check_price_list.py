"""`price-list=FOLDER`: Google's rows of cluster/catalog/prices.csv beside Google's price list.

Artifact: a folder with answers of the Cloud Billing Catalog API, one page a file. KEY is an API key of a project in
which cloudbilling.googleapis.com is enabled; it is free:

    curl "https://cloudbilling.googleapis.com/v1/services/6F81-5844-456A/skus?pageSize=5000&key=KEY" > compute-1.json

and so on with `&pageToken=` and the page's nextPageToken. 6F81-5844-456A is Compute Engine, E505-1604-58F8 Networking
with Cloud NAT (Cyclenerd/google-cloud-pricing-cost-calculator dac31281f2a4, build/skus.sh). `/v1/services` lists
others, such as Managed Lustre. tests/outside/check_discovery.py holds the form.

A SKU names no machine type. CHARGES has what a row's unit is charged for, by the SKUs' descriptions.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cluster.catalog import MACHINE_TYPES
from cluster.catalog.prices import EVERYWHERE, PriceRow, rows
from tests.outside.recorder import Recorder

Skus = Mapping[tuple[str, str, str], set[tuple[float, str]]]
"""USD and unit, by name, way and region."""


@dataclass(frozen=True)
class Charge:
    """An amount of a SKU. It has the first of these names that is in a region."""

    names: tuple[str, ...]
    amount: float = 1
    unit: str = "h"


def _machine(core: tuple[str, ...], cpus: float, gib: float, *others: Charge) -> tuple[Charge, ...]:
    ram = tuple(name.replace("Core", "Ram") for name in core)
    return Charge(core, cpus), Charge(ram, gib, "GiBy.h"), *others


def _gpu_machine(name: str, core: tuple[str, ...], *gpu: str) -> tuple[Charge, ...]:
    kind = MACHINE_TYPES[name]
    assert kind.gpu
    return _machine(core, kind.cpus, kind.memory_mib / 1024, Charge(gpu, kind.gpu.count))


def _stored(name: str) -> tuple[Charge, ...]:
    return (Charge((name,), 1, "GiBy.mo"),)


CHARGES: Mapping[str, tuple[Charge, ...]] = {
    "c2-standard": _machine(("Compute optimized Core", "Compute optimized Instance Core"), 1, 4),
    "e2-standard": _machine(("E2 Instance Core",), 1, 4),
    "n1-standard": _machine(("N1 Predefined Instance Core",), 1, 3.75),
    "n2-standard": _machine(("N2 Instance Core",), 1, 4),
    "a3-megagpu-8g": _gpu_machine(
        "a3-megagpu-8g",
        ("A3Plus Instance Core", "A3 Instance Core"),
        "Nvidia H100 80GB Mega GPU",
        "Nvidia H100 Mega 80GB GPU",
        "Nvidia H100 80GB Plus GPU",
    ),
    "a3-ultragpu-8g": _gpu_machine(
        "a3-ultragpu-8g", ("A3Ultra Instance Core",), "Nvidia H200 141GB GPU", "H200 141GB GPU"
    ),
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
"""What one unit of a row is charged for. Names: Cyclenerd/google-cloud-pricing-cost-calculator dac31281f2a4,
build/mapping.csv and gcp.yml; skypilot-org/skypilot 21fd5541, sky/catalog/data_fetchers/fetch_gcp.py (GPUs); of A3
Plus, as SKUs call A3 Mega: dstackai/gpuhunt 22bb64ee, src/gpuhunt/providers/gcp.py. The first two take vCPUs and memory
of A3 for it, which cost less: cloud.google.com/spot-vms/pricing has both. A4 has no other SKUs than its slices. Of
Managed Lustre: the source `pricing-export`."""


def read(folder: Path) -> tuple[list[Mapping[str, Any]], set[str]]:
    """The SKUs of a folder, and the services of which the last page is missing."""
    skus: list[Mapping[str, Any]] = []
    seen, ended = set[str](), set[str]()
    for file in sorted(folder.glob("*.json")):
        page = json.loads(file.read_text(encoding="utf-8"))
        services = {sku["name"].split("/")[1] for sku in page["skus"]}
        seen |= services
        ended |= set() if page.get("nextPageToken") else services
        skus += page["skus"]
    return skus, seen - ended


def by_name(skus: list[Mapping[str, Any]]) -> Skus:
    """Prices of SKUs by name: the description without its place and without the way in which it is bought."""
    found = defaultdict[tuple[str, str, str], set[tuple[float, str]]](set)
    for sku in skus:
        text = sku["description"]
        # Some of spot machines have the usage type OnDemand.
        way = "spot" if "Preemptible" in text or sku["category"]["usageType"] == "Preemptible" else "on_demand"
        name = re.sub(r"^(Spot )?Preemptible | attached to (Spot )?Preemptible VMs?\b", "", text)
        name = re.sub(r"( running)? in .*$|(?<=-Perf) .*$", "", name)
        # The timeline of prices is in chronological order, and the rates by the amount from which they are in force:
        # the first ones may be free.
        expression = sku["pricingInfo"][-1]["pricingExpression"]
        price = expression["tieredRates"][-1]["unitPrice"]
        assert price["currencyCode"] == "USD", text
        usd = int(price.get("units", 0)) + price.get("nanos", 0) / 1e9
        for region in sku["serviceRegions"]:
            found[name, way, region].add((usd, expression["usageUnit"]))
    return found


def listed(row: PriceRow, region: str, skus: Skus) -> float | str:
    """The price of a row in a region; why there is none."""
    total = 0.0
    for charge in CHARGES[row.item]:
        place = "global" if region == EVERYWHERE else region
        prices = next(filter(None, (skus.get((name, row.way, place)) for name in charge.names)), set())
        if len(prices) != 1:
            return f"{len(prices)} prices of {charge.names[0]}"
        ((usd, unit),) = prices
        if unit != charge.unit:
            return f"{charge.names[0]} is by {unit}, not by {charge.unit}"
        total += charge.amount * usd
    return total


def differences(skus: Skus, outside: Recorder) -> Iterator[str]:
    """Rows of which the list has another price. Raises Failed where it has a price for none."""
    compared, missing = 0, defaultdict[str, list[str]](list)
    for row in rows():
        for region, usd in row.regions.items() if row.platform == "gcp" else ():
            theirs = listed(row, region, skus)
            if isinstance(theirs, str):
                missing[f"{row.item} {row.way}: {theirs}"].append(region)
                continue
            compared += 1
            if not math.isclose(usd, theirs, rel_tol=1e-4):
                yield f"{row.item} {row.way} in {region}: {usd} ({row.source}, {row.dated}), the list has {theirs:.6g}"
    if not compared:
        pytest.fail("the folder has a price of no row", pytrace=False)
    outside.did(f"compared {compared} prices")
    for text, regions in missing.items():
        outside.did(f"did not compare {text} in {', '.join(regions)}")


def test_rows_have_the_prices_of_the_list(artifact: Path, outside: Recorder) -> None:
    skus, cut = read(artifact)
    for service in sorted(cut):
        outside.differs("price-list", f"the last page of {service} is missing: each page here has a nextPageToken")
    outside.did(f"read {len(skus)} SKUs")
    for text in differences(by_name(skus), outside):
        outside.differs("price", text)
    outside.holds("google-list-prices")
