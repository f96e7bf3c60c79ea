"""Programs that tests write, run and serve."""

import http.server
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


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
