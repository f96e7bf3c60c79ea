"""Queries of `./hpc dashboard` on a cluster of pods: through kubectl proxy, on a socket that nobody else reaches."""

import json
import os
import shlex
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.cluster.cluster import from_outputs
from cli.cluster.dashboard import Prometheus
from cli.commands.dashboard import _hosts
from cli.errors import CliError
from cluster.platforms.nebius.names import ALERTMANAGER
from tests.e2e.cluster import PATIENCE
from tests.nebius.access.cluster_objects import World
from tests.nebius.access.conftest import OUTPUTS, Hpc, calls

PROXY = """\
import os, socket, sys
(path,) = [word.partition("=")[2] for word in sys.argv if word.startswith("--unix-socket=")]
with open("{folder}/pid", "w") as file:
    print(os.getpid(), file=file)
listener = socket.socket(socket.AF_UNIX)
listener.bind(path + ".new")
listener.listen()
os.rename(path + ".new", path)  # nobody is refused between the two
while True:
    connection = listener.accept()[0]
    asked = connection.recv(9999).split()[1]
    open("{folder}/asked", "ab").write(asked + b"\\n")
    body = open("{folder}/body", "rb").read()
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: " + str(len(body)).encode() + b"\\r\\n\\r\\n" + body)
    connection.close()
"""


@pytest.fixture
def prometheus(kubectl: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "proxy.py").write_text(PROXY.replace("{folder}", str(tmp_path)))
    kubectl(f'exec {sys.executable} -S {tmp_path}/proxy.py "$@"')
    monkeypatch.setattr("cli.cluster.dashboard._PAUSE", 0.0)
    made = Prometheus(from_outputs("nebius", OUTPUTS))
    yield made
    made.close()


def body(folder: Path, *rows: dict[str, str]) -> None:
    (folder / "body").write_text(json.dumps({"data": {"result": [{"metric": row} for row in rows]}}))


def test_only_the_service_is_let_through_on_a_socket_of_this_user(prometheus: Prometheus, tmp_path: Path):
    body(tmp_path)
    assert prometheus.ask("api/v1/query?query=up").status == 200
    root = "/api/v1/namespaces/monitoring-system/services/vmsingle-victoria-metrics-k8s-stack:8428/proxy/"
    assert (tmp_path / "asked").read_text() == f"{root}api/v1/query?query=up\n"
    (words,) = calls(tmp_path / "kubectl.log")
    path = Path(words[1].partition("=")[2])
    assert words[:1] + words[2:] == ["proxy", f"--accept-paths=^{root}", "--reject-methods=^(POST|PUT|PATCH|DELETE)$"]
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    pid = int((tmp_path / "pid").read_text())
    prometheus.close()
    assert not path.exists()
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and Path(f"/proc/{pid}").exists():
        time.sleep(0.01)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_machines_below_pods_are_those_that_soperator_reports(prometheus: Prometheus, tmp_path: Path):
    body(
        tmp_path,
        {"node_name": "worker-0", "instance_id": "computeinstance-e00one"},
        {"node_name": "worker-1", "instance_id": "computeinstance-e00two"},
        {"node_name": "worker-0", "instance_id": '"}) or vector(1) #'},
    )
    assert _hosts(prometheus, {"worker-0"}) == ["computeinstance-e00one"]
    (tmp_path / "body").write_text("no JSON")
    assert _hosts(prometheus, {"worker-0"}) == []


def test_why_it_cannot_be_reached_is_kubectls_own_reason(kubectl: Callable[[str], Path]):
    kubectl("echo 'error: You must be logged in to the server (Unauthorized)' >&2; exit 1")
    with pytest.raises(CliError, match=r"^vmsingle-victoria-metrics-k8s-stack:8428 does not answer: "):
        Prometheus(from_outputs("nebius", OUTPUTS)).ask("-/ready")


ALERT = {
    "labels": {"alertname": "NodeDown", "severity": "critical", "actor": "an administrator", "node": "worker-0",
               "summary": "a label"},
    "annotations": {"summary": "slurmctld has worker-0 down", "todo": "./hpc status nebius"},
    "startsAt": "2026-11-23T09:15:00.000Z", "status": {"state": "active"},
}  # fmt: skip

WATCHDOG = {**ALERT, "labels": {"alertname": "Watchdog", "severity": "none"}}


@pytest.mark.usefixtures("up")
@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (
            f"echo {shlex.quote(json.dumps([ALERT, WATCHDOG]))}",
            ["ALERT", "NodeDown", "2026-11-23T09:15:00", "an administrator", "slurmctld has worker-0 down"],
        ),
        ("echo '[]'", []),
        # A stack may have no section `monitoring`.
        (f"echo 'Error from server (NotFound): services \"{ALERTMANAGER}\" not found' >&2; exit 1", []),
    ],
)  # fmt: skip
def test_status_lists_alerts_that_fire(hpc: Hpc, kubectl: Callable[[str], Path], answer: str, shown: list[str]):
    raw = f"/api/v1/namespaces/monitoring-system/services/{ALERTMANAGER}:9093/proxy/api/v2/alerts"
    kubectl(f"case \"$*\" in 'get --raw {raw}?active=true') {answer};; *) {World().script()};; esac")
    ended = hpc("status", "nebius")
    assert all(word in ended.out for word in shown)
    assert ("NodeDown" in ended.out) is bool(shown)
    assert "Watchdog" not in ended.out
    assert "alerts" not in ended.out.partition("ALERT")[0], "they can be read"
