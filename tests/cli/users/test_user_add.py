"""`./hpc user add`: the stack file is edited, checked as a whole before it is written, and applied by `up`."""

import io
import json
import os
import pwd
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli import users
from cli.errors import CliError
from cli.operation import operation
from cli.operation.run_options import RunOptions
from cli.users import ClusterUsers
from components.slurm.payload import run_sent
from tests import programs
from tests.cli.conftest import Hpc
from tests.cli.users.conftest import FILE, LINE, item


class TestAdd:
    def test_writes_one_line_shows_it_and_runs_up(self, hpc: Hpc, file: Path, key: Path, ups: list[RunOptions]) -> None:
        ended = hpc("user", "add", "dev", "carol", "--key", str(key), "--account", "research", "--sudo", "--yes")
        text = key.read_text().strip()
        line = item(account="research", sudo="true", keys=f"[{text}]")
        assert file.read_text() == FILE.replace(LINE, LINE + line)
        assert f"+{line.rstrip()}" in ended.out
        assert ended.code == 0
        assert [item.yes for item in ups] == [True]

    def test_adding_a_user_twice_changes_nothing(self, hpc: Hpc, file: Path, key: Path, ups: list[RunOptions]) -> None:
        words = ("user", "add", "dev", "carol", "--key", str(key), "--account", "research")
        hpc(*words)
        text = file.read_text()
        ended = hpc(*words)
        assert file.read_text() == text
        assert "in the stack file already" in ended.err
        assert len(ups) == 2, "the cluster is not up with her: the first run may have been stopped"

    def test_a_user_on_the_cluster_is_not_applied_again(
        self, hpc: Hpc, ups: list[RunOptions], running: Callable[..., None]
    ) -> None:
        running()
        ended = hpc("user", "add", "dev", "alice", "--account", "research")
        assert (ended.code, ups) == (0, [])

    def test_other_values_are_refused_with_the_line_to_edit(self, hpc: Hpc, file: Path, ups: list[RunOptions]) -> None:
        ended = hpc("user", "add", "dev", "alice", "--account", "teaching", "--uid", "2009")
        assert ended.code == 1
        assert "users[0].account of alice" in ended.err
        assert "users[0].uid of alice" in ended.err
        assert f"edit line 9 of {file}" in ended.err
        assert (file.read_text(), ups) == (FILE, [])

    def test_all_errors_are_reported_at_once(self, hpc: Hpc, file: Path, key: Path) -> None:
        private = str(key.with_suffix(""))
        ended = hpc(
            "user", "add", "dev", "Carol", "--key", private, "--key", "missing", "--account", "reserch",
            "--qos", "urgnt", "--group", "mll", "--uid", "2001", "--shell", "bash",
        )  # fmt: skip
        for place in (f"--key {private}", "--key missing", ".name", ".shell", ".account", ".qos[0]", ".groups[0]"):
            assert place in ended.err, place
        assert "write research" in ended.err
        assert f"give {key}" in ended.err
        assert Path(private).read_text().splitlines()[1] not in ended.err + ended.out
        assert file.read_text() == FILE
        assert ended.code == 1

    def test_an_account_is_added_on_request(self, hpc: Hpc, file: Path) -> None:
        words = ("user", "add", "dev", "carol", "--account", "lab", "--no-apply")
        assert "define lab under `accounting.accounts`, or give --create-account" in hpc(*words).err
        assert hpc(*words, "--create-account").code == 0
        assert "accounts: [{name: research}, {name: teaching}, {name: lab}]" in file.read_text()

    def test_duplicate_keys_on_standard_input_are_added_once(
        self, hpc: Hpc, file: Path, key: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        line = key.read_text().strip()
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"# hers\n\n{line}\n{line} again\n"))
        words = ("--key", "-", "--key", str(key), "--key", line, "--account", "research", "--no-apply")
        assert hpc("user", "add", "dev", "carol", *words).code == 0
        assert file.read_text().count(line) == 1
        assert item(account="research", keys=f"[{line}]") in file.read_text()

    def test_no_apply_prints_the_command_to_apply(self, hpc: Hpc, ups: list[RunOptions], file: Path) -> None:
        ended = hpc("user", "add", "dev", "carol", "--account", "research", "--no-apply")
        assert "./hpc up dev" in ended.err
        assert ups == []
        assert item(account="research") in file.read_text()

    def test_a_cluster_that_is_not_up_is_not_brought_up(
        self, hpc: Hpc, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(operation, "run", lambda *_: pytest.fail("up"))
        ended = hpc("user", "add", "dev", "carol", "--account", "research")
        assert (ended.code, item(account="research") in file.read_text()) == (0, True)
        assert "Not applied: stack 'dev' has not been brought up. Do so with: ./hpc up dev" in ended.err

    def test_other_edits_of_the_file_are_applied_only_after_confirmation(
        self, hpc: Hpc, file: Path, ups: list[RunOptions]
    ) -> None:
        edited = FILE.replace("{count: 1}", "{count: 2}")
        file.write_text(edited)
        words = ("user", "add", "dev", "carol", "--account", "research")
        ended = hpc(*words)
        assert "nodesets.cpu.count: 1 -> 2" in ended.err
        assert (ended.code, file.read_text(), ups) == (1, edited, [])
        assert (hpc(*words, "--yes").code, len(ups)) == (0, 1)

    @pytest.mark.parametrize("how", [3, CliError("stack dev is in use"), KeyboardInterrupt()])
    def test_a_failed_up_keeps_the_edit_and_prints_what_to_do(
        self, hpc: Hpc, file: Path, running: Callable[..., None], monkeypatch: pytest.MonkeyPatch, how: Any
    ) -> None:
        running()

        def run(*_: Any) -> int:
            if isinstance(how, int):
                return how
            raise how

        monkeypatch.setattr(operation, "run", run)
        ended = hpc("user", "add", "dev", "carol", "--account", "research")
        assert ended.code == (how if isinstance(how, int) else 130 if isinstance(how, KeyboardInterrupt) else 1)
        assert "The stack file is edited. To apply it: ./hpc up dev" in ended.err
        assert item(account="research") in file.read_text()


class TestNumbers:
    def test_a_new_uid_is_the_lowest_free_one(self, hpc: Hpc, file: Path, running: Callable[..., None]) -> None:
        """2002 is a group's, 2004 of a user whom the file does not name any more, 2005 of one who left long ago."""
        running(gone=True)
        hpc("user", "add", "dev", "carol", "--account", "research", "--no-apply")
        assert item(uid=2006, account="research") in file.read_text()

    def test_a_user_with_a_home_gets_its_uid_again(self, hpc: Hpc, file: Path, running: Callable[..., None]) -> None:
        running()
        ended = hpc("user", "add", "dev", "erin", "--account", "research", "--no-apply")
        assert "{name: erin, uid: 2044, account: research}" in file.read_text()
        assert "had uid 2044 before" in ended.err

    def test_a_uid_with_files_of_a_removed_user_is_refused(
        self, hpc: Hpc, file: Path, running: Callable[..., None]
    ) -> None:
        running()
        ended = hpc("user", "add", "dev", "carol", "--account", "research", "--uid", "2005")
        assert "/home/left on the cluster has this one" in ended.err
        assert file.read_text() == FILE

    def test_a_uid_is_chosen_without_an_answer_of_the_cluster(
        self, hpc: Hpc, file: Path, running: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        running(gone=True)

        def look(*_: Any) -> ClusterUsers:
            raise CliError("dev-login-0: does not answer")

        monkeypatch.setattr("cli.users.read_in_effect", look)
        ended = hpc("user", "add", "dev", "carol", "--account", "research", "--no-apply")
        assert "The cluster was not asked" in ended.err
        assert item(uid=2005, account="research") in file.read_text()


ME = pwd.getpwuid(os.geteuid())
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl carol@laptop"


def look(*names: str, start: str = "") -> users.ClusterUsers:
    asked = json.dumps({"files": dict(users._files()), "payload": {"users": list(names)}})
    _, option, code, program = run_sent("users_in_effect.py")
    command = [sys.executable, option, start + code, program]
    done = programs.run(command, input=asked, check=True)
    return users.parse_in_effect(json.loads(done.stdout))


def test_users_of_a_machine_without_slurm_are_read() -> None:
    seen = look(ME.pw_name, "nobody-of-this-name")
    assert set(seen.users) == {ME.pw_name}
    one = seen.users[ME.pw_name]
    assert (one.uid, one.shell, one.account, one.qos) == (ME.pw_uid, ME.pw_shell, "", [])
    assert not any(link in seen.homes for link in ("", ".", ".."))


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (KEY, "SHA256:"),
        (f'from="10.0.0.1" {KEY}', "(another line)"),
        ("\x1b[2J", "(another line)"),
    ],
)
def test_lines_of_authorized_keys_are_shown_as_fingerprints_only(line: str, shown: str) -> None:
    assert users.fingerprint(line).startswith(shown)
