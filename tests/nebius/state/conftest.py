"""A project of its own for each test, without anybody's credentials, and nothing that waits."""

from collections.abc import Iterator

import pytest

from cluster.platforms.gcp import credentials as google_credentials
from tests.cli.conftest import hpc, root, tool  # noqa: F401 - fixtures
from tests.fakes.storage import FakeStorage

_FOREIGN = (
    *google_credentials._VARIABLES,
    "STORAGE_EMULATOR_HOST",
    *("NEBIUS_IAM_TOKEN", "NEBIUS_CREDENTIALS_FILE", "NEBIUS_PROFILE"),
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
