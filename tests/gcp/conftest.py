"""Fixtures of tests of Google Cloud: SSH servers, a stand-in of gcloud, and one of Compute Engine."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from components import cloud_questions
from components.gcp import access, bake, cloud_checks, compute_engine, instances
from tests.gcp.servers import Cloud, SshServer, fake_gcloud, free_port, sshd
from tests.lab.google.apis import GoogleApis, healthy
from tests.lab.google.compute import FakeCompute
from tests.lab.public_files import served_at
from tests.waiting import wait_for

SENT = {"accept-encoding", "connection", "host", "range", "user-agent"}
"""Headers of a request for a file of another host."""
JUMP, TARGET, NODE = "127.85.0.2", "127.85.0.3", "127.85.0.4"


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let time pass in pauses alone: a busy machine would reach the end of 0.2 s before it has asked once."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    for module in (bake, compute_engine, instances):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="module")
def servers(folder: Path) -> Iterator[dict[str, SshServer]]:
    """A login machine, the controller behind it and a node behind that, all on one port."""
    port = free_port()
    with (
        # One session: forwarded connections need none.
        sshd(folder, "jump", JUMP, port, MaxSessions="1") as jump,
        sshd(folder, "target", TARGET, port) as target,
        sshd(folder, "node", NODE, port) as node,
    ):
        yield {"jump": jump, "target": target, "node": node}


@pytest.fixture
def cloud(
    tmp_path: Path, folder: Path, servers: dict[str, SshServer], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cloud]:
    """A stand-in of gcloud on PATH."""
    tools = tmp_path / "bin"
    made = fake_gcloud(tools)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE_GCLOUD", str(made.file))
    yield made
    access.end_all()
    wait_for(lambda: not made.running, "the end of every gcloud")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCompute]:
    """A Compute Engine on this machine; the environment is not searched for proxies before each request."""
    monkeypatch.setattr("requests.sessions.get_environ_proxies", lambda *_, **__: {})
    with FakeCompute() as server:
        yield server


@pytest.fixture
def apis(monkeypatch: pytest.MonkeyPatch) -> Iterator[GoogleApis]:
    """A project in which everything can be created. At its end no request or answer misfits, and none changes
    anything."""
    with GoogleApis(healthy) as served:
        monkeypatch.setattr(cloud_checks, "GOOGLE", served.endpoint)
        monkeypatch.setattr(cloud_checks, "SECONDS", 60.0)  # a busy machine does not answer within the product's limit
        monkeypatch.setattr(cloud_questions, "PAUSES", (0.01, 0.01, 0.01))
        served_at(served.endpoint, monkeypatch)
        yield served
    assert served.misfits == []
    assert {asked.method for asked in served.asked if not asked.id.endswith(".testIamPermissions")} <= {"GET"}
    # No credential goes to another host.
    assert {name.lower() for asked in served.files for name in asked.headers} <= SENT
