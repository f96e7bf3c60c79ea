"""What runs of a user who leaves is ended, and nothing of anybody else."""

import os
import subprocess
import time

import pytest
from system import users

UID, OTHER = 52_003, 52_004
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="starts processes of other users, as root")


@pytest.fixture
def calls(monkeypatch):
    found = []
    monkeypatch.setattr(users, "run", lambda *words: found.append(words))
    return found


def start(uid: int, code: str) -> subprocess.Popen:
    process = subprocess.Popen(["python3", "-I", "-S", "-c", code], user=uid, group=uid, extra_groups=[], stdout=-1)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_all_of_the_users_processes_end_and_nobody_elses(calls, monkeypatch):
    monkeypatch.setitem(users.SIGNAL_SECONDS, users.signal.SIGTERM, 0.3)
    code = "import time; print(flush=True); time.sleep(600)"
    mine, stubborn, other = start(UID, code), start(UID, STUBBORN), start(OTHER, code)
    try:
        users.end_processes("carol", UID)
        assert [one.wait(60) for one in (mine, stubborn)] == [-15, -9]
        assert other.poll() is None
        assert calls == [("usermod", "--expiredate", "1", "carol")]
    finally:
        for one in (mine, stubborn, other):
            one.kill()
            one.communicate()


def test_without_processes_nothing_is_done(calls):
    users.end_processes("carol", UID)
    assert calls == []


def test_a_process_that_nobody_waited_for_is_none(calls):
    process = subprocess.Popen(["true"], user=UID, group=UID, extra_groups=[])
    end = time.monotonic() + 60
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert list(users.processes(UID)) == []
    process.wait()
