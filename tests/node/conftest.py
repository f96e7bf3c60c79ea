"""No account of this host's stands for slurm, and no note on this host is for its systemd."""

from pathlib import Path

import pytest
from system import cluster_state, host


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cluster_state, "OWNER", "no-such-user")
    monkeypatch.setattr(host, "UNREAD", tmp_path / "unread-units")
