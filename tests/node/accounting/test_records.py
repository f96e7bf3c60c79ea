"""Jobs with wrong or missing records are found, and their records rebuilt."""

import gzip
import json
import os
import re
import time
from typing import Any

import pytest
from accounting import records
from accounting.records import job_line, started, state_of, statements, text_of
from system.host import SetupError


def line(number: int, *, days: float = 0, **other: object) -> str:
    """As jobcomp.lua writes it, of a job that was submitted some days ago and took a minute."""
    begun = int(time.time() - days * 86400)
    job = {
        "job_id": number, "submit_time": begun, "start_time": begun, "end_time": begun + 60, "job_state": 32771,
        "user_id": 2001, "group_id": 2001, "name": "a", "tres_alloc_str": "1=1,2=1024,1001=2",
    }  # fmt: skip
    return "\n" + json.dumps(job | other)


@pytest.fixture
def queries(tmp_path, monkeypatch):
    """Jobs 7 to 10 have ended, of which the database knows 8, and takes 5 and 6 to be running; slurmctld knows 6, 9."""
    file = tmp_path / "job_completions.log"
    lines = {number: line(number) for number in (7, 8, 9, 10)}
    file.write_text("".join(lines.values()))
    statements = []

    def query(statement):
        statements.append(statement)
        return [["5"], ["6"]] if "time_end = 0" in statement else [["8", str(json.loads(lines[8])["submit_time"])]]

    monkeypatch.setattr(records, "COMPLETIONS", file)
    monkeypatch.setattr(records, "query", query)
    monkeypatch.setattr(records, "cluster_name", lambda: "lab")
    monkeypatch.setattr(records, "run", lambda *_, **__: "6\n9\n")
    return statements


def numbers(tail: int | None = None) -> list[int]:
    return [number for number, _ in records.ended(tail)]


def test_runaways_and_jobs_without_a_record(queries):
    assert records.observe_records() == {"runaway": ["5"], "unrecorded": ["7", "10"]}
    assert "IN (0,7,8,9,10)" in queries[1]


def test_a_job_that_was_requeued_has_a_record_for_each_run(queries):
    with records.COMPLETIONS.open("a") as file:
        file.write(line(8, days=1))
    assert [job["job_id"] for job in records.unrecorded()] == [7, 8, 10]


def test_the_end_of_a_long_file_is_read(queries):
    assert numbers(len(line(10)) + 20) == [10]


def test_a_record_that_may_be_purged_is_not_missing(queries):
    records.COMPLETIONS.write_text(line(7, days=26) + line(8, days=28))
    assert numbers() == [7]


def test_rotated_files_are_read_and_the_last_line_counts(queries, tmp_path):
    now = int(time.time())
    with gzip.open(tmp_path / "job_completions.log.2.gz", "wt") as file:
        file.write(line(1, days=9) + line(2, submit_time=now, job_state=5))
    (tmp_path / "job_completions.log.3.gz").write_bytes(b"\x1f\x8b of a logrotate that was killed")
    (tmp_path / "job_completions.log.1").write_text(line(2, submit_time=now, job_state=3))
    assert numbers() == [1, 2, 7, 8, 9, 10]
    assert records.ended()[2, now]["job_state"] == 3


WRONG: list[dict[str, Any]] = [{"end_time": wrong} for wrong in ("1", -1, 1 << 32, True, None)]
WRONG += [{"name": 7}, {"name": "\u2028"}, {"account": {}}, {"more": "x"}]
WRONG += [{"tres_alloc_str": wrong} for wrong in ("1=1,", "1=1' OR 1")]


@pytest.mark.parametrize("wrong", [line(7)[:-9], "\n[]", "\n" + "[" * 100_000, *(line(7, **wrong) for wrong in WRONG)])
def test_invalid_lines_are_ignored(queries, wrong):
    records.COMPLETIONS.write_text(wrong + line(8))
    assert numbers() == [8]


def test_links_and_pipes_are_ignored(queries, tmp_path):
    records.COMPLETIONS.rename(tmp_path / "other")
    assert numbers() == []
    records.COMPLETIONS.symlink_to(tmp_path / "other")
    assert numbers() == []
    records.COMPLETIONS.unlink()
    os.mkfifo(records.COMPLETIONS)
    assert numbers() == []


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


def test_records_are_printed_and_only_written_with_insert(done, capsys):
    records.rebuild({"insert": False})
    assert json.loads(capsys.readouterr().out)[:5] == ["7", "alice", "research", "cpu", "FAILED"]
    assert done == []
    records.rebuild({"insert": True})
    (sql,) = done
    assert re.search(r"START TRANSACTION;.*INSERT IGNORE INTO .*COMMIT;$", sql, re.DOTALL)
    assert "hourly_rollup = LEAST(hourly_rollup, 110)" in sql
    assert records.MARK.encode().hex() in sql


def test_queued_records_of_slurmctld_are_an_error(done, monkeypatch):
    monkeypatch.setattr(records.scheduler, "statistics", lambda: {"waiting": 3})
    with pytest.raises(SetupError, match="has 3 records that slurmdbd has not taken yet"):
        records.rebuild({"insert": True})
    assert done == []


@pytest.mark.parametrize(
    "name", ["user_name", "account", "partition", "qos", "resv_name", "name", "work_dir", "comment"]
)
def test_texts_of_users_are_hexadecimal_in_sql(name):
    bad = "a\nb'; DROP TABLE x; -- \\ \u00c3\u00a4\u00ff"
    sql = "\n".join(statements("lab", [JOB | {name: bad}]))
    assert "DROP" not in sql
    assert sql.count("\n") == len(statements("lab", [JOB])) - 1
    assert "a\nb'; DROP TABLE x; -- \\ \u00e4\ufffd".encode().hex() in sql


def test_states_and_times_are_those_of_the_database(monkeypatch):
    assert state_of(JOB) == 5
    assert state_of(JOB | {"job_state": 0x8400}) == records.REQUEUED
    assert started(JOB | {"start_time": 900}) == 0, "it was cancelled before the start that slurmctld expected"
    assert json.loads(job_line(JOB | {"start_time": 900}))[5] == "-"
    monkeypatch.setattr(records.pwd, "getpwuid", {}.__getitem__)
    assert records.user_name({"user_id": 7}) == "7"
    assert text_of(JOB, "comment") == ""


def test_without_jobs_nothing_is_written(done, monkeypatch, capsys):
    monkeypatch.setattr(records, "unrecorded", list)
    records.rebuild({"insert": True})
    assert (done, capsys.readouterr().out) == ([], "")
