"""A stand-in for Nebius's API of each test, and a project whose resources it has."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from components.nebius.api import client
from tests.lab.nebius_api.server import NebiusServer
from tests.nebius.api.project import Project


@pytest.fixture
def api() -> Iterator[NebiusServer]:
    with NebiusServer(seconds=0.03) as server:
        yield server
        client.close()


@pytest.fixture
def project(tmp_path: Path, api: NebiusServer) -> Project:
    return Project(tmp_path, api)
