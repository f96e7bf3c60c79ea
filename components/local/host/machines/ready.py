"""Waiting until a machine answers SSH."""

import socket
import time
from pathlib import Path

from components.local.host.errors import HostError
from components.local.host.machines.nspawn import console_tail
from components.local.host.process import Process

PATIENCE = 90.0
"""Seconds that a machine may take: it needs about one alone, and ten among forty that start on two cores."""
_PID_FILE = "run/sshd.pid"  # sshd writes it once it listens; /run is new at each boot


def wait_for_record(name: str, record: Path, console: Path, *, patience: float = 20.0) -> Process:
    """Return the process that start-machine.sh put on record as it began."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        process = Process.load(record)
        if process:
            return process
        time.sleep(0.01)
    raise HostError(_explain(f"machine {name}: did not start", console))


def wait_for_ssh(name: str, process: Process, address: str, console: Path) -> None:
    """Return when port 22 of the machine answers with SSH's greeting.

    Until sshd listens nothing is sent: a look at a file costs little when many machines start at once, and has none of
    the one-second steps in which a network tries again. (/proc/PID/net/tcp would do as well, but reading it walks the
    host's whole connection table.)
    """
    started = time.monotonic()
    deadline = started + PATIENCE
    while not _listens(process):
        if not process.alive():
            raise HostError(_explain(f"machine {name}: ended while it started", console))
        if time.monotonic() > deadline:
            raise HostError(_explain(f"machine {name}: no SSH server after {PATIENCE:.0f} s", console))
        # Many machines that start at once take longer, and should not be slowed down further by our looking.
        time.sleep(min(0.2, 0.03 + (time.monotonic() - started) / 20))
    problem = "no answer"
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((address, 22), timeout=2) as connection:
                greeting = connection.recv(4)
                if greeting == b"SSH-":
                    return
                problem = f"it sent {greeting!r}" if greeting else "it closed the connection"
        except OSError as error:
            problem = str(error)
        time.sleep(0.05)
    text = f"machine {name}: its SSH server is up, but does not greet this host at {address} port 22 ({problem})"
    raise HostError(_explain(text, console))


def _listens(process: Process) -> bool:
    return any(_has_sshd(Path(f"/proc/{pid}/root")) for pid in process.children())


def _has_sshd(root: Path) -> bool:
    try:
        # Early on the child still is in the host's root, where another SSH server may be.
        return not root.samefile("/") and (root / _PID_FILE).exists()
    except OSError:  # it ended, or is just changing its root
        return False


def _explain(text: str, console: Path) -> str:
    tail = console_tail(console)
    if not tail:
        return f"{text}; its console is empty ({console})"
    return "\n".join([f"{text}; the last lines of its console:", *(f"  {line}" for line in tail)])
