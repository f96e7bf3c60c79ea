"""A stack with users, and what stands for its cluster and for `up`."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.access import remote
from cli.operation import operation
from cli.operation.run_options import RunOptions
from cli.users import ClusterUsers
from tests.cli.conftest import STACK

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
def running(file: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets the cluster run with the users of the file; `gone`: and one whom somebody has removed from it since."""

    def start(jobs: str = "", *, gone: bool = False, **seen: Any) -> None:
        config = yaml.safe_load(FILE)["config"]["hpc:cluster"]
        config["users"] += [{"name": "gone", "uid": 2004, "account": "research"}] if gone else []
        monkeypatch.setattr("cli.stack.outputs.read", lambda *_, **__: {**OUTPUTS, "config": json.dumps(config)})
        seen.setdefault("homes", HOMES)
        found = ClusterUsers(**seen)
        monkeypatch.setattr("cli.users.read_in_effect", lambda *_: found)
        monkeypatch.setattr("cli.commands.user.read_in_effect", lambda *_: found)
        done = remote.CommandResult(code=0, out=jobs, err="")
        monkeypatch.setattr(remote, "capture", lambda *_, **__: done)

    return start


@pytest.fixture
def ups(running: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> list[RunOptions]:
    """The runs of `up` of a cluster that is up; they succeed."""
    running()
    found: list[RunOptions] = []

    def run(kind: str, stack: str, chosen: RunOptions) -> int:
        assert (kind, stack) == ("up", "dev")
        found.append(chosen)
        return 0

    monkeypatch.setattr(operation, "run", run)
    return found


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
