"""Soperator's definitions on a real API server: as large as the real ones, of each version in turn."""

import json
import re

import pytest

from cluster.platforms.nebius.kubectl import kubeconfig
from components.nebius.chart_sources import DefinitionsProvider
from components.nebius.kubectl import KubectlError
from lab import nebius_rehearsal
from tests.nebius.kube.cluster import kube
from tests.nebius.kube.conftest import namespace, project

pytestmark = pytest.mark.slow
__all__ = ["kube", "namespace", "project"]

LARGE = """
k.helm.v3.Release("large", name="large", chart="charts/%s", namespace=%r, skip_await=True, opts=options)
"""


def chart(folder, folder_inside, **files):
    place = folder / folder_inside
    place.mkdir(parents=True)
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: helm-soperator\nversion: 1.0.0\n")
    for name, text in files.items():
        (place / f"{name}.yaml").write_text(text)


@pytest.fixture
def props(kube, tmp_path):
    access = {
        "server": kube.access.server, "certificate_authority": kube.access.certificate_authority, "context": "test",
        "namespace": "default", "command": ["cat", str(tmp_path / "credential.json")],
    }  # fmt: skip
    exec_api = re.search(r"client\.authentication\.k8s\.io/\w+", kubeconfig("", "", ["cat"], "test", "default"))
    assert exec_api is not None
    credential = {"apiVersion": exec_api[0], "kind": "ExecCredential", "status": {"token": kube.access.token}}
    (tmp_path / "credential.json").write_text(json.dumps(credential))
    return {"chart": {"repo": str(tmp_path), "chart": "helm-soperator", "version": "4.1.7"}, "access": access}


def test_another_version_has_its_own_definitions_before_its_chart(kube, props, tmp_path):
    chart(tmp_path / "helm-soperator", "crds", rack=nebius_rehearsal.definition("rack", "before"))
    DefinitionsProvider().create(props)
    assert served(kube, "rack") == ["before"]
    file = tmp_path / "helm-soperator" / "crds" / "rack.yaml"
    file.write_text(nebius_rehearsal.definition("rack", "before", "after"))
    newer = {**props, "chart": {**props["chart"], "version": "4.1.8"}}
    assert DefinitionsProvider().diff("", props, newer).changes
    assert not DefinitionsProvider().diff("", props, dict(props)).changes
    DefinitionsProvider().update("", props, newer)
    assert served(kube, "rack") == ["after", "before"]


def test_those_as_large_as_soperators_fit_a_release_in_crds_alone(kube, namespace, project, props, tmp_path):
    nebius_rehearsal.write_charts(tmp_path / "charts", "4.1.7")
    soperator = tmp_path / "charts" / "helm-soperator"
    every = {file.stem: file.read_text() for file in (soperator / "crds").glob("ballast*.yaml")}
    chart(project.root / "charts" / "templates", "templates", **every)
    assert not project.up(LARGE % ("templates", namespace)).ok
    assert "Too long" in " ".join(project.failures())
    DefinitionsProvider().create({**props, "chart": {**props["chart"], "repo": str(tmp_path / "charts")}})
    assert served(kube, "ballast0")[0] == "pad0"
    (project.root / "charts" / "crds").symlink_to(soperator)
    assert project.up(LARGE % ("crds", namespace)).ok, project.failures()
    record = kube.get("secret", "sh.helm.release.v1.large.v1", f"--namespace={namespace}")["data"]["release"]
    # 952 KB of the real one.
    assert 930_000 < len(record) * 3 // 4 < 1 << 20


def test_active_checks_of_a_rehearsal_are_in_the_namespace_that_real_ones_name(kube, namespace, project, tmp_path):
    none = (LARGE % ("checks", namespace)).replace("skip_await", 'values={"checks": None}, skip_await')
    checks = project.root / "charts" / "checks"
    checks.symlink_to(tmp_path / "charts" / "helm-soperator-activechecks")
    nebius_rehearsal.write_charts(tmp_path / "charts", "4.1.7")
    assert not project.up(none).ok
    assert 'namespaces "soperator" not found' in " ".join(project.failures())
    nebius_rehearsal.write_charts(tmp_path / "charts", "5.0.0")
    assert project.up(none).ok, project.failures()


def test_a_refusal_of_the_api_server_is_kubectls_own_text(props, tmp_path):
    chart(tmp_path / "helm-soperator", "crds", rack="apiVersion: v1\nkind: Nonsense\nmetadata: {name: x}\n")
    with pytest.raises(KubectlError, match="Nonsense"):
        DefinitionsProvider().create(props)


def served(kube, name):
    crd = kube.get("crd", f"{name}s.rehearsal.hpc")
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return sorted(schema["properties"]["spec"]["properties"])
