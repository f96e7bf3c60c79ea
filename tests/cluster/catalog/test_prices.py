"""Rows of prices: each has a date and a source, and no item has two prices in one region."""

from collections import Counter
from datetime import date
from typing import Any

import pytest

from cluster.catalog import DISK_TYPES, MACHINE_TYPES
from cluster.catalog.machine_families import ACCELERATORS
from cluster.catalog.nebius_machine_types import NEBIUS_DISKS, PLATFORMS, REGIONS
from cluster.catalog.prices import GOOGLE_LIST, SOURCES, PriceRow, price, rows
from cluster.catalog.storage import MANAGED

UNITS = {"machine hour", "vCPU hour", "GPU hour", "hour", "GB month", "GiB month"}
FAMILIES = {"c2-standard", "e2-standard", "n1-standard", "n2-standard", *PLATFORMS}
OTHERS = {"local-ssd", "address", "nat", "filesystem", *(f"lustre-{tier}" for tier in MANAGED)}


def test_every_row_has_a_date_a_source_a_unit_and_a_price():
    assert {row.source for row in rows()} == set(SOURCES)
    for row in rows():
        assert date(2025, 1, 1) < row.dated < date(2026, 12, 31), row
        assert row.unit in UNITS
        assert row.way in ("on_demand", "spot")
        assert row.regions
        assert all(0 < usd < 200 for usd in row.regions.values()), row


def test_items_are_those_of_the_catalog():
    known = {*MACHINE_TYPES, *FAMILIES, *DISK_TYPES, *NEBIUS_DISKS, *(f"gpu-{name}" for name in ACCELERATORS), *OTHERS}
    assert {row.item for row in rows()} <= known


def test_an_item_has_one_price_in_a_region():
    counts = Counter((row.platform, row.item, row.way, region) for row in rows() for region in row.regions)
    assert [key for key, count in counts.items() if count > 1] == []


def test_spot_is_never_dearer():
    for row in rows():
        for region, usd in row.regions.items() if row.way == "spot" else ():
            listed = price(row.platform, region, row.item)
            assert listed is None or usd < listed.value, (row.item, region)


def test_a_machine_costs_its_share_of_the_family():
    # Google's table of N2 has 0.388472 for n2-standard-8 in us-central1, Nebius's console 0.1984 for 8vcpu-32gb.
    (n2, nebius, h100) = (
        price("gcp", "us-central1", "n2-standard-8"),
        price("nebius", "eu-north1", "cpu-d3/8vcpu-32gb"),
        price("nebius", "eu-north1", "gpu-h100-sxm/8gpu-128vcpu-1600gb"),
    )
    assert n2
    assert nebius
    assert h100
    assert (round(n2.value, 5), round(nebius.value, 4), h100.value) == (0.38847, 0.1984, 36.0)
    assert {n2.unit, nebius.unit, h100.unit} == {"machine hour"}


def test_what_no_source_has_is_unknown():
    assert price("gcp", "europe-west4", "a4-highgpu-8g") is None
    assert price("gcp", "europe-west4", "lustre-500") is None
    assert price("gcp", "us-central1", "a3-megagpu-8g", "flex") is None
    assert price("nebius", "eu-north1", "gpu-h100-sxm/8gpu-128vcpu-1600gb", "spot") is None
    assert price("nebius", REGIONS[1], "filesystem") is None


def kept(usd: float, day: date, **changes: Any) -> PriceRow:
    keys = {"platform": "gcp", "item": "n2-standard", "way": "on_demand", "unit": "vCPU hour", **changes}
    return PriceRow(**keys, dated=day, source=GOOGLE_LIST, regions={"us-central1": usd})


@pytest.mark.parametrize(
    ("row", "usd"),
    [
        (kept(0.05, date(2026, 11, 29)), 0.4),
        (kept(0.05, date(2026, 8, 20)), 0.4),
        (kept(0.05, date(2026, 8, 19)), 0.38847),
        (kept(0.05, date(2026, 11, 29), way="spot"), 0.38847),
        (kept(0.05, date(2026, 11, 29), platform="nebius"), 0.38847),
    ],
    ids=["newer", "of the day", "older", "another way", "another cloud"],
)
def test_a_price_that_was_read_counts_unless_the_catalog_is_newer(row: PriceRow, usd: float):
    found = price("gcp", "us-central1", "n2-standard-8", kept=[row])
    assert found
    assert round(found.value, 5) == usd
    other = price("gcp", "us-west1", "n2-standard-8", kept=[row])
    assert other
    assert other.source == "calculator"


def test_a_price_is_of_its_own_cloud():
    """Both have a us-central1."""
    assert price("gcp", "us-central1", "network-ssd") is None
    assert price("nebius", "us-central1", "pd-ssd") is None
