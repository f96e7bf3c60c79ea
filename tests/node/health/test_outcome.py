"""The history of health checks has a line per change and per day, is bounded, and may contain anything."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from health import outcome
from hypothesis import given
from hypothesis import strategies as st

OK = {"disk": {"state": "ok", "text": "40 % free"}}
XID = {"gpu-xid": {"state": "failed", "text": "Xid 79 (fallen off the bus) of GPU 3"}}
FULL = {"disk": {"state": "failed", "text": "/ has 1.0 % free"}}


def record(time: float, checks: dict[str, Any], **more: str) -> dict[str, Any]:
    return {"node": "n-0", "time": time, "boot": "b1", "checks": checks, **more}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(outcome, "RESULTS", tmp_path)
    monkeypatch.setattr(outcome, "LAST", tmp_path / "last/health.json")
    return tmp_path


def lines(folder: Path) -> list[dict[str, Any]]:
    return outcome.parse_history((folder / "n-0.jsonl").read_text())


def test_history_has_a_line_per_change_and_per_day(folder: Path) -> None:
    later = {"disk": {"state": "failed", "text": "/ has 0.9 % free"}}
    runs = [(0, OK), (300, OK), (600, FULL), (900, later), (1200, OK), (1500, XID), (1800, OK), (1800 + 86400, OK)]
    for time, checks in runs:
        outcome.keep_record(record(time, checks))
    assert [(line["time"], sorted(line.get("failed", {}))) for line in lines(folder)] == [
        (0, []), (600, ["disk"]), (1200, []), (1500, ["gpu-xid"]), (1800, []), (88200, []),
    ]  # fmt: skip


def test_actions_boots_and_xids_are_changes(folder: Path) -> None:
    other = {"gpu-xid": {"state": "failed", "text": "Xid 48 of GPU 1"}}
    for given_record in (
        record(0, XID, done="drain"), record(1, other), record(2, other), record(3, other, boot="b2"),
    ):  # fmt: skip
        outcome.add_to_history(given_record)
    assert [line["time"] for line in lines(folder)] == [0, 1, 3]
    assert lines(folder)[0]["done"] == "drain"


@given(st.lists(st.text(max_size=300), max_size=400))
def test_history_is_bounded_and_keeps_the_newest_lines(texts: list[str]) -> None:
    text = ""
    for number, said in enumerate(texts):
        failed = {"gpu-xid": {"state": "failed", "text": said}}
        text = outcome.append_line(text, outcome.line_of(record(number, failed)))
    assert len(text.encode()) <= outcome.MOST_BYTES
    rows = outcome.parse_history(text)
    assert [row["time"] for row in rows] == list(range(len(texts)))[len(texts) - len(rows) :]
    if texts:
        assert rows


def test_invalid_lines_are_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = {"node": "n-0", "time": 100.0, "failed": {"disk": "full"}}
    times = ("NaN", "Infinity", "1e300", "9" * 400, "-1")
    bad = [f'{{"node": "n-0", "time": {time}, "failed": {{"disk": "full"}}}}' for time in times]
    bad += ['{"node": "n-1", "time": 100}', '{"node": 1, "time": "x"}', "[1]", "{", "[" * 100_000]
    (folder / "n-0.jsonl").write_text("\n".join([*bad, json.dumps(good), json.dumps({**good, "time": 1.0})]))
    (folder / "n-2.jsonl").symlink_to("/etc/shadow")
    monkeypatch.setattr(sys, "stdin", io.StringIO("50\n"))
    outcome.show_history()
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [good]
