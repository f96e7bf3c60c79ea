"""States of nodes mean the same as in `./hpc`, and jobs are read again if slurmctld restarts meanwhile."""

from collections.abc import Callable
from contextlib import nullcontext

import pytest
from slurm import scheduler
from system.host import SetupError

from cluster.observe.nodes import BOOTING, NODE_STATES, OFF, StateMeaning, parse


def having(*meanings: StateMeaning) -> set[str]:
    return {name for name, means in NODE_STATES.items() if any(meaning in means for meaning in meanings)}


def test_states_in_which_a_node_takes_or_runs_jobs():
    assert having(StateMeaning.UP, StateMeaning.BUSY) == scheduler.WORKING


def test_states_in_which_a_node_takes_no_jobs():
    # A node that is off, or boots, is not broken to who asks for its state, but takes no job yet.
    assert having(StateMeaning.DOWN, StateMeaning.HELD) | OFF | BOOTING | {"REBOOT_ISSUED"} == scheduler.BROKEN
    assert having(StateMeaning.ASLEEP) > OFF | BOOTING | {"REBOOT_ISSUED"}
    assert (scheduler.OFF, scheduler.BOOTING) == (OFF, BOOTING)


@pytest.mark.parametrize("text", ["IDLE", "IDLE*", "DOWN*+DRAIN", "MIXED+REBOOT_REQUESTED", "IDLE+CLOUD+POWERED_DOWN"])
def test_node_states_are_parsed_as_in_hpc(text: str):
    assert scheduler.parse_nodes(f"NodeName=n State={text}")["n"]["states"] == parse(text)


@pytest.mark.parametrize(("now", "raises"), [("IDLE", False), ("DOWN", True), ("IDLE+DRAIN", True)])
def test_a_refused_resume_is_an_error_of_a_node_out_of_service(monkeypatch: pytest.MonkeyPatch, now: str, raises: bool):
    def scontrol(*command: str) -> str:
        if "update" in command:
            raise SetupError("slurm_update error: Invalid node state specified")
        return f"NodeName=n State={now}\n"

    monkeypatch.setattr(scheduler, "run", scontrol)
    with pytest.raises(SetupError) if raises else nullcontext():
        scheduler.resume_nodes(["n"])


ROW = "7|alice|0:04|UNLIMITED|RUNNING|gpu|dev-gpu-0\n"


@pytest.mark.parametrize(
    ("question", "text"),
    [
        (lambda: [job.number for job in scheduler.all_jobs()], ROW),
        (lambda: [*scheduler.states()], "NodeName=7 State=IDLE\n"),
        (lambda: [*scheduler.job_ends()], "N/A|7|\n"),
    ],
    ids=["jobs", "states", "ends"],
)
def test_a_slurmctld_that_restarts_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, question: Callable[[], list[str]], text: str
):
    answers = iter([SetupError("slurm_load_partitions error: Connection reset by peer"), text])

    def command(*_: str) -> str:
        answer = next(answers)
        if isinstance(answer, SetupError):
            raise answer
        return answer

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
    def squeue(*command: str) -> str:
        raise SetupError(text)

    monkeypatch.setattr(scheduler, "run", squeue)
    monkeypatch.setattr(scheduler, "RESTART_SECONDS", seconds)
    with pytest.raises(SetupError, match=text):
        scheduler.all_jobs()
