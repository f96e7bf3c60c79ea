"""Sets up one machine of the cluster. Runs on the machine itself, as root, from the standard library only.

    python3 FOLDER configure   < JSON   controller and login machines: make everything as the JSON says
    python3 FOLDER boot                 compute nodes, at every boot: join the cluster as /etc/hpc/node.json says
    python3 FOLDER accounting  < JSON   controller: accounts, QOS and users in Slurm's database
    python3 FOLDER nodes       < JSON   controller: wait until the nodes are there
    python3 FOLDER ready       < JSON   controller: run a job through every partition
    python3 FOLDER ends        < JSON   controller: reserve nodes from the end of their machines on; no-ends undoes it
    python3 FOLDER warm-up     < JSON   controller: download what the first jobs on nodes would wait for
    python3 FOLDER leave       < JSON   controller: empty a node whose machine goes, and wait for its jobs
    python3 FOLDER settle      < JSON   controller and login machines: take back what an unfinished `up` had begun
    python3 FOLDER prologs     < JSON   controller: scripts that run before and after jobs; no-prologs takes them away
    python3 FOLDER rxdm        < JSON   controller: patch A3 Mega's prolog for Ubuntu 22.04; no-rxdm puts it back
    python3 FOLDER backup      < JSON   controller: the accounting database on standard output, as `restore` takes it
    python3 FOLDER restore     < JSON   controller: put an uploaded backup in the place of the accounting database
    python3 FOLDER rebuild     < JSON   controller: records of ended jobs that never reached the database
    python3 FOLDER host-keys            controller: SSH host keys that machines reported, as JSON
    python3 FOLDER health-results       controller: the last health check of every node, as JSON
    python3 FOLDER lost-jobs            controller: end jobs that ended while slurmctld was away
    python3 FOLDER jobs                 a node: numbers of the jobs that have a process here
    python3 FOLDER look                 any machine: what can be seen here, as JSON; changes nothing, waits for nobody

Every phase may be run again at any time: it changes what differs, says so, and nothing else.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import collect
from accounting import accounts, backup, database, records
from health import measure, program
from health import outcome as health_record
from jobs import drain, lost_jobs, probe, prologs, rxdm, warm_up
from slurm import conf_changes, join, slurmctld, slurmd
from system import (
    cluster_state,
    containers,
    installation,
    login,
    mounts,
    munge,
    phase_state,
    protected_files,
    state_disk,
    users,
)
from system.host import SetupError, describe_os_error, log, printable, reload_units, service, take_lock, write

NODE = Path("/etc/hpc/node.json")


def configure(payload: dict[str, Any]) -> None:
    """Controller and login machines, alone or in one, and nodes that share a machine with either."""
    installation.wait_for()
    reload_units()  # what a set-up that was killed has written
    roles = payload["roles"]
    controls = "controller" in roles
    shared = {mount["target"] for mount in payload["mounts"]}
    if controls:
        drain.refuse_busy(users.leaving(payload["users"]))
        state_disk.keep(payload.get("state"))
        slurmctld.prepare()
        database.configure()  # only asked for: it comes up while the rest is done
    mounts.mount_all(payload["mounts"], controller=payload["conf_server"])
    if controls:
        state_disk.share_folders(payload.get("exports"))
    users.converge(payload["users"], payload["groups"], with_homes=controls or "/home" not in shared)
    containers.converge(
        payload["users"], data=payload.get("containers", ""), login="login" in roles, node="node" in roles
    )
    login.admit(users="login" in roles)
    protected_files.restore_modes()
    munge.start()
    slurmd.link_pmix()
    slurmd.drop_empty_include()
    if controls:
        control(payload)
        measure.keep_measuring(payload.get("measure"))
        prologs.keep_environment(payload.get("environment", []))
    else:
        slurmctld.disable()
    config = cluster_state.wait_for_config(controller=payload["conf_server"].partition(":")[0])
    if "login" in roles:
        login.prepare_for_users()
        if not controls:
            login.configure(payload.get("files", {}))
    if "node" in roles:
        program.keep(config.get("health"))
        slurmd.start_slurmd(payload["conf_server"], config["slurmd"], at_boot=True)
    cluster_state.report("configured", config["digest"])


def control(payload: dict[str, Any]) -> None:
    """The controller's part: daemons with their files, then the config version for all other machines."""
    files = {name: "\n".join(lines) + "\n" for name, lines in payload["files"].items()}
    dbd = files.pop("slurmdbd.conf")
    slurmctld.refuse_other_name(payload["cluster"])
    if text := files.get(slurmctld.JOB_SUBMIT):
        slurmctld.check_job_submit(text)
    drain.drain_removed(
        slurmctld.applied().get("slurm.conf", ""), files["slurm.conf"], seconds=payload["drain_seconds"]
    )
    if payload.get("slurmrestd"):
        slurmctld.keep_token_key()
    with slurmctld.or_back(files):
        slurmctld.write_files(files)
        slurmctld.accounting_daemon(dbd)
        slurmctld.register_cluster(payload["cluster"])
        slurmctld.register_qos(payload["qos"])
        slurmctld.controller_daemon(files)
    if payload.get("slurmrestd"):
        slurmctld.start_slurmrestd()
    else:
        slurmctld.remove_slurmrestd()
    config = {
        name: payload[name]
        for name in ("cluster", "users", "groups", "setup", "adopt", "containers", "health")
        if name in payload
    }
    config["munge"] = munge.fingerprint(munge.KEY.read_bytes())
    cluster_state.publish({**config, "slurmd": conf_changes.slurmd_epoch(files)}, {"slurm.conf": files["slurm.conf"]})


def boot() -> None:
    """A compute node, at boot and whenever the config version changes."""
    node = json.loads(NODE.read_text())
    try:
        reload_units()  # as for `configure`
        mounts.mount_all(node["mounts"], controller=node["conf_server"])
        if not login.SSHD.exists():
            login.admit(users=False)
        protected_files.restore_modes()
        slurmd.link_pmix()
        config = cluster_state.wait_for_config()
        munge.start(config["munge"])
        login.let_in(jobs=config.get("adopt", False))
        shared = {mount["target"] for mount in node["mounts"]}
        users.converge(config["users"], config["groups"], with_homes="/home" not in shared)
        containers.converge(config["users"], data=config.get("containers", ""))
        slurmctld.disable()
        program.keep(config.get("health"))
        slurmd.start_slurmd(node["conf_server"], config["slurmd"], at_boot=False)
    except SetupError as error:
        # Reported in the cluster state if that is reachable; the journal has it in any case.
        if cluster_state.FOLDER.is_dir():
            cluster_state.report("failed", "", str(error))
        raise
    # What the watcher compares with: the config version that this machine has applied.
    write("/etc/hpc/orders.json", json.dumps(config, indent=1) + "\n")
    # Newer than the one that runs, after a new set-up was brought. It comes after this phase, so it is not waited for.
    service("hpc-watch", settings=(Path(__file__).parent / "watch.sh").read_text(), block=False)
    cluster_state.report("configured", config["digest"])


def restore_last_success(_: dict[str, Any]) -> None:
    """After an `up` that succeeded: run the phases again that failed in an earlier one, with their last good input."""
    for phase in phase_state.unfinished():
        payload = phase_state.last(phase)
        if payload is not None:
            log(f"{phase}: the last run failed; running it again with the input of the one before")
            perform(phase, payload)
        elif phase in UNDOES.values():
            perform(next(undo for undo, done in UNDOES.items() if done == phase), {})
        if payload is None:
            phase_state.forget(phase)
    if conf := slurmctld.applied().get("slurm.conf", ""):
        drain.resume_drained(conf)


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
    "configure": configure,
    "accounting": accounts.converge,
    "nodes": lambda payload: join.wait_for(payload["nodes"], seconds=payload["seconds"]),
    "ready": lambda payload: probe.prove(payload["probes"]),
    "ends": drain.reserve_ends,
    "warm-up": warm_up.warm,
    "leave": lambda payload: drain.leave(payload["node"]),
    "settle": restore_last_success,  # known by this name to every version
    "backup": lambda _: backup.write_backup(sys.stdout.buffer),
    "restore": backup.restore,
    "rebuild": records.rebuild,
    "prologs": prologs.stage,
    "rxdm": rxdm.converge,
    # What undoes these needs nothing from the stack: what was made is recorded.
    "no-prologs": lambda _: prologs.remove(),
    "no-rxdm": lambda _: rxdm.undo(),
    "no-ends": lambda _: drain.reserve_ends({"ends": {}}),
}
# They print, change nothing and take no lock.
READS: dict[str, Callable[[], None]] = {
    "look": collect.show,
    "host-keys": lambda: print(json.dumps(cluster_state.host_keys())),
    "health-results": lambda: print(json.dumps(health_record.results())),
    "jobs": lambda: print(*sorted(lost_jobs.alive()), "."),
}
UNDOES = {"no-prologs": "prologs", "no-rxdm": "rxdm", "no-ends": "ends"}


def take(lock: IO[str], phase: str) -> None:
    """Take the lock of a phase. Another set-up may hold it that only waits for jobs: it ends when WANTED is touched.

    Only an `up` does so, as its stack file is newer.
    """
    shared = phase == "leave"
    if take_lock(lock, shared=shared):
        return
    if phase in ("configure", "settle"):
        log("another set-up is at work on this machine: waiting for it")
        write(drain.WANTED, "", quiet=True)
        drain.WANTED.touch()
    take_lock(lock, shared=shared, seconds=math.inf)


def main(arguments: list[str]) -> int:
    """Run one phase: 0 when it is done, 1 with the reason on standard error when not, 2 for an unknown phase."""
    if len(arguments) != 1 or arguments[0] not in {*PHASES, *READS, "boot", "lost-jobs"}:
        sys.stderr.write(str(__doc__))
        return 2
    if os.geteuid() != 0:
        sys.stderr.write("the set-up changes the machine: run it as root\n")
        return 1
    phase = arguments[0]
    if phase in READS:
        READS[phase]()
        return 0
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

    Only those that wait for jobs are beside each other, and beside the rest; `lost-jobs` is systemd's alone.
    """
    if phase == "lost-jobs":
        lost_jobs.end_missing_jobs()
        return
    Path("/run/hpc").mkdir(exist_ok=True)
    name = phase if phase in ("boot", "leave", "warm-up") else "setup"
    with Path(f"/run/hpc/{name}.lock").open("w") as lock:
        take(lock, phase)
        if phase == "boot":
            boot()
        else:
            perform(phase, json.load(sys.stdin))
        reload_units(links=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
