"""Exit codes, error texts and help: what a person or a script meets first."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.errors import CliError
from cli.stack import project, stack_config, stackfile
from tests.cli.conftest import Hpc

COMMANDS = [
    "preview", "up", "destroy", "refresh", "run", "ssh", "outputs", "stacks", "state", "state export", "state import",
    "state unlock", "install-pulumi", "version", "test", "bench", "schema",
    "rehearse",
]  # fmt: skip


class TestHelp:
    def test_comes_without_a_command_too(self, hpc: Hpc) -> None:
        alone = hpc()
        assert alone == hpc("--help")
        assert alone.code == 0
        assert all(f" {command.split()[0]} " in alone.out for command in COMMANDS)

    @pytest.mark.parametrize("command", COMMANDS)
    def test_of_each_command_has_an_example_and_no_colour_in_a_pipe(self, hpc: Hpc, command: str) -> None:
        ended = hpc(*command.split(), "--help")
        assert ended.code == 0
        assert f"./hpc {command}" in ended.out
        assert command == "state" or "Examples:" in ended.out
        assert "\x1b" not in ended.out


class TestExitCodes:
    def test_a_wrong_command_line_is_2(self, hpc: Hpc) -> None:
        for line in (["upp"], ["up"], ["up", "dev", "--engine", "terraform"], ["up", "dev", "--parallel", "0"]):
            ended = hpc(*line)
            assert (ended.code, ended.out) == (2, "")
            assert "Usage: ./hpc" in ended.err

    def test_an_error_is_1_and_its_text(self, hpc: Hpc) -> None:
        ended = hpc("up", "prod")
        assert ended.code == 1
        assert ended.err == "error: there is no stack 'prod': Pulumi.prod.yaml does not exist. There is: dev.\n"

    def test_ctrl_c_is_130(self, hpc: Hpc, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(project, "known", raising(KeyboardInterrupt()))
        ended = hpc("stacks")
        assert (ended.code, ended.err) == (130, "Interrupted.\n")

    def test_a_reader_that_has_seen_enough_is_no_error(self) -> None:
        root = Path(__file__).parents[2]
        command = f"{sys.executable} {root}/cli schema; echo $? >&2"
        done = subprocess.run(["bash", "-c", f"{{ {command}; }} | head -1"], capture_output=True, text=True, check=True)
        assert done.stdout == "{\n"
        assert done.stderr.strip() in ("0", str(128 + signal.SIGPIPE))

    def test_a_defect_is_one_line_and_a_file(self, hpc: Hpc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(project, "known", raising(RuntimeError("of all things\nmore")))
        ended = hpc("stacks")
        assert ended.code == 1
        found = re.fullmatch(
            r"error: Unexpected error: RuntimeError: of all things\nThis is a defect: please report it with (.*)\n",
            ended.err,
        )
        assert found
        log = Path(found[1])
        assert log.parent == tmp_path / "home/logs"
        assert log.stat().st_mode & 0o077 == 0
        assert "Traceback (most recent call last)" in log.read_text()


class TestNamesAndFiles:
    @pytest.mark.parametrize("command", ["status", "outputs", "destroy", "drift", "ssh-config", "preview"])
    @pytest.mark.parametrize("name", ["a" * 5000, "..", "a/b"])
    def test_a_name_is_checked_before_it_is_part_of_a_path(self, hpc: Hpc, command: str, name: str) -> None:
        ended = hpc(command, name)
        assert (ended.code, ended.out) == (1, "")
        assert "is no stack name: 1 to 100 letters" in ended.err
        assert len(ended.err) < 300

    @pytest.mark.parametrize(
        "words",
        [
            ("preview", "dev", "--config-file", "FILE"), ("state", "import", "dev", "FILE"),
            ("user", "add", "dev", "carol", "--no-apply", "--key", "FILE"), ("accounting", "restore", "dev", "FILE"),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("kind", ["pipe", "device"])
    def test_what_may_never_end_is_not_read(self, hpc: Hpc, tmp_path: Path, words: tuple[str, ...], kind: str) -> None:
        file = Path("/dev/zero") if kind == "device" else tmp_path / "pipe"
        if kind == "pipe":
            os.mkfifo(file)
        ended = hpc(*(str(file) if word == "FILE" else word for word in words))
        assert ended.code == 1
        assert "not a regular file" in ended.err


class TestStackFiles:
    def test_every_error_comes_at_once_under_the_files_name(self, hpc: Hpc, root: Path) -> None:
        file = root / "Pulumi.dev.yaml"
        file.write_text(file.read_text().replace("count: 1", "count: 0").replace("name: dev", "name: UPPER"))
        ended = hpc("preview", "dev")
        assert ended.code == 1
        assert ended.err.startswith(f"error: {file}: 2 errors in the stack configuration")
        assert "hpc:cluster.name" in ended.err
        assert "hpc:cluster.nodesets.cpu.count" in ended.err
        for command in ("preview", "up"):
            document = json.loads(hpc(command, "dev", "--json").out)
            assert (document["kind"], document["ok"]) == (command, False)
            assert [(one["id"], one["where"], one["given"]) for one in document["errors"]] == [
                ("value-invalid", "hpc:cluster.name", "UPPER"),
                ("value-invalid", "hpc:cluster.nodesets.cpu.count", "0"),
            ]

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("config: [", "not valid YAML"),
            ("- a\n- b\n", "a mapping is expected"),
            ("config: 3\n", "a mapping is expected"),
            ("", "nothing"),
        ],
    )
    def test_that_are_none_are_named(self, hpc: Hpc, root: Path, text: str, said: str) -> None:
        file = root / "Pulumi.dev.yaml"
        file.write_text(text)
        ended = hpc("up", "dev")
        assert ended.code == 1
        assert ended.err.startswith(f"error: {file}: ")
        assert said in ended.err

    def test_a_name_that_can_be_none_is_refused(self, root: Path) -> None:
        with pytest.raises(CliError, match="is no stack name"):
            stackfile.read(root, "../dev")

    def test_a_missing_config_file_is_named(self, hpc: Hpc) -> None:
        ended = hpc("preview", "dev", "--config-file", "nowhere.yaml")
        assert ended.code == 1
        assert "nowhere.yaml: no such file. Correct --config-file." in ended.err

    @pytest.mark.parametrize(
        ("platform", "more", "protected"),
        [
            ("local", "", False),
            ("local", "    deletion_protection: true\n", True),
            ("gcp", "", True),
            ("gcp", "    deletion_protection: false\n", True),
        ],
    )
    def test_say_what_destroying_takes(self, root: Path, platform: str, more: str, protected: object) -> None:
        (root / "Pulumi.x.yaml").write_text(f"config:\n  hpc:cluster:\n    platform: {platform}\n{more}")
        assert stack_config.protected(stackfile.read(root, "x")) is protected


class TestDestroy:
    @pytest.fixture
    def state(self, root: Path) -> None:
        """A state of `dev`, with nothing that is protected."""
        file = root.parent / "home/.pulumi/stacks/hpc/dev.json"
        file.parent.mkdir(parents=True)
        file.write_text('{"version": 3, "checkpoint": {"stack": "organization/hpc/dev", "latest": {}}}')

    @pytest.mark.usefixtures("state")
    def test_of_what_is_protected_needs_yes_without_a_terminal(self, hpc: Hpc, root: Path) -> None:
        with (root / "Pulumi.dev.yaml").open("a") as file:
            file.write("    deletion_protection: true\n")
        ended = hpc("destroy", "dev")
        assert ended.code == 1
        assert ended.err == (
            "error: stack dev has deletion_protection: destroying it without a terminal needs --yes.\n"
        )

    @pytest.mark.usefixtures("state")
    def test_of_what_has_lost_its_file_needs_yes(self, hpc: Hpc, root: Path) -> None:
        (root / "Pulumi.dev.yaml").unlink()
        ended = hpc("destroy", "dev")
        assert ended.code == 1
        assert ended.err.startswith("error: stack dev has lost its file Pulumi.dev.yaml")

    def test_of_what_never_was_is_nothing(self, hpc: Hpc, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("cli.operation.localhost.prepare", lambda: None)
        ended = hpc("destroy", "dev")
        assert ended.code == 0
        assert ended.err == "Nothing to do: stack dev has not been brought up.\n"
        document = json.loads(hpc("destroy", "dev", "--json").out)
        assert (document["stack"], document["kind"], document["ok"], document["steps"]) == ("dev", "destroy", True, [])


class TestState:
    def test_of_a_stack_that_was_never_up(self, hpc: Hpc) -> None:
        for command in (["outputs", "dev"], ["run", "dev", "--", "id"], ["state", "export", "dev"]):
            ended = hpc(*command)
            assert ended.code == 1
            assert ended.err == "error: stack 'dev' has not been brought up. Do so with: ./hpc up dev\n"

    @pytest.mark.parametrize(("text", "said"), [("{", "not JSON"), ("[]", "no state"), ("{}", "no state")])
    def test_that_is_none_is_not_imported(self, hpc: Hpc, tmp_path: Path, text: str, said: str) -> None:
        file = tmp_path / "state.json"
        file.write_text(text)
        ended = hpc("state", "import", "dev", str(file))
        assert ended.code == 1
        assert ended.err.startswith(f"error: {file}: {said}")

    def test_that_is_damaged_does_not_hide_the_other_stacks(self, hpc: Hpc, tmp_path: Path) -> None:
        folder = tmp_path / "home/.pulumi/stacks/hpc"
        folder.mkdir(parents=True)
        (folder / "old.json").write_text('{"version": 3, "check')
        listed = [line.split()[0] for line in hpc("stacks").out.splitlines()]
        assert listed == ["STACK", "dev", "old"]
        ended = hpc("outputs", "old")
        assert ended.code == 1
        assert "old.json: damaged" in ended.err

    def test_goes_out_and_in_and_is_listed(self, hpc: Hpc, tmp_path: Path) -> None:
        stack = {
            "urn": "urn:pulumi:dev::hpc::pulumi:pulumi:Stack::hpc-dev",
            "type": "pulumi:pulumi:Stack",
            "outputs": {"login": "dev-login-0", "users": ["alice"]},
        }
        document = {
            "version": 3,
            "deployment": {"manifest": {"time": "2026-01-02T03:04:05.678Z"}, "resources": [stack]},
        }
        file = tmp_path / "state.json"
        file.write_text(json.dumps(document))
        assert hpc("state", "import", "dev", str(file)).code == 0
        assert json.loads(hpc("state", "export", "dev").out)["deployment"]["resources"] == [stack]
        assert hpc("state", "export", "dev", str(tmp_path / "out.json")).code == 0
        assert json.loads((tmp_path / "out.json").read_text())["version"] == 3
        assert hpc("outputs", "dev").out == "login: dev-login-0\nusers:\n- alice\n"
        assert hpc("outputs", "dev", "login").out == "dev-login-0\n"
        assert json.loads(hpc("outputs", "dev", "users").out) == ["alice"]
        assert json.loads(hpc("outputs", "dev", "--json").out) == stack["outputs"]
        assert hpc("outputs", "dev", "lgin").err == "error: stack dev has no output 'lgin'. There are: login, users.\n"
        assert hpc("stacks").out.splitlines()[1].split()[:3] == ["dev", "local", "1"]
        assert json.loads(hpc("ls", "--json").out)[0]["resources"] == 1
        assert hpc("state", "unlock", "dev").code == 0


class TestSchema:
    def test_that_is_old_is_refused_and_written(self, hpc: Hpc, root: Path) -> None:
        assert hpc("schema", "--check").code == 1
        assert hpc("schema", "--write").code == 0
        assert hpc("schema", "--check").code == 0
        assert (root / "docs/schema/cluster.schema.json").read_text() == hpc("schema").out


def test_the_version_names_what_it_is_made_of(hpc: Hpc) -> None:
    lines = hpc("version").out.splitlines()
    assert lines[0] == "hpc 1.2.3"
    assert re.fullmatch(r"Python 3\.\d+\.\d+, Pulumi SDK 3\.\d+\.\d+", lines[1])


def raising(error: BaseException) -> Callable[[], None]:
    def function() -> None:
        raise error

    return function
