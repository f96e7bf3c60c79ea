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
from cluster.observe.usage import Record, UsageRecords
from cluster.printable import one_line
from cluster.report import svg
from cluster.report.html import element, table, text
from cluster.report.plot import Curve
from tests.cli.display.reports import NOW, history, nccl, report, status
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
        self.inside: dict[str, Counter[str]] = {}
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        for outer in {"table", "svg"} & set(self.open):
            self.inside.setdefault(outer, Counter())[tag] += 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@BOTH
def test_the_page_is_one_file_below_a_megabyte_without_scripts_or_downloads(page: str):
    assert len(page.encode()) < 1_000_000
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
    pictures = found.of("svg")
    assert len(pictures) >= 6
    for picture in pictures:
        assert picture["role"] == "img"
        assert {picture["aria-labelledby"], picture["aria-describedby"]} <= set(ids)
    counts = found.inside["table"]
    assert counts["caption"] == len(found.of("table"))
    assert all(item.get("scope") in ("col", "row") for item in found.of("th"))
    described = [words for tag, words in found.texts if tag == "desc"]
    assert len(described) == len(pictures)


@BOTH
def test_every_section_exists_and_figures_have_units(page: str):
    found = Parsed(page)
    titles = [words for tag, words in found.texts if tag == "h2"]
    assert titles == [
        "Findings", "The cluster", "Queue", "Health", "Alerts", "NCCL", "MLPerf", "Usage", "Efficiency", "Reliability",
        "Versions",
    ]  # fmt: skip
    words = {words for _, words in found.texts}
    for expected in (
        "172.16.0.0/20", "GPUDirect-TCPXO", "8 NICs of 200 Gbit/s each", "/home", "a3mega (default)", "node-drained",
        "HpcNodeDrained", "bus bandwidth (busbw), GB/s", "message size", "seconds for 100 steps", "date (UTC)",
        "slurm", "22.05.8",
    ):  # fmt: skip
        assert any(expected in word for word in words), expected


def test_the_same_report_renders_to_the_same_page():
    assert render(SMALL) == render(report(2)) == PAGES[2]


def test_unread_parts_are_named_and_the_others_are_rendered():
    lost = Unread("dev-controller: does not answer: Connection refused")
    found = report(
        2, status=lost, health=Unread("The stack has no health checks.", missing=False), usage=lost, nccl=lost
    )
    page = Parsed(render(found))
    words = [words for _, words in page.texts]
    assert "Could not be read: status, nccl, usage. The sections say why." in words
    assert words.count(lost.why) == 7, "six sections, and the drawing"
    assert "The stack has no health checks." in words
    assert "GPUDirect-TCPXO" in words
    assert "MLPerf trainings, the newest first" in words
    every = replace(found, config=None, reliability=lost, mlperf=lost)
    assert [tag for tag, _ in Parsed(render(every)).elements].count("section") == 11


def test_missing_alerts_are_not_shown_as_no_alerts():
    seen = without(healthy(), "controller", "no answer within 8 s")
    words = [words for _, words in Parsed(render(report(2, status=replace(status(2), observation=seen)))).texts]
    assert words[words.index("Could not be read: ") + 1] == "no answer within 8 s"
    assert "No alert fires." not in words


def test_a_cluster_without_jobs_and_benchmarks_renders():
    empty = replace(history(2), runs=(), outages=(), troubles=(), capacity=())
    found = report(2, reliability=empty, nccl=[], mlperf=[], usage=("a", "b", UsageRecords(records=[], runaways=0)))
    words = " ".join(words for _, words in Parsed(render(found)).texts)
    for expected in ("No job ran.", "./hpc nccl run hc measures", "Nothing was used between", "No check has failed"):
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
    records = [Record(job="1", user=given, account=given, partition=given, seconds=9, cpus=1, gpus=1)]
    whole = replace(
        SMALL, stack=given, status=replace(status(2), tables=tables, findings=[finding]), nccl=[], mlperf=[],
        reliability=Unread(given), health=Unread(given), usage=("a", "b", UsageRecords(records=records, runaways=0)),
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


@given(value=st.text(), attribute=st.text())
def test_an_elements_text_and_attributes_are_escaped(value: str, attribute: str):
    found = Parsed(element("p", value, title=attribute))
    assert [(tag, attributes["title"]) for tag, attributes in found.elements] == [("p", one_line(attribute))]
    assert "".join(words for _, words in found.texts) == one_line(value)
    assert text(text(value)) == text(value)


def test_runs_of_one_day_have_hours_on_their_axis():
    runs = [replace(run, started=NOW - 600 * at) for at, run in enumerate(nccl(2))]
    page = render(replace(SMALL, nccl=runs))
    assert [words for words in Parsed(page).texts if words == ("text", "11-21 06:27")]


def test_a_long_table_is_cut_and_shows_the_number_of_other_rows():
    rows: list[tuple[str, ...]] = [("JOB",), *((str(at),) for at in range(1000))]
    found = status(2)
    page = render(report(2, status=replace(found, tables={**found.tables, "queue": rows})))
    assert "and 800 more rows" in page


@given(
    st.lists(st.lists(st.tuples(st.floats(), st.floats()), max_size=5), min_size=1, max_size=9),
    st.booleans(),
)
def test_curves_of_any_numbers_stay_inside_the_chart(points, x_log):
    curves = [Curve("any", point) for point in points]
    if not any(abs(x) <= 1e30 and abs(y) <= 1e30 and (x > 0 or not x_log) for point in points for x, y in point):
        with pytest.raises(ValueError, match="no curve has a point"):
            svg.chart("c", "title", curves, x_label="x", y_label="y", x_log=x_log)
        return
    drawn = Parsed(svg.chart("c", "title", curves, x_label="x", y_label="y", x_log=x_log))
    width, height = (float(drawn.of("svg")[0][side] or 0) for side in ("width", "height"))
    for mark in drawn.of("path"):
        if place := mark.get("transform"):
            x, y = map(float, place.removeprefix("translate(").rstrip(")").split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height


def test_a_cluster_of_many_nodesets_and_nodes_is_drawn_in_parts():
    machines = [
        svg.Machines(name=f"set{at}", kind="t", states={f"n{n}": "idle" for n in range(600)}) for at in range(40)
    ]
    pictures = svg.cluster("c", "title", machines, networks=[], mounts=[], partitions=[])
    assert len(pictures) == svg.MOST_COLUMNS / 4 + 1
    assert len("".join(pictures)) < 100_000
    assert "600 idle" in pictures[0]
    assert table("t", [("A",)]).count("<tr>") == 1


def test_elastic_nodes_that_slurm_hides_are_shown_as_off():
    assert "1 off" in PAGES[2]
    assert "8 off" in PAGES[64]
