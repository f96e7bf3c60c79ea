"""A project of its own for each test, without anybody's credentials; the bucket that the tests initialize."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.commands import backend
from cluster.platforms.gcp import platform as google_platform
from components.nebius.api import client
from components.nebius.state import default_name
from components.state_bucket import BucketRecord, Key
from tests.cli.conftest import hpc, root, tool  # noqa: F401 - fixtures
from tests.lab.google.storage import FakeStorage
from tests.lab.nebius_api.server import NebiusServer

TENANT, PROJECT = "tenant-e00abc", "project-e00def"
BUCKET = default_name(TENANT, PROJECT)
ACCOUNT = "slurm-pulumi-sa"
INIT = ("backend", "init", "nebius", "--stack", "nb")


def rows(api: NebiusServer, kind: str) -> list[dict[str, Any]]:
    """All objects of a kind."""
    with api.lock:
        return list(api.store.of(kind))


def record() -> BucketRecord:
    """Return what is kept of the bucket."""
    found = backend.load_record(BUCKET)
    assert found is not None
    return found


def key() -> Key:
    """The kept key."""
    found = record().key
    assert found is not None
    return found


def world(api: NebiusServer) -> str:
    """All that exists."""
    with api.lock:
        return json.dumps([{**row, "facts": {}} for row in api.store.objects.values()], sort_keys=True)


_FOREIGN = (
    *google_platform._VARIABLES,
    "STORAGE_EMULATOR_HOST",
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"),
)


@pytest.fixture(autouse=True)
def nobody(root, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811 - the fixture
    """Nobody is logged in anywhere."""
    for name in _FOREIGN:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeStorage]:
    """Cloud Storage on this machine."""
    with FakeStorage() as fake:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake.endpoint)
        monkeypatch.setattr("components.gcp.state.time.sleep", lambda _: None)
        yield fake


NEBIUS = """\
config:
  hpc:cluster:
    platform: nebius
    name: soperator
    nebius: {tenant: tenant-e00abc, project: project-e00def, region: eu-north1}
    nodesets: {worker: {count: 1, machine_type: gpu-h100-sxm/8gpu-128vcpu-1600gb}}
    partitions: {main: {nodesets: [worker], default: true}}
"""


@pytest.fixture
def nebius(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NebiusServer]:  # noqa: F811 - the fixture
    """Nebius's API on this machine, and the stack `nb` on it."""
    monkeypatch.setenv("NEBIUS_IAM_TOKEN", "token-of-the-tests")
    monkeypatch.setattr("components.nebius.state._PACE", 0.02)
    with NebiusServer(seconds=0.01) as api:
        (root / "Pulumi.nb.yaml").write_text(NEBIUS)
        yield api
        client.close()


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The file with the key."""
    return tmp_path / "home/backends" / f"{BUCKET}.json"
