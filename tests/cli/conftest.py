"""A project of its own for each test: stack files, a home for the state, and nobody's environment."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cli import console
from cli.app import main
from cli.stack import project, state_dir
from engine.state.crypter import Crypter

PULUMI_YAML = "name: hpc\nruntime: python\n"
STACK = """\
config:
  hpc:cluster:
    platform: local
    name: dev
    nodesets: {cpu: {count: 1}}
    partitions: {cpu: {nodesets: [cpu], default: true}}
"""
CLOUD = """\
config:
  gcp:project: my-project
  gcp:zone: us-central1-a
  hpc:cluster:
    platform: gcp
    name: small
    nodesets: {cpu: {count: 1}}
    partitions: {cpu: {nodesets: [cpu], default: true}}
"""


@dataclass(frozen=True)
class Ended:
    """How a command line ended."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """Standard error of a command that failed, with exit code 1."""
        assert self.code == 1, self
        return self.err


Hpc = Callable[..., Ended]


def stand_for_state(monkeypatch: pytest.MonkeyPatch, outputs: dict[str, Any]) -> None:
    """Let every stack have these outputs, as one that is up; who enters machines must ask for the secrets."""

    def read(_stack: str, *, show_secrets: bool) -> dict[str, Any]:
        assert show_secrets
        return outputs

    monkeypatch.setattr("cli.stack.outputs.read", read)


def made(stack: str = "dev", *types: str) -> Path:
    """Give a stack a state with a resource of each type, as another engine left it; the state's file."""
    file = project.workspace().stack(stack).file
    file.parent.mkdir(parents=True, exist_ok=True)
    resources = [
        {"urn": f"urn:pulumi:{stack}::hpc::{type_}::made", "type": type_, "custom": True, "id": "made"}
        for type_ in types
    ]
    secrets = {"type": "passphrase", "state": {"salt": Crypter(lambda: "mine").salt}}
    latest = {"manifest": {}, "secrets_providers": secrets, "resources": resources}
    checkpoint = {"stack": f"organization/hpc/{stack}", "latest": latest}
    file.write_text(json.dumps({"version": 3, "checkpoint": checkpoint}))
    return file


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the stack `dev`, an empty home, and no Pulumi CLI on PATH."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text(PULUMI_YAML)
    (folder / "Pulumi.dev.yaml").write_text(STACK)
    (folder / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    monkeypatch.setattr(project, "ROOT", folder)
    monkeypatch.setattr(state_dir, "ROOT", folder)
    for name in ("HPC_ENGINE", "PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HPC_HOME", str(tmp_path / "home"))
    # No cluster of this host's is looked at.
    monkeypatch.setenv("HPC_LOCAL_ROOT", str(tmp_path / "host"))
    monkeypatch.setenv("HOME", str(tmp_path))
    # rich asks these before it decides on colours and width.
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    tools = tmp_path / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    return folder


@pytest.fixture
def tool(root: Path) -> Callable[[str, str], Path]:
    """Puts a shell script of a name and body first on PATH."""

    def write(name: str, body: str) -> Path:
        path = root.parent / "bin" / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    return write


@pytest.fixture
def hpc(root: Path, capfd: pytest.CaptureFixture[str]) -> Hpc:
    """Runs a command line in this process."""

    def run(*arguments: str) -> Ended:
        capfd.readouterr()
        console.stdout.cache_clear()
        console.stderr.cache_clear()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capfd.readouterr()
        return Ended(int(ended.value.code or 0), out, err)

    return run
