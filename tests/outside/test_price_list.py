"""The outside check of prices reads Google's price lists, and fails where a row has another price."""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.catalog.prices import rows
from cluster.platforms.gcp.price_list import CHARGES, by_name, listed
from tests.lab.google.skus import COMPUTE, IOWA, PAGE, SKUS, sku
from tests.outside.check_price_list import differences, read
from tests.outside.recorder import Recorder


def price(item: str, way: str = "on_demand", skus: Any = PAGE["skus"]) -> float | str:
    return listed(item, way, "us-central1", by_name(skus))


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
        ("n2-standard", "spot", "Google's list has 0 prices of N2 Instance Core"),
    ],
)
def test_a_unit_costs_what_its_skus_do(item: str, way: str, usd: float | str) -> None:
    assert price(item, way) == (usd if isinstance(usd, str) else pytest.approx(usd, rel=1e-5))


def test_two_prices_or_another_unit_are_not_compared() -> None:
    core, ram, *_ = PAGE["skus"]
    again = sku("N2 Instance Core running in Iowa", 0.04)
    assert price("n2-standard", skus=[core, again, ram]) == "Google's list has 2 prices of N2 Instance Core"
    by_day = {**ram, "pricingInfo": sku("", 0.1, unit="GiBy.d")["pricingInfo"]}
    assert (
        price("n2-standard", skus=[core, by_day])
        == "Google's list has N2 Instance Ram in USD/GiBy.d, not in USD/GiBy.h"
    )


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
    (tmp_path / "1.json").write_text(json.dumps({"skus": SKUS, "nextPageToken": "more"}))
    assert read(tmp_path)[1] == {COMPUTE}


def test_every_row_of_google_is_charged_for_something() -> None:
    assert {row.item for row in rows() if row.platform == "gcp"} == set(CHARGES)
