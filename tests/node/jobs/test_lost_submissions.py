"""Jobs that a killed slurmctld has lost are submitted again, once."""

import json
import os
import struct
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from accounting import records
from jobs import lost_submissions as lost
from system.host import SetupError

ALICE = SimpleNamespace(pw_name="alice", pw_uid=2001, pw_gid=2001)


class Controller:
    """The state folder, the log and the completions of a controller; `answers` are slurmctld's to sbatch."""

    def __init__(self, folder: Path) -> None:
        self.state, self.folder = folder / "state", folder
        self.state.mkdir()
        self.begun: list[int] = []
        self.submitted: list[str] = []
        self.mails: list[tuple[str, ...]] = []
        self.next, self.up, self.squeue, self.refusals = 50, True, "", 1

    def job(self, number: int, *, identity: str = "", end: bytes = b"\0", **fields: Any) -> Path:
        """Write a job's files as slurmctld does."""
        path = self.state / f"hash.{number % 10}" / f"job.{number}"
        path.mkdir(parents=True)
        record = "&".join(
            f"{key}={value}" for key, value in {"id": identity or f"i{number}", "uid": 2001, **fields}.items()
        )
        entries = [b"PATH=/bin", f"HPC_SUBMISSION={record}".encode()]
        (path / "environment").write_bytes(struct.pack("I", 2) + b"".join(entry + b"\0" for entry in entries))
        (path / "script").write_bytes(b"#!/bin/sh\ntrue\n" + end)
        return path

    def restart(self, *forgotten: int) -> None:
        """Start slurmctld again, which removes the files of jobs that it has forgotten."""
        lost.keep()
        for number in forgotten:
            path = self.state / f"hash.{number % 10}" / f"job.{number}"
            for file in path.iterdir():
                file.unlink()
            path.rmdir()

    def submit(self, one: lost.KeptJob, account: object, numbers: dict[int, int], *, other: bool) -> str:
        assert account is ALICE
        self.submitted.append(f"{one.number} {numbers}{' other' if other else ''}")
        if "refused" in one.field("name") or ("new user" in one.field("name") and self.refusals > 0):
            self.refusals -= 1
            return "Invalid qos specification"
        with nullcontext() if other else lost._next_number(one.number):
            while (self.state / f"hash.{self.next % 10}" / f"job.{self.next}").exists():
                self.next += 1
            self.job(self.next, identity=one.field("id"))
        return ""

    def run(self, *words: str, **_: object) -> str:
        if words[0] == lost.MAIL:
            self.mails.append(words[1:])
        return f"NEXT_JOB_ID             = {self.next}\n" if words[0] == "scontrol" else self.squeue

    def named(self) -> list[dict[str, object]]:
        return [{key: value for key, value in note.items() if key != "time"} for note in lost.observe()]


@pytest.fixture
def controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Controller:
    found = Controller(tmp_path)
    for name, value in {
        "STATE": found.state, "KEPT": found.state / "hpc-kept", "RUN": tmp_path / "run/again",
        "NOTES": tmp_path / "notes/lost.jsonl", "LOG": tmp_path / "slurmctld.log", "as_slurm": nullcontext,
        "run": found.run, "succeeds": lambda *_: found.up, "_submit": found.submit,
        "wait": lambda *_, **__: None, "folder": lambda path, **_: Path(path).mkdir(parents=True, exist_ok=True),
    }.items():  # fmt: skip
        monkeypatch.setattr(lost, name, value)
    lost._associations_end.cache_clear()
    monkeypatch.setattr(lost, "ASSOCIATIONS_SECONDS", 0)
    monkeypatch.setattr(records, "COMPLETIONS", tmp_path / "completions.log")
    accounts = {2001: ALICE, 5: SimpleNamespace(pw_name="mail", pw_uid=5, pw_gid=5)}
    monkeypatch.setattr(lost.pwd, "getpwuid", lambda uid: accounts[uid])
    return found


def test_only_jobs_that_slurmctld_does_not_have_are_submitted_again(controller: Controller):
    for number in (7, 8, 9, 10):
        controller.job(number, name=f"n{number}")
    controller.job(11, end=b"")  # slurmctld was killed while it wrote this one, and nobody had its answer
    completed = dict.fromkeys(records.NEEDED, 0) | {"job_id": 10, "submit_time": int(time.time())}
    (controller.folder / "completions.log").write_text("\n" + json.dumps(completed))
    controller.restart(7, 9, 10, 11)
    controller.job(9, identity="later")  # a job that was submitted since has its number
    lost.submit_again()
    assert controller.submitted == ["7 {}", "9 {7: 50}"]
    assert controller.named() == [
        {"job": 7, "user": "alice", "name": "n7", "again": 50}, {"job": 9, "user": "alice", "name": "n9", "again": 51},
    ]  # fmt: skip
    assert not list((controller.state / "hpc-kept").iterdir())
    lost.keep()
    lost.submit_again()
    assert len(controller.submitted) == 2


def test_each_job_keeps_its_number_unless_another_job_has_it(controller: Controller):
    """4 had ended, 5 was of srun; 6 had started; 8 depends on it."""
    needs: dict[int, Any] = {8: {"dependency": "afterok:6,afterany:2"}, 9: {"dependency": "afterok:7"}}
    for number in (6, 7, 8, 9):
        controller.job(number, **needs.get(number, {}))
    stamp = time.strftime("[%Y-%m-%dT%H:%M:%S.123]")
    (controller.folder / "slurmctld.log").write_text(f"{stamp} sched: Allocate JobId=6 NodeList=n0 #CPUs=1\n")
    controller.restart(6, 7, 8, 9)
    controller.next = 4
    lost.submit_again()
    assert controller.submitted == ["7 {}", "9 {7: 7}", "6 {7: 7, 9: 9} other", "8 {7: 7, 9: 9, 6: 10}"]
    assert [(note["job"], note["again"]) for note in controller.named()] == [(7, 7), (9, 9), (6, 10), (8, 11)]
    files = sorted(path.name for path in controller.state.glob("hash.*/*"))
    assert files == ["job.10", "job.11", "job.7", "job.9"], "nothing stays reserved"


def test_files_from_before_the_window_are_not_kept(controller: Controller):
    path = controller.job(7)
    (controller.state / "job_state").touch()
    before = time.time() - lost.MARGIN - 5
    os.utime(path, (before, before))
    controller.job(8)
    lost.keep()
    assert [path.name.split(".")[1] for path in (controller.state / "hpc-kept").glob("job.*")] == ["8"]


def test_a_job_that_a_killed_run_submitted_is_not_submitted_twice(controller: Controller):
    controller.job(7, name="n")
    controller.restart(7)
    controller.job(12, identity="i7")  # what that run has submitted
    lost.keep()  # slurmctld was killed with it
    lost.submit_again()
    assert controller.submitted == []
    assert controller.named() == [{"job": 7, "user": "alice", "name": "n", "again": 12}]


def test_a_job_is_submitted_after_the_next_start_if_slurmctld_ends(controller: Controller):
    controller.job(7, name="refused")
    controller.restart(7)
    controller.up = False
    with pytest.raises(SetupError, match="job 7 of alice is not submitted again: slurmctld does not answer"):
        lost.submit_again()
    assert controller.named() == []
    controller.up = True
    lost.submit_again()
    assert [note["why"] for note in controller.named()] == ["Invalid qos specification"]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"uid": 5}, "a job of mail, which is no user's account"),
        ({"uid": 77}, "it is not noted whose it is"),
        ({"kind": "heterogeneous"}, "a heterogeneous job: its user has to submit it again"),
        ({"name": "refused"}, "Invalid qos specification"),
    ],
)
def test_a_job_that_is_not_submitted_again_is_named_with_the_reason(
    controller: Controller, fields: dict[str, Any], why: str, capsys: pytest.CaptureFixture[str]
):
    controller.job(7, mail_type=1, mail_user="a@b.c", **fields)
    controller.restart(7)
    lost.submit_again()
    assert [note["why"] for note in controller.named()] == [why]
    assert f"not submitted again: {why}" in capsys.readouterr().out
    assert all("Lost, not submitted again" in subject for _, subject, _ in controller.mails)


def test_a_refused_job_is_tried_again_until_slurmctld_has_the_associations(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lost, "ASSOCIATIONS_SECONDS", 60)
    monkeypatch.setattr(lost, "RETRY_SECONDS", 0)
    controller.refusals = 2
    for number in (7, 8):
        controller.job(number, name="of a new user")
    controller.restart(7, 8)
    lost.submit_again()
    assert controller.submitted == ["7 {}"] * 3 + ["8 {7: 50}"]
    assert [(note["job"], note["again"]) for note in controller.named()] == [(7, 50), (8, 51)]


def test_a_user_gets_the_new_number_by_mail(controller: Controller):
    controller.job(7, mail_type=1, name="train")
    controller.restart(7)
    lost.submit_again()
    assert controller.mails == [("-s", "Slurm Job_id=7 Name=train Lost, submitted again as Job_id=50", "alice")]


def test_jobs_of_srun_and_salloc_are_named_from_the_log_and_started_ones_get_another_number(controller: Controller):
    stamp = time.strftime("[%Y-%m-%dT%H:%M:%S.123]")
    lines = [
        f"{stamp} sched: _slurm_rpc_allocate_resources JobId=20 NodeList=(null) usec=300",
        f"{stamp} sched: _slurm_rpc_allocate_resources JobId=21 NodeList=n0 usec=300",
        f"{stamp} sched: Allocate JobId=7 NodeList=n0 #CPUs=1 Partition=cpu",
        "[2020-01-01T00:00:00.000] sched: _slurm_rpc_allocate_resources JobId=3 NodeList=n0 usec=300",
    ]
    (controller.folder / "slurmctld.log").write_text("\n".join(lines) + "\n")
    (controller.state / "job_state").touch()
    controller.job(7)
    controller.squeue = f"21 {time.strftime('%Y-%m-%dT%H:%M:%S')}\n"
    controller.restart(7)
    lost.submit_again()
    assert controller.submitted == ["7 {} other"]
    assert [(note["job"], "again" in note) for note in controller.named()] == [(20, False), (7, True)]
