"""A project of resources that need no machine, run by both engines on one state."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cli.operation.pulumi_cli import RunEvents
from engine.events import Result
from engine.state import crypter
from tests.engine.conftest import Bench
from tests.pulumi_cli.program import Cli

CLI_ROUNDS = 1_000_000
"""Rounds of the key of a passphrase: sdk/go/common/resource/config/crypt.go, v3.274.1."""
PROGRAM = Path(__file__).with_name("resources.py")
STACK = ("--stack", "dev")
Plan = dict[str, tuple[str, Any]]


@pytest.fixture(scope="session")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """The Pulumi CLI with its plugins."""
    made = Cli.create(tmp_path_factory.mktemp("pulumi"))
    yield made
    made.close()


@dataclass
class Both(Bench):
    """One stack, and both engines."""

    cli: Cli | None = None
    wanted: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.program(PROGRAM.read_text())
        self.want(words=2, names=["a", "b"])

    def want(self, **changes: Any) -> None:
        """Change what the program declares."""
        self.wanted |= changes
        document = {**self.wanted, "file": str(self.living / "note"), "folder": str(self.living)}
        (self.root / "wanted.json").write_text(json.dumps(document))

    @property
    def env(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PULUMI_")}
        backend = f"file://{self.root.parent}/{self.root.name}-backend"
        mine = {"PULUMI_BACKEND_URL": backend, "PULUMI_CONFIG_PASSPHRASE": self.passphrase}
        return {**kept, **mine, "LIVING": str(self.living), "PULUMI_ENABLE_STREAMING_JSON_PREVIEW": "true"}

    def pulumi(self, *words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """`pulumi WORDS` in the project."""
        assert self.cli is not None
        return self.cli.run(*words, cwd=self.root, env=self.env, check=check)

    def by(self, engine: str, kind: str, *options: str, **scope: Any) -> Result:
        """Run `up`, `preview`, `refresh` or `destroy` with an engine, and return what it did."""
        if engine == "embedded":
            result = self.run(kind, **scope)
        else:
            sure = () if kind == "preview" else ("--yes", "--skip-preview")
            done = self.pulumi(kind, *STACK, "--json", *sure, *options, check=False)
            events = RunEvents(line for line in done.stdout.splitlines() if line.startswith("{"))
            result = events.result(kind, ok=done.returncode == 0, outputs={})
            assert result.ok, f"{events.why}\n{events.messages}\n{done.stderr}"
        assert result.ok, result
        return result

    def plan(self, engine: str, *options: str, **scope: Any) -> Plan:
        """What a preview by an engine would do, by the name of the resource: the operation, and the changed inputs."""
        return plan(self.by(engine, "preview", *options, **scope))

    def nothing_to_do(self) -> None:
        """Both engines find that all is as it should be."""
        assert {engine: self.plan(engine) for engine in ENGINES} == {engine: {} for engine in ENGINES}


ENGINES = ("cli", "embedded")


def plan(result: Result) -> Plan:
    """The operations of a result, each with the paths of the inputs that change."""
    return {
        change.urn: (change.op, sorted(part.path for part in change.changes if change.op in ("update", "replace")))
        for change in result.changes
        if not change.type.endswith(":Stack")
    }


@pytest.fixture
def both(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Both:
    """A stack that both engines know, without resources."""
    monkeypatch.setattr(crypter, "ROUNDS", CLI_ROUNDS)
    found = Both(tmp_path / "project", cli=cli)
    monkeypatch.setenv("LIVING", str(found.living))
    (tmp_path / "project-backend").mkdir()
    found.pulumi("stack", "init", "dev", "--secrets-provider", "passphrase")
    return found


def kill(process: "subprocess.Popen[str]") -> None:
    """End a run as the kernel does that has no memory left, with no time to clean up."""
    process.send_signal(signal.SIGKILL)
    process.wait()
