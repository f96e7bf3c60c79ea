"""Programs that tests write, run, serve and kill."""

import http.server
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE


def write(path: Path, text: str) -> Path:
    """Write a program that everyone may run: a script of bash, unless its first line names another interpreter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if text.startswith("#!") else f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    return path


def run(command: Sequence[str | Path], *, check: bool = False, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a command and capture the text that it prints."""
    return subprocess.run(command, capture_output=True, text=True, check=check, **options)


@contextmanager
def served(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[int]:
    """Serve HTTP on 127.0.0.1 without a log; returns the port."""
    silent = type("Silent", (handler,), {"log_message": lambda *_: None})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), silent) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def killed(server: Any, first: int, number: int, child: BaseProcess) -> bool:
    """Start a process, and kill it after the server has handled its request of that number, before it answers.

    `first` requests were made before. Return whether there was such a request; if not, the process must succeed.
    """
    killed = False

    def kill(now: int, _call: Any) -> None:
        nonlocal killed
        if now == first + number:
            killed = True
            os.kill(child.pid or 0, signal.SIGKILL)

    server.after = kill
    try:
        child.start()
        child.join(PATIENCE)
        assert child.exitcode == (-signal.SIGKILL if killed else 0)
    finally:
        server.after = lambda _number, _call: None
        child.close()
    return killed
