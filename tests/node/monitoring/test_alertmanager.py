"""Who reaches Alertmanager and the exporters on their machine, and the silences that Alertmanager reports."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from judge import machine
from monitoring import alertmanager, service

PROGRAM = """
import encodings.idna, os, socket, subprocess, sys

add, remove = eval(sys.argv[1])
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
servers = [socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
           for port in (9090, 9093, 9100, 9400)]


def reached(uid):
    if not (child := os.fork()):
        os.setuid(uid)
        found = set()
        for address in ("127.0.0.1", "127.0.0.2", "::1"):
            for port in (9090, 9093, 9100, 9400):
                try:
                    socket.create_connection((address, port), timeout=10).close()
                    found.add(port)
                except ConnectionRefusedError:
                    pass
        print(uid, sorted(found), flush=True)
        os._exit(0)
    os.waitpid(child, 0)


for command in (add, add):
    subprocess.run(command, check=True)
for uid in (0, 65534, 2001):
    reached(uid)
subprocess.run(remove, check=True)
reached(2001)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="connects as root and as others")
def test_root_and_the_daemons_user_alone_reach_them() -> None:
    """In a network namespace of its own, by the commands of the unit, twice as after a restart that was cut off."""
    commands = dict(
        line.split("=", 1) for line in service.FIREWALL_UNIT.replace("\\\n", " ").splitlines() if line[:4] == "Exec"
    )
    # The daemons' user does not exist on this machine.
    add, remove = (shlex.split(commands[name].replace(service.USER, "nobody")) for name in ("ExecStart", "ExecStop"))
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", PROGRAM, repr((add, remove))],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    every = "[9090, 9093, 9100, 9400]"
    assert done.stdout.splitlines() == [f"0 {every}", f"65534 {every}", "2001 [9090]", f"2001 {every}"], done.stderr


SILENCES = """[
 {"id": "8f5e1a54-8f4b-4a0e-9a5f-8d2b8d1f0c11", "status": {"state": "active"}, "updatedAt": "2026-11-28T10:00:00.000Z",
  "comment": "disk\\nis replaced", "createdBy": "root", "startsAt": "2026-11-28T10:00:00.000Z",
  "endsAt": "2026-11-28T12:00:00.000Z", "matchers": [
   {"name": "alertname", "value": "HealthDisk", "isRegex": false, "isEqual": true},
   {"name": "node", "value": "dev-cpu-.*", "isRegex": true, "isEqual": false}]},
 {"id": "1d1bb8ff-2d5e-4a3e-8a3d-0a8e1a7b0001", "status": {"state": "expired"}, "updatedAt": "2026-11-27T10:00:00.000Z",
  "comment": "", "createdBy": "root", "startsAt": "2026-11-27T09:00:00.000Z", "endsAt": "2026-11-27T10:00:00.000Z",
  "matchers": [{"name": "alertname", "value": "NodeDown", "isRegex": false, "isEqual": true}]}
]"""
"""As GET /api/v2/silences (gettableSilences of api/v2/openapi.yaml at v0.23.0)."""


class Alertmanager(BaseHTTPRequestHandler):
    """Its answers about silences."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/api/v2/silences" else 404)
        self.end_headers()
        self.wfile.write(SILENCES.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Print nothing."""


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = HTTPServer(("127.0.0.1", 0), Alertmanager)
    monkeypatch.setattr(alertmanager, "PORT", server.server_port)
    Thread(target=server.serve_forever, daemon=True).start()
    yield
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("served")
def test_an_active_silence_is_a_finding_with_its_maker_its_end_and_its_command() -> None:
    document = {"name": "dev-controller", "roles": ["controller"], "time": 0.0, "silences": alertmanager.silences()}
    (found,) = machine.findings(json.loads(json.dumps(document)))
    assert (found.id, found.where) == ("alerts-silenced", "dev-controller")
    assert found.what == (
        'alerts with alertname="HealthDisk", node!~"dev-cpu-.*" are silenced by root until 2026-11-28T12:00:00.000Z: '
        "disk is replaced"
    )
    assert found.todo == (
        "./hpc ssh STACK dev-controller -- amtool --alertmanager.url=http://localhost:9093 silence expire "
        "8f5e1a54-8f4b-4a0e-9a5f-8d2b8d1f0c11"
    )


@pytest.mark.parametrize(("state", "ids"), [("active", []), ("failed", ["monitoring-open"])])
def test_a_firewall_that_does_not_run_is_a_finding(state: str, ids: list[str]) -> None:
    row = {
        "state": state,
        "sub": "exited",
        "restarts": 0,
        "since": 0.0,
        "started": 0.0,
        "journal": ["nft: no such file"],
    }
    document = {"name": "dev-login-0", "roles": ["login"], "time": 1e6, "daemons": {service.FIREWALL: row}}
    assert [finding.id for finding in machine.findings(document)] == ids
