"""Jobs whose records are not what became of them; those that slurmctld remembers may be on their way."""

import time

import pytest
from accounting import records


def line(number: int, *, name: str = "a JobId=99", days: float = 0) -> str:
    """As jobcomp/filetxt of 24.11 writes it, of a job that ended some days ago."""
    end = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - days * 86400))
    return (
        f"JobId={number} UserId=alice(2001) GroupId=alice(2001) Name={name} JobState=COMPLETED Partition=cpu "
        f"TimeLimit=1440 StartTime={end} EndTime={end} NodeList=hc-cpu-0 NodeCnt=1 ProcCnt=1 WorkDir=/home/alice "
        "ReservationName= Tres=cpu=1,mem=1G,node=1,billing=1 Account=research QOS=normal WcKey= Cluster=hc "
        f"SubmitTime={end} EligibleTime={end} ArrayJobId=6 ArrayTaskId=2 DerivedExitCode=0:0 ExitCode=0:0 \n"
    )


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Jobs 7 to 10 have ended, of which the database knows 8, and takes 5 and 6 to be running; slurmctld knows 6, 9."""
    file = tmp_path / "job_completions"
    file.write_text("".join(map(line, (7, 8, 8, 9, 10))))
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
    monkeypatch.setattr(records, "TAIL", len(line(10)) + 20)
    assert records.ended() == ["10"]


def test_a_record_that_may_have_been_purged_is_not_missed(asked):
    records.COMPLETIONS.write_text(line(7, days=26) + line(8, days=28))
    assert records.ended() == ["7"]


def test_a_line_break_in_a_jobs_name_is_no_other_job(asked):
    records.COMPLETIONS.write_text(line(7, name="a\nJobId=99 UserId=bob(2002) b") + line(8))
    assert records.ended() == ["7", "8"]


def test_no_file_is_no_job(asked, monkeypatch, tmp_path):
    monkeypatch.setattr(records, "COMPLETIONS", tmp_path / "none")
    assert records.ended() == []
