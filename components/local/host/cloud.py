"""The cloud of a stack with elastic nodes: a process on this host that creates and deletes their machines for the
controller.

It is a stand-in for Compute Engine with the same protocol, so the controller runs the same client and reconcile loop as
on Google Cloud. The process outlives the command that starts it. Its data is in the stack's folder, so it can be killed
at any time and started again.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from signal import Signals
from typing import Any

from components.local.host import machine
from components.local.host.paths import HostError, StackPaths
from components.local.host.process import Process
from scripts.hostfiles import locked, write_atomically

INSTANCE = "/etc/hpc/instance"
"""A file of the machines that the process creates, and of no others: the id of the instance."""
_PROGRAM = "components.local.compute_engine.host_compute"
_SOURCES = Path(__file__).parents[3]
_START_SECONDS = 120.0
_END_SECONDS = 60.0
"""Time for the process to end: it first completes the machine that it is creating."""


class CloudPaths:
    """The files in the folder of the process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.design = folder / "design.json"
        """The design of its machines (see `resources.Cloud`). Only root can read it, since their files have secrets."""
        self.state = folder / "state.json"
        """Instances and operations; only the process reads and writes it."""
        self.record = folder / "process.json"
        """The record of the process, see process.Process."""
        self.lock = folder / "lock"
        """Held by the process as long as it runs."""
        self.log = folder / "cloud.log"


def is_up(stack: StackPaths) -> bool:
    """Return whether the process runs."""
    process = Process.load(CloudPaths(stack.cloud).record)
    return process is not None and process.alive()


def start(stack: StackPaths, design: Mapping[str, Any]) -> None:
    """Write the design, which the process reads again by itself. Start the process if it does not run or listens at
    another address."""
    paths = CloudPaths(stack.cloud)
    paths.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    listens = _listens(paths)
    write_atomically(paths.design, json.dumps(design), mode=0o600)
    if is_up(stack) and listens == _listens(paths):
        return
    stop(stack)
    with paths.log.open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", _PROGRAM, str(paths.folder)],
            cwd="/",
            env={**os.environ, "PYTHONPATH": str(_SOURCES)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_SECONDS
    while not (is_up(stack) and _answers(paths)):
        if child.poll() is not None or time.monotonic() > deadline:
            lines = paths.log.read_text(errors="replace").splitlines()[-5:]
            raise HostError("\n".join(["the process that creates elastic nodes did not start:", *lines]))
        time.sleep(0.05)


def stop(stack: StackPaths) -> None:
    """End the process, even if a killed run has only just started it. Its machines run on."""
    paths = CloudPaths(stack.cloud)
    deadline = time.monotonic() + _END_SECONDS
    while paths.folder.exists():
        with locked(paths.lock, wait=False) as free:
            if free:
                paths.record.unlink(missing_ok=True)
                return
        process = Process.load(paths.record)
        if process:
            last = time.monotonic() > deadline
            process.end(Signals.SIGKILL if last else Signals.SIGTERM, wait=5)
            with suppress(ChildProcessError):  # it may be another process's child
                os.waitpid(process.pid, os.WNOHANG)
        if time.monotonic() > deadline + 10:
            raise HostError(f"the process that creates elastic nodes does not end ({paths.record})")
        time.sleep(0.05)


def remove(stack: StackPaths) -> None:
    """End the process, and remove its machines and its folder."""
    if not stack.cloud.exists():
        return
    stop(stack)
    names = set(_design(CloudPaths(stack.cloud)).get("addresses", {}))
    for folder in sorted(stack.machines.glob("*/")):
        files = machine.files_of(stack.machine(folder.name))
        # The process was killed while it created a machine without a record.
        if INSTANCE in files if files is not None else folder.name in names:
            machine.delete(machine.bare(stack.folder.parents[1], stack.stack, folder.name))
    rmtree(stack.cloud)


def _design(paths: CloudPaths) -> dict[str, Any]:
    try:
        return json.loads(paths.design.read_text())
    except (FileNotFoundError, ValueError):
        return {}


def _listens(paths: CloudPaths) -> tuple[Any, ...]:
    design = _design(paths)
    return tuple(design.get(key) for key in ("gateway", "port"))


def _answers(paths: CloudPaths) -> bool:
    gateway, port = _listens(paths)
    try:
        socket.create_connection((gateway, int(port)), timeout=1).close()
    except OSError:
        return False
    return True
