"""`./hpc accounting rebuild`: what the controller says of lost records is shown, and they are written when told."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Hpc, stand_for_state
from tests.cli.test_day_two import OUTPUTS

Tool = Callable[[str, str], Path]
ROW = ["7", "alice", "research", "cpu", "FAILED", "2026-11-21T05:43:58", "2026-11-21T05:44:58"]


@pytest.fixture(autouse=True)
def up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stack `dev` is up, as far as its outputs tell."""
    stand_for_state(monkeypatch, OUTPUTS)


@pytest.mark.parametrize(
    ("ssh", "code", "words"),
    [
        ("true", 0, "No ended job of cluster dev lacks its record."),
        ("exit 2", 1, "older than this program. Bring it up to date: ./hpc up dev"),
        ("echo 'rebuild: slurmctld has 3 records' >&2; exit 1", 1, "dev-controller: rebuild: slurmctld has 3"),
    ],
)
def test_what_the_controller_says_is_told(hpc: Hpc, tool: Tool, ssh: str, code: int, words: str):
    tool("ssh", f"cat >/dev/null; {ssh}")
    ended = hpc("accounting", "rebuild", "dev", "--yes")
    assert (ended.code, words in ended.err) == (code, True), ended.err


def test_they_are_shown_and_written_when_told(hpc: Hpc, tool: Tool):
    tool("ssh", f"if grep -q true; then echo 'wrote 1'; else echo '{json.dumps(ROW)}'; fi")
    ended = hpc("accounting", "rebuild", "dev")
    assert (ended.code, ended.out.splitlines()[1].split()) == (1, ROW)
    assert "writing 1 record without a terminal needs --yes" in ended.err
    assert hpc("accounting", "rebuild", "dev", "--yes").out.splitlines()[-1] == "wrote 1"
