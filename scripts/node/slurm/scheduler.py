"""Slurm as the controller's commands print it: nodes, partitions and jobs; and nodes that this set-up has drained."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from accounting.database import sacctmgr_show
from slurm import hostlist, output, slurmctld
from slurm.output import WAITING, columns, rows, signed, summary, table
from system.host import SetupError, listens, log, run, succeeds, wait

ASK_SECONDS = 3
REQUEUE_SECONDS = 10
BEGIN_SECONDS = 60  # until a requeued job may begin at the latest: longer than KillWait and an epilog
REVOKED_SECONDS = 2  # of slurmd's clock: a credential of the second in which it revoked one is refused


def job_summary() -> dict[str, Any]:
    """Return how many jobs are in each state, and the first JOBS of them: running ones, then waiting ones by priority.

    Those that Slurm, or an operator, holds stand once more under `held`, JOBS at most: they come last in the queue.
    """
    os.environ["SLURM_BITSTR_LEN"] = "0"  # the numbers of a long array in full
    # A job's name may hold anything, whole rows of other jobs too: nobody who gave one could know this mark.
    mark = os.urandom(8).hex()
    text = _ask("squeue", "--noheader", "--sort=-t,-p", f"--format={columns(mark)}")
    return summary(table(text, mark))


def ping() -> dict[str, Any]:
    """Return whether slurmctld answers, and in how many seconds."""
    began = time.monotonic()
    said = _ask("scontrol", "ping").strip()
    return {"up": said.endswith("UP"), "said": said, "seconds": round(time.monotonic() - began, 3)}


def statistics() -> dict[str, int]:
    """Return what waits for slurmdbd in slurmctld: its records are kept until slurmdbd takes them."""
    for line in _ask("sdiag").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "DBD Agent queue size":
            return {"waiting": int(value)}
    raise SetupError("sdiag does not say how many records wait for slurmdbd")


def database() -> dict[str, Any]:
    """Return whether slurmdbd answers. An open port shows that it runs; only an answer shows that MariaDB does, too."""
    if not listens(slurmctld.SLURMDBD_PORT):
        return {"up": False, "said": f"nothing listens on port {slurmctld.SLURMDBD_PORT}"}
    try:
        sacctmgr_show("cluster", "cluster", timeout=ASK_SECONDS)
    except SetupError as error:
        return {"up": False, "said": str(error)}
    return {"up": True, "said": ""}


def _ask(*command: str) -> str:
    # A command whose daemon is gone tries for many seconds before it says so.
    if not listens(slurmctld.SLURMCTLD_PORT):
        raise SetupError(f"nothing listens on slurmctld's port {slurmctld.SLURMCTLD_PORT}")
    return run(*command, timeout=ASK_SECONDS)


PARTS: dict[str, Callable[[], Any]] = {
    "nodes": lambda: output.node_rows(_ask("scontrol", "-o", "show", "node")),
    "partitions": lambda: output.partition_rows(_ask("scontrol", "-o", "--all", "show", "partition")),
    "jobs": job_summary,
    "config": lambda: output.parameters(_ask("scontrol", "show", "config")),
    "ping": ping,
    "statistics": statistics,
    "database": database,
}
"""The parts of what a controller reports under `slurm`."""


# States in which a node takes or runs jobs, and those in which it does not; cluster/observe/nodes.py has them all.
WORKING = {"IDLE", "MIXED", "ALLOCATED", "COMPLETING"}
OFF = {"POWERED_DOWN", "POWERING_DOWN"}  # its machine is off, or about to be
BOOTING = {"POWERING_UP", "POWER_UP"}
BROKEN = OFF | BOOTING
BROKEN |= set("DOWN DRAIN ERROR FAIL FUTURE INVALID_REG NOT_RESPONDING NO_RESPOND REBOOT_ISSUED UNKNOWN".split())
RUNS = "RUNNING,CONFIGURING,SUSPENDED,COMPLETING,STOPPED"  # states of jobs that have nodes
ELASTIC = "CLOUD"  # its machine comes and goes as Slurm asks for it
# Why a node was drained here (drain.py), and that it may be resumed as soon as it is there. Known by these texts, also
# to other versions.
LEAVES = "hpc: leaves the cluster"
RESHAPED = "hpc: gets other sockets, cores or GPUs"
REMADE = "hpc: its machine is recreated"
OURS = (LEAVES, RESHAPED, REMADE)


class State(TypedDict):
    """The state of a node, as slurmctld prints it."""

    states: set[str]
    reason: str
    partitions: list[str]


def states() -> dict[str, State]:
    """Every node's states and reason."""
    return parse_nodes(run("scontrol", "--oneliner", "--all", "show", "node"))


def parse_nodes(text: str) -> dict[str, State]:
    """Return the nodes of `scontrol --oneliner show node`, by name."""
    return {
        row["NodeName"]: State(
            states=output.node_states(row),
            reason=signed(row.get("Reason", ""))[0],
            partitions=row["Partitions"].split(",") if row.get("Partitions") else [],
        )
        for row in rows(text)
        if "NodeName" in row
    }


def wait_until_answers(*, hint: str = "") -> None:
    """Wait until slurmctld answers. Raises SetupError with the end of its journal."""
    answers = ("scontrol", "ping")
    wait("slurmctld's answer", lambda: succeeds(*answers), seconds=180, interval=0.2, hint=hint, unit="slurmctld")


def resume_nodes(names: list[str]) -> None:
    """Resume nodes that slurmctld holds although they answer."""
    for name in names:
        try:
            run("scontrol", "update", f"NodeName={name}", "State=RESUME")
        except SetupError:
            # slurmctld refuses it for a node that has just registered, and so is in service by itself.
            found = states().get(name)
            if not found or found["states"] & {"DOWN", "DRAIN"}:
                raise
            continue
        log(f"resumed {name}")


def drain_nodes(reasons: Mapping[str, str]) -> None:
    """Let nothing new start on nodes, each for its reason; one that is drained already keeps the one that it has."""
    found = states() if reasons else {}
    for reason, name in sorted((reason, name) for name, reason in reasons.items()):
        if name in found and "DRAIN" not in found[name]["states"]:
            run("scontrol", "update", f"NodeName={name}", "State=DRAIN", f"Reason={reason}")
            log(f"drained {name} ({reason})")


ENDED = set("BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED TIMEOUT".split())
RESTART_SECONDS = 30
CUT_OFF = ("Connection reset by peer", "Zero Bytes were transmitted or received")
"""squeue's message when slurmctld ends while it answers."""


class Job(NamedTuple):
    """A job as squeue shows it: times in Slurm's own notation."""

    number: str
    user: str
    elapsed: str
    limit: str
    state: str
    partitions: tuple[str, ...]
    nodes: tuple[str, ...]

    @property
    def held(self) -> tuple[str, ...]:
        """The nodes that it holds now."""
        return () if self.state in ENDED | WAITING else self.nodes

    def __str__(self) -> str:
        where = f"on {','.join(self.held)}, {self.elapsed} of {self.limit}" if self.held else "waiting"
        return f"job {self.number} of {self.user} {where}"


def everywhere() -> list[Job]:
    """Every job that slurmctld has, ended ones too. One that is restarting meanwhile is asked again."""
    end = time.monotonic() + RESTART_SECONDS
    while True:
        try:
            form = "--format=%A|%u|%M|%l|%T|%P|%N"
            return parse_jobs(run("squeue", "--noheader", "--all", "--states=all", "--array", form))
        except SetupError as error:
            if not any(text in str(error) for text in CUT_OFF) or time.monotonic() > end:
                raise
        time.sleep(0.5)


def jobs_left(jobs: list[Job], nodes: set[str], partitions: set[str]) -> list[Job]:
    """Return those that hold one of the nodes, or run or wait in one of the partitions. A pure function."""
    return [
        job for job in jobs if job.state not in ENDED and (set(job.held) & nodes or set(job.partitions) & partitions)
    ]


def parse_jobs(text: str) -> list[Job]:
    """The jobs of squeue's lines, as asked for above. A pure function."""
    rows = (line.split("|") for line in text.split("\n") if line.count("|") == 6)
    return [
        Job(number, user, elapsed, limit, state, tuple(parts.split(",")), tuple(hostlist.expand(hosts)))
        for number, user, elapsed, limit, state, parts, hosts in rows
    ]


def requeue_jobs(node: str, why: str) -> dict[str, str]:
    """Requeue the batch jobs that hold a drained node, with `why` in their AdminComment and so in the mail about it.
    Returns by number why others, such as interactive ones, stay. Raises SetupError: slurmctld does not say which hold
    it.

    The node that they leave is drained, so they may begin soon (`hasten`).
    """
    held = (f"--nodelist={node}", "--states=RUNNING,SUSPENDED,CONFIGURING")
    wanted = f"--Format=JobID:|,BatchFlag:|,Requeue:|,{COMMENT}"
    found = run("squeue", "--noheader", *held, wanted, timeout=REQUEUE_SECONDS)
    rows = [line.split("|", 3) for line in found.splitlines() if line.count("|") > 2]
    able = {number: comment for number, batch, again, comment in rows if batch.strip() == again.strip() == "1"}
    refused = {row[0]: "only batch jobs without --no-requeue are requeued" for row in rows if row[0] not in able}
    with suppress(SetupError):  # without its reason
        comment_jobs(able, requeued_text(node, why))
    for number in able:
        try:
            run("scontrol", "requeue", number, timeout=REQUEUE_SECONDS)
        except SetupError as error:
            refused[number] = str(error)
    if soon := [number for number in able if number not in refused]:
        latest = f"StartTime=now+{BEGIN_SECONDS}seconds"
        with suppress(SetupError):  # two minutes later
            run("scontrol", "update", f"JobId={','.join(soon)}", latest, timeout=REQUEUE_SECONDS)
            hasten(soon)
    return refused


def hasten(jobs: Sequence[str]) -> None:
    """Have jobs that lost their nodes begin as soon as nothing of them is left there, by a process of its own. Raises
    SetupError.

    As the last epilog of a requeued job ends, slurmctld holds the job back for cred_expire (120 s) and a second more,
    unless it has a later start by then: a slurmd whose revoked credential is as old as the new one would refuse that
    (batch_requeue_fini, src/slurmctld/job_mgr.c; _credential_revoked, src/common/slurm_cred.c). And a start that comes
    is seen by the next round of scheduling, up to a minute later; a change of it is seen at once.
    """
    folder = Path(__file__).parents[1]
    program = f"import sys; sys.path.insert(0, '{folder}'); from slurm.scheduler import begin; begin(sys.argv[1:])"
    run("systemd-run", "--quiet", "--collect", "python3", "-S", "-c", program, *jobs, timeout=REQUEUE_SECONDS)


def begin(jobs: Sequence[str]) -> None:
    """Have each of these jobs begin now, once it waits and nothing of it is left on its nodes."""
    end, left = time.monotonic() + BEGIN_SECONDS, set(jobs)
    while left and time.monotonic() < end:
        time.sleep(1)
        with suppress(SetupError):
            wanted = f"--jobs={','.join(sorted(left))}"
            found = run("squeue", "--noheader", "--all", wanted, "--format=%A|%T", timeout=REQUEUE_SECONDS)
            rows = dict(line.split("|", 1) for line in found.splitlines() if "|" in line)
            left = {number for number in left if rows.get(number) in ("PENDING", "COMPLETING", "REQUEUED")}
            if ready := sorted(number for number in left if rows[number] == "PENDING"):
                time.sleep(REVOKED_SECONDS)
                run("scontrol", "update", f"JobId={','.join(ready)}", "StartTime=now", timeout=REQUEUE_SECONDS)
                left -= set(ready)


def requeued_text(node: str, why: str, at: float | None = None) -> str:
    """Return what the comment of a requeued job says."""
    clock = time.strftime("%H:%M", time.localtime(at))
    return f"hpc: requeued at {clock} from {node}: {why.removeprefix('hpc: ').removeprefix('hpc-health: ')}"


COMMENT = "admin_comment:8"
"""A field of squeue's `--Format`: as much of a comment as shows whose it is."""


def comment_jobs(jobs: Mapping[str, str], text: str) -> None:
    """Write into the AdminComment of jobs why they wait again. `jobs`: their comments until now, as COMMENT has them,
    by number; those of people stay. Raises SetupError."""
    free = ("hpc: ", "(null)", "N/A")
    ours = [number for number, comment in jobs.items() if not comment.strip() or comment.startswith(free)]
    if ours:
        run("scontrol", "update", f"JobId={','.join(ours)}", f"AdminComment={text}", timeout=REQUEUE_SECONDS)
