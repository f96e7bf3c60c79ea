"""Google's price list beside the catalog: a price counts where it is certain, and the reason is in words where it is
not."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from cluster.catalog.prices import GOOGLE_LIST, PriceRow, price
from cluster.cloud_checks import CloudOutcome, CloudRow
from cluster.config import ClusterConfig
from components import cloud_questions
from components.gcp import price_list
from tests.clouds import A3, EXASCALER, MANAGED, google
from tests.cluster import stacks
from tests.lab.google.apis import Answer, Asked, GoogleApis, Rule, on, refusal
from tests.lab.google.skus import COMPUTE, LAS_VEGAS, NETWORKING, SKUS, sku

LIST = "cloudbilling.services.skus.list"
N1 = "N1 Predefined Instance Core running in Las Vegas"
T4 = "Nvidia Tesla T4 GPU running in Las Vegas"


def classic() -> ClusterConfig:
    return stacks.config("classic")


def having(*changed: Any, without: str = "") -> Rule:
    """Google's list with other SKUs, or without one."""
    return on(LIST, (200, {"skus": [row for row in SKUS if row["description"] != without] + list(changed)}), COMPUTE)


def of(rows: Sequence[CloudRow], item: str) -> CloudRow:
    """The one row that an item is in."""
    (found,) = [row for row in rows if item in row.asked.removeprefix("list price of ").split(" in ")[0].split(", ")]
    return found


def items(found: Sequence[PriceRow]) -> set[str]:
    return {row.item for row in found}


def test_prices_of_the_catalog_are_green_and_kept_with_their_date(apis: GoogleApis) -> None:
    rows, found = price_list.read(classic())
    assert {row.outcome for row in rows} == {CloudOutcome.OK}
    assert of(rows, "pd-balanced").seen == (
        "0.11 USD per GB month in Google's list, 0.11 in the catalog (calculator, 2026-08-20)"
    )
    assert items(found) == {"e2-standard", "pd-balanced", "n1-standard", "gpu-t4", "address", "nat"}
    assert {(row.way, row.source, *row.regions) for row in found if row.item == "e2-standard"} == {
        ("spot", GOOGLE_LIST, "us-west4")
    }
    assert {asked.path for asked in apis.asked} == {f"/v1/services/{name}/skus" for name in (COMPUTE, NETWORKING)}


def test_another_price_is_used_and_said(apis: GoogleApis) -> None:
    apis.rules.insert(0, having(sku(T4, 0.4, regions=LAS_VEGAS), without=T4))
    rows, found = price_list.read(classic())
    assert of(rows, "gpu-t4").outcome is CloudOutcome.OK
    assert of(rows, "gpu-t4").seen == (
        "0.4 USD per GPU hour in Google's list, 0.37 in the catalog (skypilot, 2026-11-22): previews and `./hpc cost` "
        "use that of the list"
    )
    kept = price("gcp", "us-west4", "gpu-t4", kept=found)
    assert kept
    assert (kept.value, kept.source) == (0.4, GOOGLE_LIST)


def test_a_price_that_the_catalog_does_not_have(apis: GoogleApis) -> None:
    apis.rules.insert(
        0, having(sku("A4 Nvidia B200 (1 gpu slice) running in Netherlands", 18, regions=("europe-west4",)))
    )
    a4 = {"machine_type": "a4-highgpu-8g", "count": 1}
    rows, found = price_list.read(google(nodesets={"a4": a4}, zone="europe-west4-b"))
    assert ", no catalog has one: previews" in of(rows, "a4-highgpu-8g").seen
    assert [row.regions for row in found if row.item == "a4-highgpu-8g"] == [{"europe-west4": 144.0}]


@pytest.mark.parametrize(
    ("changed", "without", "seen"),
    [
        ([sku(T4, 0.56, regions=LAS_VEGAS)], T4, "more than half apart, and not taken"),
        ([sku(T4, 0.18, regions=LAS_VEGAS)], T4, "more than half apart, and not taken"),
        ([sku(T4, 0.38, regions=LAS_VEGAS)], "", "2 prices of Nvidia Tesla T4 GPU"),
        ([sku(T4, 0.38, regions=("global",))], "", "2 prices of Nvidia Tesla T4 GPU"),
        ([sku(T4, 0.37, 0.3, regions=LAS_VEGAS)], T4, "2 prices of Nvidia Tesla T4 GPU"),
        ([sku(T4, 0.34, regions=LAS_VEGAS, currency="EUR")], T4, "GPU in EUR/h, not in USD/h"),
        ([sku(T4, 0.37, regions=LAS_VEGAS, unit="d")], T4, "GPU in USD/d, not in USD/h"),
        ([sku(T4, 0, regions=LAS_VEGAS)], T4, "0 prices of Nvidia Tesla T4 GPU"),
        ([sku(T4, 0.37, regions=LAS_VEGAS, usage="Commit1Yr")], T4, "0 prices of Nvidia Tesla T4 GPU"),
        ([], T4, "0 prices of Nvidia Tesla T4 GPU"),
    ],
    ids=["dear", "cheap", "two", "two places", "tiers", "currency", "unit", "free", "commitment", "none"],
)
def test_a_price_that_is_not_certain_is_not_taken(apis: GoogleApis, changed: Any, without: str, seen: str) -> None:
    apis.rules.insert(0, having(*changed, without=without))
    rows, found = price_list.read(classic())
    row = of(rows, "gpu-t4")
    assert seen in row.seen
    assert row.outcome is CloudOutcome.NOT_ASKED
    assert "`pricing.rates`" in row.todo
    assert items(found) == {"e2-standard", "pd-balanced", "n1-standard", "address", "nat"}


def test_items_without_a_sku_share_a_row_and_own_rates_are_not_asked_for(apis: GoogleApis) -> None:
    rows, _ = price_list.read(google(storage={"lustre": EXASCALER}, pricing={"rates": {"pd-standard": 0.03}}))
    row = of(rows, "exascaler-license")
    assert (row.seen, row.outcome) == ("no SKU is known for certain", CloudOutcome.NOT_ASKED)
    assert not [row for row in rows if "pd-standard" in row.asked]
    rows, _ = price_list.read(google(storage={"lustre": MANAGED}))
    assert of(rows, "lustre-500").seen == "no SKU is known for certain"


def test_a3_mega_has_the_vcpus_and_memory_of_a3_plus(apis: GoogleApis) -> None:
    rows, found = price_list.read(google(nodesets={"gpu": A3}, network={"gpu_cidr": "10.64.0.0/17"}))
    assert of(rows, "a3-megagpu-8g").seen.startswith(
        "92.7424 USD per machine hour in Google's list, 92.2143 in the catalog"
    )
    assert "a3-megagpu-8g" in items(found)


def pages(*numbers: int) -> Rule:
    """The list of Compute Engine on three pages, of which these can be had."""

    def answer(asked: Asked) -> Answer | None:
        if asked.id != LIST or NETWORKING in asked.path:
            return None
        page = int(asked.query.get("pageToken", ["0"])[0])
        if page not in numbers:
            return 200, b'{"skus": [{"descri'
        return 200, {"skus": SKUS[page::3], "nextPageToken": str(page + 1) if page < 2 else ""}

    return answer


def test_every_page_is_read(apis: GoogleApis) -> None:
    apis.rules.insert(0, pages(0, 1, 2))
    rows, found = price_list.read(classic())
    assert {row.outcome for row in rows} == {CloudOutcome.OK}
    assert len(found) == 6


@pytest.mark.parametrize(
    ("rule", "seen", "todo"),
    [
        (pages(0, 1), "the answer is not Google's JSON", "check the proxy"),
        (
            on(
                LIST,
                refusal(403, "off", reason="SERVICE_DISABLED", consumer="projects/my-project"),
            ),
            "the service cloudbilling.googleapis.com is not enabled in my-project",
            "gcloud services enable cloudbilling.googleapis.com --project my-project",
        ),
        (on(LIST, refusal(403, "no")), "Google answers 403: no", "run it again later"),
        (on(LIST, refusal(404, "gone")), f"Google's list has no service {COMPUTE}", "report this"),
        (on(LIST, (200, {"skus": [{**SKUS[0], "pricingInfo": []}]}), COMPUTE), "another form", "report this"),
    ],
    ids=["cut off", "disabled", "refused", "service", "form"],
)
def test_a_list_that_can_not_be_read_is_one_row_and_gives_no_price(
    apis: GoogleApis, rule: Rule, seen: str, todo: str
) -> None:
    apis.rules.insert(0, rule)
    rows, found = price_list.read(google())
    row = of(rows, "n2-standard")
    assert seen in row.seen
    assert todo in row.todo
    assert row.outcome is CloudOutcome.NOT_ASKED
    assert "pd-ssd" in row.asked
    assert items(found) <= {"nat"}


def test_pages_that_take_too_long_are_a_row_with_their_number(
    apis: GoogleApis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(price_list, "SECONDS", 3.0)
    page = on(LIST, (200, {"skus": SKUS, "nextPageToken": "more"}), COMPUTE)
    ended, asked = threading.Event(), [0]

    def third_never(asks: Asked) -> Answer | None:
        if answer := page(asks):
            asked[0] += 1
            if asked[0] > 2:
                ended.wait(60)
        return answer

    apis.rules.insert(0, third_never)
    rows, found = price_list.read(classic())
    assert not ended.is_set()
    ended.set()
    row = of(rows, "gpu-t4")
    assert row.seen == "Google's list did not end within 3 s, after 2 pages"
    assert items(found) == {"nat"}


def test_the_whole_command_ends_within_a_minute() -> None:
    assert cloud_questions.SECONDS < 10
    assert price_list.SECONDS + 2 < 60
