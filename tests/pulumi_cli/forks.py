"""Plugins of the Pulumi CLI, and programs that it runs, in processes that are forked off one that has imported them.

A run of the CLI starts up to seven processes of Python, each of which imports for half a second of a processor. The CLI
starts a small program instead, which asks for a fork and ends with its code.
"""

import ctypes
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.pulumi_cli import language_host, provider_host, run_program

ROOT = Path(__file__).parents[2]
MODULES = (
    "components.deploy", "components.gcp.deploy", "components.local.deploy", "components.nebius.deploy",
    "pulumi.dynamic", "pulumi_command.remote", "pulumi_random", "pulumi_tls",
)  # fmt: skip
"""What programs import: the one of this project, and that of resources.py."""
_CLIENT = """#!{python} -IS
import json, os, select, signal, socket, sys
signal.signal(signal.SIGINT, lambda *_: os._exit(0))
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect({address!r})
request = dict(call={call!r}, arguments=sys.argv[1:], env=dict(os.environ), folder=os.getcwd())
parent = os.pidfd_open(os.getppid())
socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2, parent])
ended, _, _ = select.select([connection, parent], [], [])
sys.exit(int(connection in ended and connection.recv(100) or 1))
"""
_LARGEST = 1 << 18
"""Bytes of a request: the environment has a stack's configuration."""


class Forks:
    """The process that others are forked off; it ends with this one."""

    def __init__(self, folder: Path) -> None:
        self._address = str(folder / "forks")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self._address)
            listener.listen(64)
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", __name__, str(listener.fileno())],
                cwd=ROOT, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def write(self, program: Path, *call: str) -> None:
        """Write a program that makes a call of CALLS."""
        program.write_text(_CLIENT.format(python=sys.executable, address=self._address, call=call))
        program.chmod(0o755)

    def close(self) -> None:
        """End it, and all that was forked off it."""
        self._process.kill()
        self._process.wait()


def _dynamic(*_engine: str) -> None:
    """As the SDK's sdk/python/dist/pulumi-resource-pulumi-python, which finds modules in the working directory."""
    sys.path.insert(0, str(Path.cwd()))
    runpy.run_module("pulumi.dynamic", run_name="__main__")


CALLS: Mapping[str, Callable[..., Any]] = {
    "dynamic": _dynamic,
    "language": language_host.main,
    "program": run_program.main,
    "provider": provider_host.main,
}


def serve(listener: socket.socket) -> None:
    """Fork a process for each connection."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        message, files, _, _ = socket.recv_fds(connection, _LARGEST, 4)
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            begin(connection, json.loads(message), files)
        for file in (*files, connection.detach()):
            os.close(file)


def begin(connection: socket.socket, request: dict[str, Any], files: list[int]) -> None:
    """Become the program that asked, and end with it, with its parent or with what this was forked off."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG (linux/prctl.h)
    *streams, parent = files
    for number, file in enumerate(streams):
        os.dup2(file, number)
        os.close(file)
    sys.stdout.reconfigure(line_buffering=True)  # pyrefly: ignore[missing-attribute]

    def watch() -> None:
        select.select([connection, parent], [], [])
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["folder"])
    name, *words = request["call"]
    code = 1
    try:
        code = CALLS[name](*words, *request["arguments"]) or 0
    except BaseException:  # noqa: BLE001 - it ends here with its traceback, as a process of its own would
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    connection.send(str(code).encode())
    os._exit(code)


if __name__ == "__main__":
    gc.set_threshold(200_000)
    for module in MODULES:
        import_module(module)
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
