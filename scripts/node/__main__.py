"""Sets up one machine of the cluster. Runs on the machine itself, as root, from the standard library only.

    python3 FOLDER configure   < JSON   controller and login machines: make everything as the JSON says
    python3 FOLDER boot                 compute nodes, at every boot: join the cluster as /etc/hpc/node.json says
    python3 FOLDER accounting  < JSON   controller: accounts, QOS and users in Slurm's database
    python3 FOLDER nodes       < JSON   controller: wait until the nodes are there
    python3 FOLDER ready       < JSON   controller: run a job through every partition
    python3 FOLDER ends        < JSON   controller: reserve nodes from the end of their machines on; no-ends undoes it
    python3 FOLDER warm-up     < JSON   controller: download what the first jobs on nodes would wait for
    python3 FOLDER leave       < JSON   controller: empty a node whose machine goes, and wait for its jobs
    python3 FOLDER vacate    < JSON   controller: empty elastic nodes that become static, and delete their machines
    python3 FOLDER settle      < JSON   controller and login machines: take back what an unfinished `up` had begun
    python3 FOLDER prologs     < JSON   controller: scripts that run before and after jobs; no-prologs takes them away
    python3 FOLDER rxdm        < JSON   controller: patch A3 Mega's prolog for Ubuntu 22.04; no-rxdm puts it back
    python3 FOLDER backup      < JSON   controller: the accounting database on standard output, as `restore` takes it
    python3 FOLDER restore     < JSON   controller: put an uploaded backup in the place of the accounting database
    python3 FOLDER rebuild     < JSON   controller: records of ended jobs that never reached the database
    python3 FOLDER host-keys            controller: SSH host keys that machines reported, as JSON
    python3 FOLDER health-results       controller: the last health check of every node, as JSON
    python3 FOLDER health-history < T   controller: the kept history of health checks since T, in seconds of the epoch
    python3 FOLDER keep-submissions     controller: keep what slurmctld may have forgotten, before it starts
    python3 FOLDER lost-jobs            controller: submit that again, and end jobs that ended while slurmctld was away
    python3 FOLDER jobs                 a node: numbers of the jobs that have a process here
    python3 FOLDER look                 any machine: what can be seen here, as JSON; changes nothing, waits for nobody

Every phase may be run again at any time: it changes what differs, says so, and nothing else.
"""

import gc
import json
import math
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from system import cluster_state, phase_state
from system.host import SetupError, describe_os_error, log, printable, reload_units, take_lock, write


def of(module: str, function: str) -> Callable[..., Any]:
    """A function of the set-up, imported when it is called: a machine compiles what it imports, at each first boot."""

    def call(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function has it
        return getattr(import_module(module), function)(*given, **named)

    return call


def restore_last_success(_: dict[str, Any]) -> None:
    """After an `up` that succeeded: run the phases again that failed in an earlier one, with their last good input."""
    for phase in phase_state.unfinished():
        payload = phase_state.last_input(phase)
        if payload is not None:
            log(f"{phase}: the last run failed; running it again with the input of the one before")
            perform(phase, payload)
        elif phase in UNDOES.values():
            perform(next(undo for undo, done in UNDOES.items() if done == phase), {})
        if payload is None:
            phase_state.forget(phase)
    if conf := of("slurm.slurmctld", "applied")().get("slurm.conf", ""):
        of("jobs.drain", "resume_drained")(conf)


def perform(phase: str, payload: dict[str, Any]) -> None:
    """Run a phase with `payload`, and remember how it ended; machines that wait for this one read of a failure."""
    waited_for = phase in phase_state.PHASES and not cluster_state.CONFIG.exists()
    if waited_for:
        cluster_state.withdraw_failure()
    try:
        with phase_state.attempt(phase, payload):
            PHASES[phase](payload)
    except (SetupError, OSError) as error:
        if waited_for:
            cluster_state.report_failure(f"{phase}: {error}")
        raise
    if phase in UNDOES:
        phase_state.forget(UNDOES[phase])


PHASES: dict[str, Callable[[dict[str, Any]], object]] = {
    "configure": of("configure", "configure"),
    "accounting": of("accounting.accounts", "converge"),
    "nodes": lambda payload: of("slurm.join", "wait_for")(payload["nodes"], seconds=payload["seconds"]),
    "ready": lambda payload: of("jobs.probe", "prove")(payload["probes"]),
    "ends": of("jobs.drain", "reserve_ends"),
    "warm-up": of("jobs.warm_up", "warm"),
    "leave": lambda payload: of("jobs.drain", "leave")(payload["node"]),
    "vacate": lambda payload: of("jobs.drain", "vacate")(payload["nodes"]),
    "settle": restore_last_success,  # known by this name to every version
    "backup": lambda _: of("accounting.backup", "send")(),
    "restore": of("accounting.backup", "restore"),
    "rebuild": of("accounting.records", "rebuild"),
    "prologs": of("jobs.prologs", "stage"),
    "rxdm": of("jobs.rxdm", "converge"),
    # What undoes these needs nothing from the stack: what was made is recorded.
    "no-prologs": lambda _: of("jobs.prologs", "remove")(),
    "no-rxdm": lambda _: of("jobs.rxdm", "undo")(),
    "no-ends": lambda _: of("jobs.drain", "reserve_ends")({"ends": {}}),
}
# They print, change nothing and take no lock.
READS: dict[str, Callable[[], None]] = {
    "look": of("collect", "show"),
    "host-keys": lambda: print(json.dumps(cluster_state.host_keys())),
    "health-results": lambda: print(json.dumps(of("health.outcome", "results")())),
    "health-history": of("health.outcome", "show_history"),
    "jobs": lambda: print(*sorted(of("jobs.lost_jobs", "jobs_with_processes")()), "."),
}


def after_slurmctlds_start() -> None:
    """Make good what a slurmctld that was killed has forgotten, or has not seen."""
    try:
        of("jobs.lost_submissions", "submit_again")()
    finally:
        of("jobs.lost_jobs", "end_missing_jobs")()


# Units of systemd run them, around each start of slurmctld.
SYSTEMDS: dict[str, Callable[[], None]] = {
    "keep-submissions": of("jobs.lost_submissions", "keep"),
    "lost-jobs": after_slurmctlds_start,
}
UNDOES = {"no-prologs": "prologs", "no-rxdm": "rxdm", "no-ends": "ends"}


def take(lock: IO[str], phase: str) -> None:
    """Take the lock of a phase. Another set-up may hold it that only waits for jobs: it ends when INTERRUPT is touched.

    Only an `up` does so, as its stack file is newer.
    """
    shared = phase == "leave"
    if take_lock(lock, shared=shared):
        return
    if phase in ("configure", "settle"):
        from jobs.drain import INTERRUPT  # as by `of`

        log("another set-up is at work on this machine: waiting for it")
        write(INTERRUPT, "", quiet=True)
        INTERRUPT.touch()
    take_lock(lock, shared=shared, seconds=math.inf)


def main(arguments: list[str]) -> int:
    """Run one phase: 0 when it is done, 1 with the reason on standard error when not, 2 for an unknown phase."""
    if len(arguments) != 1 or arguments[0] not in {*PHASES, *READS, *SYSTEMDS, "boot"}:
        sys.stderr.write(str(__doc__))
        return 2
    if os.geteuid() != 0:
        sys.stderr.write("the set-up changes the machine: run it as root\n")
        return 1
    phase = arguments[0]
    if phase in READS:
        gc.disable()
        READS[phase]()
        sys.stdout.flush()
        os._exit(0)  # `./hpc status` asks every machine: taking the interpreter down is a tenth of what that costs
    try:
        alone(phase)
    except (SetupError, OSError) as error:
        words = describe_os_error(error) if isinstance(error, OSError) else str(error)
        if not words:
            raise
        sys.stderr.write(printable(f"{phase}: {words}\n"))
        return 1
    return 0


def alone(phase: str) -> None:
    """Run one phase, one at a time on a machine: an `up` that was killed may have left its command running.

    Only those that wait for jobs are beside each other, and beside the rest.
    """
    if phase in SYSTEMDS:
        SYSTEMDS[phase]()
        return
    Path("/run/hpc").mkdir(exist_ok=True)
    name = phase if phase in ("boot", "leave", "warm-up") else "setup"
    with Path(f"/run/hpc/{name}.lock").open("w") as lock:
        take(lock, phase)
        if phase == "boot":
            of("configure", "boot")()
        else:
            perform(phase, json.load(sys.stdin))
        reload_units(links=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
