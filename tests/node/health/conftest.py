"""A machine that is not a container, with locks of its own."""

from pathlib import Path

import pytest
from health import outcome


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(outcome, "CONTAINER", tmp_path / "none")
    monkeypatch.setattr(outcome, "RUN", tmp_path / "run")
