"""A stack of pods that is up, as far as its outputs tell, and a kubectl on PATH that does what a test says."""

import ssl
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Hpc, hpc, patch_outputs, root, tool

__all__ = ["Hpc", "hpc", "root", "tool"]
CAPABILITIES = ["drift", "logs", "nodes", "run", "ssh", "status", "usage"]
TOKEN = ["nebius", "mk8s", "v1", "cluster", "get-token", "--format", "json"]
OUTPUTS: dict[str, Any] = {
    "cluster": "soperator",
    "platform": {"name": "nebius", "title": "Nebius", "capabilities": CAPABILITIES},
    "targets": {
        name: {
            "method": "kubectl", "roles": [role], "pod": name, "container": container, "namespace": "soperator",
            "jail": jail,
        }
        for name, role, container, jail in (
            ("controller-0", "controller", "slurmctld", ""),
            ("login-0", "login", "sshd", "/mnt/jail"),
            ("login-1", "login", "sshd", "/mnt/jail"),
            ("worker-0", "node", "slurmd", "/mnt/jail"),
            ("worker-1", "node", "slurmd", "/mnt/jail"),
        )
    },
    "kubernetes": {
        "server": "203.0.113.7:443",
        "certificate_authority": ssl.DER_cert_to_PEM_cert(b"certificate"),
        "command": TOKEN,
        "context": "nebius-soperator",
        "namespace": "soperator",
    },
    "login": "login-0",
    "users": ["alice", "bob"],
    "admin_key": "-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n-----END OPENSSH PRIVATE KEY-----\n",
}  # fmt: skip


@pytest.fixture
def up(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Every stack is up with these outputs, which a test may change."""
    outputs = deepcopy(OUTPUTS)
    patch_outputs(monkeypatch, outputs)
    return outputs


@pytest.fixture
def kubectl(tool: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """kubectl(SCRIPT): the kubectl on PATH runs this. Returns a file of what it was called with: a line for each word,
    with an empty line behind each call."""

    def made(script: str) -> Path:
        log = tmp_path / "kubectl.log"
        monkeypatch.setenv("LOG", str(log))
        # `$verb` is what comes behind the options that every call has.
        tool(
            "kubectl",
            '{ printf "%s\\n" "$@"; echo; } >>"$LOG"\nconfig=$2\n[ "$1 $3" = "--kubeconfig --cache-dir" ] || exit 98\n'
            f"shift 4; verb=$1\n{script}\n",
        )
        return log

    return made


def calls(log: Path) -> list[list[str]]:
    """Return what kubectl was called with, without the options that every call has."""
    return [call.split("\n")[4:] for call in log.read_text().rstrip("\n").split("\n\n")]
