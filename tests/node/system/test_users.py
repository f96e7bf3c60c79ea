"""Users, sudo and subordinate ids; a removed user has no processes, and a reverted removal reopens the account."""

import grp
import os
import pwd
import stat
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import collect
import pytest
from system import users
from system.host import SetupError

from tests.waiting import PATIENCE


def user(name: str = "alice", **rights: bool) -> Any:
    return {"name": name, "uid": 2001, "gid": 2001, "groups": [], "shell": "/bin/bash", "keys": [], **rights}


@pytest.mark.parametrize(("expires", "changed"), [("", False), ("1", True), ("20000", False)])
def test_only_an_account_that_a_removal_closed_is_reopened(monkeypatch, tmp_path, expires, changed):
    shadow = tmp_path / "shadow"
    shadow.write_text(f"root:*:1:0:99999:7:::\nalice2:!:1:0:99999:7::1:\nalice:!:20000:0:99999:7::{expires}:\n")
    calls = []
    monkeypatch.setattr(users, "SHADOW", shadow)
    monkeypatch.setattr(users, "run", lambda *words: calls.append(words))
    account = SimpleNamespace(pw_uid=2001, pw_gid=2001, pw_shell="/bin/bash", pw_name="alice")
    monkeypatch.setattr(pwd, "getpwnam", lambda _: account)
    monkeypatch.setattr(grp, "getgrall", list)
    assert users._converge_user(user()) is changed
    assert [words[-3:] for words in calls] == ([("--expiredate", "", "alice")] if changed else [])


class TestSudo:
    @pytest.fixture
    def calls(self, tmp_path, monkeypatch):
        """A folder for the file, and what visudo was given."""
        given = []
        monkeypatch.setattr(users, "SUDOERS", tmp_path / "hpc-users")
        monkeypatch.setattr(users, "has_sudo", lambda: True)

        def run(*command):
            given.append(Path(command[-1].partition("=")[2]).read_text())

        monkeypatch.setattr(users, "run", run)
        return given

    def test_the_file_has_the_users_with_sudo(self, calls):
        assert users.converge_sudoers([user("bob", sudo=True), user("alice", sudo=True), user("carol", sudo=False)])
        lines = [line for line in users.SUDOERS.read_text().splitlines() if not line.startswith("#")]
        assert lines == ["alice ALL=(ALL:ALL) NOPASSWD: ALL", "bob ALL=(ALL:ALL) NOPASSWD: ALL"]
        assert stat.S_IMODE(users.SUDOERS.stat().st_mode) == 0o440
        assert users.sudo_users() == {"alice", "bob"}
        assert calls == [users.SUDOERS.read_text()], "visudo has seen what is installed"
        assert not users.converge_sudoers([user("alice", sudo=True), user("bob", sudo=True)])
        assert users.converge_sudoers([user("alice"), user("bob", sudo=True)])
        assert users.sudo_users() == {"bob"}
        assert users.converge_sudoers([user("alice")])
        assert not users.SUDOERS.exists()
        assert not users.converge_sudoers([])

    def test_a_file_that_visudo_refuses_is_not_installed(self, calls, monkeypatch):
        users.converge_sudoers([user("alice", sudo=True)])
        before = users.SUDOERS.read_text()

        def refuse(*_):
            raise SetupError("syntax error")

        monkeypatch.setattr(users, "run", refuse)
        with pytest.raises(SetupError, match=r"(?s)left as it was.*syntax error"):
            users.converge_sudoers([user("bob", sudo=True)])
        assert users.SUDOERS.read_text() == before

    def test_a_machine_without_sudo_is_not_drift(self, calls, monkeypatch, capsys):
        monkeypatch.setattr(users, "has_sudo", lambda: False)
        assert not users.converge_sudoers([user("alice", sudo=True)])
        assert "sudo is not installed on this machine: alice" in capsys.readouterr().out
        assert users.sudo_users() is None
        assert all("sudo" not in user for user in collect.unix_accounts()["users"].values())


class TestSubordinateIds:
    @pytest.fixture
    def calls(self, tmp_path, monkeypatch):
        found = []
        monkeypatch.setattr(users, "SUBORDINATE_IDS", {"u": tmp_path / "subuid", "g": tmp_path / "subgid"})
        monkeypatch.setattr(users, "run", lambda *command: found.append(command[1:]))
        return found

    def test_a_range_does_not_overlap_others(self, calls):
        users.SUBORDINATE_IDS["u"].write_text("bob:100000:65536\ncarol:300000:1000\n")
        assert users.converge_subordinate_ids([user("alice", containers=True)])
        assert calls == [
            ("--add-subuids", "301000-366535", "alice"),
            ("--add-subgids", "100000-165535", "alice"),
        ]

    @pytest.mark.parametrize("owner", ["alice", "2001"])
    def test_ranges_are_kept_or_removed(self, calls, owner):
        for file in users.SUBORDINATE_IDS.values():
            file.write_text(f"bob:100000:65536\n{owner}:165536:65536\n")
        assert not users.converge_subordinate_ids([user("alice", containers=True), user("bob")])
        assert calls == []
        assert users.converge_subordinate_ids([user("alice", containers=False), user("bob")])
        assert calls == [("--del-subuids", "165536-231071", "alice"), ("--del-subgids", "165536-231071", "alice")]

    def test_invalid_lines_are_ignored(self, calls):
        users.SUBORDINATE_IDS["u"].write_text("# a comment\nalice:x:y\n\nbob:1:2:3\n")
        assert users.subordinate_id_owners() == set()


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


def test_only_processes_of_the_user_are_ended(calls, monkeypatch):
    code = "import time; print(flush=True); time.sleep(600)"
    mine, stubborn, other = start(UID, code), start(UID, STUBBORN), start(OTHER, code)
    # Time stands still until who heeds SIGTERM has ended.
    clock = SimpleNamespace(monotonic=lambda: 0.0 if mine.poll() is None else time.monotonic(), sleep=time.sleep)
    monkeypatch.setattr(users, "time", clock)
    try:
        users.end_processes("carol", UID)
        assert [process.wait(PATIENCE) for process in (mine, stubborn)] == [-15, -9]
        assert other.poll() is None
        assert calls == [("usermod", "--expiredate", "1", "carol")]
    finally:
        for process in (mine, stubborn, other):
            process.kill()
            process.communicate()


def test_without_processes_the_account_stays_open(calls):
    users.end_processes("carol", UID)
    assert calls == []


def test_zombies_are_ignored(calls):
    process = subprocess.Popen(["true"], user=UID, group=UID, extra_groups=[])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert list(users.processes(UID)) == []
    process.wait()
