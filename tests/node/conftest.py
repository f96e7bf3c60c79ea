"""No account of this host's stands for slurm."""

import pytest
from system import cluster_state


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_state, "OWNER", "no-such-user")
