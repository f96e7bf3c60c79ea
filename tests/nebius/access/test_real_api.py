"""What the commands ask a Kubernetes API, asked of a real one by the real kubectl.

Pods have no kubelet here: commands inside them and their logs are for the rehearsal's tests.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.access.kubectl import KubeApi, Kubectl, Kubernetes
from cli.cluster.cluster import from_outputs
from cli.errors import CliError
from cluster.platforms.nebius.observer import QUESTIONS
from cluster.platforms.nebius.observer import applied as of_release
from tests.nebius.access.conftest import OUTPUTS, Hpc
from tests.nebius.kube.cluster import Kube

pytestmark = pytest.mark.slow
CRDS = Path(__file__).parents[3] / "lab/charts/soperator/crds/soperator.yaml"
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


def applied(kube: Kube, *items: dict[str, Any]) -> None:
    """Apply objects, and their status besides, as controllers write it."""
    for item in items:
        kube.kubectl("apply", "--server-side", "--filename=-", stdin=json.dumps(item))
        if "status" in item:
            words = (
                "apply",
                "--server-side",
                "--subresource=status",
                "--field-manager=controller",
                "--force-conflicts",
            )
            kube.kubectl(*words, "--filename=-", stdin=json.dumps(item))


def pod(name: str, container: str, phase: str, **status: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": container, "image": "none"}], "automountServiceAccountToken": False}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
        "status": {"phase": phase, **status},
    }


def test_missing_kinds_are_distinguished_from_errors(api: KubeApi) -> None:
    answer = api.ask("get", "slurmclusters.example.nebius.ai", "--output=json")
    assert answer.code
    assert "the server doesn't have a resource type" in answer.err


@pytest.mark.parametrize("name", [name for name in QUESTIONS if name in ("pods", "events", "nodes")])
def test_questions_about_kubernetes_own_kinds_are_answered(api: KubeApi, name: str) -> None:
    answer = api.ask(*QUESTIONS[name])
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


class TestStatus:
    def test_of_a_cluster_whose_worker_crashes(
        self, hpc: Hpc, kube: Kube, outputs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("cli.stack.outputs.read", lambda _stack, **_: outputs)
        kube.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={CRDS}")
        kube.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
        false = {
            "type": "LoginAvailable", "status": "False", "reason": "NotAvailable", "message": "not yet",
            "lastTransitionTime": "2026-01-05T05:00:00Z",
        }  # fmt: skip
        kinds = {one["spec"]["names"]["kind"]: one for one in yaml.safe_load_all(CRDS.read_text()) if one}
        cluster = {
            "apiVersion": f"slurm.nebius.ai/{kinds['SlurmCluster']['spec']['versions'][0]['name']}",
            "kind": "SlurmCluster",
            "metadata": {"name": NAMESPACE, "namespace": NAMESPACE},
            "spec": {"slurmNodes": {"login": {"size": 1, "sshRootPublicKeys": []}}},
            "status": {"phase": "Not available", "conditions": [false]},
        }
        waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}
        state = {
            "name": "slurmd", "ready": False, "restartCount": 4, "state": waiting, "image": "none", "imageID": "",
            "started": False, "lastState": {},
        }  # fmt: skip
        ready = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-05T05:00:00Z"}
        applied(
            kube,
            cluster,
            pod("worker-0", "slurmd", "Running", containerStatuses=[state], conditions=[ready]),
        )
        ended = hpc("status", "nebius", "--json")
        document = json.loads(ended.out)
        found = {f"{one['id']} {','.join(one['where'])}": one for one in document["findings"]}
        assert "LoginAvailable is False (NotAvailable: not yet)" in found["cluster-unavailable controller-0"]["what"]
        assert "CrashLoopBackOff: back-off 5m0s" in found["pod-not-ready worker-0"]["what"]
        assert "not-read controller-0" not in found
        controller = document["machines"]["controller-0"]
        assert (controller["reached"], controller["why"]) == (False, "there is no pod controller-0")


class TestLogin:
    def service(self, kube: Kube, outputs: dict[str, Any], status: dict[str, Any]) -> None:
        applied(
            kube,
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": f"{NAMESPACE}-login-svc", "namespace": NAMESPACE},
                "spec": {"type": "LoadBalancer", "ports": [{"port": 22}]},
                "status": status,
            },
        )

    def test_a_balancer_without_an_address_and_then_a_pod_that_is_not_there(
        self, kube: Kube, outputs: dict[str, Any]
    ) -> None:
        target = from_outputs("nebius", outputs).target(None)
        self.service(kube, outputs, {"loadBalancer": {}})
        with pytest.raises(CliError, match="service soperator-login-svc has no address yet"):
            Kubectl.over_ssh(target, 20)
        self.service(kube, outputs, {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}})
        with pytest.raises(CliError, match="login-0: its host key can't be read: there is no pod login-0"):
            Kubectl.over_ssh(target, 20)


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
