"""No account of this host's stands for slurm, and no note of the set-up lies on it."""

from pathlib import Path

import pytest
from system import cluster_state, host


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cluster_state, "OWNER", "no-such-user")
    for note in ("UNREAD", "LINKED"):
        monkeypatch.setattr(host, note, tmp_path / note.lower())
