"""`./hpc usage`: hours and jobs of the accounting records."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Hpc, Tool

SACCT = """\
2026-10-22T00:00:00 2026-11-21T00:00:00
1|alice|research|cpu|3600|billing=2,cpu=2,mem=2048M,node=1|1|COMPLETED|2026-11-01T00:00:00|2026-11-01T01:00:00|01:00:00|
2|bob|teaching|gpu|1800|cpu=1,gres/gpu:standin=2,gres/gpu=2|2|COMPLETED|2026-11-01T00:00:00|2026-11-01T00:30:00|00:00:00|
2.0|||gpu|1800|gres/gpu=2|2.0|COMPLETED|2026-11-01T00:00:00|2026-11-01T00:30:00|00:00:00|gres/gpuutil=150
alive all
"""


@pytest.fixture(autouse=True)
def sacct(up: None, tool: Tool, tmp_path: Path) -> None:
    """A controller with two jobs on record."""
    (tmp_path / "sacct").write_text(SACCT)
    tool("ssh", f"cat {tmp_path}/sacct")


def test_a_table_with_its_total(hpc: Hpc):
    lines = [line.split() for line in hpc("usage", "dev").out.splitlines()]
    assert lines[1:] == [
        ["bob", "teaching", "gpu", "0.50", "0%", "1.00", "75%", "1"],
        ["alice", "research", "cpu", "2.00", "50%", "0.00", "-", "1"],
        ["total", "2.50", "40%", "1.00", "75%", "2"],
    ]


def test_a_document(hpc: Hpc):
    told = json.loads(hpc("usage", "dev", "--by", "account", "--user", "alice", "--json").out)
    assert (told["since"], told["until"]) == ("2026-10-22T00:00:00", "2026-11-21T00:00:00")
    figures = {
        "cpu_hours": 2.0, "gpu_hours": 0.0, "cpu_seconds": 7200, "gpu_seconds": 0, "jobs": 1, "cpu_efficiency": 0.5,
        "gpu_utilization": None,
    }  # fmt: skip
    assert told["rows"] == [{"account": "research", **figures}]
    assert told["total"] == figures


def test_a_typo_is_no_idle_user(hpc: Hpc):
    assert "Did you mean alice?" in hpc("usage", "dev", "--user", "alise").err
    assert "Did you mean teaching?" in hpc("usage", "dev", "--account", "teachin").err


def test_a_bad_time_says_what_is_allowed(hpc: Hpc):
    ended = hpc("usage", "dev", "--until", "tomorow")
    assert ended.error.startswith("error: --until: 'tomorow' is no point in time. Allowed: a date (2026-11-21")
