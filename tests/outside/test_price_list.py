"""The outside check of prices reads Google's price lists, and fails where a row has another price."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cluster.catalog.prices import rows
from tests.outside.check_price_list import CHARGES, by_name, differences, listed, read
from tests.outside.recorder import Recorder

COMPUTE = "6F81-5844-456A"
IOWA = ("us-central1", "us-east1", "us-west1")


def sku(text: str, *tiers: float, unit: str = "h", usage: str = "OnDemand", regions: tuple[str, ...] = IOWA) -> Any:
    """A SKU as the Catalog API answers it: held by check_discovery.py."""
    rates = [
        {
            "startUsageAmount": number * 30,
            "unitPrice": {"currencyCode": "USD", "units": str(int(usd)), "nanos": round(usd % 1 * 1e9)},
        }
        for number, usd in enumerate(tiers)
    ]
    expression = {"usageUnit": unit, "baseUnitConversionFactor": 3600, "displayQuantity": 1, "tieredRates": rates}
    return {
        "name": f"services/{COMPUTE}/skus/0000-0000-0000",
        "skuId": "0000-0000-0000",
        "description": text,
        "category": {"serviceDisplayName": "Compute Engine", "resourceGroup": "CPU", "usageType": usage},
        "serviceRegions": list(regions),
        "pricingInfo": [{"pricingExpression": expression, "effectiveTime": "2026-11-28T10:50:40.206Z"}],
        "serviceProviderName": "Google",
    }


# Descriptions and prices are Google's, as public programs quote them: N2 0.031611 and 0.004237, H100 80GB Plus
# 10.344276, A3Plus 0.026924 and 0.002344 in us-central1 (2026), Storage PD free up to 30 GiB, then 0.04.
PAGE: Mapping[str, Any] = {
    "skus": [
        sku("N2 Instance Core running in Americas", 0.031611),
        sku("N2 Instance Ram running in Americas", 0.004237, unit="GiBy.h"),
        sku("N2 Custom Instance Core running in Americas", 0.033191),
        sku("Commitment v1: N2 Cpu in Americas for 1 Year", 0.019915, usage="Commit1Yr"),
        sku("Storage PD Capacity", 0, 0.04, unit="GiBy.mo"),
        sku("Regional Storage PD Capacity in Americas", 0.08, unit="GiBy.mo"),
        sku("SSD backed Local Storage", 0.08, unit="GiBy.mo"),
        # Google gives this one the usage type OnDemand.
        sku("SSD backed Local Storage attached to Spot Preemptible VMs", 0.048, unit="GiBy.mo"),
        sku("Nvidia Tesla T4 GPU running in Americas", 0.35),
        sku("Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Americas", 0.175, usage="Preemptible"),
        sku("Nvidia H100 80GB Plus GPU running in Americas", 10.344276),
        sku("Nvidia H100 Mega 80GB GPU attached to DWS Defined Duration VMs running in Americas", 4.423936),
        sku("Reserved Nvidia H100 80GB Mega GPU in Americas in Calendar Mode", 4.841121),
        sku("A3Plus Instance Core running in Americas", 0.026924),
        sku("A3Plus Instance Ram running in Americas", 0.002344, unit="GiBy.h"),
        sku("A4 Nvidia B200 (1 gpu slice) running in Americas", 16.11),
        sku("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", 4.9542),
        sku("Managed Lustre Capacity 500-Perf Iowa", 0.34, unit="GiBy.mo", regions=("us-central1",)),
        sku("External IP Charge on a Standard VM", 0, 0.005, regions=("global",)),
    ],
    "nextPageToken": "",
}


def price(item: str, way: str = "on_demand", skus: Any = PAGE["skus"]) -> float | str:
    row = next(row for row in rows() if (row.item, row.way) == (item, way))
    return listed(row, "all" if "all" in row.regions else "us-central1", by_name(skus))


@pytest.mark.parametrize(
    ("item", "way", "usd"),
    [
        ("n2-standard", "on_demand", 0.048559),
        ("pd-standard", "on_demand", 0.04),
        ("local-ssd", "on_demand", 0.08),
        ("local-ssd", "spot", 0.048),
        ("gpu-t4", "on_demand", 0.35),
        ("gpu-t4", "spot", 0.175),
        ("a3-megagpu-8g", "on_demand", 92.742),
        ("a4-highgpu-8g", "on_demand", 128.88),
        ("a4-highgpu-8g", "spot", 39.6336),
        ("lustre-500", "on_demand", 0.34),
        ("address", "on_demand", 0.005),
        ("n2-standard", "spot", "0 prices of N2 Instance Core"),
    ],
)
def test_a_unit_costs_what_its_skus_do(item: str, way: str, usd: float | str) -> None:
    assert price(item, way) == (usd if isinstance(usd, str) else pytest.approx(usd, rel=1e-5))


def test_two_prices_or_another_unit_are_not_compared() -> None:
    core, ram, *_ = PAGE["skus"]
    again = sku("N2 Instance Core running in Iowa", 0.04)
    assert price("n2-standard", skus=[core, again, ram]) == "2 prices of N2 Instance Core"
    by_day = {**ram, "pricingInfo": sku("", 0.1, unit="GiBy.d")["pricingInfo"]}
    assert price("n2-standard", skus=[core, by_day]) == "N2 Instance Ram is by GiBy.d, not by GiBy.h"


def test_a_row_with_another_price_is_a_difference(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text(json.dumps(PAGE))
    skus, cut = read(tmp_path)
    assert cut == set()
    recorder = Recorder("price-list", ())
    cheap = {"pricingInfo": sku("", 0.2)["pricingInfo"]}
    changed = [
        {**row, **cheap} if row["description"] == "Nvidia Tesla T4 GPU running in Americas" else row for row in skus
    ]
    found = [text for text in differences(by_name(changed), recorder) if text.startswith("gpu-t4")]
    assert found == [f"gpu-t4 on_demand in {region}: 0.35 (skypilot, 2026-11-22), the list has 0.2" for region in IOWA]
    assert not [text for text in differences(by_name(skus), recorder) if text.startswith(("gpu-t4", "n2-", "lustre"))]
    with pytest.raises(pytest.fail.Exception, match="a price of no row"):
        list(differences({}, recorder))


def test_a_list_without_its_last_page_is_found(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text(json.dumps({**PAGE, "nextPageToken": "more"}))
    assert read(tmp_path)[1] == {COMPUTE}


def test_every_row_of_google_is_charged_for_something() -> None:
    assert {row.item for row in rows() if row.platform == "gcp"} == set(CHARGES)
