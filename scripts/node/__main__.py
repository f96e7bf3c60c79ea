"""Sets up one machine of the cluster. It runs on the machine itself, as root, with the standard library only.

    python3 FOLDER configure   < JSON   controller and login machines: set up the machine
    python3 FOLDER boot                 compute nodes, at every boot: join the cluster as in /etc/hpc/node.json
    python3 FOLDER accounting  < JSON   controller: update accounts, QOS and users in Slurm's database
    python3 FOLDER nodes       < JSON   controller: wait until the nodes can take jobs
    python3 FOLDER ready       < JSON   controller: run a job in every partition
    python3 FOLDER ends        < JSON   controller: reserve nodes from the end of their machines on; no-ends undoes it
    python3 FOLDER warm-up     < JSON   controller: download images and files that first jobs on nodes need
    python3 FOLDER leave       < JSON   controller: drain a node whose machine is deleted, and wait for its jobs
    python3 FOLDER vacate    < JSON   controller: drain elastic nodes that become static, and delete their machines
    python3 FOLDER settle      < JSON   controller and login machines: revert the phases that an `up` left unfinished
    python3 FOLDER prologs     < JSON   controller: install scripts that run before and after jobs; no-prologs undoes it
    python3 FOLDER rxdm        < JSON   controller: patch A3 Mega's prolog for Ubuntu 22.04; no-rxdm undoes it
    python3 FOLDER backup      < JSON   controller: print a backup of the accounting database, for `restore`
    python3 FOLDER restore     < JSON   controller: replace the accounting database by an uploaded backup
    python3 FOLDER host-keys            controller: print the SSH host keys that machines reported, as JSON
    python3 FOLDER health-results       controller: print the last health check of every node, as JSON
    python3 FOLDER health-history < T   controller: print the history of health checks since T (seconds since the epoch)
    python3 FOLDER lost-jobs            controller: end jobs that ended while slurmctld was down
    python3 FOLDER jobs                 node: print the numbers of the jobs that have a process here
    python3 FOLDER look                 any machine: print its state as JSON; changes nothing

Every phase may run again at any time: it changes only what differs, and logs each change.
"""

import gc
import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from system import cluster_state, phase_state
from system.host import SetupError, describe_os_error, hold_lock, log, printable, reload_units, write
from system.locks import LOCKS, open_lock, take_lock


def lazy(module: str, function: str) -> Callable[..., Any]:
    """Return a function of the set-up that is imported at its call, so that a machine compiles only modules it uses."""

    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - those of the function
        return getattr(import_module(module), function)(*args, **kwargs)

    return call


def restore_last_success(_: dict[str, Any]) -> None:
    """Run the phases again that failed in an earlier `up`, with the input of their last success, or undo them."""
    for phase in phase_state.unfinished():
        payload = phase_state.last_input(phase)
        if payload is not None:
            log(f"{phase}: the last run failed; running it again with the input of the one before")
            run_phase(phase, payload)
        elif phase in UNDO_PHASES.values():
            run_phase(next(undo for undo, undone in UNDO_PHASES.items() if undone == phase), {})
        if payload is None:
            phase_state.forget(phase)
    if conf := lazy("slurm.slurmctld", "applied")().get("slurm.conf", ""):
        lazy("jobs.drain_leaving", "resume_drained")(conf)


def run_phase(phase: str, payload: dict[str, Any]) -> None:
    """Run a phase with `payload`, and record its result; report a failure to machines that wait for this one."""
    others_wait = phase in phase_state.PHASES and not cluster_state.CONFIG.exists()
    if others_wait:
        cluster_state.withdraw_failure()
    try:
        with phase_state.attempt(phase, payload):
            PHASES[phase](payload)
    except Exception as error:
        # Other machines would also wait out their limit for a phase that ends by a fault of this program.
        if others_wait:
            known = isinstance(error, (SetupError, OSError))
            cluster_state.report_failure(f"{phase}: {error if known else repr(error)}")
        raise
    if phase in UNDO_PHASES:
        phase_state.forget(UNDO_PHASES[phase])


PHASES: dict[str, Callable[[dict[str, Any]], object]] = {
    "configure": lazy("configure", "configure"),
    "accounting": lazy("accounting.accounts", "converge"),
    "nodes": lambda payload: lazy("slurm.join", "wait_for")(payload["nodes"], seconds=payload["seconds"]),
    "ready": lambda payload: lazy("jobs.probe", "prove")(payload["probes"]),
    "ends": lazy("jobs.drain_leaving", "reserve_ends"),
    "warm-up": lazy("jobs.warm_up", "warm"),
    "leave": lambda payload: lazy("jobs.drain_leaving", "leave")(payload["node"]),
    "vacate": lambda payload: lazy("jobs.drain_leaving", "vacate")(payload["nodes"]),
    "settle": restore_last_success,  # every version calls it by this name
    "backup": lambda _: lazy("accounting.backup", "send")(),
    "restore": lazy("accounting.backup", "restore"),
    "prologs": lazy("jobs.prologs", "stage"),
    "rxdm": lazy("jobs.rxdm", "converge"),
    # These need no input from the stack, because the machine has records of what was made.
    "no-prologs": lambda _: lazy("jobs.prologs", "remove")(),
    "no-rxdm": lambda _: lazy("jobs.rxdm", "undo")(),
    "no-ends": lambda _: lazy("jobs.drain_leaving", "reserve_ends")({"ends": {}}),
}
# Phases that print, change nothing and take no lock.
READ_PHASES: dict[str, Callable[[], None]] = {
    "look": lazy("collect", "show"),
    "host-keys": lambda: print(json.dumps(cluster_state.host_keys())),
    "health-results": lambda: print(json.dumps(lazy("health.outcome", "results")())),
    "health-history": lazy("health.outcome", "show_history"),
    "jobs": lambda: print(*sorted(lazy("jobs.lost_jobs", "jobs_with_processes")()), "."),
}
# Phases that units of systemd run after each start of slurmctld.
SYSTEMD_PHASES: dict[str, Callable[[], None]] = {"lost-jobs": lazy("jobs.lost_jobs", "end_missing_jobs")}
UNDO_PHASES = {"no-prologs": "prologs", "no-rxdm": "rxdm", "no-ends": "ends"}


def interrupt_waiting_phase() -> None:
    """Make a phase that waits for jobs end: this `up` has the newer stack file."""
    from jobs.drain_leaving import INTERRUPT  # as with `lazy`

    write(INTERRUPT, "", quiet=True)
    INTERRUPT.touch()


def main(arguments: list[str]) -> int:
    """Run one phase; return 0 on success, 1 with the reason on standard error on failure, 2 for an unknown phase."""
    if len(arguments) != 1 or arguments[0] not in {*PHASES, *READ_PHASES, *SYSTEMD_PHASES, "boot"}:
        sys.stderr.write(str(__doc__))
        return 2
    if os.geteuid() != 0:
        sys.stderr.write("the set-up changes the machine: run it as root\n")
        return 1
    phase = arguments[0]
    if phase in READ_PHASES:
        gc.disable()
        READ_PHASES[phase]()
        sys.stdout.flush()
        os._exit(0)  # ending the interpreter would take a tenth of the time, and `./hpc status` runs on every machine
    if phase == "backup":
        # Its standard output is the dump: a line of the log, as whom it waits for, would be bytes of it.
        sys.stdout = sys.stderr
    try:
        if phase in SYSTEMD_PHASES:
            SYSTEMD_PHASES[phase]()
        else:
            run_with_lock(phase)
    except (SetupError, OSError) as error:
        message = describe_os_error(error) if isinstance(error, OSError) else str(error)
        if not message:
            raise
        sys.stderr.write(printable(f"{phase}: {message}\n"))
        return 1
    return 0


def run_with_lock(phase: str) -> None:
    """Run a phase while no other one runs on the machine, since a killed `up` may have left its command running.

    Phases that may take long have locks of their own. Many run `leave` at a time (jobs/drain_leaving.py).
    """
    if phase == "leave":
        run_phase(phase, json.load(sys.stdin))
        reload_units(links=True)
        return
    path = LOCKS / f"{phase if phase in ('boot', 'warm-up') else 'setup'}.lock"
    if phase in ("configure", "settle"):
        with open_lock(path) as lock:
            if not take_lock(lock):
                interrupt_waiting_phase()
    with hold_lock(path, "another set-up"):
        if phase == "boot":
            lazy("configure", "boot")()
        else:
            run_phase(phase, json.load(sys.stdin))
        reload_units(links=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
