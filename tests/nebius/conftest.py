"""What tests of Nebius have in common: no credentials of the developer's."""

import pytest

from engine.state import crypter


@pytest.fixture(autouse=True)
def _fast_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million rounds of key derivation are for attackers, not for tests."""
    monkeypatch.setattr(crypter, "ROUNDS", 10)


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NEBIUS_IAM_TOKEN", "NEBIUS_CREDENTIALS_FILE", "NEBIUS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
