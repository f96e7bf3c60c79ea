"""lustre_ready.sh waits until the ports of a Lustre file system answer, and prints what is missing."""

import http.server
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from cluster.platforms.gcp.filesystems.exascaler import Exascaler
from cluster.platforms.gcp.filesystems.lustre import Managed
from tests import programs
from tests.clouds import EXASCALER, MANAGED, google

SCRIPT = Path(__file__).parents[2] / "scripts" / "lustre_ready.sh"


class Web(http.server.BaseHTTPRequestHandler):
    """A management server's web server, which answers every question with one status."""

    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()


def web(status: int) -> AbstractContextManager[int]:
    return programs.served(type("Handler", (Web,), {"status": status}))


@contextmanager
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def closed() -> int:
    """A port that nobody listens at."""
    with listening() as port:
        return port


def ask(*more: str, lnet: int, http_port: int = 1, seconds: int = 0) -> subprocess.CompletedProcess[str]:
    return run(["bash", str(SCRIPT), "127.0.0.1", str(seconds), *more], LNET_PORT=str(lnet), HTTP_PORT=str(http_port))


def run(command: list[str], **ports: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **ports}
    return programs.run(command, env=env, timeout=120)


@pytest.mark.parametrize("status", [200, 301, 403, 404, 500])
def test_any_response_of_the_web_server_is_enough(status: int):
    with listening() as lnet, web(status) as port:
        found = ask("--web", lnet=lnet, http_port=port)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout == "the Lustre file system at 127.0.0.1 answers\n"


def test_managed_lustre_has_no_web_server():
    with listening() as lnet:
        assert ask(lnet=lnet, http_port=closed()).returncode == 0


def test_a_server_that_does_not_answer_is_an_error():
    port = closed()
    found = ask("--web", lnet=port)
    assert found.returncode == 1
    assert f"127.0.0.1:{port} (LNet)" in found.stderr
    assert "to do: look at its servers' consoles" in found.stderr


def test_a_web_server_that_never_answers_is_only_printed():
    with listening() as lnet:
        found = ask("--web", lnet=lnet, http_port=closed(), seconds=2)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.count("waiting: the web server of 127.0.0.1") == 1
    assert "answers; after 2 s the web server of 127.0.0.1" in found.stdout


def test_the_command_fits_each_kind_of_file_system():
    own, managed = Exascaler(google(storage={"lustre": EXASCALER})), Managed(google(storage={"lustre": MANAGED}))
    text = own.probe("172.16.9.1")
    assert text.startswith("bash -s -- 172.16.9.1 1800 --web <<'LUSTRE_READY'\n#!/bin/bash\n")
    assert "--web <<" not in managed.probe("10.128.0.2")
    with listening() as lnet:
        done = run(["sh", "-c", managed.probe("127.0.0.1")], LNET_PORT=str(lnet))
    assert (done.returncode, done.stdout) == (0, "the Lustre file system at 127.0.0.1 answers\n")
