"""Whether a Lustre file system is up is asked of its ports, for so long and no longer, and what is missing is said."""

import http.server
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.gcp.ready import probe
from tests.clouds import EXASCALER, MANAGED, google

SCRIPT = Path(__file__).parents[2] / "scripts" / "lustre" / "ready.sh"


class Packages(http.server.BaseHTTPRequestHandler):
    """A management server's web server; packages are there once `there` is set."""

    there = True

    def do_GET(self) -> None:
        self.send_response(200 if self.there and self.path.startswith("/client-packages") else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class' name
        """Nobody reads it."""


@contextmanager
def web(*, there: bool) -> Iterator[int]:
    handler = type("Handler", (Packages,), {"there": there})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as one:
        yield one.getsockname()[1]


def closed() -> int:
    """A port that nobody listens at."""
    with listening() as port:
        return port


def ask(*more: str, lnet: int, http_port: int = 1, seconds: int = 0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", SCRIPT, "127.0.0.1", str(seconds), *more],
        env={**os.environ, "LNET_PORT": str(lnet), "HTTP_PORT": str(http_port)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_one_that_answers_is_ready():
    with listening() as lnet, web(there=True) as port:
        found = ask("--packages", lnet=lnet, http_port=port)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout == "the Lustre file system at 127.0.0.1 answers\n"


def test_googles_own_has_no_packages_to_ask_for():
    with listening() as lnet:
        assert ask(lnet=lnet, http_port=closed()).returncode == 0


def test_a_server_that_does_not_answer_is_named_with_what_to_do():
    port = closed()
    found = ask("--packages", lnet=port)
    assert found.returncode == 1
    assert f"127.0.0.1:{port} (LNet)" in found.stderr
    assert "to do: look at its servers' consoles" in found.stderr


def test_packages_that_are_not_there_yet_are_waited_for():
    with listening() as lnet, web(there=False) as port:
        found = ask("--packages", lnet=lnet, http_port=port, seconds=4)
    assert found.returncode == 1
    assert found.stdout.count("waiting: 127.0.0.1 has no client packages") == 1
    assert "not ready after 4 s" in found.stderr


def test_the_command_asks_for_what_each_kind_has():
    own, managed = google(storage={"lustre": EXASCALER}), google(storage={"lustre": MANAGED})
    assert own.storage.lustre
    assert managed.storage.lustre
    text = probe(own.storage.lustre, "172.16.9.1")
    assert text.startswith("bash -s -- 172.16.9.1 1800 --packages <<'LUSTRE_READY'\n#!/bin/bash\n")
    assert "--packages <<" not in probe(managed.storage.lustre, "10.128.0.2")
    with listening() as lnet:
        run = subprocess.run(
            ["sh", "-c", probe(managed.storage.lustre, "127.0.0.1")],
            env={**os.environ, "LNET_PORT": str(lnet)},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert (run.returncode, run.stdout) == (0, "the Lustre file system at 127.0.0.1 answers\n")
