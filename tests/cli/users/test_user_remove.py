"""`./hpc user remove` and `list`; edits of one file at the same time."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from cli import users
from cli.errors import CliError
from cli.operation.run_options import RunOptions
from cli.stack import edits as text_file
from tests.cli.conftest import STACK, Hpc
from tests.cli.users.conftest import FILE, LINE


class TestRemove:
    def test_the_uid_stays_reserved_and_remaining_data_is_listed(
        self, hpc: Hpc, file: Path, ups: list[RunOptions], running: Callable[..., None]
    ) -> None:
        running()
        ended = hpc("user", "remove", "dev", "bob", "--yes")
        former = "    former_users:\n      - {name: bob, uid: 2003}\n"
        assert file.read_text() == FILE.replace(LINE, former)
        assert "/home/bob, owned by uid 2003" in ended.err
        assert len(ups) == 1
        assert "had uid 2003 before" in hpc("user", "add", "dev", "bob", "--account", "teaching").err
        assert LINE in file.read_text()

    def test_an_interrupted_removal_is_completed_by_the_next_one(
        self, hpc: Hpc, file: Path, ups: list[RunOptions]
    ) -> None:
        hpc("user", "remove", "dev", "bob", "--yes")
        text = file.read_text()
        assert hpc("user", "remove", "dev", "bob", "--yes").code == 0
        assert (file.read_text(), len(ups)) == (text, 2)

    def test_removing_a_user_who_was_never_applied_restores_the_file(self, hpc: Hpc, file: Path) -> None:
        hpc("user", "add", "dev", "carol", "--account", "research", "--no-apply")
        assert hpc("user", "remove", "dev", "carol", "--no-apply").code == 0
        assert file.read_text() == FILE

    def test_the_uid_stays_reserved_if_the_cluster_can_not_be_read(
        self, hpc: Hpc, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def unreadable(*_: Any, **__: Any) -> dict[str, Any]:
            raise CliError("the passphrase does not fit")

        monkeypatch.setattr("cli.stack.outputs.read", unreadable)
        monkeypatch.setattr("cli.stack.project.workspace", lambda _: SimpleNamespace(stacks=lambda: ["dev"]))
        assert hpc("user", "remove", "dev", "bob", "--no-apply").code == 0
        assert "- {name: bob, uid: 2003}" in file.read_text()

    def test_removing_a_user_with_jobs_is_refused(
        self, hpc: Hpc, file: Path, ups: list[RunOptions], running: Callable[..., None]
    ) -> None:
        running(jobs="7 cpu RUNNING 1:02 dev-cpu-0\n")
        ended = hpc("user", "remove", "dev", "bob", "--yes")
        assert (ended.code, file.read_text(), ups) == (1, FILE, [])
        assert "7 cpu RUNNING" in ended.err
        assert "scancel --user=bob" in ended.err

    def test_irreversible_removals_are_confirmed(self, hpc: Hpc, file: Path, ups: list[RunOptions]) -> None:
        ended = hpc("user", "remove", "dev", "bob")
        assert "needs --yes" in ended.err
        assert (file.read_text(), ups) == (FILE, [])

    def test_an_unknown_user_gets_the_nearest_name(self, hpc: Hpc, file: Path) -> None:
        assert "Did you mean bob? There are: alice, bob." in hpc("user", "remove", "dev", "bobb", "--yes").err
        assert file.read_text() == FILE

    def test_a_user_who_is_still_referenced_is_not_removed(self, hpc: Hpc, file: Path) -> None:
        """Accounts that follow from users: a partition for one of them."""
        text = STACK.replace("default: true}", "default: true, allow_accounts: [lab]}")
        text += "    users: [{name: alice, uid: 2001, account: lab}, {name: bob, uid: 2002}]\n"
        file.write_text(text)
        ended = hpc("user", "remove", "dev", "alice", "--no-apply")
        assert "hpc:cluster.partitions.cpu.allow_accounts[0]" in ended.err
        assert file.read_text() == text


class TestList:
    SAID: ClassVar[dict[str, Any]] = {
        "users": {"alice": {"uid": 2001, "shell": "/bin/bash", "sudo": True, "keys": ["no key"]}},
        "homes": {"alice": 2001},
        "associations": [
            ["", "root", "normal", ""],
            ["alice", "teaching", "normal,urgent", "urgent"],
            ["alice", "research", "normal,urgent", "urgent"],
        ],
        "defaults": [["root", "root"], ["alice", "teaching"]],
    }

    def test_the_list_is_of_the_stack_file_if_the_cluster_is_not_up(self, hpc: Hpc, file: Path) -> None:
        ended = hpc("user", "list", "dev")
        assert ended.out.splitlines()[1].split() == ["alice", "2001", "research", "normal", "-", "0", "-", "-"]
        assert "Shown is the stack file alone" in ended.err
        document = json.loads(hpc("user", "list", "dev", "--json").out)
        assert document["asked"] is False
        assert [user["in_effect"] for user in document["users"]] == [None, None]

    def test_the_list_shows_differences_from_the_cluster(
        self, hpc: Hpc, file: Path, running: Callable[..., None]
    ) -> None:
        seen = users.parse_in_effect(self.SAID)
        running(users=seen.users)
        lines = [line.split("  ") for line in hpc("user", "list", "dev").out.splitlines()]
        alice = [cell.strip() for cell in lines[1] if cell.strip()]
        assert alice == [
            "alice", "2001", "research (teaching)", "normal (urgent,normal)", "-", "0 (1)", "yes", "there",
        ]  # fmt: skip
        assert [cell.strip() for cell in lines[2] if cell.strip()][-1] == "missing"
        (one, two) = json.loads(hpc("user", "list", "dev", "--json").out)["users"]
        assert one["in_effect"]["accounts"] == ["teaching", "research"]
        assert one["in_effect"]["keys"] == ["(another line)"]
        assert two["in_effect"] is None

    def test_an_unreachable_database_is_not_a_difference(self) -> None:
        seen = users.parse_in_effect({**self.SAID, "associations": None, "defaults": None})
        assert (seen.users["alice"].account, seen.users["alice"].qos) == ("", [])


def test_simultaneous_edits_are_serialized(file: Path) -> None:
    """Without the lock, both would read the same text, and one edit would be lost."""

    def append(line: str) -> None:
        with text_file.alone(file):
            text_file.write(file, text_file.read(file) + line)

    threads = [threading.Thread(target=append, args=(f"# {number}\n",)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(file.read_text().removeprefix(FILE).split()[1::2]) == sorted(map(str, range(20)))


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to somebody else")
def test_an_edit_by_root_keeps_the_files_owner(file: Path) -> None:
    """`sudo ./hpc user add`, which a rehearsal needs."""
    os.chown(file, 12345, 54321)
    text_file.write(file, FILE + "# more\n")
    assert (file.stat().st_uid, file.stat().st_gid) == (12345, 54321)


def test_an_edit_keeps_links_and_modes(file: Path, tmp_path: Path) -> None:
    target = tmp_path / "real.yaml"
    target.write_text(FILE)
    target.chmod(0o640)
    file.unlink()
    file.symlink_to(target)
    text_file.write(file, FILE + "# more\r\n")
    assert file.is_symlink()
    assert target.read_bytes() == FILE.encode() + b"# more\r\n"
    assert target.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in target.parent.glob(".*.new")] == []
