"""Rights of users on a machine: sudo's file and subordinate uids follow from the configuration alone."""

import stat
from pathlib import Path
from typing import Any

import collect
import pytest
from rights import subordinate_ids, sudoers
from system.host import SetupError


def user(name, **rights) -> Any:
    return {"name": name, "uid": 2001, "gid": 2001, "groups": [], "shell": "/bin/sh", "keys": [], **rights}


class TestSudo:
    @pytest.fixture
    def calls(self, tmp_path, monkeypatch):
        """A folder for the file, and what visudo was given."""
        given = []
        monkeypatch.setattr(sudoers, "FILE", tmp_path / "hpc-users")
        monkeypatch.setattr(sudoers, "installed", lambda: True)

        def run(*command):
            given.append(Path(command[-1].partition("=")[2]).read_text())

        monkeypatch.setattr(sudoers, "run", run)
        return given

    def test_the_file_names_who_has_it_and_goes_with_the_last(self, calls):
        assert sudoers.converge([user("bob", sudo=True), user("alice", sudo=True), user("carol", sudo=False)])
        lines = [line for line in sudoers.FILE.read_text().splitlines() if not line.startswith("#")]
        assert lines == ["alice ALL=(ALL:ALL) NOPASSWD: ALL", "bob ALL=(ALL:ALL) NOPASSWD: ALL"]
        assert stat.S_IMODE(sudoers.FILE.stat().st_mode) == 0o440
        assert sudoers.named() == {"alice", "bob"}
        assert calls == [sudoers.FILE.read_text()], "visudo has seen what is installed"
        assert not sudoers.converge([user("alice", sudo=True), user("bob", sudo=True)])
        assert sudoers.converge([user("alice"), user("bob", sudo=True)])
        assert sudoers.named() == {"bob"}
        assert sudoers.converge([user("alice")])
        assert not sudoers.FILE.exists()
        assert not sudoers.converge([])

    def test_a_file_that_visudo_refuses_is_not_installed(self, calls, monkeypatch):
        sudoers.converge([user("alice", sudo=True)])
        before = sudoers.FILE.read_text()

        def refuse(*_):
            raise SetupError("syntax error")

        monkeypatch.setattr(sudoers, "run", refuse)
        with pytest.raises(SetupError, match=r"(?s)left as it was.*syntax error"):
            sudoers.converge([user("bob", sudo=True)])
        assert sudoers.FILE.read_text() == before

    def test_a_machine_without_sudo_says_so_and_is_not_a_difference(self, calls, monkeypatch, capsys):
        monkeypatch.setattr(sudoers, "installed", lambda: False)
        assert not sudoers.converge([user("alice", sudo=True)])
        assert "sudo is not installed on this machine: alice" in capsys.readouterr().out
        assert sudoers.named() is None
        assert all("sudo" not in one for one in collect.unix_accounts()["users"].values())


class TestSubordinateIds:
    @pytest.fixture
    def calls(self, tmp_path, monkeypatch):
        found = []
        monkeypatch.setattr(subordinate_ids, "FILES", {"u": tmp_path / "subuid", "g": tmp_path / "subgid"})
        monkeypatch.setattr(subordinate_ids, "run", lambda *command: found.append(command[1:]))
        return found

    def test_a_range_is_given_beside_all_others(self, calls):
        subordinate_ids.FILES["u"].write_text("bob:100000:65536\ncarol:300000:1000\n")
        assert subordinate_ids.converge([user("alice", containers=True)])
        assert calls == [
            ("--add-subuids", "301000-366535", "alice"),
            ("--add-subgids", "100000-165535", "alice"),
        ]

    @pytest.mark.parametrize("owner", ["alice", "2001"])
    def test_who_has_one_keeps_it_and_who_may_not_loses_it(self, calls, owner):
        for file in subordinate_ids.FILES.values():
            file.write_text(f"bob:100000:65536\n{owner}:165536:65536\n")
        assert not subordinate_ids.converge([user("alice", containers=True), user("bob")])
        assert calls == []
        assert subordinate_ids.converge([user("alice", containers=False), user("bob")])
        assert calls == [("--del-subuids", "165536-231071", "alice"), ("--del-subgids", "165536-231071", "alice")]

    def test_lines_of_another_form_are_no_ranges(self, calls):
        subordinate_ids.FILES["u"].write_text("# a comment\nalice:x:y\n\nbob:1:2:3\n")
        assert subordinate_ids.names() == set()
