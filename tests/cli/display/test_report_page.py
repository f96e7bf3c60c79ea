"""The page of `./hpc report`: one file that needs nothing, that everybody can read, whatever others have written."""

import itertools
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.display.report_page import Unread, render
from cluster.findings import ClusterFinding
from cluster.observe.usage import UsageRecord, UsageRecords
from cluster.printable import one_line
from tests.cli.display.reports import history, report, status
from tests.cluster.observe.observations import healthy, without

SMALL = report(2)
PAGES = {2: render(SMALL), 64: render(report(64))}
BOTH = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
VOID = {"meta", "wbr", "br"}


class Parsed(HTMLParser):
    """The elements of a page with their attributes, and its texts by element."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.inside = Counter[str]()
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if "table" in self.open:
            self.inside[tag] += 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@BOTH
def test_the_page_is_one_file_below_100_kb_without_scripts_or_downloads(page: str):
    assert len(page.encode()) < 100_000
    found = Parsed(page)
    assert not {"script", "link", "img", "iframe", "object", "form"} & {tag for tag, _ in found.elements}
    assert {key for _, attributes in found.elements for key in attributes if key.startswith("on")} == set()
    links = [item["href"] or "" for item in found.of("a")]
    anchors = {attributes.get("id") for _, attributes in found.elements}
    assert all(link.startswith("#") and link[1:] in anchors for link in links)
    assert "url(" not in page
    assert "@import" not in page


@BOTH
def test_the_page_is_accessible(page: str):
    found = Parsed(page)
    levels = [int(tag[1]) for tag, _ in found.elements if tag in ("h1", "h2", "h3")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert found.inside["caption"] == len(found.of("table")) >= 10
    assert all(item.get("scope") in ("col", "row") for item in found.of("th"))


@BOTH
def test_every_section_exists_and_figures_have_units(page: str):
    found = Parsed(page)
    titles = [words for tag, words in found.texts if tag == "h2"]
    assert titles == [
        "Findings", "The cluster", "Queue", "Alerts", "Usage", "Reliability", "Versions",
    ]  # fmt: skip
    words = {words for _, words in found.texts}
    for expected in (
        "172.16.0.0/20", "GPUDirect-TCPXO", "8 NICs of 200 Gbit/s each", "/home", "a3mega", "node-drained",
        "HpcNodeDrained", "GPU HOURS", "History of health checks", "node days in jobs", "slurm", "22.05.8",
    ):  # fmt: skip
        assert any(expected in word for word in words), expected


def test_the_same_report_renders_to_the_same_page():
    assert render(SMALL) == render(report(2)) == PAGES[2]


def test_unread_parts_are_named_and_the_others_are_rendered():
    lost = Unread("dev-controller: does not answer: Connection refused")
    found = report(2, status=lost, usage=Unread("It has no accounting.", missing=False))
    words = [words for _, words in Parsed(render(found)).texts]
    assert "Could not be read: status. The sections say why." in words
    assert words.count(f"Could not be read: {lost.why}") == 5
    assert "It has no accounting." in words
    assert "Failures by kind" in words
    every = replace(found, config=None, reliability=lost)
    assert [tag for tag, _ in Parsed(render(every)).elements].count("section") == 7


def test_missing_alerts_are_not_shown_as_no_alerts():
    seen = without(healthy(), "controller", "no answer within 8 s")
    words = [words for _, words in Parsed(render(report(2, status=replace(status(2), observation=seen)))).texts]
    assert "Could not be read: no answer within 8 s" in words
    assert "No alert fires." not in words


def test_a_cluster_without_jobs_renders():
    empty = replace(history(2), runs=(), outages=(), troubles=(), capacity=())
    found = report(2, reliability=empty, usage=("a", "b", UsageRecords(records=[], runaways=0)))
    words = " ".join(words for _, words in Parsed(render(found)).texts)
    for expected in ("Nothing was used between", "No check has failed", "node days in jobs"):
        assert expected in words


HOSTILE = st.text(min_size=1, max_size=40) | st.sampled_from([
    "<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "a&b;", "\x1b[2J", "\u202eabc", "]]>", "</title>",
    "' onload='x", "\ud800", "--><b>", "</style><b>", "a,b,c",
])  # fmt: skip


def elements_and_text(given: str) -> tuple[list[str], str]:
    """The elements, and all text, of a page in which every name is this."""
    alerts: list[tuple[str, ...]] = [("ALERT", "SEVERITY", "SINCE (UTC)", "WHO ACTS", "WHAT"), (given,) * 5]
    finding = ClusterFinding(id="node-drained", where=("n-0",), what=given, todo=given, note=given)
    tables: dict[str, list[tuple[str, ...]]] = {
        "queue": [(given,) * 8, (given,) * 8],
        "alerts": alerts,
        "versions": [("A", "B", "C"), (given,) * 3],
    }
    records = [UsageRecord(job="1", user=given, account=given, partition=given, seconds=9, cpus=1, gpus=1)]
    whole = replace(
        SMALL, stack=given, status=replace(status(2), tables=tables, findings=[finding]),
        reliability=Unread(given), usage=("a", "b", UsageRecords(records=records, runaways=0)),
    )  # fmt: skip
    parsed = Parsed(render(whole))
    names = [f"{tag} {sorted(attributes)}" for tag, attributes in parsed.elements if tag != "wbr"]
    return names, "".join(words for _, words in parsed.texts)


BENIGN = elements_and_text("name")[0]


@given(name=HOSTILE)
@settings(max_examples=60)
def test_texts_of_users_are_escaped(name: str):
    """Users, jobs, reasons, alerts and findings may hold anything: the page has the same elements, and the text."""
    names, words = elements_and_text(name)
    assert names == BENIGN
    assert one_line(name) in words


def test_a_long_table_is_cut_and_shows_the_number_of_other_rows():
    rows: list[tuple[str, ...]] = [("JOB",), *((str(at),) for at in range(1000))]
    found = status(2)
    page = render(report(2, status=replace(found, tables={**found.tables, "queue": rows})))
    assert "and 800 more rows" in page
