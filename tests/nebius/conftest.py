"""What tests of Nebius have in common: no credentials of the developer's, and the programs behind Kubernetes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.state import crypter
from lab.kubernetes import binaries
from lab.kubernetes.apiserver import ApiServer
from tests.nebius.kube.project import Kube

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests behind Kubernetes come last: on a new machine its programs are built meanwhile."""
    items.sort(key=lambda item: item.path.is_relative_to(HERE) and item.get_closest_marker("slow") is not None)


@pytest.fixture(autouse=True)
def _fast_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million rounds of key derivation are for attackers, not for tests."""
    monkeypatch.setattr(crypter, "ROUNDS", 10)


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NEBIUS_IAM_TOKEN", "NEBIUS_CREDENTIALS_FILE", "NEBIUS_PROFILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def programs() -> binaries.Paths:
    """etcd, Kubernetes' API server, kubectl and Helm; built first where PATH has none."""
    return binaries.ensure()


@pytest.fixture(scope="session")
def kube(programs: binaries.Paths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    """A running API server; its namespaces are the tests' own to name.

    Tests that use it are `slow`: from an empty cache the programs are built first, which takes about six minutes.
    """
    server = ApiServer(tmp_path_factory.mktemp("kubernetes") / "api", programs, bound=True)
    with server.running() as access:
        yield Kube(programs, server, access)
