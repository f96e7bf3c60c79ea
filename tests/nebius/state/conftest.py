"""A project of its own for each test, without anybody's credentials, and nothing that waits."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.platforms.gcp import platform as google_platform
from components.nebius.api import client
from lab.google.storage import FakeStorage
from lab.nebius_api.server import NebiusServer
from tests.cli.conftest import hpc, root, tool  # noqa: F401 - fixtures
from tests.nebius.state.buckets import BUCKET

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
    nebius: {{tenant: tenant-e00abc, project: project-e00def, region: eu-north1, endpoint: "{endpoint}"}}
    nodesets: {{worker: {{count: 1, machine_type: gpu-h100-sxm/8gpu-128vcpu-1600gb}}}}
    partitions: {{main: {{nodesets: [worker], default: true}}}}
"""


@pytest.fixture
def nebius(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NebiusServer]:  # noqa: F811 - the fixture
    """Nebius's API on this machine, and the stack `nb` whose endpoint it is."""
    monkeypatch.setenv("NEBIUS_IAM_TOKEN", "token-of-the-tests")
    monkeypatch.setattr("components.nebius.state._PACE", 0.02)
    with NebiusServer(seconds=0.01) as api:
        (root / "Pulumi.nb.yaml").write_text(NEBIUS.format(endpoint=api.endpoint))
        yield api
        client.close()


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The file with the key."""
    return tmp_path / "home/backends" / f"{BUCKET}.json"
