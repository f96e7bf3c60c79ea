"""Projects on a real Kubernetes API."""

import pytest

from tests.nebius.kube.project import Project


@pytest.fixture
def namespace(kube, request):
    """A namespace of the test's own, left to the end of the server."""
    name = f"t{abs(hash(request.node.nodeid)) % 10**10}"
    kube.kubectl("create", "namespace", name)
    return name


@pytest.fixture
def project(kube, namespace, tmp_path, monkeypatch):
    monkeypatch.setenv("NAMESPACE", namespace)
    return Project(tmp_path / "project", kube, namespace=namespace)
