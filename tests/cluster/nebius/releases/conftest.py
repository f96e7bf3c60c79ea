"""Charts of versions that are not offered any more: their code is still here, and so are its tests."""

import pytest

from cluster.catalog.nebius import soperator

FIRST = (1, 15, 1)
"""The oldest version whose charts this program writes values for."""


@pytest.fixture(autouse=True)
def _every_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soperator, "FIRST", FIRST)
