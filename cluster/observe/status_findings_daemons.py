"""Findings about daemons: not running, not answering, restarting; the reconcile loop; jobs that slurmctld lost."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cluster.findings import ClusterFinding
from cluster.observe.observation import ClusterObservation, MachineObservation
from cluster.slurm.paths import LOGS

RESTARTS = 3
"""Automatic restarts, since somebody last started the unit, from which on they are a finding if the last is recent."""
RECENT_SECONDS = 600
"""Seconds after a start in which the daemon may end again."""
NAMED_JOBS = 5
"""Jobs that a finding lists; of more, the first ones."""
_RETRIES = {"hpc-node"}
"""Units that are restarted until the machine has joined; the finding about the set-up reports them."""
_REPORTED = {"slurmctld", "slurmdbd", "mariadb", "slurmrestd"}
"""Units that `controller` reports when they do not run, with the number of starts."""


def controller(cluster: ClusterObservation) -> Iterator[ClusterFinding]:
    """Yield the controller's daemons that do not run or do not answer; slurmrestd where the stack has it."""
    machine = cluster.controller
    if not machine.has_facts:
        return
    slurmctld, mariadb, slurmdbd, slurmrestd = (
        _unit(machine, name) for name in ("slurmctld", "mariadb", "slurmdbd", "slurmrestd")
    )
    if not _active(slurmctld) or not (cluster.slurmctld_answers or machine.is_busy):
        reason = machine.error("slurm", "ping") or (cluster.slurm("ping") or {}).get("said", "")
        state = _state(slurmctld) if not _active(slurmctld) else f"runs, but does not answer: {reason}"
        yield _stopped(cluster, "slurmctld", slurmctld, f"slurmctld {state}. No job starts; jobs that run go on")
    waiting = (cluster.slurm("statistics") or {}).get("waiting")
    count = "" if waiting is None else f"; {waiting} record{'s' * (waiting != 1)} of jobs wait in slurmctld until then"
    for name, title, unit in (("mariadb", "MariaDB", mariadb), ("slurmdbd", "slurmdbd", slurmdbd)):
        if not _active(unit):
            what = f"{title} {_state(unit)}. Nothing is written to the accounting{count}"
            yield _stopped(cluster, name, unit, what)
    answer = cluster.slurm("database") or {}
    if _active(slurmdbd) and answer.get("up") is False and _active(mariadb) and not machine.is_busy:
        what = f"slurmdbd runs, but does not answer: {_last_line(answer.get('said', ''))}{count}"
        yield _stopped(cluster, "slurmdbd", slurmdbd, what)
    if not _active(slurmrestd):
        what = f"slurmrestd {_state(slurmrestd)}. Nobody gets an answer by REST"
        yield _stopped(cluster, "slurmrestd", slurmrestd, what)


_TELLING = re.compile(r"error|fatal|fail|killed|exited|denied|refused|no space|cannot|can't|unable", re.IGNORECASE)
# Messages of systemd about any unit, which give no cause.
_OF_SYSTEMD = re.compile(
    r"(Start(ed|ing)|Stopp(ed|ing)) .*|Failed to start .*"
    r"|.*(Scheduled restart job|Deactivated successfully|Consumed |Failed with result ).*"
)
_LINES = 2
_LONGEST = 160


def last_words(lines: Sequence[str]) -> str:
    """Return the last lines of a journal about errors, else the daemon's last line; empty if there is none."""
    own = [line.strip().rstrip(".") for line in lines if line.strip() and not _OF_SYSTEMD.match(line)]
    telling = [line for line in own if _TELLING.search(line)]
    return "; ".join(
        line if len(line) <= _LONGEST else line[:_LONGEST] + "..." for line in (telling or own[-1:])[-_LINES:]
    )


def prometheus(cluster: ClusterObservation) -> Iterator[ClusterFinding]:
    """Yield Prometheus, where the stack has it, if it does not answer: nobody gets an alert then."""
    machine = cluster.monitoring
    why = machine.error("alerts")
    if why and not machine.is_busy:
        yield ClusterFinding(
            id="monitoring-down",
            where=(machine.name,),
            what=f"Prometheus does not answer, so no alert fires: {why}",
            todo=f"./hpc ssh {cluster.stack} {machine.roles[0]} -- systemctl restart prometheus",
            note="Its log on that machine: journalctl -u prometheus",
        )


KILL_SHOWN_SECONDS = 86400


def killed(cluster: ClusterObservation) -> Iterator[ClusterFinding]:
    """Yield a kill of slurmctld, or a loss of power, within the last day: jobs may be unknown to it since."""
    when = cluster.controller.part("killed")
    if when is None or cluster.controller.time - when > KILL_SHOWN_SECONDS:
        return
    start = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(when))
    yield ClusterFinding(
        id="slurmctld-killed",
        where=(cluster.controller.name,),
        what=f"slurmctld was killed before its start at {start}. Jobs "
        "that it acknowledged in the last seconds before may be missing, and records of jobs that ended then",
        todo=f"./hpc ssh {cluster.stack} controller -- sacctmgr show runawayjobs",
        note="It shows jobs that run in the accounting only, and offers to end them there. Users submit missing jobs "
        "again. This is shown for a day.",
        since=when,
    )


def list_jobs(names: Sequence[str]) -> str:
    """Return the first names, separated by commas."""
    return ", ".join(names[:NAMED_JOBS]) + (", ..." if len(names) > NAMED_JOBS else "")


def _stopped(cluster: ClusterObservation, name: str, unit: Mapping[str, Any], what: str) -> ClusterFinding:
    log = f"{LOGS}/{name}.log" if name in ("slurmctld", "slurmdbd") else f"journalctl -u {name}"
    verb = "restart" if _active(unit) else "start"
    return ClusterFinding(
        id=f"{name}-down",
        where=(cluster.controller.name,),
        what=what,
        todo=f"./hpc ssh {cluster.stack} controller -- systemctl {verb} {name}",
        note=f"Its log on that machine: {log}",
        since=None if _active(unit) else unit.get("since") or None,
    )


def munged(cluster: ClusterObservation) -> Iterator[ClusterFinding]:
    """Yield machines whose munged does not run or does not authenticate."""
    for machine in cluster.machines:
        unit, check = _unit(machine, "munge"), machine.munge
        if not machine.has_facts or (_active(unit) and (check is None or check["works"] or machine.is_busy)):
            continue
        state = (
            _state(unit)
            if not _active(unit)
            else f"is running but does not authenticate: {_last_line((check or {}).get('why', ''))}"
        )
        yield ClusterFinding(
            id="munge-down",
            where=(machine.name,),
            what=f"munged {state}. No message of Slurm's is accepted there",
            todo=f"./hpc ssh {cluster.stack} {machine.name} -- systemctl restart munge",
            since=None if _active(unit) else unit.get("since") or None,
        )


def restarting(cluster: ClusterObservation) -> Iterator[ClusterFinding]:
    """Yield daemons that systemd restarts again and again."""
    for machine in cluster.machines:
        for name, unit in machine.daemons.items():
            if unit["restarts"] < RESTARTS or name in _RETRIES or (name in _REPORTED and not _active(unit)):
                continue
            if unit["sub"] != "auto-restart" and machine.time - unit["started"] > RECENT_SECONDS:
                continue
            words = last_words(unit.get("journal") or ())
            yield ClusterFinding(
                id="daemon-restarting",
                where=(machine.name,),
                what=f"{name} ends again and again: systemd restarted it {unit['restarts']} times, "
                f"and its state is {unit['sub']}{f'. Its last messages: {words}' if words else ''}",
                todo=f"./hpc ssh {cluster.stack} {machine.name} -- journalctl -u {name} -n 50",
                since=unit["since"] or None,
            )


def _unit(machine: MachineObservation, name: str) -> Mapping[str, Any]:
    return machine.daemons.get(name) or {}


def _active(unit: Mapping[str, Any]) -> bool:
    # A unit that was not reported counts as active: nothing is known against it.
    return unit.get("state", "active") in ("active", "reloading")


def _state(unit: Mapping[str, Any]) -> str:
    """Return the state of a stopped unit in words, with the end of its journal."""
    states = {"failed": "has failed", "activating": "is starting", "deactivating": "is stopping"}
    text = states.get(unit["state"], f"does not run ({unit['state']})")
    if unit.get("sub") == "auto-restart":
        text = f"ends again and again (started {unit['restarts']} times)"
    words = last_words(unit.get("journal") or ())
    return f"{text}: {words}" if words and unit["state"] != "inactive" else text


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no answer"


_YOUNG = "slurmctld has run for"
"""Prefix of the reason why the loop waits after slurmctld's start: nodes have to register first."""


def reconcile(cluster: ClusterObservation) -> Iterator[ClusterFinding]:
    """Yield brakes of the reconcile loop, each with the command that releases it, then what the loop can't do."""
    found = cluster.controller.part("reconcile")
    if not found:
        return
    where, command = (cluster.controller.name,), f"./hpc ssh {cluster.stack} controller --"
    log = f"./hpc logs {cluster.stack} reconcile"
    if found["why"] and not found["why"].startswith(_YOUNG):
        what = f"the reconcile loop deletes nothing and sets no node down: {found['why']}"
        yield ClusterFinding(id="reconcile-blind", where=where, what=what, todo=log)
    for brake in found["brakes"]:
        mode = brake["brake"].startswith("mode: ")
        yield ClusterFinding(
            id="reconcile-brake",
            where=where,
            what=f"the reconcile loop is held by {brake['brake']}: {brake['text']}",
            todo=f"./hpc up {cluster.stack}" if mode else f"{command} {brake['todo']}",
            note="With slurm.reconcile.mode: act in the stack file." if mode else "",
        )
    for reason in found["cooling"].values():
        yield ClusterFinding(
            id="no-capacity",
            where=where,
            what=reason.removeprefix("hpc: "),
            todo=f"{command} hpc-reconcile lift",
            note="That tries it at once; by itself it is tried at the time given.",
        )
    for name, since in found.get("waits", {}).items():
        hours = (cluster.controller.time - since) / 3600
        yield ClusterFinding(
            id="repair-waits",
            where=(name,),
            what=f"{name} is repaired, and waits for an idle node to run the NCCL test with, for {hours:.1f} h",
            todo=f"./hpc nodes {cluster.stack} resume {name}",
            note="That returns it to jobs without the test; by itself it is measured as soon as a node is idle.",
        )
    for alert in found["alerts"]:
        todo = alert["todo"].replace("STACK", cluster.stack)
        what = f"needs a person: {alert['what']}"
        yield ClusterFinding(id="reconcile-alert", where=(alert["node"],), what=what, todo=todo)
