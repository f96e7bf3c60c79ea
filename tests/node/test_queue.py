"""The queue is read while slurmctld restarts, as it does when another part of an `up` changes slurm.conf."""

import pytest
from slurm import scheduler
from system.host import SetupError

ROW = "7|alice|0:04|UNLIMITED|RUNNING|gpu|dev-gpu-0\n"


def test_a_slurmctld_that_restarts_is_asked_again(monkeypatch: pytest.MonkeyPatch):
    answers = iter([SetupError("slurm_load_jobs error: Connection reset by peer"), ROW])

    def squeue(*command: str) -> str:
        answer = next(answers)
        if isinstance(answer, SetupError):
            raise answer
        return answer

    monkeypatch.setattr(scheduler, "run", squeue)
    monkeypatch.setattr(scheduler.time, "sleep", lambda _: None)
    assert [job.number for job in scheduler.everywhere()] == ["7"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("Connection reset by peer", -1), ("Unable to contact slurm controller", 30)]
)
def test_one_that_does_not_come_back_is_an_error(monkeypatch: pytest.MonkeyPatch, text: str, seconds: int):
    def squeue(*command: str) -> str:
        raise SetupError(text)

    monkeypatch.setattr(scheduler, "run", squeue)
    monkeypatch.setattr(scheduler, "RESTART_SECONDS", seconds)
    with pytest.raises(SetupError, match=text):
        scheduler.everywhere()
