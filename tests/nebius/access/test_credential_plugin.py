"""`./hpc nebius-token` as the credential command of a kubeconfig: real kubectl and real Helm get in with it."""

import json
import os
import re
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from cli.commands import nebius_token
from cluster.platforms.nebius.kubectl import OWN_COMMAND, PORTABLE_COMMAND, kubeconfig
from components.nebius.api import client
from tests.nebius.kube.cluster import Kube, kube

__all__ = ["kube"]


def plugin(**environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        OWN_COMMAND, env={**os.environ, **environ}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_kubectl_and_helm_reach_an_api_server_with_it(kube: Kube, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(kubeconfig(kube.access.server, kube.access.certificate_authority, [], "own"))
    for program in ([kube.paths.kubectl, "get", "namespaces"], [kube.paths.helm, "list"]):
        for token, refused in ((kube.access.token, ""), ("another", "logged in|provide credentials")):
            done = run(program, file, token)
            assert bool(done.returncode) is bool(refused), done.stderr
            assert re.search(refused, done.stderr), done.stderr


@pytest.mark.slow
def test_a_kubeconfig_of_a_state_names_it_by_the_variable_or_by_the_project_s_folder(
    kube: Kube, tmp_path: Path
) -> None:
    file = tmp_path / "config"
    file.write_text(kubeconfig(kube.access.server, kube.access.certificate_authority, PORTABLE_COMMAND, "own"))
    for where in ({"HPC_PROGRAM": OWN_COMMAND[0]}, {}):
        done = run([kube.paths.kubectl, "get", "namespaces"], file, kube.access.token, **where)
        assert done.returncode == 0, done.stderr


def run(program: list[Any], file: Path, token: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A program, as it is started in the project's folder."""
    kept = {name: value for name, value in os.environ.items() if name != "HPC_PROGRAM"}
    return subprocess.run(
        [*map(str, program), f"--kubeconfig={file}"], env={**kept, "NEBIUS_IAM_TOKEN": token, **environ},
        cwd=Path(OWN_COMMAND[0]).parent, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_it_answers_in_the_version_that_it_is_asked_in(version: str) -> None:
    asked = {"apiVersion": f"client.authentication.k8s.io/{version}", "kind": "ExecCredential", "spec": {}}
    done = plugin(NEBIUS_IAM_TOKEN="t0ken", KUBERNETES_EXEC_INFO=json.dumps(asked))
    assert json.loads(done.stdout) == {
        "apiVersion": f"client.authentication.k8s.io/{version}", "kind": "ExecCredential",
        "status": {"token": "t0ken"},
    }  # fmt: skip


def test_what_fails_is_one_line_for_kubectl_to_show(tmp_path: Path) -> None:
    done = plugin(NEBIUS_CREDENTIALS_FILE=str(tmp_path / "none.json"))
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert "none.json" in line
    assert "NEBIUS_CREDENTIALS_FILE (it does not expire)" in line


def test_the_expiry_of_a_service_account_s_token_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    until = datetime(2026, 11, 22, 17, 0, tzinfo=timezone.utc)
    given: list[Any] = []

    class Sdk:
        """With a credentials file the SDK exchanges its key for a token of Nebius's IAM, which tests do not reach."""

        def get_token_sync(self, seconds: float, options: dict[str, str]) -> Any:
            given.append((seconds, options))
            return type("Token", (), {"token": "exchanged", "expiration": until})

        def sync_close(self, timeout: float) -> None:
            given.append(timeout)

    monkeypatch.setattr(client, "_make", lambda _endpoint: Sdk())
    nebius_token.nebius_token()
    status = json.loads(capsys.readouterr().out)["status"]
    assert status == {"token": "exchanged", "expirationTimestamp": "2026-11-22T17:00:00Z"}
    assert given[0][0] == client.LOGIN_SECONDS
    assert len(given) == 2, "it is closed"
