"""Nodes, partitions and jobs of slurmctld, read and changed by Slurm's commands on the controller."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from accounting.database import sacctmgr_show
from slurm import jobs, nodes, output, slurmctld
from slurm.jobs import Job
from slurm.nodes import Node
from slurm.times import local_seconds
from system.host import SetupError, listens, log, run, succeeds, wait

STATUS_SECONDS = 3
REQUEUE_SECONDS = 10
BEGIN_SECONDS = 60  # until a requeued job may begin at the latest: longer than KillWait and an epilog
REVOKED_SECONDS = 2  # by slurmd's clock: a credential of the second in which it revoked one is refused


def job_summary() -> dict[str, Any]:
    """Return how many jobs are in each state, and the first MAX_JOBS: running ones, then waiting ones by priority.

    Jobs that Slurm or an operator holds are also listed under `held`, MAX_JOBS at most: they come last in the queue.
    """
    os.environ["SLURM_BITSTR_LEN"] = "0"  # the numbers of a long array in full
    mark = os.urandom(8).hex()
    return jobs.summarize(jobs.parse(_read(*jobs.command(mark, "--sort=-t,-p")), mark))


def ping() -> dict[str, Any]:
    """Return whether slurmctld answers, and in how many seconds."""
    began = time.monotonic()
    answer = _read("scontrol", "ping").strip()
    return {"up": answer.endswith("UP"), "said": answer, "seconds": round(time.monotonic() - began, 3)}


def statistics() -> dict[str, int]:
    """Return the number of records that slurmctld keeps until slurmdbd takes them."""
    for line in _read("sdiag").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "DBD Agent queue size":
            return {"waiting": int(value)}
    raise SetupError("sdiag does not say how many records wait for slurmdbd")


def database() -> dict[str, Any]:
    """Return whether slurmdbd answers. An open port shows that it runs, an answer that MariaDB runs too."""
    if not listens(slurmctld.SLURMDBD_PORT):
        return {"up": False, "said": f"nothing listens on port {slurmctld.SLURMDBD_PORT}"}
    try:
        sacctmgr_show("cluster", "cluster", timeout=STATUS_SECONDS)
    except SetupError as error:
        return {"up": False, "said": str(error)}
    return {"up": True, "said": ""}


def _read(*command: str) -> str:
    # Without slurmctld, a command retries for many seconds before it fails.
    if not listens(slurmctld.SLURMCTLD_PORT):
        raise SetupError(f"nothing listens on slurmctld's port {slurmctld.SLURMCTLD_PORT}")
    return run(*command, timeout=STATUS_SECONDS)


PARTS: dict[str, Callable[[], Any]] = {
    "nodes": lambda: nodes.observed_rows(_read(*nodes.COMMAND)),
    "partitions": lambda: output.partition_rows(_read("scontrol", "-o", "--all", "show", "partition")),
    "jobs": job_summary,
    "config": lambda: output.parameters(_read("scontrol", "show", "config")),
    "ping": ping,
    "statistics": statistics,
    "database": database,
}
"""The parts of what a controller reports under `slurm`."""


# Reasons of nodes that this set-up has drained (jobs/drain_leaving.py), and resumes when they have joined. Other
# versions of this program compare these texts too.
LEAVES = "hpc: leaves the cluster"
RESHAPED = "hpc: gets other sockets, cores or GPUs"
REMADE = "hpc: its machine is recreated"
DRAIN_REASONS = (LEAVES, RESHAPED, REMADE)


RESTART_SECONDS = 30
CUT_OFF = ("Connection reset by peer", "Zero Bytes were transmitted or received")
"""Messages of Slurm's commands when slurmctld ends while it answers."""


def ask(*command: str) -> str:
    """Return what a command of Slurm prints. Where slurmctld ended while it answered, as the same `up` may restart it,
    it is asked again, for RESTART_SECONDS at most. Raises SetupError."""
    end = time.monotonic() + RESTART_SECONDS
    while True:
        try:
            return run(*command)
        except SetupError as error:
            if not any(text in str(error) for text in CUT_OFF) or time.monotonic() > end:
                raise
        time.sleep(0.5)


def read_nodes() -> dict[str, Node]:
    """Return every node by name. A slurmctld that restarts meanwhile is asked again. Raises SetupError."""
    return nodes.parse(ask(*nodes.COMMAND))


def read_jobs(*options: str) -> list[Job]:
    """Return the jobs of all users that these options of squeue choose. A slurmctld that restarts meanwhile is asked
    again. Raises SetupError."""
    mark = os.urandom(8).hex()
    return jobs.parse(ask(*jobs.command(mark, "--all", *options)), mark)


def wait_until_answers(*, hint: str = "") -> None:
    """Wait until slurmctld answers. Raises SetupError with the end of its journal."""
    answers = ("scontrol", "ping")
    wait("slurmctld's answer", lambda: succeeds(*answers), seconds=180, interval=0.2, hint=hint, unit="slurmctld")


def resume_nodes(names: list[str]) -> None:
    """Resume drained and down nodes."""
    for name in names:
        try:
            ask("scontrol", "update", f"NodeName={name}", "State=RESUME")
        except SetupError:
            # slurmctld refuses it for a node that has just registered, and so is in service already.
            node = read_nodes().get(name)
            if not node or node.states & {"DOWN", "DRAIN"}:
                raise
            continue
        log(f"resumed {name}")


def drain_nodes(reasons: Mapping[str, str]) -> None:
    """Drain nodes, each with its reason. A node that is drained already keeps the reason that it has."""
    known = read_nodes() if reasons else {}
    for reason, name in sorted((reason, name) for name, reason in reasons.items()):
        if name in known and not known[name].drained:
            ask("scontrol", "update", f"NodeName={name}", "State=DRAIN", f"Reason={reason}")
            log(f"drained {name} ({reason})")


def all_jobs() -> list[Job]:
    """Return every job that slurmctld has, ended ones too. Raises SetupError."""
    return read_jobs("--states=all", "--array")


def job_ends() -> dict[str, float]:
    """Return by busy node when its last job ends at the latest, in seconds since the epoch. Raises SetupError."""
    ends: dict[str, float] = {}
    for job in read_jobs(f"--states={jobs.HOLDING}"):
        for name in job.hosts:
            ends[name] = max(ends.get(name, 0.0), local_seconds(job.end))
    return ends


def jobs_left(found: list[Job], names: set[str], partitions: set[str]) -> list[Job]:
    """Return the jobs that hold one of the nodes, or run or wait in one of the partitions. A pure function."""
    return [job for job in found if not job.ended and (set(job.hosts) & names or set(job.partitions) & partitions)]


def requeue_jobs(node: str, why: str) -> dict[str, str]:
    """Requeue the batch jobs that hold a drained node, with `why` in their AdminComment and so in the mail about it.
    Return by number why other jobs, such as interactive ones, stay. Raises SetupError if squeue fails.

    The node that they leave is drained, so they may begin soon (`hasten`).
    """
    holding = (f"--nodelist={node}", "--states=RUNNING,SUSPENDED,CONFIGURING")
    fields = f"--Format=JobID:|,BatchFlag:|,Requeue:|,{COMMENT}"
    text = run("squeue", "--noheader", *holding, fields, timeout=REQUEUE_SECONDS)
    rows = [line.split("|", 3) for line in text.splitlines() if line.count("|") > 2]
    comments = {number: comment for number, batch, requeue, comment in rows if batch.strip() == requeue.strip() == "1"}
    refused = {row[0]: "only batch jobs without --no-requeue are requeued" for row in rows if row[0] not in comments}
    with suppress(SetupError):  # they are requeued without a comment then
        comment_jobs(comments, requeued_text(node, why))
    for number in comments:
        try:
            run("scontrol", "requeue", number, timeout=REQUEUE_SECONDS)
        except SetupError as error:
            refused[number] = str(error)
    if requeued := [number for number in comments if number not in refused]:
        latest = f"StartTime=now+{BEGIN_SECONDS}seconds"
        with suppress(SetupError):  # they begin two minutes later then
            run("scontrol", "update", f"JobId={','.join(requeued)}", latest, timeout=REQUEUE_SECONDS)
            hasten(requeued)
    return refused


def hasten(jobs: Sequence[str]) -> None:
    """Start a process that lets jobs that lost their nodes begin as soon as nothing of them is left there. Raises
    SetupError.

    When the last epilog of a requeued job ends, slurmctld holds the job back for cred_expire (120 s) and a second more,
    unless it has a later start by then: a slurmd whose revoked credential is as old as the new one would refuse that
    (batch_requeue_fini, src/slurmctld/job_mgr.c; _credential_revoked, src/common/slurm_cred.c). slurmctld notices that
    a start has come in its next round of scheduling, up to a minute later, and a change of it at once.
    """
    folder = Path(__file__).parents[1]
    program = f"import sys; sys.path.insert(0, '{folder}'); from slurm.scheduler import begin; begin(sys.argv[1:])"
    run("systemd-run", "--quiet", "--collect", "python3", "-S", "-c", program, *jobs, timeout=REQUEUE_SECONDS)


def begin(jobs: Sequence[str]) -> None:
    """Let each of these jobs begin now, once it waits and nothing of it is left on its nodes."""
    end, remaining = time.monotonic() + BEGIN_SECONDS, set(jobs)
    while remaining and time.monotonic() < end:
        time.sleep(1)
        with suppress(SetupError):
            numbers = f"--jobs={','.join(sorted(remaining))}"
            text = run("squeue", "--noheader", "--all", numbers, "--format=%A|%T", timeout=REQUEUE_SECONDS)
            states = dict(line.split("|", 1) for line in text.splitlines() if "|" in line)
            remaining = {number for number in remaining if states.get(number) in ("PENDING", "COMPLETING", "REQUEUED")}
            if ready := sorted(number for number in remaining if states[number] == "PENDING"):
                time.sleep(REVOKED_SECONDS)
                run("scontrol", "update", f"JobId={','.join(ready)}", "StartTime=now", timeout=REQUEUE_SECONDS)
                remaining -= set(ready)


def requeued_text(node: str, why: str, at: float | None = None) -> str:
    """Return the comment of a requeued job."""
    clock = time.strftime("%H:%M", time.localtime(at))
    return f"hpc: requeued at {clock} from {node}: {why.removeprefix('hpc: ').removeprefix('hpc-health: ')}"


COMMENT = "admin_comment:8"
"""A field of squeue's `--Format`: enough of a comment to see who wrote it."""


def comment_jobs(jobs: Mapping[str, str], text: str) -> None:
    """Write into the AdminComment of jobs why they wait again. `jobs` has their comments until now by number, in the
    format of COMMENT. Comments that people wrote are not replaced. Raises SetupError."""
    replaceable = ("hpc: ", "(null)", "N/A")
    numbers = [number for number, comment in jobs.items() if not comment.strip() or comment.startswith(replaceable)]
    if numbers:
        run("scontrol", "update", f"JobId={','.join(numbers)}", f"AdminComment={text}", timeout=REQUEUE_SECONDS)
