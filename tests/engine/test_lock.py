"""Only one run at a time can hold a stack, and others are refused with its holder."""

import json
import os
import socket
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from engine import EngineError, StackLockedError


def locks(bench):
    return bench.root.parent / "project-backend" / ".pulumi" / "locks" / "organization" / "bench" / "dev"


def leave_lock(bench, **row):
    locks(bench).mkdir(parents=True, exist_ok=True)
    file = locks(bench) / "left.json"
    given = {"pid": 1, "username": "alice", "hostname": "elsewhere", "timestamp": "2026-01-02T03:04:05.123456789+01:00"}
    file.write_text(json.dumps({**given, **row}))
    return file


def test_a_second_run_is_refused_with_the_holder_of_the_lock(bench):
    bench.graph("a")
    bench.flag("hold-a")
    process = bench.spawn("up")
    bench.wait_until_held()
    with pytest.raises(StackLockedError) as caught:
        bench.up()
    holder = caught.value.holder
    assert (holder.pid, holder.host) == (process.pid, socket.gethostname())
    assert f"pid {process.pid}" in str(caught.value)
    assert str(holder.file) in str(caught.value)
    # A preview needs no lock.
    assert bench.preview().ok
    bench.flag("hold-a", on=False)
    process.join()
    assert process.exitcode == 0
    assert list(locks(bench).iterdir()) == []
    assert bench.up().ok


def test_the_lock_of_an_ended_process_is_removed(bench):
    """Also if another process has its number, which is detected by the start time of that process."""
    gone = leave_lock(bench, hostname=socket.gethostname(), pid=2**22 + 1)
    attributes = gone.with_name("left.json.attrs")
    attributes.write_text("{}")
    assert bench.up("a").ok
    assert not gone.exists()
    assert not attributes.exists(), "the CLI's file store keeps one beside each file"
    reused = leave_lock(bench, hostname=socket.gethostname(), pid=os.getpid())
    assert bench.up().ok
    assert not reused.exists()


@pytest.mark.parametrize(("zone", "hours"), [("-05:00", -5), ("+05:30", 5.5), ("Z", 0)])
def test_the_lock_of_a_running_process_holds_in_any_time_zone(bench, zone, hours):
    """The CLI writes local time, in nanoseconds."""
    now = datetime.now(timezone.utc) + timedelta(hours=hours)
    stamp = f"{now:%Y-%m-%dT%H:%M:%S}.123456789{zone}"
    leave_lock(bench, hostname=socket.gethostname(), pid=os.getpid(), timestamp=stamp)
    with pytest.raises(StackLockedError, match=f"pid {os.getpid()}"):
        bench.up("a")


def test_locks_of_other_hosts_and_unreadable_ones_hold_until_they_are_broken(bench):
    bench.graph("a")
    file = leave_lock(bench)
    with pytest.raises(StackLockedError, match="alice@elsewhere"):
        bench.up()
    file.write_text("{")
    with pytest.raises(StackLockedError, match=r"left\.json"):
        bench.run("destroy")
    assert [holder.file for holder in bench.stack().unlock()] == [file]
    assert bench.up().ok


def test_the_lock_of_a_zombie_is_removed(bench):
    """It has ended, and its parent has not read the exit status."""
    child = os.fork()
    if not child:
        os._exit(0)
    try:
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        now = datetime.now(timezone.utc).isoformat()
        left = leave_lock(bench, hostname=socket.gethostname(), pid=child, timestamp=now)
        assert bench.up("a").ok
        assert not left.exists()
    finally:
        os.waitpid(child, 0)


def test_an_empty_lock_is_removed(bench):
    left = leave_lock(bench)
    left.write_text("")
    assert bench.up("a").ok
    assert not left.exists()


def test_a_lock_that_cannot_be_written_is_an_error_and_leaves_no_file(bench, monkeypatch):
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    bench.graph("a")
    with pytest.raises(EngineError, match="no lock can be written: No space left on device"):
        bench.up()
    assert list(locks(bench).iterdir()) == []
