"""Jobs whose records are not what became of them; those that slurmctld remembers may be on their way."""

import pytest
from accounting import records

LINE = "JobId={} UserId=alice(2001) Name=a JobId=99 JobState=COMPLETED StartTime=2026-01-02T03:04:05\n"


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Jobs 7 to 10 have ended, of which the database knows 8, and takes 5 and 6 to be running; slurmctld knows 6, 9."""
    file = tmp_path / "job_completions"
    file.write_text("".join(LINE.format(number) for number in (7, 8, 8, 9, 10)))
    statements = []

    def query(statement):
        statements.append(statement)
        return [["5"], ["6"]] if "time_end = 0" in statement else [["8"]]

    monkeypatch.setattr(records, "COMPLETIONS", file)
    monkeypatch.setattr(records, "query", query)
    monkeypatch.setattr(records, "cluster_name", lambda: "lab")
    monkeypatch.setattr(records, "run", lambda *_, **__: "6\n9\n")
    return statements


def test_runaways_and_jobs_without_a_record(asked):
    assert records.observe() == {"runaway": ["5"], "unrecorded": ["7", "10"]}
    assert "IN (0,7,8,9,10)" in asked[1]


def test_the_end_of_a_long_file_is_looked_at(asked, monkeypatch):
    monkeypatch.setattr(records, "TAIL", len(LINE.format(10)) + 20)
    assert records.ended() == ["10"]


def test_no_file_is_no_job(asked, monkeypatch, tmp_path):
    monkeypatch.setattr(records, "COMPLETIONS", tmp_path / "none")
    assert records.ended() == []
