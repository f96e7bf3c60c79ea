"""The kubeconfig, which holds no credential, and `./hpc nebius-token`, its credential command."""

import base64
import json
import os
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.commands import nebius_token
from cluster.platforms.nebius.kubectl import OWN_COMMAND, kubeconfig, server_url
from cluster.platforms.nebius.names import ROOT_PATH
from components.nebius.api import client
from components.nebius.kubectl import Kubectl, Pod
from scripts import hostfiles
from tests import programs

PEM = ssl.DER_cert_to_PEM_cert(b"certificate")
TOKEN = ["nebius", "mk8s", "v1", "cluster", "get-token", "--format", "json"]


def written(**changed: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "server": "https://mk8scluster-1.mk8s.eu-north1.nebius.cloud",
        "certificate_authority": PEM,
        "command": TOKEN,
        "context": "nebius-soperator",
        "namespace": "soperator",
    }
    return yaml.safe_load(kubeconfig(**{**given, **changed}))


def test_the_current_context_leads_to_the_server_as_the_user_of_the_command() -> None:
    document = written()
    by_name = {kind: {row["name"]: row for row in document[kind]} for kind in ("clusters", "users", "contexts")}
    context = by_name["contexts"][document["current-context"]]["context"]
    assert context["namespace"] == "soperator"
    cluster = by_name["clusters"][context["cluster"]]["cluster"]
    assert cluster["server"] == "https://mk8scluster-1.mk8s.eu-north1.nebius.cloud"
    assert base64.b64decode(cluster["certificate-authority-data"]).decode() == PEM
    exec_ = by_name["users"][context["user"]]["user"]["exec"]
    assert [exec_["command"], *exec_["args"]] == TOKEN
    assert (exec_["apiVersion"], exec_["interactiveMode"]) == ("client.authentication.k8s.io/v1beta1", "Never")


def test_a_user_has_a_command_and_nothing_else_to_log_in_with() -> None:
    for user in written()["users"]:
        assert set(user["user"]) == {"exec"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("203.0.113.7", "https://203.0.113.7"),
        ("203.0.113.7:443", "https://203.0.113.7:443"),
        ("https://203.0.113.7:443/", "https://203.0.113.7:443"),
        ("http://127.0.0.1:8001", "http://127.0.0.1:8001"),
    ],
)
def test_an_endpoint_is_a_host_or_a_url(given: str, expected: str) -> None:
    assert server_url(given) == expected
    assert written(server=given)["clusters"][0]["cluster"]["server"] == expected


@pytest.mark.parametrize("name", ["n", "y", "on", "1e3", "null", "0x1f"])
def test_names_stay_texts_for_every_reader_of_yaml(name: str) -> None:
    assert json.loads(kubeconfig("h", PEM, TOKEN, "c", name))["contexts"][0]["context"]["namespace"] == name


@pytest.mark.parametrize("words", [["get token", "a'b", "$(x)"], ["t", "--profile", "a: b", "#c", "null"]])
def test_words_of_the_command_arrive_as_given(words: list[str]) -> None:
    exec_ = written(command=words)["users"][0]["user"]["exec"]
    assert [exec_["command"], *exec_["args"]] == words


def plugin(**environ: str) -> subprocess.CompletedProcess[str]:
    return programs.run(OWN_COMMAND, env={**os.environ, **environ}, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_it_answers_in_the_version_that_it_is_asked_in(version: str) -> None:
    asked = {"apiVersion": f"client.authentication.k8s.io/{version}", "kind": "ExecCredential", "spec": {}}
    done = plugin(NEBIUS_IAM_TOKEN="t0ken", KUBERNETES_EXEC_INFO=json.dumps(asked))
    assert json.loads(done.stdout) == {
        "apiVersion": f"client.authentication.k8s.io/{version}", "kind": "ExecCredential",
        "status": {"token": "t0ken"},
    }  # fmt: skip


def test_errors_are_one_line_for_kubectl(tmp_path: Path) -> None:
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

    monkeypatch.setattr(client, "_create_sdk", Sdk)
    nebius_token.nebius_token()
    status = json.loads(capsys.readouterr().out)["status"]
    assert status == {"token": "exchanged", "expirationTimestamp": "2026-11-22T17:00:00Z"}
    assert given[0][0] == client.LOGIN_SECONDS
    assert len(given) == 2, "it is closed"


ACCESS = {
    "server": "https://10.0.0.1", "certificate_authority": PEM, "command": ["nebius", "token"],
    "context": "nebius-lab", "namespace": "lab",
}  # fmt: skip


class TestOfADeployment:
    @pytest.fixture(autouse=True)
    def parent(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(hostfiles, "PARENT", tmp_path)
        return tmp_path

    def test_nobody_else_can_read_it_and_it_is_removed(self, parent: Path) -> None:
        with Kubectl(ACCESS):
            assert modes(parent) == [0o700, 0o600]
        assert modes(parent) == []
        with pytest.raises(ValueError, match="an error"), Kubectl(ACCESS):
            raise ValueError("an error")
        assert modes(parent) == []

    def test_threads_do_not_remove_each_others(self, parent: Path) -> None:
        def is_kept(_: int) -> bool:
            with Kubectl(ACCESS) as own, Kubectl(ACCESS):
                return own._kubeconfig.exists()

        with Kubectl(ACCESS), ThreadPoolExecutor(8) as pool:
            assert all(pool.map(is_kept, range(100)))
            assert len(modes(parent)) == 2

    @pytest.mark.parametrize(
        ("jail", "root"), [("/mnt/jail", ["chroot", "/mnt/jail"]), ("", [])], ids=["jail", "container"]
    )
    def test_a_command_in_a_pod_has_the_jail_and_root_s_environment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jail: str, root: list[str]
    ) -> None:
        programs.write(tmp_path / "kubectl", 'shift; printf "%s\\n" "$@"')
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        with Kubectl(ACCESS) as one:
            words = one.execute(Pod(name="login-0", container="sshd", jail=jail), "id", "-u").splitlines()
        assert words[:5] == ["exec", "--namespace=lab", "login-0", "--container=sshd", "--"]
        assert words[5:] == [*root, "env", "-i", "HOME=/root", f"PATH={ROOT_PATH}", "id", "-u"]

    @pytest.mark.parametrize("wrong", ["access", "disk"])
    def test_one_that_can_not_be_written_leaves_nothing(
        self, parent: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
    ) -> None:
        def full(*_: object, **__: object) -> None:
            raise OSError("no space left")

        if wrong == "disk":
            monkeypatch.setattr("components.nebius.kubectl.write_atomically", full)
        with pytest.raises((OSError, TypeError)):
            Kubectl({**ACCESS, **({"other": 1} if wrong == "access" else {})})
        assert modes(parent) == []


def modes(folder: Path) -> list[int]:
    return [path.stat().st_mode & 0o777 for path in sorted(folder.rglob("*"))]
