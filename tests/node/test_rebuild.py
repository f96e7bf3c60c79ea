"""Records of jobs that slurmctld noted, and the database lacks: what is written, and that no value of a user's is SQL.
The SQL itself runs end to end (tests/e2e/lost_records.py)."""

import json
import re

import pytest
from accounting import records
from accounting.records import job_line, started, state_of, statements, text_of
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
    monkeypatch.setattr(records, "unrecorded", lambda: [JOB])
    monkeypatch.setattr(records, "query", lambda statement: ran.append(statement) or [])
    monkeypatch.setattr(records, "cluster_name", lambda: "lab")
    monkeypatch.setattr(records.scheduler, "statistics", lambda: {"waiting": 0})
    return ran


def test_it_is_shown_and_nothing_is_written_until_told(done, capsys):
    records.rebuild({"insert": False})
    assert json.loads(capsys.readouterr().out)[:5] == ["7", "alice", "research", "cpu", "FAILED"]
    assert done == []
    records.rebuild({"insert": True})
    (sql,) = done
    assert re.search(r"START TRANSACTION;.*INSERT IGNORE INTO .*COMMIT;$", sql, re.DOTALL)
    assert "hourly_rollup = LEAST(hourly_rollup, 110)" in sql
    assert records.MARK.encode().hex() in sql


def test_records_on_their_way_are_waited_for(done, monkeypatch):
    monkeypatch.setattr(records.scheduler, "statistics", lambda: {"waiting": 3})
    with pytest.raises(SetupError, match="has 3 records that slurmdbd has not taken yet"):
        records.rebuild({"insert": True})
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
    assert state_of(JOB) == 5
    assert state_of(JOB | {"job_state": 0x8400}) == records.REQUEUED
    assert started(JOB | {"start_time": 900}) == 0, "it was cancelled before the start that slurmctld expected"
    assert json.loads(job_line(JOB | {"start_time": 900}))[5] == "-"
    monkeypatch.setattr(records.pwd, "getpwuid", {}.__getitem__)
    assert records.user_name({"user_id": 7}) == "7"
    assert text_of(JOB, "comment") == ""


def test_no_job_no_word(done, monkeypatch, capsys):
    monkeypatch.setattr(records, "unrecorded", list)
    records.rebuild({"insert": True})
    assert (done, capsys.readouterr().out) == ([], "")
