"""`./hpc`: help, exit codes, completion, schema, version, and what it imports at its start."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import pytest

from cli.stack import project
from tests import programs
from tests.cli.conftest import OUTPUTS, Hpc

ROOT = Path(__file__).parents[2]
STACKS = ("dev", "prod")
COMMANDS = ["up", "ssh", "state", "state export", "install-pulumi", "test", "check jobs", "nccl run"]


class TestHelp:
    def test_no_command_prints_the_help(self, hpc: Hpc) -> None:
        ended = hpc()
        assert ended == hpc("--help")
        assert ended.code == 0
        assert all(f" {command.split()[0]} " in ended.out for command in COMMANDS)

    @pytest.mark.parametrize("command", COMMANDS)
    def test_a_command_has_examples_and_no_colours_in_a_pipe(self, hpc: Hpc, command: str) -> None:
        ended = hpc(*command.split(), "--help")
        assert ended.code == 0
        assert f"./hpc {command}" in ended.out
        assert command == "state" or "Examples:" in ended.out
        assert "\x1b" not in ended.out


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("command", [*COMMANDS, "user add", "mlperf run", "backend init nebius"])
def test_help_fits_the_terminal_and_is_wrapped_once(
    hpc: Hpc, monkeypatch: pytest.MonkeyPatch, command: str, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    help_text = hpc(*command.split(), "--help").out
    before_examples = [line.rstrip() for line in help_text.partition("Examples:")[0].splitlines()]
    assert "…" not in help_text
    assert max(map(len, before_examples)) <= columns
    about = list(takewhile(lambda line: not re.search("Arguments|Options", line), before_examples))
    for line, following in pairwise(about):
        if line.strip() and following.strip():
            assert len(f"{line} {following.split()[0]}") > columns - 4, f"{line} | {following}"


class TestExitCodes:
    def test_a_wrong_command_line_is_2(self, hpc: Hpc) -> None:
        for line in (["upp"], ["up"], ["up", "dev", "--engine", "terraform"], ["up", "dev", "--parallel", "0"]):
            ended = hpc(*line)
            assert (ended.code, ended.out) == (2, "")
            assert "Usage: ./hpc" in ended.err

    def test_an_expected_error_is_1_with_its_text(self, hpc: Hpc) -> None:
        ended = hpc("up", "prod")
        assert ended.error == "error: there is no stack 'prod': Pulumi.prod.yaml does not exist. There is: dev.\n"

    @pytest.mark.parametrize(
        "line",
        ["preview prod", "up prod", "destroy prod", "status dev", "drift dev", "job dev 7", "usage dev --since never",
         "outputs prod", "nodes dev", "check jobs dev", "user list prod"],
    )  # fmt: skip
    def test_an_error_is_one_json_document_with_json(self, hpc: Hpc, line: str) -> None:
        ended = hpc(*line.split(), "--json")
        document = json.loads(ended.out)
        assert (document["ok"], document["stack"]) == (False, next(word for word in line.split() if word in STACKS))
        assert ended.error == f"error: {document['error']}\n"

    def test_an_unexpected_exception_and_ctrl_c_are_json_documents_with_json(
        self, hpc: Hpc, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(project, "known", raising(RuntimeError("of all things")))
        document = json.loads(hpc("stacks", "--json").out)
        assert document["error"].startswith("Unexpected error: RuntimeError: of all things\n")
        monkeypatch.setattr(project, "known", raising(KeyboardInterrupt()))
        assert json.loads(hpc("stacks", "--json").out) == {"ok": False, "error": "interrupted"}

    def test_ctrl_c_is_130(self, hpc: Hpc, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(project, "known", raising(KeyboardInterrupt()))
        ended = hpc("stacks")
        assert (ended.code, ended.err) == (130, "Interrupted.\n")

    def test_a_closed_pipe_prints_no_error(self) -> None:
        command = f"{sys.executable} {ROOT}/cli schema; echo $? >&2"
        done = programs.run(["bash", "-c", f"{{ {command}; }} | head -1"], check=True)
        assert done.stdout == "{\n"
        assert done.stderr.strip() in ("0", str(128 + signal.SIGPIPE))

    def test_an_unexpected_exception_is_one_line_and_a_private_file(
        self, hpc: Hpc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(project, "known", raising(RuntimeError("of all things\nmore")))
        message = re.fullmatch(
            r"error: Unexpected error: RuntimeError: of all things\nThis is a defect: please report it with (.*)\n",
            hpc("stacks").error,
        )
        assert message
        log = Path(message[1])
        assert log.parent == tmp_path / "home/logs"
        assert log.stat().st_mode & 0o077 == 0
        assert "Traceback (most recent call last)" in log.read_text()


def raising(error: BaseException) -> Callable[[], None]:
    def function() -> None:
        raise error

    return function


@pytest.mark.parametrize("command", ["status", "outputs", "destroy", "drift", "ssh-config", "preview"])
@pytest.mark.parametrize("name", ["a" * 5000, "..", "a/b"])
def test_a_stack_name_is_checked_before_it_is_part_of_a_path(hpc: Hpc, command: str, name: str) -> None:
    ended = hpc(command, name)
    assert (ended.code, ended.out) == (1, "")
    assert "is no stack name: 1 to 100 letters" in ended.err
    assert len(ended.err) < 300


@pytest.mark.parametrize(
    "line",
    [
        "preview dev --config-file FILE",
        "state import dev FILE",
        "user add dev carol --no-apply --key FILE",
        "accounting restore dev FILE",
    ],
)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_device_is_refused_as_a_file(hpc: Hpc, tmp_path: Path, line: str, kind: str) -> None:
    file = Path("/dev/zero") if kind == "device" else tmp_path / "pipe"
    if kind == "pipe":
        os.mkfifo(file)
    assert "not a regular file" in hpc(*line.replace("FILE", str(file)).split()).error


CONFIG = {
    "platform": "local",
    "name": "dev",
    "nodesets": {"cpu": {"count": 2}},
    "partitions": {"batch": {"nodesets": ["cpu"], "default": True}},
}


class TestCompletion:
    @pytest.mark.parametrize(
        ("line", "offered"),
        [
            ("./hpc stat", ["status", "state"]),
            ("./hpc user ad", ["add"]),
            ("./hpc status d", ["dev"]),
            ("./hpc ssh dev c", ["controller", "cpu-0", "cpu-1"]),
            ("./hpc nodes dev drain ", ["cpu-0", "cpu-1"]),
            ("./hpc logs dev slurmd --on co", ["controller"]),
            ("./hpc check jobs dev --partition ", ["batch"]),
            ("./hpc status dev --ti", ["--timeout"]),
            ("./hpc ssh nowhere ", []),
        ],
    )
    def test_names_that_fit_are_offered(
        self, hpc: Hpc, monkeypatch: pytest.MonkeyPatch, line: str, offered: list[str]
    ) -> None:
        def read(stack: str, *, show_secrets: bool) -> dict[str, Any]:
            assert not show_secrets
            return {**OUTPUTS, "config": CONFIG} if stack == "dev" else {}

        monkeypatch.setattr("cli.stack.outputs.read", read)
        monkeypatch.setenv("_HPC_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
        assert hpc("").out.split() == offered

    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_the_script_is_valid_in_its_shell(self, hpc: Hpc, shell: str) -> None:
        script = hpc("completion", shell).out
        assert "_HPC_COMPLETE=complete_" + shell in script
        if shell == "bash":
            subprocess.run(["bash", "-n"], input=script, text=True, check=True)
        else:
            assert str(project.ROOT / "hpc") in script


def test_an_outdated_schema_fails_the_check_until_it_is_written(hpc: Hpc, root: Path) -> None:
    assert hpc("schema", "--check").code == 1
    assert hpc("schema", "--write").code == 0
    assert hpc("schema", "--check").code == 0
    assert (root / "docs/schema/cluster.schema.json").read_text() == hpc("schema").out


def test_version_prints_the_versions_of_hpc_python_and_the_sdk(hpc: Hpc) -> None:
    lines = hpc("version").out.splitlines()
    assert lines[0] == "hpc 1.2.3"
    assert re.fullmatch(r"Python 3\.\d+\.\d+, Pulumi SDK 3\.\d+\.\d+", lines[1])
    assert hpc("--version").out == hpc("version").out


HEAVY = {"pulumi", "grpc", "engine.core.operation", "cluster.config", "rich.live"}


def imports(folder: Path, *arguments: str) -> set[str]:
    """The modules that a command imports, in an empty folder."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-X", "importtime", str(ROOT / "cli"), *arguments]
    done = programs.run(command, cwd=folder, env=env)
    assert "Traceback" not in done.stderr
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "cli.app" in imported
    return imported


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["up", "--help"], ["stacks"], ["run", "dev", "--", "id"], ["outputs", "dev"], ["status", "dev"]],
    ids=" ".join,
)
def test_light_commands_import_no_heavy_modules(arguments: list[str], tmp_path: Path) -> None:
    assert not imports(tmp_path, *arguments) & HEAVY


@pytest.mark.parametrize("kind", ["nccl", "mlperf"])
def test_a_report_of_a_log_on_this_machine_imports_no_parser_of_stack_files(kind: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("no log\n")
    imported = imports(tmp_path, kind, "report", "log")
    assert f"cluster.report.{kind}_log" in imported
    assert not imported & {"cluster.load", "cluster.checks", "cluster.platforms.registry"}
