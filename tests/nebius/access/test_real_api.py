"""What the commands ask a Kubernetes API, asked of a real one by the real kubectl.

Pods have no kubelet here: commands inside them and their logs are for the rehearsal's tests.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from copy import deepcopy
from typing import Any

import pytest

from cli.access.kubectl import KubeApi, Kubernetes
from cli.cluster.cluster import from_outputs
from cli.cluster.dashboard import Prometheus
from cluster.platforms.nebius.names import VMSINGLE
from cluster.platforms.nebius.observer import REQUESTS, _is_absent
from cluster.platforms.nebius.observer import read_objects as of_release
from tests.nebius.access.conftest import OUTPUTS
from tests.nebius.kube.project import Kube

pytestmark = pytest.mark.slow
NAMESPACE = "soperator"


@pytest.fixture(scope="module")
def outputs(kube: Kube) -> dict[str, Any]:
    """Outputs whose API server is the real one."""
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "kind": "ExecCredential",
        "status": {"token": kube.access.token},
    }
    made = deepcopy(OUTPUTS)
    made["kubernetes"] |= {
        "server": kube.access.server,
        "certificate_authority": kube.access.certificate_authority,
        "command": ["/bin/echo", json.dumps(credential)],
    }
    kube.kubectl("create", "namespace", NAMESPACE, check=False)
    return made


@pytest.fixture
def api(outputs: dict[str, Any]) -> Iterator[KubeApi]:
    with ExitStack() as stack:
        yield KubeApi(stack, Kubernetes.of(outputs["kubernetes"]))


def test_missing_kinds_are_distinguished_from_errors(api: KubeApi) -> None:
    answer = api.ask("get", "slurmclusters.example.nebius.ai", "--output=json")
    assert answer.code
    assert "the server doesn't have a resource type" in answer.err


def test_a_cluster_without_metrics_has_no_alerts_and_no_error(api: KubeApi) -> None:
    answer = api.ask(*REQUESTS["alerts"])
    assert answer.code
    assert _is_absent(answer.err), answer.err


@pytest.mark.parametrize("name", [name for name in REQUESTS if name in ("pods", "events", "nodes")])
def test_questions_about_kubernetes_own_kinds_are_answered(api: KubeApi, name: str) -> None:
    answer = api.ask(*REQUESTS[name])
    assert answer.code == 0, answer.err
    assert isinstance(answer.items, list)


def test_a_refused_credential_is_reported(outputs: dict[str, Any]) -> None:
    wrong = json.dumps(
        {"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "status": {"token": "expired"}}
    )
    with ExitStack() as stack:
        given = outputs["kubernetes"] | {"command": ["/bin/echo", wrong]}
        answer = KubeApi(stack, Kubernetes.of(given)).ask("get", "pods")
    assert answer.why.startswith("the credential of `/bin/echo")
    assert answer.why.endswith("is refused: it may have expired")


def test_objects_of_a_release_are_read_as_they_are_now_in_whatever_namespace(api: KubeApi, kube: Kube) -> None:
    there = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "there"}, "data": {"a": "1"}}
    gone = {**there, "metadata": {"name": "gone"}}
    other = {**there, "metadata": {"name": "other", "namespace": "default"}}
    everywhere = {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "all"}, "rules": [],
    }  # fmt: skip
    for item, namespace in ((there, NAMESPACE), (other, "default"), (everywhere, "default")):
        kube.kubectl("apply", "--server-side", f"--namespace={namespace}", "--filename=-", stdin=json.dumps(item))
    found = of_release(api.ask, NAMESPACE, [there, gone, other, everywhere])
    names = [(item["metadata"].get("namespace"), item["metadata"]["name"]) for item in found.items]
    assert names == [(NAMESPACE, "there"), ("default", "other"), (None, "all")], found.err
    for manifest in ([gone], []):
        none = of_release(api.ask, NAMESPACE, manifest)
        assert (none.code, none.items) == (0, [])


def test_queries_go_through_the_api_server_to_the_service_of_metrics_and_to_nothing_else(
    outputs: dict[str, Any],
) -> None:
    prometheus = Prometheus(from_outputs("nebius", outputs))
    try:
        answer = prometheus.ask("api/v1/query?query=up")
        assert answer.status == 404
        assert json.loads(answer.body)["message"] == f'services "{VMSINGLE.partition(":")[0]}" not found'
        prometheus._root = "api/v1/namespaces/default/"
        assert prometheus.ask("configmaps").status == 403
    finally:
        prometheus.close()
