"""Processes of somebody who leaves: sessions, tmux, what a job left behind. userdel refuses while there are any."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from system.host import log, run

PROC = Path("/proc")
SHADOW = Path("/etc/shadow")
EXPIRED = "1"  # days since 1970 (shadow(5))
SECONDS = {signal.SIGTERM: 3.0, signal.SIGKILL: 5.0}  # for processes to end by each, in this order


def end(name: str, uid: int) -> None:
    """Let nobody log in as the user any more, and end what runs as the user; at last by SIGKILL."""
    if not any(processes(uid)):
        return
    run("usermod", "--expiredate", EXPIRED, name)  # sshd refuses an account that has expired
    log(f"{name}: ending {len(list(processes(uid)))} processes")
    for number, seconds in SECONDS.items():
        deadline = time.monotonic() + seconds
        while any(processes(uid)) and time.monotonic() < deadline:
            for pid in processes(uid):
                _send(pid, uid, number)
            time.sleep(0.1)


def closed(name: str) -> bool:
    """Whether `end` has closed this account, and it is still there."""
    try:
        rows = [line.split(":") for line in SHADOW.read_text().splitlines()]
    except FileNotFoundError:
        return False
    return any(row[0] == name and row[7:8] == [EXPIRED] for row in rows)


def processes(uid: int) -> Iterator[int]:
    """Ids of processes that run as this user, really or effectively."""
    for folder in PROC.iterdir():
        if folder.name.isdigit() and _runs_as(int(folder.name), uid):
            yield int(folder.name)


def _send(pid: int, uid: int, number: signal.Signals) -> None:
    """Send a signal to a process, if it is still the user's: by a descriptor, since another one may get its id."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if _runs_as(pid, uid):
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)


def _runs_as(pid: int, uid: int) -> bool:
    try:
        lines = (PROC / str(pid) / "status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return False
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    # One that ended and that nobody has asked for keeps nobody from anything.
    return str(uid) in fields["Uid"].split() and not fields["State"].strip().startswith("Z")
