"""The kubeconfig: what kubectl reads in it, and that it holds no credential itself."""

import base64
import json
import ssl
from typing import Any

import pytest
import yaml

from cluster.platforms.nebius.kubectl import kubeconfig, server_url

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
