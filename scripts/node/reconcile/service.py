"""The reconcile loop as a service of the controller, the programs of Slurm's power saving that wake it, and the command
for people.

    hpc-reconcile status     what the loop last saw, as JSON; `./hpc status` shows it
    hpc-reconcile lift       lift what a brake holds, and let ways that cool down be tried at once
    hpc-reconcile pause      change nothing from now on; unpause ends it
"""

import hashlib
import json
import os
import sys
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interface import ReconcileInput
from reconcile import budget, loop
from reconcile.compute_engine import CloudError, ComputeEngine
from reconcile.slurmctld import Slurmctld
from slurm import reservations, scheduler
from system import cluster_state
from system.host import (
    SetupError,
    folder,
    forget,
    hold_lock,
    log,
    open_regular,
    printable,
    read_json,
    reload_units,
    service,
    stop_services,
    unread_units,
    write,
    write_unit,
)
from system.locks import LOCKS, open_lock, take_lock

NAME = "hpc-reconcile"
COMMAND = Path(f"/usr/local/sbin/{NAME}")
PROGRAMS = Path("/usr/local/lib/hpc/reconcile")  # as slurm.conf names them
KINDS = ("resume", "suspend", "resume-failed")
AWAIT_NODES = "await-nodes"
REQUESTS = Path(f"/run/{NAME}")  # owned by slurm, as slurmctld's programs run as slurm
LOCK = LOCKS / "reconcile.lock"
UNIT = Path(f"/etc/systemd/system/{NAME}.service")
BUSY_SECONDS, IDLE_SECONDS, MIN_SECONDS = 3, 10, 1  # between two passes
CPU_FACTOR = 60  # a pause lasts this many times the CPU time of its pass, so the loop uses less than 2 % of a core
MAX_BUSY_SECONDS = 10  # between two passes while nodes come or go, also after a slow pass
POLL_SECONDS = 0.25
HOLD_SECONDS = 120  # longest wait for the end of a pass
MAX_REQUEST_BYTES = 1 << 16
# slurmctld ends these programs after some seconds, and ignores what they return. What Slurm asks for is in its own
# state: the file only wakes the loop, and a lost one costs some seconds.
REQUEST_PROGRAM = f"""\
#!/bin/sh
# Written by the cluster's set-up. slurmctld runs this with a host list; the reconcile loop reads what it asks for.
umask 077
cd {REQUESTS} || exit 0
kind=${{0##*/}}
printf '%s %s\\n' "$kind" "$1" >".$kind.$$" && mv ".$kind.$$" "$kind.$$"
exit 0
"""
# slurmctld checks every 30 s whether the nodes of a job have booted (PERIODIC_TIMEOUT, src/slurmctld/slurmctld.h), and
# as soon as a PrologSlurmctld ends (prolog_running_decr, src/slurmctld/job_scheduler.c). If a PrologSlurmctld fails or
# takes longer than PrologEpilogTimeout, slurmctld requeues the job.
AWAIT_PROGRAM = """\
#!/bin/sh
# Written by the cluster's set-up. slurmctld runs this as a job starts: it ends when the job's nodes have booted, or
# when the job has no use for them any more.
off=powering_up,powered_down,powering_down
asleep() { sinfo --noheader --nodes="$SLURM_JOB_NODELIST" --states="$off" --format=%D 2>/dev/null; }
[ -n "$(asleep)" ] || exit 0
limit=$(scontrol show config | sed -n 's/^Prolog\\(Epilog\\)\\{0,1\\}Timeout *= *\\([0-9]*\\).*/\\2/p')
waited=0
while [ "$waited" -lt "$((${limit:-60} - 20))" ] && [ -n "$(asleep)" ]; do
    squeue --noheader --jobs="$SLURM_JOB_ID" --states=CONFIGURING --format=%N 2>/dev/null |
        grep -qxF "$SLURM_JOB_NODELIST" || exit 0
    # Machines of a cloud take minutes, in its queue hours.
    pause=$((waited < 20 ? 1 : waited < 1200 ? 3 : 15))
    sleep "$pause"
    waited=$((waited + pause))
done
exit 0
"""
COMMAND_PROGRAM = """\
#!/bin/sh
# Written by the cluster's set-up: the reconcile loop of elastic nodes. With --help it says more.
exec python3 -S -c '
import sys
sys.path.insert(0, "/usr/local/lib/hpc/node")
from reconcile.service import main
sys.exit(main(sys.argv[1:]))
' "$@"
"""
SERVICE = f"""\
# Written by the cluster's set-up.
[Unit]
Description=Reconcile machines of the cloud with the nodes of Slurm, and keep spare nodes
After=slurmctld.service network-online.target
Wants=network-online.target
RequiresMountsFor={loop.FOLDER}
StartLimitIntervalSec=0

[Service]
ExecStart={COMMAND} run
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
"""


def prepare(settings: ReconcileInput | None) -> None:
    """Install the programs that slurm.conf is about to name: without them slurmctld turns power saving off."""
    if settings:
        folder(PROGRAMS)
        for kind in KINDS:
            write(PROGRAMS / kind, REQUEST_PROGRAM, mode=0o755)
        write(PROGRAMS / AWAIT_NODES, AWAIT_PROGRAM, mode=0o755)


def converge(settings: ReconcileInput | None) -> None:
    """Run the service with these settings. Without settings, delete its instances and remove it.

    Raises SetupError if instances can't be deleted. The settings stay then, and the next run tries again.
    """
    if not (settings and settings.get("budget")):
        (loop.FOLDER / budget.FILE).unlink(missing_ok=True)
    before: ReconcileInput | None = read_json(loop.SETTINGS, None)
    if (before or UNIT.exists()) and not settings:
        _remove(before)
    elif settings and not settings["nodesets"] and before and before["nodesets"]:
        _remove(before)  # for the machines of nodes that were elastic; spare nodes need the service again
    if not settings:
        return
    text = json.dumps(settings, indent=1, sort_keys=True) + "\n"
    write(loop.SETTINGS, text, mode=0o600)
    write(COMMAND, COMMAND_PROGRAM, mode=0o755)
    write_unit(UNIT, SERVICE)
    # With other files of its own the service is restarted too.
    version = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))))
    service(NAME, settings=text + SERVICE + version.hexdigest())


def _remove(settings: ReconcileInput | None) -> None:
    stop_services(NAME)
    if settings and settings["nodesets"]:
        try:
            rows = [row for nodeset in settings["nodesets"].values() for row in nodeset["templates"]]
            delete_instances(ComputeEngine(settings["cloud"]), groups=any("run_seconds" in row for row in rows))
        except CloudError as error:
            raise SetupError(
                f"machines of elastic nodes can't be deleted: {error}. Run `up` again: it tries again"
            ) from None
    reservations.keep_spares({}, {})
    unread_units()
    token = [Path(settings["cloud"]["token_file"])] if settings and settings["cloud"]["token_file"] else []
    programs = [PROGRAMS / kind for kind in (*KINDS, AWAIT_NODES)]
    for path in (*token, *programs, COMMAND, UNIT, loop.PAUSED, cluster_state.REGISTER, loop.SETTINGS):
        path.unlink(missing_ok=True)
    forget(NAME)
    reload_units()
    log(f"removed {NAME}: no node is elastic or spare any more")


def delete_instances(cloud: ComputeEngine, *, groups: bool = False) -> None:
    """Request the deletion of every instance that the loop has made; `groups`: also of groups with their instances.
    Raises CloudError, and SetupError where the list is not complete."""
    if groups:
        for group in cloud.groups()[0]:
            cloud.delete_group(group.name, request=str(uuid.uuid4()))
            log(f"deleted {group.name}")
    listing = cloud.instances()
    for instance in listing.instances:
        if instance.made_by_loop:
            cloud.delete(instance.name, request=str(uuid.uuid4()))
            log(f"deleted {instance.name}")
    if listing.partial:
        raise SetupError(f"the list of instances is partial ({listing.partial}): run `up` again")


@contextmanager
def hold_loop() -> Generator[None]:
    """Keep the loop from changing anything in this context, in which Slurm's files change."""
    with hold_lock(LOCK, "a pass of the reconcile loop", seconds=HOLD_SECONDS):
        yield


def run() -> None:
    """Run the service: one pass after the other, at once after a request."""
    settings: ReconcileInput | None = read_json(loop.SETTINGS, None)
    if settings is None:
        raise SetupError(f"{loop.SETTINGS} can't be read: run `up`")
    folder(REQUESTS, mode=0o700, owner="slurm")
    reconcile = loop.Loop(settings, cloud=ComputeEngine(settings["cloud"]), slurm=Slurmctld())
    while True:
        began, cpu_before = time.monotonic(), _cpu_seconds()
        take_requests(reconcile, REQUESTS)
        with open_lock(LOCK) as lock:
            locked = not take_lock(lock)
            # Without elastic nodes there is no cloud to compare with.
            if not settings["nodesets"]:
                reconcile.spend({})
            busy = bool(settings["nodesets"]) and reconcile.run_pass(locked=locked)
            if settings["mode"] == "act" and not locked and not loop.PAUSED.exists():
                _keep_spares(settings)
        _wait(began, pause_seconds(_cpu_seconds() - cpu_before, busy=busy))


def _keep_spares(settings: ReconcileInput) -> None:
    try:
        spares = settings.get("spares", {})
        states = {name: node.states for name, node in scheduler.read_nodes().items()} if spares else {}
        reservations.keep_spares(spares, states)
    except SetupError as error:
        log(printable(f"spare nodes: {error}"))


def pause_seconds(cpu_seconds: float, *, busy: bool) -> float:
    """Return the seconds until the next pass, after one with this CPU time. A pure function."""
    seconds = max(BUSY_SECONDS if busy else IDLE_SECONDS, CPU_FACTOR * cpu_seconds)
    return min(seconds, MAX_BUSY_SECONDS) if busy else seconds


def _cpu_seconds() -> float:
    """Return the CPU time of this process and its children."""
    return sum(os.times()[:4])


def _wait(began: float, seconds: float) -> None:
    """Wait for this many seconds, or until there is a request."""
    end, earliest = time.monotonic() + seconds, began + MIN_SECONDS
    while time.monotonic() < end:
        time.sleep(POLL_SECONDS)
        if time.monotonic() > earliest and any(not name.startswith(".") for name in os.listdir(REQUESTS)):  # noqa: PTH208
            return


def take_requests(reconcile: loop.Loop, requests: Path) -> None:
    """Read requests and delete them. The next pass reads in Slurm what they ask for."""
    for path in sorted(requests.iterdir()):
        if path.name.startswith("."):
            continue
        text, at = "", time.time()
        try:
            with open_regular(path) as file:
                text, at = file.read(MAX_REQUEST_BYTES).decode(errors="replace"), os.fstat(file.fileno()).st_mtime
        except OSError:
            pass  # not a file that these programs wrote: it is only deleted
        path.unlink(missing_ok=True)
        kind, _, hosts = text.strip().partition(" ")
        if kind == "lift":
            reconcile.lift()
        elif kind in KINDS:
            reconcile.journal_request(kind, printable(hosts), at)


def status() -> dict[str, Any]:
    """Return the status that the loop wrote last, for `./hpc status`; empty where there is no loop."""
    return read_json(loop.FOLDER / "status.json", {}) if loop.SETTINGS.exists() else {}


def spending() -> dict[str, Any]:
    """Return the budget and what is spent of it (`budget.state`); empty without a budget, or before the loop's first
    pass."""
    given, spent, now = read_json(loop.SETTINGS, {}).get("budget"), budget.read(loop.FOLDER), time.time()
    if not given or not spent:
        return {}
    return budget.state(given, budget.add(spent, given, spent.hour, now), now)


def main(arguments: list[str]) -> int:
    """Run the command and return its exit code."""
    if len(arguments) != 1 or arguments[0] not in ("run", "status", "lift", "pause", "unpause"):
        sys.stderr.write(str(__doc__))
        return 2
    if os.geteuid() != 0:
        sys.stderr.write(f"{NAME}: run it as root\n")
        return 1
    (command,) = arguments
    try:
        if command == "run":
            run()
        elif command == "status":
            sys.stdout.write(json.dumps(status(), indent=1) + "\n")
        else:
            if command == "pause":
                write(loop.PAUSED, "")
            elif command == "unpause":
                loop.PAUSED.unlink(missing_ok=True)
            write(REQUESTS / command, f"{command}\n", mode=0o600, quiet=True)
    except (SetupError, OSError) as error:
        sys.stderr.write(printable(f"{NAME}: {error}\n"))
        return 1
    return 0
