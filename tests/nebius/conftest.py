"""What tests of Nebius have in common: no credentials of the developer's."""

import pytest

from components import cloud_questions
from engine.state import crypter


@pytest.fixture(autouse=True)
def _fast_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million rounds of key derivation are for attackers, not for tests."""
    monkeypatch.setattr(crypter, "ROUNDS", 10)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that refuses does so at once."""
    monkeypatch.setattr(cloud_questions, "PAUSES", ())


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NEBIUS_IAM_TOKEN", "NEBIUS_CREDENTIALS_FILE", "NEBIUS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
