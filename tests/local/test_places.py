"""Logs of machines that a failed test prints."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import places


def sections(**report: Any) -> dict[str, str]:
    made = SimpleNamespace(**{"failed": True, "when": "call", "duration": 60.0, "sections": [], **report})
    places.add_logs(made)  # pyrefly: ignore[bad-argument-type]
    return dict(made.sections)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a machine that does not run."""
    monkeypatch.setattr(places, "PLACE", tmp_path)
    folder = tmp_path / f"e2e-{os.getpid()}/stacks/many/machines/many-controller"
    (folder / "upper/var/log/slurm").mkdir(parents=True)
    (folder / "console.log").write_text("".join(f"line {n}\n" for n in range(places.LINES + 5)))
    (folder / "upper/var/log/slurm/slurmctld.log").write_text("error: no\n")
    return folder


def test_a_failed_test_prints_the_end_of_each_log_that_was_written_meanwhile(machine: Path) -> None:
    old = machine / "upper/var/log/slurm/slurmd.log"
    old.touch()
    os.utime(old, (0, 0))
    found = sections()
    assert found.keys() == {"many-controller: console.log", "many-controller: slurmctld.log"}
    assert found["many-controller: slurmctld.log"] == "error: no"
    assert len(found["many-controller: console.log"].splitlines()) == places.LINES
    assert found["many-controller: console.log"].startswith("line 5\n")


def test_a_test_that_passed_prints_none(machine: Path) -> None:
    assert sections(failed=False) == {}
    assert sections(when="teardown") == {}
