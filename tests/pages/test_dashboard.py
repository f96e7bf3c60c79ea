"""The page of `./hpc dashboard` in a browser, with synthetic answers of Prometheus: what is read, drawn and refused."""

import gzip
import json
import math
import re
import threading
import time
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from cli.cluster.dashboard import PATHS, DashboardServer, Response
from cli.errors import CliError
from cluster.monitoring.dashboards import DASHBOARDS, Panel
from cluster.monitoring.dashboards import page as render
from tests.pages.chromium import Browser, Page

HOSTILE = "</script><img src=x onerror=\"document.title='taken'\">"
TURNED, SHOWN = "\u202e\x1btxt.$&", "\\u202e\\u001btxt.$&"
"""A name that is read from right to left, and how the page shows it."""
SIZES = {"share": 0.9, "bytes": 3e12, "bytes/s": 4e9, "seconds": 5000.0, "°C": 80.0, "watts": 9e5}
"""About the greatest value of a unit; of what is counted it is 70."""


class Synthetic:
    """Prometheus of a cluster of so many nodes, with eight GPUs each."""

    def __init__(self, nodes: int = 2) -> None:
        self.nodes = nodes
        self.away = ""
        self.idle: dict[str, str] = {}
        """The labels of a series that is 0 all the time."""
        self.asked: list[str] = []

    def close(self) -> None:
        """As the real one."""

    def ask(self, path: str, *, compressed: bool = False) -> Response:
        if self.away:
            raise CliError(self.away)
        url = urlsplit(path)
        given = {key: value[0] for key, value in parse_qs(url.query).items()}
        self.asked.append(given["query"])
        panel, legend = next(
            (panel, legend)
            for dashboard in DASHBOARDS
            for panel in dashboard.panels
            for expression, legend in panel.queries
            if re.fullmatch(pattern(expression), given["query"])
            and (panel.kind == "lines") == url.path.endswith("range")
        )
        rows = [self._row(panel, metric, number, given) for number, metric in enumerate(self._series(legend))]
        body = json.dumps({"status": "success", "data": {"result": rows}}).encode()
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"} if compressed else {}
        return Response(200, headers, gzip.compress(body) if compressed else body)

    def _series(self, legend: str) -> list[dict[str, str]]:
        labels = re.findall(r"\{\{(\w+)\}\}", legend)
        names = [f"big-gpu-{number}" for number in range(self.nodes)]
        values = {
            "instance": names, "node": names, "gpu": [str(number) for number in range(8)],
            "username": [HOSTILE, TURNED, "bob"], "account": ["research", "teaching"],
            "partition": ["main", "spot"], "mountpoint": ["/home", "/scratch"],
        }  # fmt: skip
        rows: list[dict[str, str]] = [{}]
        for label in labels:
            rows = [{**row, label: value} for row in rows for value in values.get(label, ["one", "two"])]
        return rows

    def _row(self, panel: Panel, metric: dict[str, str], number: int, given: Mapping[str, str]) -> dict[str, Any]:
        most = SIZES.get(panel.unit, 70.0)
        counted = panel.unit not in SIZES

        def at(moment: float) -> str:
            if self.idle and self.idle.items() <= metric.items():
                return "0"
            value = most * (0.55 + 0.45 * math.sin(moment / 1500 + number * 1.7)) / (1 + number % 7)
            return str(round(value) if counted else value)

        if "time" in given:
            return {"metric": metric, "value": [float(given["time"]), at(float(given["time"]))]}
        start, end, step = (float(given[key]) for key in ("start", "end", "step"))
        times = [start + place * step for place in range(int((end - start) / step) + 1)]
        # A machine that was off for a while, one sample alone, and a value that is none.
        kept = [moment for place, moment in enumerate(times) if place < 90 or place == 100 or place > 110]
        return {"metric": metric, "values": [[moment, at(moment)] for moment in kept] + [[end, "NaN"]]}


def pattern(expression: str) -> str:
    return (
        re.escape(expression)
        .replace(re.escape("$nodes"), ".*")
        .replace(re.escape("$job"), ".*")
        .replace(re.escape("$__rate_interval"), r"\d+s")
    )


def find(number: str) -> Mapping[str, Any]:
    if number != "7":
        raise CliError(f"{number!r} is no job's number")
    began = time.time() - 1200
    found = {
        "id": "7",
        "number": "7",
        "name": HOSTILE,
        "user": "alice",
        "state": "RUNNING",
        "started": began,
        "ended": None,
    }
    return {**found, "nodes": ["big-gpu-0", "big-gpu-1"]}


@pytest.fixture
def prometheus() -> Synthetic:
    return Synthetic()


@pytest.fixture
def served(prometheus: Synthetic) -> Iterator[DashboardServer]:
    """The server, on a free port."""
    with DashboardServer(0, render("big", "prod", 15), prometheus, find) as server:  # pyrefly: ignore[bad-argument-type]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def wait_until_read(page: Page) -> None:
    page.wait("document.querySelector('#status').textContent.includes('Read at')")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_dashboard_is_accessible_with_keyboard_and_screen_reader(
    browser: Browser, served: DashboardServer, dark: bool
):
    with browser.page(served.url, dark=dark) as page:
        wait_until_read(page)
        assert page.violations() == []
        assert page.names("heading")[:3] == ["big", "Overview", "Alerts that fire"]
        (drawn,) = (name for name in page.names("image") if name.startswith("Jobs, jobs, from "))
        assert "running " in drawn
        page.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        for wanted in ("Overview", "Queue"):
            page.press("Tab")
            assert page.evaluate("document.activeElement.textContent") == wanted
        page.press("Enter")
        page.wait("document.title === 'Queue - big'")
        wait_until_read(page)
        page.evaluate("document.querySelector('summary').click()")
        page.wait("document.querySelector('table.data tbody tr')")
        page.evaluate("document.querySelector('.moment').focus()")
        page.press("ArrowLeft")
        assert page.evaluate("document.querySelector('.when').textContent").startswith("at ")
        assert "main " in page.evaluate("document.querySelector('.moment').ariaValueText")
        assert page.violations() == []


def test_every_dashboard_is_drawn_within_its_axes_and_escapes_names(
    browser: Browser, served: DashboardServer, prometheus: Synthetic
):
    prometheus.nodes = 24
    outside = """[...document.querySelectorAll('.panel > svg')].filter(svg => [...svg.querySelectorAll('path, circle')]
        .some(one => { const box = one.getBBox(), r = one.r?.baseVal.value ?? 0;  // the centre of a sample's mark
        return box.y + r < 19 || box.y + box.height - r > 191 || box.x + r < 61 || box.x + box.width - r > 541 }))
        .map(svg => svg.ariaLabel)"""
    with browser.page(served.url, width=400) as page:
        for dashboard in DASHBOARDS:
            page.evaluate(f"location.hash = '{dashboard.name}{'=7' if dashboard.name == 'job' else ''}'")
            page.wait(f"document.title === '{dashboard.title} - big'")
            wait_until_read(page)
            panels = page.evaluate("[...document.querySelectorAll('.panel')].map(one => one.innerText)")
            assert len(panels) == len(dashboard.panels)
            assert page.evaluate("document.documentElement.scrollWidth") == 400
            assert not [text for text in panels if "No data" in text]
            assert page.evaluate(outside) == []
            assert page.violations() == []
            if dashboard.name == "people":
                assert HOSTILE in "".join(panels)
                assert SHOWN in "".join(panels)
        assert page.evaluate("document.images.length") == 0
    assert {
        (panel.title, expression)
        for dashboard in DASHBOARDS
        for panel in dashboard.panels
        for expression, _ in panel.queries
        if not any(re.fullmatch(pattern(expression), query) for query in prometheus.asked)
    } == set()


def test_the_page_of_a_job_shows_its_nodes_during_its_run(
    browser: Browser, served: DashboardServer, prometheus: Synthetic
):
    with browser.page(f"{served.url}#job=7") as page:
        wait_until_read(page)
        said = page.evaluate("document.querySelector('#status').textContent")
        assert said.startswith(f"Job 7, {HOSTILE}, of alice: RUNNING, 2 nodes")
        assert all('instance=~"big-gpu-0|big-gpu-1"' in query for query in prometheus.asked if "instance=~" in query)
        assert any('hpc_job=~"7"' in query for query in prometheus.asked)
        prometheus.asked.clear()
        page.evaluate("location.hash = 'job'")
        page.wait("document.querySelector('#status').textContent.startsWith(\"Give a job's number\")")
        assert prometheus.asked == []  # curves of all machines of a large cluster
        page.evaluate("location.hash = 'job=' + encodeURIComponent('<b>')")
        page.wait("document.querySelector('#status.bad')")
        assert "is no job's number" in page.evaluate("document.querySelector('#status').textContent")
        page.errors.clear()  # the browser prints each answer that is a refusal


def test_the_page_of_a_job_draws_its_idle_gpu_among_many(
    browser: Browser, served: DashboardServer, prometheus: Synthetic
):
    prometheus.nodes, prometheus.idle = 8, {"instance": "big-gpu-5", "gpu": "3"}
    with browser.page(f"{served.url}#job=7") as page:
        wait_until_read(page)
        panel = "[...document.querySelectorAll('.panel')].find(one => one.ariaLabel === 'GPUs: a kernel runs')"
        names = page.evaluate(f"[...{panel}.querySelectorAll('.legend li')].map(one => one.innerText)")
        assert len(names) == 7  # the moment, and a curve for each colour
        assert names[-1].strip() == "big-gpu-5 GPU 3 0"
        note = page.evaluate(f"{panel}.querySelector('.note').innerText")
        assert note == "The 3 greatest and the 3 least on average are drawn; all 64 are in the table."


def test_times_stand_below_their_ticks(browser: Browser, served: DashboardServer):
    beside = """[...document.querySelectorAll('.panel > svg')].flatMap(svg => {
        const lines = [...svg.querySelectorAll('line.axis')].map(one => [one.x1, one.x2].map(at => at.baseVal.value));
        const middles = [...svg.querySelectorAll('text')].map(one => one.getBBox()).map(box => box.x + box.width / 2);
        return lines.filter(([x, to]) => x === to && !middles.some(middle => Math.abs(middle - x) < 1)) }).length"""
    with browser.page(served.url, width=400) as page:
        wait_until_read(page)
        for span in page.evaluate("[...document.querySelector('#span').options].map(one => one.value)"):
            page.evaluate(f"document.querySelector('#span').value = '{span}'; refresh()")
            wait_until_read(page)
            assert page.evaluate(beside) == 0
            assert page.evaluate("document.documentElement.scrollWidth") == 400


def test_one_thing_is_counted_in_the_singular(browser: Browser, served: DashboardServer):
    with browser.page(served.url) as page:
        wait_until_read(page)
        texts = page.evaluate("[[1, 'jobs'], [0, 'jobs'], [1000, 'nodes']].map(given => counted(...given))")
        assert texts == ["1 job", "0 jobs", "1,000 nodes"]


def test_machines_are_chosen_by_name(browser: Browser, served: DashboardServer, prometheus: Synthetic):
    with browser.page(f"{served.url}#nodes") as page:
        wait_until_read(page)
        prometheus.asked.clear()
        page.evaluate("document.querySelector('#nodes').value = 'gpu-0, cpu-* \"} or vector(1)'")
        page.evaluate("document.querySelector('button').click()")
        page.wait("document.querySelector('#status').textContent.includes('Read at')")
        assert any('instance=~"(big-)?(gpu-0|cpu-.*|or)"' in query for query in prometheus.asked)


def test_an_unreachable_prometheus_is_reported_and_other_panels_work(
    browser: Browser, served: DashboardServer, prometheus: Synthetic
):
    with browser.page(served.url) as page:
        wait_until_read(page)
        prometheus.away = "Prometheus on big-controller does not answer"
        page.evaluate("refresh()")
        page.wait("document.querySelector('#status.bad')")
        said = page.evaluate("document.querySelector('#status').textContent")
        assert said.startswith("Prometheus on big-controller does not answer: what is shown is old.")
        assert "./hpc status prod" in said
        assert page.evaluate("document.querySelectorAll('.panel > svg').length") > 0
        page.errors.clear()
        prometheus.away = ""
        page.evaluate("refresh()")
        page.wait("!document.querySelector('#status.bad')")


def request(
    server: DashboardServer, path: str, *, method: str = "GET", host: str = ""
) -> tuple[int, dict[str, str], bytes]:
    """The server's answer to a request that no browser would send."""
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=300)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


def test_only_requests_with_the_token_and_for_known_paths_are_answered(served: DashboardServer, prometheus: Synthetic):
    own = f"/{served.token}/"
    query = "api/v1/query?query=max(slurm_jobs_running)&time=1&timeout=9d"
    assert served.server_address[0] == "127.0.0.1"
    assert request(served, own + query)[0] == 200
    assert [request(served, path)[0] for path in ("/", "/" + query, f"/{'x' * 32}/" + query)] == [404] * 3
    assert request(served, own + query, host="evil.example")[0] == 404
    assert [request(served, own + query, method=item)[0] for item in ("POST", "PUT", "DELETE", "OPTIONS")] == [501] * 4
    for path in ("api/v1/admin/tsdb/delete_series", "api/v1/../../-/quit", "metrics", "api/v1/status/config", "../"):
        assert request(served, own + path)[0] == 404
    assert len(prometheus.asked) == 1
    status, headers, text = request(served, own)
    assert status == 200
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"
    assert served.token.encode() not in text
    assert b"http" not in text.replace(b"http://www.w3.org/2000/svg", b"")
    assert set(PATHS) == {"api/v1/query", "api/v1/query_range"}
