"""Capabilities and drivers: a command that a platform can't do is refused by name, and any driver runs commands."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from cli.access import remote
from cli.access.target import Target
from tests.cli.conftest import Hpc, stand_for_state

OUTPUTS = {
    "cluster": "toy",
    "platform": {"name": "toy", "title": "Toy pods", "capabilities": ["run", "nodes"]},
    "targets": {"toy-login": {"method": "toy", "roles": ["controller", "login"], "pod": "login-0"}},
    "login": "toy-login",
    "users": ["alice"],
}


class ToyDriver:
    """Runs commands on this host, as nobody else."""

    needs_admin_key = False

    @contextmanager
    def connected(self, targets: Sequence[Target], admin_key: str, *, seconds: float) -> Generator[Callable]:
        yield lambda target, user, command, **_: ["echo", target.row["pod"], user, *command]

    def extra_seconds(self, target: Target) -> float:
        return 0

    def explain(self, target: Target, stderr: str) -> str:
        return stderr


@pytest.fixture
def up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack of a platform that has two capabilities and a driver of its own is up."""
    stand_for_state(monkeypatch, OUTPUTS)
    monkeypatch.setattr(remote, "DRIVERS", {"toy": cache(ToyDriver)})


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (["ssh", "dev"], "ssh"), (["ssh-config", "dev"], "ssh"), (["status", "dev"], "status"),
        (["drift", "dev"], "drift"), (["logs", "dev", "slurmd"], "logs"), (["usage", "dev"], "usage"),
        (["nodes", "dev", "reboot", "cpu-0"], "reboot"), (["accounting", "backup", "dev"], "backup"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)  # fmt: skip
def test_a_command_without_its_capability_is_refused(hpc: Hpc, up: None, words: list[str], missing: str) -> None:
    ended = hpc(*words)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        f"error: stack dev is on Toy pods, a platform without the capability {missing}. It has: run, nodes.\n"
    )


def test_a_command_with_its_capability_goes_by_the_targets_driver(hpc: Hpc, up: None) -> None:
    ended = hpc("run", "dev", "--", "hostname", "-f")
    assert (ended.code, ended.out) == (0, "login-0 alice hostname -f\n"), ended.err
