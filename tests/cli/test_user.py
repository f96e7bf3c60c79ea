"""`./hpc user`: the stack file is edited, checked as a whole before it is written, and applied by `up`."""

import io
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from cli.commands import operation
from cli.errors import CliError
from cli.stack import text_file
from cli.stack.run_options import RunOptions
from cli.users import edit, in_effect
from cli.users.in_effect import Seen
from tests.cli.conftest import STACK, Hpc

FILE = (
    STACK
    + """\
    # People.
    users:
      - {name: alice, uid: 2001, account: research} # since May
      - {name: bob, uid: 2003, account: teaching}

    groups: {ml: 2002}
    accounting:
      accounts: [{name: research}, {name: teaching}]
      qos: [{name: urgent}]
"""
)
LINE = "      - {name: bob, uid: 2003, account: teaching}\n"
OUTPUTS: dict[str, Any] = {
    "cluster": "dev",
    "login": "dev-login-0",
    "admin_key": "secret",
    "users": ["alice", "bob", "gone"],
    "targets": {
        "dev-login-0": {"method": "ssh", "address": "10.0.0.2", "host_key": "ssh-ed25519 A", "roles": ["login"]}
    },
}
HOMES = {"alice": 2001, "left": 2005, "erin": 2044}


@pytest.fixture
def file(root: Path) -> Path:
    """The stack file."""
    path = root / "Pulumi.dev.yaml"
    path.write_text(FILE)
    return path


@pytest.fixture
def ups(monkeypatch: pytest.MonkeyPatch) -> list[RunOptions]:
    """The runs of `up`, which succeed."""
    found: list[RunOptions] = []

    def run(kind: str, stack: str, chosen: RunOptions) -> int:
        assert (kind, stack) == ("up", "dev")
        found.append(chosen)
        return 0

    monkeypatch.setattr(operation, "run", run)
    return found


@pytest.fixture
def running(file: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes the cluster run with another user, gone, beside those of the file."""
    config = {
        "platform": "local", "name": "dev", "nodesets": {"cpu": {"count": 1}},
        "partitions": {"cpu": {"nodesets": ["cpu"], "default": True}},
        "users": [{"name": "alice", "uid": 2001}, {"name": "bob", "uid": 2003}, {"name": "gone", "uid": 2004}],
    }  # fmt: skip

    def start(jobs: str = "", **seen: Any) -> None:
        monkeypatch.setattr("cli.commands.outputs.read", lambda *_, **__: {**OUTPUTS, "config": json.dumps(config)})
        found = Seen(**{"homes": HOMES, **seen})
        monkeypatch.setattr(edit, "look", lambda *_: found)
        monkeypatch.setattr("cli.commands.user.list.look", lambda *_: found)
        done = in_effect.remote.Done(code=0, out=jobs, err="")
        monkeypatch.setattr("cli.access.remote.capture", lambda *_, **__: done)

    return start


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A public key; the private one lies beside it."""
    path = tmp_path / "carol"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "carol@laptop", "-f", str(path)], check=True)
    return path.with_suffix(".pub")


def item(**more: Any) -> str:
    """The line of carol."""
    text = ", ".join(f"{key}: {value}" for key, value in {"name": "carol", "uid": 2004, **more}.items())
    return f"      - {{{text}}}\n"


class TestAdd:
    def test_writes_one_line_shows_it_and_runs_up(self, hpc: Hpc, file: Path, key: Path, ups: list[RunOptions]) -> None:
        ended = hpc("user", "add", "dev", "carol", "--key", str(key), "--account", "research", "--sudo", "--yes")
        text = key.read_text().strip()
        line = item(account="research", sudo="true", keys=f"[{text}]")
        assert file.read_text() == FILE.replace(LINE, LINE + line)
        assert f"+{line.rstrip()}" in ended.out
        assert ended.code == 0
        assert [one.yes for one in ups] == [True]

    def test_twice_has_nothing_to_do(self, hpc: Hpc, file: Path, key: Path, ups: list[RunOptions]) -> None:
        words = ("user", "add", "dev", "carol", "--key", str(key), "--account", "research")
        hpc(*words)
        text = file.read_text()
        ended = hpc(*words)
        assert file.read_text() == text
        assert "in the stack file already" in ended.err
        assert len(ups) == 2, "the cluster is not up with her: the first run may have been stopped"

    def test_somebody_who_is_there_is_not_applied_again(
        self, hpc: Hpc, ups: list[RunOptions], running: Callable[..., None]
    ) -> None:
        running()
        ended = hpc("user", "add", "dev", "alice", "--account", "research")
        assert (ended.code, ups) == (0, [])

    def test_other_values_are_named_with_the_line_to_edit(self, hpc: Hpc, file: Path, ups: list[RunOptions]) -> None:
        ended = hpc("user", "add", "dev", "alice", "--account", "teaching", "--uid", "2009")
        assert ended.code == 1
        assert "users[0].account of alice" in ended.err
        assert "users[0].uid of alice" in ended.err
        assert f"edit line 9 of {file}" in ended.err
        assert (file.read_text(), ups) == (FILE, [])

    def test_everything_that_is_wrong_comes_at_once(self, hpc: Hpc, file: Path, key: Path) -> None:
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

    def test_an_account_is_declared_if_asked_for(self, hpc: Hpc, file: Path) -> None:
        words = ("user", "add", "dev", "carol", "--account", "lab", "--no-apply")
        assert "define lab under `accounting.accounts`, or give --create-account" in hpc(*words).err
        assert hpc(*words, "--create-account").code == 0
        assert "accounts: [{name: research}, {name: teaching}, {name: lab}]" in file.read_text()

    def test_keys_of_standard_input_count_once(
        self, hpc: Hpc, file: Path, key: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        line = key.read_text().strip()
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"# hers\n\n{line}\n{line} again\n"))
        words = ("--key", "-", "--key", str(key), "--key", line, "--account", "research", "--no-apply")
        assert hpc("user", "add", "dev", "carol", *words).code == 0
        assert file.read_text().count(line) == 1
        assert item(account="research", keys=f"[{line}]") in file.read_text()

    def test_no_apply_says_how_to(self, hpc: Hpc, ups: list[RunOptions], file: Path) -> None:
        ended = hpc("user", "add", "dev", "carol", "--account", "research", "--no-apply")
        assert "./hpc up dev" in ended.err
        assert ups == []
        assert item(account="research") in file.read_text()

    @pytest.mark.parametrize("how", [3, CliError("stack dev is in use"), KeyboardInterrupt()])
    def test_an_up_that_fails_leaves_the_edit_and_says_how_to_go_on(
        self, hpc: Hpc, file: Path, monkeypatch: pytest.MonkeyPatch, how: Any
    ) -> None:
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
    def test_are_the_lowest_that_nobody_has(self, hpc: Hpc, file: Path, running: Callable[..., None]) -> None:
        """2002 is a group's, 2004 of a user whom the file does not name any more, 2005 of one who left long ago."""
        running()
        hpc("user", "add", "dev", "carol", "--account", "research", "--no-apply")
        assert item(uid=2006, account="research") in file.read_text()

    def test_come_back_to_whose_home_is_there(self, hpc: Hpc, file: Path, running: Callable[..., None]) -> None:
        running()
        ended = hpc("user", "add", "dev", "erin", "--account", "research", "--no-apply")
        assert "{name: erin, uid: 2044, account: research}" in file.read_text()
        assert "had uid 2044 before" in ended.err

    def test_of_files_that_somebody_left_are_refused(self, hpc: Hpc, file: Path, running: Callable[..., None]) -> None:
        running()
        ended = hpc("user", "add", "dev", "carol", "--account", "research", "--uid", "2005")
        assert "/home/left on the cluster has this one" in ended.err
        assert file.read_text() == FILE

    def test_are_found_without_a_cluster_that_answers(
        self, hpc: Hpc, file: Path, running: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        running()

        def look(*_: Any) -> Seen:
            raise CliError("dev-login-0: does not answer")

        monkeypatch.setattr(edit, "look", look)
        ended = hpc("user", "add", "dev", "carol", "--account", "research", "--no-apply")
        assert "The cluster was not asked" in ended.err
        assert item(uid=2005, account="research") in file.read_text()


class TestRemove:
    def test_keeps_the_number_and_says_what_stays(
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

    def test_of_somebody_who_never_was_on_the_cluster_restores_the_file(self, hpc: Hpc, file: Path) -> None:
        hpc("user", "add", "dev", "carol", "--account", "research", "--no-apply")
        assert hpc("user", "remove", "dev", "carol", "--no-apply").code == 0
        assert file.read_text() == FILE

    def test_of_somebody_with_jobs_is_refused(
        self, hpc: Hpc, file: Path, ups: list[RunOptions], running: Callable[..., None]
    ) -> None:
        running(jobs="7 cpu RUNNING 1:02 dev-cpu-0\n")
        ended = hpc("user", "remove", "dev", "bob", "--yes")
        assert (ended.code, file.read_text(), ups) == (1, FILE, [])
        assert "7 cpu RUNNING" in ended.err
        assert "scancel --user=bob" in ended.err

    def test_asks_for_what_has_no_way_back(self, hpc: Hpc, file: Path, ups: list[RunOptions]) -> None:
        ended = hpc("user", "remove", "dev", "bob")
        assert "needs --yes" in ended.err
        assert (file.read_text(), ups) == (FILE, [])

    def test_names_the_nearest_of_those_there(self, hpc: Hpc, file: Path) -> None:
        assert "Did you mean bob? There are: alice, bob." in hpc("user", "remove", "dev", "bobb", "--yes").err
        assert file.read_text() == FILE

    def test_what_still_names_the_user_is_an_error(self, hpc: Hpc, file: Path) -> None:
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

    def test_is_of_the_file_where_the_cluster_is_not_up(self, hpc: Hpc, file: Path) -> None:
        ended = hpc("user", "list", "dev")
        assert ended.out.splitlines()[1].split() == ["alice", "2001", "research", "normal", "-", "0", "-", "-"]
        assert "Shown is the stack file alone" in ended.err
        document = json.loads(hpc("user", "list", "dev", "--json").out)
        assert document["asked"] is False
        assert [one["in_effect"] for one in document["users"]] == [None, None]

    def test_has_what_is_in_effect_beside_it(self, hpc: Hpc, file: Path, running: Callable[..., None]) -> None:
        seen = in_effect.parse(self.SAID)
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

    def test_a_database_that_does_not_answer_is_no_difference(self) -> None:
        seen = in_effect.parse({**self.SAID, "associations": None, "defaults": None})
        assert (seen.users["alice"].account, seen.users["alice"].qos) == ("", [])


def test_two_edits_at_once_come_one_after_the_other(file: Path) -> None:
    """Without the lock, both would read the same text, and one edit would be lost."""

    def append(line: str) -> None:
        with text_file.alone(file):
            text_file.write(file, text_file.read(file) + line)

    threads = [threading.Thread(target=append, args=(f"# {number}\n",)) for number in range(20)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(file.read_text().removeprefix(FILE).split()[1::2]) == sorted(map(str, range(20)))


def test_a_link_and_a_mode_are_kept(file: Path, tmp_path: Path) -> None:
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
