"""Soperator's definitions on a real API server: as large as the real ones, of each version in turn."""

import json
import random
import re

import pytest
import yaml

from cluster.platforms.nebius.kubeconfig import kubeconfig
from components.nebius.kubernetes.definitions import DefinitionsProvider
from components.nebius.kubernetes.kubectl import KubectlError
from tests.nebius.kube.cluster import kube
from tests.nebius.kube.conftest import namespace, project

pytestmark = pytest.mark.slow
__all__ = ["kube", "namespace", "project"]

LARGE = """
k.helm.v3.Release("large", name="large", chart="charts/%s", namespace=%r, skip_await=True, opts=options)
"""
BYTES = 3_500_000
"""Of the definitions of Soperator 4.1.7."""


def definition(name, *fields, padding=0):
    """A definition of a kind with these fields, and descriptions that compress as well as those of real ones."""
    words = random.Random(name)  # noqa: S311 - the same in each run
    texts = (f"{words.randbytes(100).hex():x<1000}" for _ in range(padding // 1000))
    about = {f"pad{row}": {"type": "string", "description": text} for row, text in enumerate(texts)}
    known = {field: {"type": "string"} for field in fields}
    spec = {"type": "object", "properties": {**known, **about}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return yaml.safe_dump(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{name}s.defined.hpc"},
            "spec": {
                "group": "defined.hpc",
                "scope": "Namespaced",
                "names": {"kind": name.title(), "plural": f"{name}s"},
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
            },
        }
    )


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
    chart(tmp_path / "helm-soperator", "crds", rack=definition("rack", "before"))
    DefinitionsProvider().create(props)
    assert served(kube, "rack") == ["before"]
    file = tmp_path / "helm-soperator" / "crds" / "rack.yaml"
    file.write_text(definition("rack", "before", "after"))
    newer = {**props, "chart": {**props["chart"], "version": "4.1.8"}}
    assert DefinitionsProvider().diff("", props, newer).changes
    assert not DefinitionsProvider().diff("", props, dict(props)).changes
    DefinitionsProvider().update("", props, newer)
    assert served(kube, "rack") == ["after", "before"]


def test_those_as_large_as_soperators_fit_a_release_in_crds_alone(kube, namespace, project, props, tmp_path):
    every = {name: definition(name, "size", padding=BYTES // 6) for name in map("large{}".format, "abcdef")}
    chart(project.root / "charts" / "templates", "templates", **every)
    assert not project.up(LARGE % ("templates", namespace)).ok
    assert "Too long" in " ".join(project.failures())
    chart(tmp_path / "helm-soperator", "crds", **every)
    DefinitionsProvider().create(props)
    assert served(kube, "largea")[0] == "pad0"
    (project.root / "charts" / "crds").symlink_to(tmp_path / "helm-soperator")
    assert project.up(LARGE % ("crds", namespace)).ok, project.failures()


def test_a_refusal_of_the_api_server_is_kubectls_own_text(props, tmp_path):
    chart(tmp_path / "helm-soperator", "crds", rack="apiVersion: v1\nkind: Nonsense\nmetadata: {name: x}\n")
    with pytest.raises(KubectlError, match="Nonsense"):
        DefinitionsProvider().create(props)


def served(kube, name):
    crd = kube.get("crd", f"{name}s.defined.hpc")
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return sorted(schema["properties"]["spec"]["properties"])
