"""Files that a bake downloads, in archives of others: they are asked for without a credential, and no answer is not a
failure."""

import http.server
import os
import re
import socket
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from cluster.cloud_checks import CloudOutcome, CloudReport, CloudRow
from cluster.config import ClusterConfig
from cluster.platforms.gcp.cloud_packages import DRIVER, KERNEL, packages
from cluster.platforms.gcp.cloud_request import AskedStack
from cluster.platforms.gcp.image import parameters, steps
from components import cloud_questions, public_files
from components.clouds import NAMELESS
from components.gcp import cloud_checks
from tests import programs
from tests.clouds import A3, google
from tests.cluster import stacks
from tests.lab.google.apis import Answer, Asked, GoogleApis, on
from tests.lab.public_files import served_at

UBUNTU, NVIDIA, GITHUB = "snapshot.ubuntu.com", "developer.download.nvidia.com", "github.com"
BAKED = [
    name
    for name in stacks.STACKS
    if (config := stacks.config(name)).platform == "gcp" and parameters(config)["BAKE"] == "1"
]
DAY = "20261121T000000Z"


def gpus(**image: Any) -> ClusterConfig:
    return google(nodesets={"gpu": A3}, image=image)


def rows(config: ClusterConfig, before: ClusterConfig | None = None) -> list[CloudRow]:
    return [row for row in cloud_checks.check(config, before) if row.id == "packages"]


def row(config: ClusterConfig, part: str) -> CloudRow:
    (found,) = [row for row in rows(config) if part in row.asked]
    return found


def urls(config: ClusterConfig) -> list[str]:
    return [request for check in packages(AskedStack(config=config)) for request in check.requests]


@pytest.mark.parametrize("name", BAKED)
def test_all_files_of_a_recipe_are_there(apis: GoogleApis, name: str) -> None:
    found = rows(stacks.config(name))
    assert {row.outcome for row in found} == {CloudOutcome.OK}
    assert {text for row in found for text in row.assumptions} == {KERNEL, DRIVER}
    assert {asked.id for asked in apis.files} == {UBUNTU, NVIDIA, GITHUB}
    assert {asked.headers["Range"] for asked in apis.files} == {"bytes=0-0"}


STEP = """
packages() { printf '%s\\n' "$@"; }
kernel() { printf '%s' "$KERNEL"; }
command_not_found_handle() { :; }
needs() { :; }; refresh() { :; }; hold() { :; }; put() { :; }; die() { :; }; off() { :; }
PATH=/nonexistent
"""
"""A library with which a step prints the packages that it installs, and does nothing else."""


@pytest.mark.parametrize("name", BAKED)
def test_files_are_of_packages_that_the_steps_install(name: str, tmp_path: Path) -> None:
    config = stacks.config(name)
    (tmp_path / "library.sh").write_text(STEP)
    env = {**parameters(config), "HPC_LIBRARY": str(tmp_path / "library.sh")}
    installed = set()
    for step in steps(config):
        if step.name.startswith(("12-", "20-", "22-", "24-", "27-")):
            words = programs.run(["/bin/bash", "-c", step.text], env=env, cwd=tmp_path).stdout.split()
            installed.update(word.replace("=1:", "=") for word in words)
    files = [
        re.fullmatch(r"(.+)_(.+)_amd64\.deb", url.rpartition("/")[2])
        for url in urls(config)
        if UBUNTU in url or NVIDIA in url
    ]
    names = [
        match[1] if "gcp" in match[1] else f"{match[1]}={match[2].replace('%2B', '+')}" for match in files if match
    ]
    assert len(names) == (16 if "NCCL" in parameters(config) else 15)
    assert [name for name in names if name not in installed] == []
    # As apt does: some stores take a plus sign for a space.
    assert [url for url in urls(config) if "+" in url] == []
    driver = parameters(config)["DRIVER_PACKAGE"]
    assert {word for word in installed if word.endswith(driver) or word.startswith("linux-")} <= set(names)


@pytest.mark.parametrize("status", [404, 410])
def test_a_kernel_that_is_gone_is_wrong(apis: GoogleApis, status: int) -> None:
    apis.rules.insert(0, on(UBUNTU, (status, {}), "modules-extra"))
    (wrong,) = [row for row in rows(gpus()) if row.outcome is not CloudOutcome.OK]
    assert (wrong.asked, wrong.outcome) == (f"kernel 6.8.0-1074-gcp in Ubuntu's archive of {DAY}", CloudOutcome.WRONG)
    assert wrong.seen == (
        f"gone: https://{UBUNTU}/ubuntu/{DAY}/pool/main/l/linux-gcp-6.8/"
        "linux-modules-extra-6.8.0-1074-gcp_6.8.0-1074.82~22.04.1_amd64.deb"
    )
    assert wrong.todo == (
        "report this; until then, set image.recipe to a later one or image.name to an image that exists"
    )
    assert wrong.assumptions == (KERNEL,)


def test_a_day_of_ones_own_is_asked_for_beside_the_kernels(apis: GoogleApis) -> None:
    config = gpus(snapshot="20230601T000000Z")
    apis.rules.insert(0, on(UBUNTU, (404, {}), "/20230601T000000Z/"))
    (wrong,) = [row for row in rows(config) if row.outcome is not CloudOutcome.OK]
    assert wrong.asked == "Ubuntu's archive of 20230601T000000Z"
    assert wrong.seen.count("/InRelease") == 3
    assert wrong.todo == "set image.snapshot to another day"


@pytest.mark.parametrize(
    ("host", "part", "asked", "outcome"),
    [
        # Only some of NVIDIA's names were ever seen in public.
        (NVIDIA, "dkms", "NVIDIA's driver ", CloudOutcome.NOT_ASKED),
        (GITHUB, "pyxis", "sources of ", CloudOutcome.WRONG),
    ],
)
def test_other_files_that_are_gone(apis: GoogleApis, host: str, part: str, asked: str, outcome: CloudOutcome) -> None:
    apis.rules.insert(0, on(host, (404, {}), part))
    (wrong,) = [row for row in rows(gpus()) if row.outcome is not CloudOutcome.OK]
    assert wrong.outcome is outcome
    assert wrong.asked.startswith(asked)
    assert part in wrong.seen


class TestNoAnswer:
    """A host that can't be asked does not stop `up`, and hides no other row."""

    def unasked(self, config: ClusterConfig) -> list[str]:
        found = rows(config)
        assert CloudReport(date="", request="", rows=found).ok
        assert [row for row in found if row.outcome is CloudOutcome.NOT_ASKED and row.assumptions] == []
        return [row.seen for row in found if row.outcome is CloudOutcome.NOT_ASKED]

    @pytest.mark.parametrize(("status", "times"), [(503, 4), (429, 4), (403, 1)])
    def test_a_host_that_refuses(self, apis: GoogleApis, status: int, times: int) -> None:
        apis.rules.insert(0, on(UBUNTU, (status, {})))
        assert self.unasked(gpus()) == [f"{UBUNTU} answers {status}"] * 2
        (index,) = {asked.path for asked in apis.files if asked.path.endswith("jammy/InRelease")}
        assert [asked.path for asked in apis.files].count(index) == times

    def test_one_that_refuses_for_a_while_is_asked_again(self, apis: GoogleApis) -> None:
        asked: list[str] = []

        def busy(asks: Asked) -> Answer | None:
            if asks.id != NVIDIA or asked.count(asks.path) == 2:
                return None
            asked.append(asks.path)
            return 503, {}

        apis.rules.insert(0, busy)
        assert self.unasked(gpus()) == []
        assert len(asked) == 2 * len(set(asked)) > 0

    def test_a_slow_one(self, apis: GoogleApis, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cloud_checks, "SECONDS", 2.0)
        ended = threading.Event()

        def blocked(asks: Asked) -> Answer | None:
            if asks.id == GITHUB:
                ended.wait(60)
            return None

        apis.rules.insert(0, blocked)
        found = rows(gpus())
        assert not ended.is_set()
        ended.set()
        assert CloudReport(date="", request="", rows=found).ok
        (row,) = [row for row in found if row.asked.startswith("sources of ")]
        assert row.outcome is CloudOutcome.NOT_ASKED
        assert row.seen in {"no answer within 2 s", f"{GITHUB} does not answer (TimeoutError)"}

    def test_a_process_does_not_wait_for_it_at_its_end(self) -> None:
        text = """
import time
from cluster.cloud_checks import CloudCheck
from components.cloud_questions import rows
check = CloudCheck(id="x", asks="x", requests=("x",), read=print)
print(rows([check], lambda _: time.sleep(600), 0.1, "x")[0].seen)
"""
        done = programs.run([sys.executable, "-c", text], cwd=Path(__file__).parents[2], timeout=60)
        assert (done.stdout, done.returncode) == ("no answer within 0.1 s\n", 0)

    def test_no_route(self, apis: GoogleApis, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            served_at(f"http://127.0.0.1:{bound.getsockname()[1]}/{{}}", monkeypatch)
            seen = self.unasked(gpus())
        assert {*seen} == {f"{host} does not answer (ConnectionRefusedError)" for host in (UBUNTU, NVIDIA, GITHUB)}

    def test_something_that_speaks_no_http(self, apis: GoogleApis, monkeypatch: pytest.MonkeyPatch) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def handle(self) -> None:
                self.rfile.readline()
                self.wfile.write(b"220 mail ready\r\n")

        with programs.served(Handler) as port:
            served_at(f"http://127.0.0.1:{port}/{{}}", monkeypatch)
            seen = self.unasked(gpus())
        assert {*seen} == {f"{host} does not answer (ConnectionError)" for host in (UBUNTU, NVIDIA, GITHUB)}


def test_a_proxy_is_asked_for_the_host_and_gets_no_credential(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[str, list[str]]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            asked.append((self.path, [*self.headers]))
            self.send_error(403)

    (tmp_path / ".netrc").write_text(f"machine {UBUNTU} login someone password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setattr(cloud_questions, "PAUSES", ())
    # It has the proxies of the first request of a process.
    monkeypatch.setattr(urllib.request, "_opener", None)
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    with programs.served(Handler) as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
        with pytest.raises(cloud_questions.NotAskedError) as error:
            public_files.exists(f"https://{UBUNTU}/ubuntu/")
    assert error.value.why == f"{UBUNTU} does not answer (OSError)"
    assert error.value.todo == "check the network and the proxy, then run again"
    ((host, headers),) = asked
    assert host == f"{UBUNTU}:443"
    assert "authorization" not in " ".join(headers).lower()


@pytest.mark.parametrize("image", [{"name": "projects/my-project/global/images/own"}, {"bake": False}])
def test_a_stack_that_bakes_nothing_asks_nothing(image: dict[str, Any]) -> None:
    assert urls(gpus(**image)) == []


def test_an_image_that_a_cluster_has_is_not_baked_again(apis: GoogleApis) -> None:
    assert rows(gpus(), gpus()) == []
    assert rows(gpus(snapshot="20261125T000000Z"), gpus()) != []


def test_rows_are_in_the_report_for_others(apis: GoogleApis) -> None:
    report = CloudReport(date="", request="", rows=rows(gpus()))
    document = report.without_names(NAMELESS["gcp"])["checks"]
    assert {(row["asked"], row["seen"]) for row in document} == {(row.asked, row.seen) for row in report.rows}
