"""The date of today in tests of stack files, since recipes get old."""

from datetime import datetime, timezone

import pytest

from cluster.platforms.gcp import checks


@pytest.fixture(autouse=True)
def _day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "today", lambda: datetime(2026, 11, 22, tzinfo=timezone.utc))
