"""Projects on a real Kubernetes API."""

import pytest

from tests.nebius.kube.cluster import kube  # noqa: F401 - a fixture
from tests.nebius.kube.project import Project


@pytest.fixture
def namespace(kube, request):  # noqa: F811
    """A namespace of the test's own, left to the end of the server."""
    name = f"t{abs(hash(request.node.nodeid)) % 10**10}"
    kube.kubectl("create", "namespace", name)
    return name


@pytest.fixture
def project(kube, namespace, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("NAMESPACE", namespace)
    return Project(tmp_path / "project", kube, namespace=namespace)
