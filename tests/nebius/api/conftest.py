"""A stand-in for Nebius's API of each test, and a project whose resources it has."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from components.nebius.api import client
from components.nebius.rehearsal.api.server import NebiusServer
from engine.state import crypter
from tests.nebius.api.project import Project


@pytest.fixture(autouse=True)
def _fast_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million rounds of key derivation are for attackers, not for tests."""
    monkeypatch.setattr(crypter, "ROUNDS", 10)


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NEBIUS_IAM_TOKEN", "NEBIUS_CREDENTIALS_FILE", "NEBIUS_PROFILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def api() -> Iterator[NebiusServer]:
    with NebiusServer(seconds=0.03) as server:
        yield server
        client.close()


@pytest.fixture
def project(tmp_path: Path, api: NebiusServer) -> Project:
    return Project(tmp_path, api)
