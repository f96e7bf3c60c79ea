"""Nodes and jobs are read again if slurmctld restarts meanwhile; requeued jobs begin as soon as they can."""

from collections.abc import Callable
from contextlib import nullcontext

import pytest
from slurm import scheduler
from system.host import SetupError

from tests import squeue


@pytest.mark.parametrize(("now", "raises"), [("IDLE", False), ("DOWN", True), ("IDLE+DRAIN", True)])
def test_a_refused_resume_is_an_error_of_a_node_out_of_service(monkeypatch: pytest.MonkeyPatch, now: str, raises: bool):
    def scontrol(*command: str) -> str:
        if "update" in command:
            raise SetupError("slurm_update error: Invalid node state specified")
        return f"NodeName=n State={now}\n"

    monkeypatch.setattr(scheduler, "run", scontrol)
    with pytest.raises(SetupError) if raises else nullcontext():
        scheduler.resume_nodes(["n"])


ROW = {"i": "7", "T": "RUNNING", "N": "7", "e": "N/A"}


@pytest.mark.parametrize(
    "question",
    [
        lambda: [job.id for job in scheduler.all_jobs()],
        lambda: [*scheduler.read_nodes()],
        lambda: [*scheduler.job_ends()],
    ],
    ids=["jobs", "nodes", "ends"],
)
def test_a_slurmctld_that_restarts_is_asked_again(monkeypatch: pytest.MonkeyPatch, question: Callable[[], list[str]]):
    errors = [SetupError("slurm_load_partitions error: Connection reset by peer")]

    def command(*words: str) -> str:
        if errors:
            raise errors.pop()
        return squeue.printed(words, [ROW]) if words[0] == "squeue" else "NodeName=7 State=IDLE\n"

    monkeypatch.setattr(scheduler, "run", command)
    monkeypatch.setattr(scheduler.time, "sleep", lambda _: None)
    assert question() == ["7"]


def test_requeued_jobs_begin_after_their_end_on_the_nodes(
    monkeypatch: pytest.MonkeyPatch,
):
    answers = iter(["7|COMPLETING\n8|RUNNING\n9|COMPLETING\n", "7|PENDING\n9|COMPLETING\n", "9|PENDING\n", ""])
    updates: list[str] = []

    def run(*command: str, **_: object) -> str:
        updates.append(command[2] if command[0] == "scontrol" else "")
        return next(answers) if command[0] == "squeue" else ""

    monkeypatch.setattr(scheduler, "run", run)
    monkeypatch.setattr(scheduler.time, "sleep", lambda _: None)
    scheduler.begin(["7", "8", "9", "10"])
    assert [update for update in updates if update] == ["JobId=7", "JobId=9"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("Connection reset by peer", -1), ("Unable to contact slurm controller", 30)]
)
def test_a_slurmctld_that_does_not_come_back_is_an_error(monkeypatch: pytest.MonkeyPatch, text: str, seconds: int):
    def refuse(*command: str) -> str:
        raise SetupError(text)

    monkeypatch.setattr(scheduler, "run", refuse)
    monkeypatch.setattr(scheduler, "RESTART_SECONDS", seconds)
    with pytest.raises(SetupError, match=text):
        scheduler.all_jobs()
