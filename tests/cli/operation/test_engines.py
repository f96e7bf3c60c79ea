"""Which engine runs a stack."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pulumi.automation
import pytest

from cli.errors import CliError
from cli.operation import operation
from cli.options import EngineName
from cli.stack import pulumi_program, stackfile
from tests import programs
from tests.cli.conftest import CLOUD, Hpc, write_state

Tool = Callable[[str, str], Path]
NETWORK = "gcp:compute/network:Network"


def stack(root: Path, platform: str) -> stackfile.StackFile:
    (root / "Pulumi.x.yaml").write_text(f"config:\n  hpc:cluster:\n    platform: {platform}\n")
    return stackfile.read(root, "x")


class TestChoice:
    def test_the_cli_on_path_is_chosen_by_default(self, root: Path, tool: Tool) -> None:
        pulumi = str(tool("pulumi", "exit 0"))
        assert operation.choose_engine(None, stack(root, "local"), "up") == pulumi
        assert operation.choose_engine(EngineName.PULUMI, stack(root, "local"), "up") == pulumi
        assert operation.choose_engine(EngineName.PULUMI, stack(root, "gcp"), "preview") == pulumi, (
            "also without credentials"
        )
        assert operation.choose_engine(EngineName.EMBEDDED, stack(root, "gcp"), "up") is None

    @pytest.mark.parametrize(("platform", "kind"), [("local", "up"), ("local", "destroy"), ("gcp", "preview")])
    def test_without_the_cli_the_embedded_engine_is_chosen_if_it_can_run_the_stack(
        self, root: Path, platform: str, kind: str
    ) -> None:
        assert operation.choose_engine(None, stack(root, platform), kind) is None

    @pytest.mark.parametrize("kind", ["up", "destroy", "refresh"])
    def test_a_missing_cli_is_an_error_that_says_how_to_install_it(self, root: Path, kind: str) -> None:
        write_state("x", NETWORK)
        version = pulumi_program.pulumi_version()
        with pytest.raises(CliError) as error:
            operation.choose_engine(None, stack(root, "gcp"), kind)
        assert str(error.value) == (
            f"{kind} of a stack on gcp is for `pulumi {kind} --stack x`, since the embedded engine creates machines on "
            "this host only. That needs the Pulumi CLI, which is not installed. "
            f"Install version {version} with: ./hpc install-pulumi"
        )

    @pytest.mark.parametrize("kind", ["destroy", "refresh"])
    def test_a_stack_without_resources_needs_no_cli(self, root: Path, kind: str) -> None:
        assert operation.choose_engine(None, stack(root, "gcp"), kind) is None

    @pytest.mark.parametrize("kind", ["up", "destroy", "refresh"])
    def test_the_embedded_engine_stops_before_the_first_step(
        self, root: Path, hpc: Hpc, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "mine")
        file = write_state("x", NETWORK)
        before = file.read_text()
        (root / "Pulumi.x.yaml").write_text(CLOUD)
        ended = hpc(kind, "x", "--engine", "embedded", *(["--yes"] if kind == "destroy" else []))
        assert ended.code == 1
        said = ended.err + ended.out
        assert "it has no provider for gcp:compute/network:Network." in said
        assert f"Use the Pulumi CLI: pulumi {kind} --stack x" in said
        assert "./hpc install-pulumi" in said
        assert file.read_text() == before

    def test_a_cli_installed_by_the_sdk_is_found(self, root: Path, tmp_path: Path) -> None:
        folder = tmp_path / ".pulumi/versions" / pulumi_program.pulumi_version()
        pulumi = programs.write(folder / "bin/pulumi", "")
        assert operation.choose_engine(None, stack(root, "gcp"), "up") == str(pulumi)
        # A rehearsal does not change engines because the CLI was installed for something else.
        assert operation.choose_engine(None, stack(root, "local"), "up") is None


def test_a_failed_installation_prints_the_installers_output(hpc: Hpc, monkeypatch: pytest.MonkeyPatch) -> None:
    def install() -> None:
        raise OSError("no route")

    monkeypatch.setattr(pulumi.automation.PulumiCommand, "install", install)
    ended = hpc("install-pulumi")
    assert ended.code == 1
    assert not ended.out
    assert ended.err.splitlines()[-1] == (
        "error: the Pulumi CLI could not be downloaded: no route. Check this machine's way out."
    )
    assert os.environ["HOME"] in ended.err


def test_pulumi_is_on_path_after_its_installation(hpc: Hpc, tmp_path: Path) -> None:
    """The installer changes no profile: PulumiCommand of the SDK calls it with --no-edit-path."""
    folder = tmp_path / ".pulumi/versions" / pulumi_program.pulumi_version() / "bin"
    programs.write(folder / "pulumi", "echo found")
    ended = hpc("install-pulumi")
    assert ended.code == 0
    command = ["env", "-i", "PATH=/usr/bin:/bin", "sh", "-c", f"{ended.out}\npulumi"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "found\n"
    assert 'eval "$(./hpc install-pulumi)"' in ended.err
