"""`stacks`, `outputs` and `state`: export and import, and a state that is damaged, locked or has another passphrase."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Hpc

PROGRAM = "import pulumi\npulumi.export('word', pulumi.Output.secret('hush'))\npulumi.export('shown', {shown!r})\n"


@pytest.fixture
def state(root: Path, hpc: Hpc, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state file of `dev`, which has been up twice and exports a secret. It has no machines."""
    monkeypatch.setattr("cli.operation.localhost.prepare", lambda: None)
    for shown in ("one", "two"):
        (root / "__main__.py").write_text(PROGRAM.format(shown=shown))
        assert hpc("up", "dev").code == 0
    return root.parent / "home/.pulumi/stacks/hpc/dev.json"


class TestTruncatedState:
    def test_it_is_refused_and_the_printed_command_restores_the_backup(self, hpc: Hpc, state: Path) -> None:
        text = state.read_text()
        truncated = text[: len(text) // 2]
        state.write_text(truncated)
        for command in ("up", "preview", "destroy", "refresh", "outputs"):
            ended = hpc(command, "dev")
            assert ended.error.startswith(f"error: {state}: damaged (JSONDecodeError: ")
            assert f"The newest state before it that can be read is {state}.bak" in ended.err
            assert state.read_text() == truncated
        (command,) = re.findall(r"^Go back with: \./hpc (.*)$", ended.err, re.MULTILINE)
        assert hpc(*command.split()).code == 0
        assert hpc("up", "dev").code == 0
        assert json.loads(hpc("outputs", "dev", "--json", "--show-secrets").out) == {"shown": "two", "word": "hush"}

    def test_a_truncated_import_changes_nothing(self, hpc: Hpc, state: Path) -> None:
        before, half = state.read_bytes(), state.with_name("half")
        half.write_bytes(before[:100])
        ended = hpc("state", "import", "dev", str(half))
        assert (ended.code, state.read_bytes()) == (1, before)
        assert ended.err.startswith(f"error: {half}: not JSON")


class TestWrongPassphrase:
    @pytest.mark.parametrize("command", ["up", "preview", "destroy", "refresh", "outputs"])
    def test_its_source_is_named_and_nothing_is_changed(
        self, hpc: Hpc, state: Path, monkeypatch: pytest.MonkeyPatch, command: str
    ) -> None:
        before = state.read_bytes()
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "wrong")
        ended = hpc(command, "dev", *(["--show-secrets"] if command == "outputs" else []))
        assert "the passphrase does not fit this stack's secrets" in ended.error
        assert "It was taken from the variable PULUMI_CONFIG_PASSPHRASE. Nothing was changed" in ended.err
        assert state.read_bytes() == before
        monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
        assert hpc("outputs", "dev", "word", "--show-secrets").out == "hush\n"

    def test_the_passphrase_file_is_named(self, hpc: Hpc, state: Path) -> None:
        file = state.parents[3] / "passphrase"
        file.write_text("another\n")
        ended = hpc("up", "dev")
        assert f"It was taken from {file}." in ended.error
        assert ended.err.startswith(f"error: {state}: ")


def test_a_locked_stack_names_the_owner_of_the_lock_and_unlock_frees_it(hpc: Hpc, state: Path) -> None:
    lock = state.parents[2] / "locks/organization/hpc/dev/other.json"
    row = {"pid": 1, "username": "alice", "hostname": "elsewhere", "timestamp": "2026-01-02T03:04:05Z"}
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text(json.dumps(row))
    ended = hpc("refresh", "dev")
    assert "stack dev is in use: alice@elsewhere (pid 1) holds it since 2026-01-02T03:04:05Z" in ended.error
    assert "Unlock it with: ./hpc state unlock dev\n" in ended.err
    assert hpc("state", "unlock", "dev").code == 0
    assert hpc("refresh", "dev").code == 0


class TestState:
    def test_a_stack_that_was_never_up_is_refused(self, hpc: Hpc) -> None:
        for command in (["outputs", "dev"], ["run", "dev", "--", "id"], ["state", "export", "dev"]):
            assert hpc(*command).err == "error: stack 'dev' has not been brought up. Do so with: ./hpc up dev\n"

    @pytest.mark.parametrize(("text", "message"), [("{", "not JSON"), ("[]", "no state"), ("{}", "no state")])
    def test_a_file_that_is_no_state_is_not_imported(self, hpc: Hpc, tmp_path: Path, text: str, message: str) -> None:
        file = tmp_path / "state.json"
        file.write_text(text)
        assert hpc("state", "import", "dev", str(file)).error.startswith(f"error: {file}: {message}")

    def test_stacks_lists_a_stack_with_a_damaged_state(self, hpc: Hpc, tmp_path: Path) -> None:
        folder = tmp_path / "home/.pulumi/stacks/hpc"
        folder.mkdir(parents=True)
        (folder / "old.json").write_text('{"version": 3, "check')
        listed = [line.split()[0] for line in hpc("stacks").out.splitlines()]
        assert listed == ["STACK", "dev", "old"]
        assert "old.json: damaged" in hpc("outputs", "old").err

    def test_an_imported_state_is_exported_and_listed_with_its_outputs(self, hpc: Hpc, tmp_path: Path) -> None:
        outputs = {"login": "dev-login-0", "users": ["alice"]}
        type_ = "pulumi:pulumi:Stack"
        stack = {"urn": f"urn:pulumi:dev::hpc::{type_}::hpc-dev", "type": type_, "outputs": outputs}
        deployment = {"manifest": {"time": "2026-01-02T03:04:05.678Z"}, "resources": [stack]}
        document = {"version": 3, "deployment": deployment}
        file = tmp_path / "state.json"
        file.write_text(json.dumps(document))
        assert hpc("state", "import", "dev", str(file)).code == 0
        assert json.loads(hpc("state", "export", "dev").out)["deployment"]["resources"] == [stack]
        assert hpc("state", "export", "dev", str(tmp_path / "out.json")).code == 0
        assert json.loads((tmp_path / "out.json").read_text())["version"] == 3
        assert hpc("outputs", "dev").out == "login: dev-login-0\nusers:\n- alice\n"
        assert hpc("outputs", "dev", "login").out == "dev-login-0\n"
        assert json.loads(hpc("outputs", "dev", "users").out) == ["alice"]
        assert json.loads(hpc("outputs", "dev", "--json").out) == outputs
        assert hpc("outputs", "dev", "lgin").err == "error: stack dev has no output 'lgin'. There are: login, users.\n"
        assert hpc("stacks").out.splitlines()[1].split()[:3] == ["dev", "local", "1"]
        assert json.loads(hpc("ls", "--json").out)[0]["resources"] == 1
        assert hpc("state", "unlock", "dev").code == 0
