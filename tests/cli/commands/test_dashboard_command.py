"""`./hpc dashboard`: which stacks have one, Grafana's files, and the connection to Prometheus through a stand-in for
ssh."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
import yaml

from cli.cluster.cluster import from_outputs
from cli.cluster.dashboard import Prometheus
from cli.errors import CliError
from tests.cli.conftest import OUTPUTS, STACK, Hpc, Tool, patch_outputs
from tests.waiting import lives, wait_for

FORWARDS = """\
import os, select, socket, sys
path = sys.argv[sys.argv.index("-L") + 1].partition(":")[0]
if "-L" not in sys.argv or os.path.exists("{folder}/refuses"):
    print("Permission denied (publickey).", file=sys.stderr)
    sys.exit(255)
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
with open("{folder}/pids", "a") as file:
    print(os.getpid(), file=file)
print("ready", flush=True)
while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
    connection = listener.accept()[0]
    connection.recv(9999)
    if not os.path.exists("{folder}/away"):
        status = b"503 Service Unavailable" if os.path.exists("{folder}/starts") else b"200 OK"
        connection.sendall(b"HTTP/1.1 " + status + b"\\r\\nContent-Length: 2\\r\\nContent-Type: a/b\\r\\n\\r\\nup")
    connection.close()
"""
"""A stand-in for `ssh -L`: a socket of Prometheus, until standard input ends. Like ssh it is one process with one
thread, so its socket is closed once it has ended."""


def patch_stack(monkeypatch: pytest.MonkeyPatch, **sections: object) -> None:
    """Let the stack be up, with these sections in its stack file."""
    config = json.dumps({**yaml.safe_load(STACK)["config"]["hpc:cluster"], **sections})
    patch_outputs(monkeypatch, {**OUTPUTS, "config": config})


def test_a_stack_without_monitoring_is_refused(hpc: Hpc, monkeypatch: pytest.MonkeyPatch):
    patch_stack(monkeypatch)
    assert "stack dev has no section `monitoring`" in hpc("dashboard", "dev").error


def test_the_files_for_grafana_are_written_and_listed(hpc: Hpc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    patch_stack(monkeypatch, monitoring={})
    ended = hpc("dashboard", "dev", "--grafana", str(tmp_path / "grafana"))
    written = {str(path.relative_to(tmp_path / "grafana")) for path in (tmp_path / "grafana").rglob("*.*")}
    assert {line.removeprefix(f"{tmp_path}/grafana/") for line in ended.out.splitlines()} == written
    assert "dashboards/dev/overview.json" in written
    provider = yaml.safe_load((tmp_path / "grafana/provisioning/dashboards/hpc-dev.yaml").read_text())["providers"][0]
    assert provider["options"]["path"] == "/etc/grafana/dashboards/dev"
    (tmp_path / "file").touch()
    assert "file" in hpc("dashboard", "dev", "--grafana", str(tmp_path / "file")).error


@pytest.fixture
def prometheus(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "ssh.py").write_text(FORWARDS.replace("{folder}", str(tmp_path)))
    tool("ssh", f'exec setsid {sys.executable} -S {tmp_path}/ssh.py "$@"')
    monkeypatch.setattr("cli.cluster.dashboard._PAUSE", 0.0)
    connection = Prometheus(from_outputs("dev", OUTPUTS))
    yield connection
    connection.close()
    for pid in (tmp_path / "pids").read_text().split() if (tmp_path / "pids").exists() else ():
        end(int(pid))


def end(pid: int) -> None:
    """End a stand-in for ssh, and wait until it has ended."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    wait_for(lambda: not lives(pid))


def test_an_ended_connection_is_opened_again(prometheus: Prometheus, tmp_path: Path):
    answer = prometheus.ask("api/v1/query?query=up")
    assert (answer.status, answer.body, answer.headers) == (200, b"up", {"Content-Type": "a/b"})
    assert prometheus.ask("api/v1/query?query=up").body == b"up"
    first = (tmp_path / "pids").read_text().split()
    assert len(first) == 1
    end(int(first[0]))
    assert prometheus.ask("api/v1/query?query=up").body == b"up"
    assert len((tmp_path / "pids").read_text().split()) == 2


def test_the_host_or_service_that_does_not_answer_is_named(prometheus: Prometheus, tmp_path: Path):
    for state, message in (
        ("refuses", r"^dev-controller does not answer: Permission denied \(publickey\)\.$"),
        ("away", "^Prometheus on dev-controller does not answer$"),
        ("starts", "^Prometheus on dev-controller is starting$"),
    ):
        (tmp_path / state).touch()
        with pytest.raises(CliError, match=message):
            prometheus.ask("-/ready")
        (tmp_path / state).unlink()
    assert prometheus.ask("-/ready").status == 200
