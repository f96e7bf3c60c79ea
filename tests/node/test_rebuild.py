"""Records of jobs that slurmctld noted, and the database lacks: what is written, and that no value of a user's is SQL.
The SQL itself runs end to end (tests/e2e/lost_records.py)."""

import json
import re

import pytest
from accounting import rebuild
from accounting.rebuild import line, start, state, statements, text
from system.host import SetupError

JOB = {
    "job_id": 7, "submit_time": 100, "start_time": 110, "end_time": 170, "job_state": 32773, "user_id": 2001,
    "group_id": 2001, "exit_code": 768, "derived_ec": 4294967294, "array_job_id": 0, "array_task_id": 3,
    "user_name": "alice", "account": "research", "partition": "cpu", "qos": "normal", "name": "x",
    "tres_alloc_str": "1=1,1001=2",
}  # fmt: skip


@pytest.fixture
def done(monkeypatch):
    """SQL that was run, for one job without a record and an idle queue."""
    ran = []
    monkeypatch.setattr(rebuild.records, "unrecorded", lambda: [JOB])
    monkeypatch.setattr(rebuild, "query", lambda statement: ran.append(statement) or [])
    monkeypatch.setattr(rebuild, "cluster_name", lambda: "lab")
    monkeypatch.setattr(rebuild.scheduler, "statistics", lambda: {"waiting": 0})
    return ran


def test_it_is_shown_and_nothing_is_written_until_told(done, capsys):
    rebuild.rebuild({"insert": False})
    assert json.loads(capsys.readouterr().out)[:5] == ["7", "alice", "research", "cpu", "FAILED"]
    assert done == []
    rebuild.rebuild({"insert": True})
    (sql,) = done
    assert re.search(r"START TRANSACTION;.*INSERT IGNORE INTO .*COMMIT;$", sql, re.DOTALL)
    assert "hourly_rollup = LEAST(hourly_rollup, 110)" in sql
    assert rebuild.MARK.encode().hex() in sql


def test_records_on_their_way_are_waited_for(done, monkeypatch):
    monkeypatch.setattr(rebuild.scheduler, "statistics", lambda: {"waiting": 3})
    with pytest.raises(SetupError, match="has 3 records that slurmdbd has not taken yet"):
        rebuild.rebuild({"insert": True})
    assert done == []


@pytest.mark.parametrize(
    "name", ["user_name", "account", "partition", "qos", "resv_name", "name", "work_dir", "comment"]
)
def test_what_a_user_gives_is_hexadecimal(name):
    bad = "a\nb'; DROP TABLE x; -- \\ \u00c3\u00a4\u00ff"
    sql = "\n".join(statements("lab", [JOB | {name: bad}]))
    assert "DROP" not in sql
    assert sql.count("\n") == len(statements("lab", [JOB])) - 1
    assert "a\nb'; DROP TABLE x; -- \\ \u00e4\ufffd".encode().hex() in sql


def test_states_and_times_are_the_databases(monkeypatch):
    assert state(JOB) == 5
    assert state(JOB | {"job_state": 0x8400}) == rebuild.REQUEUED
    assert start(JOB | {"start_time": 900}) == 0, "it was cancelled before the start that slurmctld expected"
    assert json.loads(line(JOB | {"start_time": 900}))[5] == "-"
    monkeypatch.setattr(rebuild.pwd, "getpwuid", {}.__getitem__)
    assert rebuild.user({"user_id": 7}) == "7"
    assert text(JOB, "comment") == ""


def test_no_job_no_word(done, monkeypatch, capsys):
    monkeypatch.setattr(rebuild.records, "unrecorded", list)
    rebuild.rebuild({"insert": True})
    assert (done, capsys.readouterr().out) == ([], "")
