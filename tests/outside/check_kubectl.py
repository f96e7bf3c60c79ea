"""`kubectl=PROGRAM`: what commands and `up` ask of Kubernetes, asked of a real API server by this kubectl."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cli.access.kubectl import KubeApi, KubernetesOutput
from cluster.platforms.nebius.kubectl import OWN_COMMAND, PORTABLE_COMMAND, kubeconfig
from cluster.platforms.nebius.observer import REQUESTS, _is_absent, read_objects
from components.nebius.chart_sources import DefinitionsProvider
from components.nebius.kubectl import Kubectl, KubectlError
from components.nebius.teardown import TeardownSteps
from tests import programs
from tests.outside.kubernetes import apiserver, binaries
from tests.outside.recorder import Recorder

SPACE = "soperator"
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: activechecks.slurm.nebius.ai}
spec:
  group: slurm.nebius.ai
  scope: Namespaced
  names: {kind: ActiveCheck, plural: activechecks}
  versions:
    - name: v1alpha1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


@pytest.fixture(scope="module")
def access(artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The output `kubernetes` of a stack whose cluster is a real API server, and this kubectl first on PATH."""
    folder = tmp_path_factory.mktemp("kubernetes")
    programs.write(folder / "bin" / "kubectl", f'exec {artifact} "$@"')
    with apiserver.running(folder / "api", binaries.ensure()) as file, pytest.MonkeyPatch.context() as patched:
        patched.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
        given = json.loads(file.read_text())
        cluster, token = given["clusters"][0]["cluster"], given["users"][0]["user"]["token"]
        yield {
            "server": cluster["server"],
            "certificate_authority": Path(cluster["certificate-authority"]).read_text(),
            "command": credential(token), "context": "outside", "namespace": SPACE,
        }  # fmt: skip


def credential(token: str) -> list[str]:
    """A command that prints a credential with this token."""
    document = {
        "apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "status": {"token": token},
    }  # fmt: skip
    return ["/bin/echo", json.dumps(document)]


def token_of(access: dict[str, Any]) -> str:
    return json.loads(access["command"][1])["status"]["token"]


@pytest.fixture
def api(access: dict[str, Any]) -> Iterator[KubeApi]:
    with ExitStack() as stack:
        yield KubeApi(stack, KubernetesOutput.of(access))


def test_kubectl_and_helm_take_the_kubeconfig_and_its_credential_command(
    access: dict[str, Any], outside: Recorder, tmp_path: Path
) -> None:
    paths, place = binaries.ensure(), (access["server"], access["certificate_authority"])
    for words, where in (
        (OWN_COMMAND, {}),
        (PORTABLE_COMMAND, {"HPC_PROGRAM": OWN_COMMAND[0]}),
        (PORTABLE_COMMAND, {}),
    ):
        (tmp_path / "config").write_text(kubeconfig(*place, words, "own"))
        kept = {name: value for name, value in os.environ.items() if name != "HPC_PROGRAM"}
        for program in (["kubectl", "get", "namespaces"], [str(paths.helm), "list"]):
            for token, refused in ((token_of(access), ""), ("another", "logged in|provide credentials")):
                done = programs.run(
                    [*program, f"--kubeconfig={tmp_path / 'config'}"],
                    env={**kept, **where, "NEBIUS_IAM_TOKEN": token}, cwd=Path(OWN_COMMAND[0]).parent,
                )  # fmt: skip
                assert bool(done.returncode) is bool(refused), done.stderr
                assert re.search(refused, done.stderr), done.stderr
    (tmp_path / "config").write_text(kubeconfig(*place, access["command"], "own"))
    done = programs.run(["kubectl", "get", "namespaces", f"--kubeconfig={tmp_path / 'config'}"])
    assert done.returncode == 0, done.stderr
    outside.did("a kubeconfig without a credential, by kubectl and Helm")
    outside.holds("nebius-exec-credential", "nebius-provider-folder")


def test_definitions_are_applied_by_the_server_and_refused_in_kubectls_words(
    access: dict[str, Any], outside: Recorder, tmp_path: Path
) -> None:
    folder = tmp_path / "helm-soperator" / "crds"
    folder.mkdir(parents=True)
    chart = {"repo": str(tmp_path), "chart": "helm-soperator", "version": "4.1.7"}
    (folder / "one.yaml").write_text(DEFINITION)
    DefinitionsProvider().create({"chart": chart, "access": access})
    # Another version of the chart, by the same field manager, and over another one.
    (folder / "one.yaml").write_text(DEFINITION.replace("schema: {", "additionalPrinterColumns: []\n      schema: {"))
    DefinitionsProvider().create({"chart": {**chart, "version": "4.1.8"}, "access": access})
    (folder / "one.yaml").write_text("apiVersion: v1\nkind: Nonsense\nmetadata: {name: x}\n")
    with pytest.raises(KubectlError, match="Nonsense"):
        DefinitionsProvider().create({"chart": {**chart, "version": "4.1.9"}, "access": access})
    outside.did("definitions: server-side apply, twice, and the wait until they are established")


def test_what_nobody_answers_any_more_is_deleted(access: dict[str, Any], outside: Recorder) -> None:
    """The steps of a teardown, with no operator, no load balancer and no volumes: finalizers are taken away."""
    with Kubectl(access) as kubectl:
        kubectl.run("create", "namespace", SPACE)
        kubectl.run("apply", "--server-side", "--filename=-", stdin=DEFINITION)
        kubectl.run("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s", seconds=90)
        held = {
            "apiVersion": "slurm.nebius.ai/v1alpha1", "kind": "ActiveCheck",
            "metadata": {"name": "held", "namespace": SPACE, "finalizers": ["slurm.nebius.ai/activecheck-finalizer"]},
        }  # fmt: skip
        kubectl.run("apply", "--server-side", "--filename=-", stdin=json.dumps(held))
        TeardownSteps(kubectl=kubectl, pace=0.1).run("charts")
        kubectl.run("delete", "activechecks", "held", f"--namespace={SPACE}", "--timeout=20s")
        assert kubectl.items("activechecks.slurm.nebius.ai") == []
        assert kubectl.items("nonsense.slurm.nebius.ai") == []
        assert kubectl.object("namespaces", SPACE)
        assert kubectl.object("namespaces", "none") is None
    outside.did("a teardown of an object with a finalizer whose operator is gone")


def test_questions_are_answered_and_missing_kinds_are_no_errors(
    api: KubeApi, access: dict[str, Any], outside: Recorder
) -> None:
    for name in ("pods", "events", "nodes"):
        answer = api.ask(*REQUESTS[name])
        assert answer.code == 0, answer.err
        assert isinstance(answer.items, list)
    missing = api.ask("get", "slurmclusters.example.nebius.ai", "--output=json")
    assert "the server doesn't have a resource type" in missing.err
    alerts = api.ask(*REQUESTS["alerts"])
    assert alerts.code
    assert _is_absent(alerts.err), alerts.err
    with ExitStack() as stack:
        wrong = KubeApi(stack, KubernetesOutput.of({**access, "command": credential("expired")})).ask("get", "pods")
    assert wrong.why.endswith("is refused: it may have expired")
    outside.did("questions of status: answered, refused, and of kinds that are not there")


def test_objects_of_a_release_are_read_in_whatever_namespace(
    api: KubeApi, access: dict[str, Any], outside: Recorder
) -> None:
    there = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "there"}, "data": {"a": "1"}}
    gone = {**there, "metadata": {"name": "gone"}}
    other = {**there, "metadata": {"name": "other", "namespace": "default"}}
    with Kubectl(access) as kubectl:
        for item, namespace in ((there, SPACE), (other, "default")):
            kubectl.run("apply", "--server-side", f"--namespace={namespace}", "--filename=-", stdin=json.dumps(item))
    found = read_objects(api.ask, SPACE, [there, gone, other])
    names = [(item["metadata"].get("namespace"), item["metadata"]["name"]) for item in found.items]
    assert names == [(SPACE, "there"), ("default", "other")], found.err
    for manifest in ([gone], []):
        none = read_objects(api.ask, SPACE, manifest)
        assert (none.code, none.items) == (0, [])
    outside.did("objects of a release, by its manifest")
