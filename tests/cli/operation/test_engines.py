"""Which engine runs a stack, and how the Pulumi CLI is started."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pulumi.automation
import pytest

from cli.errors import CliError
from cli.operation import operation
from cli.options import EngineName
from cli.stack import project, pulumi_program, stackfile
from engine.state.crypter import Crypter
from tests.cli.conftest import CLOUD, Hpc

Tool = Callable[[str, str], Path]
PULUMI = """\
{ printf '%s\\n' "$PWD" "$PULUMI_BACKEND_URL" "$PULUMI_CONFIG_PASSPHRASE_FILE" "$*"; } >>"$PULUMI_LOG"
[ "$1 $2" != 'stack ls' ] || echo '[{"name": "organization/hpc/other"}]'
[ "$1 $2" != 'stack output' ] || echo '{"login": "dev-login-0"}'
[ "$1" != up ] || exit 5
"""


def stack(root: Path, platform: str) -> stackfile.StackFile:
    (root / "Pulumi.x.yaml").write_text(f"config:\n  hpc:cluster:\n    platform: {platform}\n")
    return stackfile.read(root, "x")


def state(root: Path, type_: str, name: str = "x") -> Path:
    """Let a stack have one resource of a type, as another engine left it; the state's file."""
    urn = f"urn:pulumi:{name}::hpc::{type_}::made"
    row = {"urn": urn, "type": type_, "custom": True, "id": "made", "inputs": {}, "outputs": {}}
    stack = project.workspace().stack(name, root / f"Pulumi.{name}.yaml")
    stack.file.parent.mkdir(parents=True)
    checkpoint = {"stack": f"organization/hpc/{name}", "latest": {"manifest": {}, "resources": [row]}}
    stack.file.write_text(json.dumps({"version": 3, "checkpoint": checkpoint}))
    return stack.file


class TestChoice:
    def test_the_cli_on_path_unless_told_otherwise(self, root: Path, tool: Tool) -> None:
        pulumi = str(tool("pulumi", "exit 0"))
        assert operation.choose(None, stack(root, "local"), "up") == pulumi
        assert operation.choose(EngineName.PULUMI, stack(root, "local"), "up") == pulumi
        assert operation.choose(EngineName.EMBEDDED, stack(root, "gcp"), "up") is None

    @pytest.mark.parametrize(("platform", "kind"), [("local", "up"), ("local", "destroy"), ("gcp", "preview")])
    def test_without_the_cli_the_embedded_engine_as_far_as_it_goes(self, root: Path, platform: str, kind: str) -> None:
        assert operation.choose(None, stack(root, platform), kind) is None

    @pytest.mark.parametrize("kind", ["up", "destroy", "refresh"])
    def test_where_the_cli_is_needed_and_missing_it_says_how_to_get_it(self, root: Path, kind: str) -> None:
        state(root, "gcp:compute/network:Network")
        version = pulumi_program.pulumi_version()
        with pytest.raises(CliError) as error:
            operation.choose(None, stack(root, "gcp"), kind)
        assert str(error.value) == (
            f"{kind} of a stack on gcp is for `pulumi {kind} --stack x`, since the embedded engine creates machines on "
            "this host only. That needs the Pulumi CLI, which is not installed. "
            f"Install version {version} with: ./hpc install-pulumi"
        )

    @pytest.mark.parametrize("kind", ["destroy", "refresh"])
    def test_where_nothing_was_made_no_cli_is_needed(self, root: Path, hpc: Hpc, kind: str) -> None:
        assert operation.choose(None, stack(root, "gcp"), kind) is None
        ended = hpc(kind, "x")
        assert (ended.code, ended.err) == (0, "Nothing to do: stack x has not been brought up.\n")

    @pytest.mark.parametrize("kind", ["up", "destroy", "refresh"])
    def test_the_embedded_engine_stops_before_the_first_step(
        self, root: Path, hpc: Hpc, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "mine")
        file = state(root, "gcp:compute/network:Network")
        before = file.read_text()
        (root / "Pulumi.x.yaml").write_text(CLOUD)
        ended = hpc(kind, "x", "--engine", "embedded", *(["--yes"] if kind == "destroy" else []))
        assert ended.code == 1
        said = ended.err + ended.out
        assert "it has no provider for gcp:compute/network:Network." in said
        assert f"Use the Pulumi CLI: pulumi {kind} --stack x" in said
        assert "./hpc install-pulumi" in said
        assert file.read_text() == before

    def test_state_elsewhere_needs_the_cli(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PULUMI_BACKEND_URL", "gs://bucket")
        with pytest.raises(CliError, match=r"^state at gs://bucket \(PULUMI_BACKEND_URL; .*\) needs the Pulumi CLI"):
            operation.choose(None, stack(root, "local"), "preview")

    def test_one_that_the_sdk_installed_is_found(self, root: Path, tmp_path: Path) -> None:
        pulumi = tmp_path / ".pulumi/versions" / pulumi_program.pulumi_version() / "bin/pulumi"
        pulumi.parent.mkdir(parents=True)
        pulumi.write_text("#!/bin/sh\n")
        pulumi.chmod(0o755)
        assert operation.choose(None, stack(root, "gcp"), "up") == str(pulumi)
        # A rehearsal does not change engines because the CLI was installed for something else.
        assert operation.choose(None, stack(root, "local"), "up") is None


class TestCli:
    @pytest.fixture
    def log(self, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        tool("pulumi", PULUMI)
        monkeypatch.setattr("cli.operation.localhost.prepare", lambda: None)
        path = tmp_path / "pulumi.log"
        monkeypatch.setenv("PULUMI_LOG", str(path))
        return path

    def test_makes_the_stack_and_runs_with_the_same_state(
        self, hpc: Hpc, log: Path, root: Path, tmp_path: Path
    ) -> None:
        ended = hpc("up", "dev", "--parallel", "8")
        assert ended.code == 5
        lines = log.read_text().splitlines()
        home = tmp_path / "home"
        assert lines[:3] == [str(root), f"file://{home}", str(home / "passphrase")]
        init, up = lines[3::4]
        assert init.startswith("stack init dev --no-select --secrets-provider passphrase --cwd ")
        assert up == "up --stack dev --parallel 8 --yes --skip-preview --suppress-outputs"

    @pytest.mark.parametrize("kind", ["up", "destroy", "refresh"])
    def test_is_not_run_with_a_passphrase_that_does_not_fit(
        self, hpc: Hpc, log: Path, root: Path, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        salt = Crypter(lambda: "another").salt
        (root / "Pulumi.dev.yaml").write_text(f"encryptionsalt: {salt}\n" + (root / "Pulumi.dev.yaml").read_text())
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "mine")
        state(root, "gcp:compute/network:Network", "dev")
        ended = hpc(kind, "dev", "--engine", "pulumi", *(["--yes"] if kind == "destroy" else []))
        assert ended.code == 1
        assert "the passphrase does not fit" in ended.err
        assert "the variable PULUMI_CONFIG_PASSPHRASE. Nothing was changed" in ended.err
        assert not log.exists()

    def test_does_not_find_the_lock_of_a_dead_run_of_ours(
        self, hpc: Hpc, log: Path, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "mine")
        file = state(root, "gcp:compute/network:Network")
        (root / "Pulumi.x.yaml").write_text((root / "Pulumi.dev.yaml").read_text())
        lock = file.parents[2] / "locks/organization/hpc/x/left.json"
        lock.parent.mkdir(parents=True)
        row = {"pid": 2**22 + 1, "username": "u", "hostname": socket.gethostname(), "timestamp": "2026-01-01T00:00:00Z"}
        lock.write_text(json.dumps(row))
        hpc("refresh", "x", "--engine", "pulumi")
        assert not lock.exists()
        assert log.read_text().splitlines()[-1].startswith("refresh --stack x")

    def test_is_not_told_yes_for_what_is_protected(self, hpc: Hpc, log: Path, root: Path) -> None:
        with (root / "Pulumi.dev.yaml").open("a") as file:
            file.write("    deletion_protection: true\n")
        hpc("up", "dev", "--engine", "pulumi")
        assert log.read_text().splitlines()[-1] == "up --stack dev"
        hpc("preview", "dev", "--json", "--config-file", str(root / "Pulumi.dev.yaml"))
        assert log.read_text().splitlines()[-1] == f"preview --stack dev --config-file {root}/Pulumi.dev.yaml --json"

    def test_knows_stacks_and_outputs_of_other_backends(
        self, hpc: Hpc, log: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PULUMI_BACKEND_URL", "gs://bucket")
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "mine")
        assert json.loads(hpc("outputs", "dev", "--json").out) == {"login": "dev-login-0"}
        hpc("up", "dev")
        assert [line.split(" --")[0] for line in log.read_text().splitlines()[3::4]] == [
            "stack output",
            "stack output",  # what the cluster runs with: the edit's effects are told before it is made
            "stack ls",
            "stack init dev",
            "up",
        ]

    def test_failing_quietly_is_told(self, hpc: Hpc, log: Path, tool: Tool) -> None:
        tool("pulumi", "echo 'error: no such bucket' >&2; exit 255")
        ended = hpc("up", "dev")
        assert ended.code == 1
        assert ended.err.endswith("error: stack init failed: no such bucket\n")


def test_installing_tells_what_the_installer_said(hpc: Hpc, monkeypatch: pytest.MonkeyPatch) -> None:
    def install() -> None:
        raise OSError("no route")

    monkeypatch.setattr(pulumi.automation.PulumiCommand, "install", install)
    ended = hpc("install-pulumi")
    assert ended.code == 1
    assert ended.err.splitlines()[-1] == (
        "error: the Pulumi CLI could not be downloaded: no route. Check this machine's way out."
    )
    assert os.environ["HOME"] in ended.err
