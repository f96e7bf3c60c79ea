"""A project of its own for each test, with stack files, a folder for the state and no settings of the user; the outputs
of a cluster that is up; and a stand-in for ssh that records how it is called."""

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
from tests import programs

Tool = Callable[[str, str], Path]
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n-----END OPENSSH PRIVATE KEY-----\n"
MACHINES = {
    "controller": ("10.77.0.2", "controller"),
    "login-0": ("10.77.0.3", "login"),
    "cpu-0": ("10.77.2.0", "node"),
    "cpu-1": ("10.77.2.1", "node"),
}
OUTPUTS: dict[str, Any] = {
    "cluster": "dev",
    "targets": {
        f"dev-{name}": {"method": "ssh", "address": address, "roles": [role], "host_key": f"ssh-ed25519 AAA{number}\n"}
        for number, (name, (address, role)) in enumerate(MACHINES.items(), 1)
    },
    "admin_key": KEY,
    "users": ["alice", "bob"],
    "login": "dev-login-0",
}
FAKE_SSH = """\
{
    printf 'word %s\\n' "$@"
    sed 's/^ */option /' "$2"
    key=$(sed -n 's/^ *IdentityFile //p' "$2")
    printf 'mode %s\\n' "$(stat -Lc %a "$key")" "$(stat -c %a "${2%/*}")"
    sed 's/^/key /' "$key"
    sed 's/^/known /' "$(sed -n 's/^ *UserKnownHostsFile //p' "$2")"
    sed 's/^/input /'
} >"$LOG"
exit 7
"""
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


def recorded(log: Path, kind: str) -> list[str]:
    """Return what FAKE_SSH recorded of a kind: word, option, mode, key, known, input."""
    return [line.removeprefix(f"{kind} ") for line in log.read_text().splitlines() if line.startswith(f"{kind} ")]


def patch_outputs(monkeypatch: pytest.MonkeyPatch, outputs: dict[str, Any]) -> None:
    """Give every stack these outputs, as if it were up. Commands must read them with secrets."""

    def read(_stack: str, *, show_secrets: bool) -> dict[str, Any]:
        assert show_secrets
        return outputs

    monkeypatch.setattr("cli.stack.outputs.read", read)


def write_state(stack: str = "dev", *types: str) -> Path:
    """Write a state with a resource of each type, as another engine would, and return its file."""
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
    # Clusters of this host are out of reach.
    monkeypatch.setenv("HPC_LOCAL_ROOT", str(tmp_path / "host"))
    monkeypatch.setenv("HOME", str(tmp_path))
    # rich reads these for colours and width.
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    tools = tmp_path / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    return folder


@pytest.fixture
def tool(root: Path) -> Callable[[str, str], Path]:
    """A function that writes a shell script with this name and body to the first folder of PATH."""

    def write(name: str, body: str) -> Path:
        return programs.write(root.parent / "bin" / name, body)

    return write


@pytest.fixture
def hpc(root: Path, capfd: pytest.CaptureFixture[str]) -> Hpc:
    """A function that runs a command line in this process."""

    def run(*arguments: str) -> Ended:
        capfd.readouterr()
        console.stdout.cache_clear()
        console.stderr.cache_clear()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capfd.readouterr()
        return Ended(int(ended.value.code or 0), out, err)

    return run
