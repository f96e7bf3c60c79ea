"""Daemons that do not run, do not answer, or have to be started again and again."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cluster.findings import ClusterFinding
from cluster.observe.observation import ClusterObservation, MachineObservation

RESTARTS = 3
"""systemd counts since somebody last started a unit: a few in months are history, a few in minutes are news."""
LATELY = 600
"""Seconds after a start in which it may still be one of many."""
NAMED_JOBS = 5
"""Most jobs that are named one by one."""
_RETRIES = {"hpc-node"}
"""Tries again by itself until the machine has joined: reported as a set-up that failed."""
_REPORTED = {"slurmctld", "slurmdbd", "mariadb", "slurmrestd"}
"""If these do not run, another finding says so, with the number of starts."""


def controller(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """slurmctld, slurmdbd and MariaDB, and slurmrestd where the stack has that."""
    one = seen.controller
    if not one.has_facts:
        return
    slurmctld = _unit(one, "slurmctld")
    if not _active(slurmctld) or not (seen.slurmctld_answers or one.is_busy):
        said = one.error("slurm", "ping") or (seen.slurm("ping") or {}).get("said", "")
        state = _words(slurmctld) if not _active(slurmctld) else f"runs, but does not answer: {said}"
        yield _stopped(
            seen, "slurmctld", slurmctld, f"slurmctld {state}. No job starts; jobs that run go on", "slurmctld.log"
        )
    waiting = (seen.slurm("statistics") or {}).get("waiting")
    count = "" if waiting is None else f"; {waiting} record{'s' * (waiting != 1)} of jobs wait in slurmctld until then"
    mariadb, slurmdbd = _unit(one, "mariadb"), _unit(one, "slurmdbd")
    for name, title, unit, log in (
        ("mariadb", "MariaDB", mariadb, ""),
        ("slurmdbd", "slurmdbd", slurmdbd, "slurmdbd.log"),
    ):
        if not _active(unit):
            text = f"{title} {_words(unit)}. Nothing is written to the accounting{count}"
            yield _stopped(seen, name, unit, text, log)
    answer = seen.slurm("database") or {}
    if _active(slurmdbd) and answer.get("up") is False and _active(mariadb) and not one.is_busy:
        text = f"slurmdbd runs, but does not answer: {_last_line(answer.get('said', ''))}{count}"
        yield _stopped(seen, "slurmdbd", slurmdbd, text, "slurmdbd.log")
    slurmrestd = _unit(one, "slurmrestd")
    if not _active(slurmrestd):
        yield _stopped(
            seen, "slurmrestd", slurmrestd, f"slurmrestd {_words(slurmrestd)}. Nobody gets an answer by REST", ""
        )


_TELLING = re.compile(r"error|fatal|fail|killed|exited|denied|refused|no space|cannot|can't|unable", re.IGNORECASE)
# What systemd says of every unit, whatever becomes of it.
_SAID_OF_ALL = re.compile(
    r"(Start(ed|ing)|Stopp(ed|ing)) .*|Failed to start .*"
    r"|.*(Scheduled restart job|Deactivated successfully|Consumed |Failed with result ).*"
)
_LINES = 2
_LONGEST = 160


def last_words(lines: Sequence[str]) -> str:
    """The last lines about errors, else the last one of the daemon itself; may be empty."""
    own = [line.strip().rstrip(".") for line in lines if line.strip() and not _SAID_OF_ALL.match(line)]
    telling = [line for line in own if _TELLING.search(line)]
    return "; ".join(
        line if len(line) <= _LONGEST else line[:_LONGEST] + "..." for line in (telling or own[-1:])[-_LINES:]
    )


_RECORDS = {
    "runaway": (
        "still running in the accounting, and slurmctld does not know {}",
        "./hpc ssh {} controller -- sacctmgr show runawayjobs",
        "It offers to end them in the database.",
    ),
    "unrecorded": (
        "ended, and the accounting does not have {}",
        "./hpc accounting rebuild {}",
        "It shows them, and writes their records, without steps, from what slurmctld noted at their end.",
    ),
}


def records(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """Jobs that ended without a record of it, which a slurmctld that was killed took with it."""
    found = seen.controller.part("records")
    if not found or (seen.slurm("statistics") or {}).get("waiting"):
        return  # it may be on its way
    for kind, (what, todo, note) in _RECORDS.items():
        if jobs := found[kind]:
            many = len(jobs) > 1
            listed = ", ".join(jobs[:NAMED_JOBS]) + (", ..." if len(jobs) > NAMED_JOBS else "")
            yield ClusterFinding(
                id=f"jobs-{kind}",
                where=(seen.controller.name,),
                what=f"{len(jobs)} job{'s' * many} {what.format('them' if many else 'it')}: {listed}",
                todo=todo.format(seen.stack),
                note=note,
            )


def prometheus(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """Prometheus, where the stack has it: without it nobody gets an alert."""
    there = seen.monitoring
    why = there.error("alerts")
    if why and not there.is_busy:
        yield ClusterFinding(
            id="monitoring-down",
            where=(there.name,),
            what=f"Prometheus does not answer, so no alert fires: {why}",
            todo=f"./hpc ssh {seen.stack} {there.roles[0]} -- systemctl restart prometheus",
            note="Its log on that machine: journalctl -u prometheus",
        )


def lost_jobs(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """Jobs of the last day that a slurmctld that was killed had accepted and not written."""
    lost = seen.controller.part("lost") or []
    again = [one for one in lost if "again" in one]
    if rest := [one for one in lost if "again" not in one]:
        yield ClusterFinding(
            id="jobs-lost",
            where=(seen.controller.name,),
            what=f"slurmctld was killed and lost {_listed(rest)}. Not submitted again: {rest[0]['why']}",
            todo=_LOST_LOG.format(seen.stack),
            note="It has the reason for each. Their users start them again. This is shown for a day.",
            since=rest[0]["time"],
        )
    if again:
        now = ", ".join(str(one["again"]) for one in again[:NAMED_JOBS]) + (", ..." if again[NAMED_JOBS:] else "")
        yield ClusterFinding(
            id="jobs-submitted-again",
            where=(seen.controller.name,),
            what=f"slurmctld was killed and lost {_listed(again)}. Submitted again as {now}",
            todo=_LOST_LOG.format(seen.stack),
            note="It has all of them. Nothing is to be done. This is shown for a day.",
            since=again[0]["time"],
        )


_LOST_LOG = "./hpc ssh {} controller -- journalctl -u hpc-lost-jobs"


def _listed(lost: Sequence[Mapping[str, Any]]) -> str:
    """`2 jobs: 7 of alice, 8`."""
    names = [str(one["job"]) + (f" of {one['user']}" if one.get("user") else "") for one in lost[:NAMED_JOBS]]
    return f"{len(lost)} job{'s' * (len(lost) > 1)}: {', '.join(names)}" + (", ..." if lost[NAMED_JOBS:] else "")


def _stopped(seen: ClusterObservation, name: str, unit: Mapping[str, Any], text: str, log: str) -> ClusterFinding:
    look = f"/var/log/slurm/{log}" if log else f"journalctl -u {name}"
    verb = "restart" if _active(unit) else "start"
    return ClusterFinding(
        id=f"{name}-down",
        where=(seen.controller.name,),
        what=text,
        todo=f"./hpc ssh {seen.stack} controller -- systemctl {verb} {name}",
        note=f"Its log on that machine: {look}",
        since=None if _active(unit) else unit.get("since") or None,
    )


def munged(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """munged, by which machines authenticate each other, on each machine."""
    for machine in seen.machines:
        unit, check = _unit(machine, "munge"), machine.munge
        if not machine.has_facts or (_active(unit) and (check is None or check["works"] or machine.is_busy)):
            continue
        state = (
            _words(unit)
            if not _active(unit)
            else f"is running but does not authenticate: {_last_line((check or {}).get('why', ''))}"
        )
        yield ClusterFinding(
            id="munge-down",
            where=(machine.name,),
            what=f"munged {state}. No message of Slurm's is accepted there",
            todo=f"./hpc ssh {seen.stack} {machine.name} -- systemctl restart munge",
            since=None if _active(unit) else unit.get("since") or None,
        )


def restarting(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """Daemons that systemd restarts again and again."""
    for machine in seen.machines:
        for name, unit in machine.daemons.items():
            if unit["restarts"] < RESTARTS or name in _RETRIES or (name in _REPORTED and not _active(unit)):
                continue
            if unit["sub"] != "auto-restart" and machine.time - unit["started"] > LATELY:
                continue
            words = last_words(unit.get("journal") or ())
            yield ClusterFinding(
                id="daemon-restarting",
                where=(machine.name,),
                what=f"{name} ends again and again: systemd restarted it {unit['restarts']} times, "
                f"and its state is {unit['sub']}{f'. Its last messages: {words}' if words else ''}",
                todo=f"./hpc ssh {seen.stack} {machine.name} -- journalctl -u {name} -n 50",
                since=unit["since"] or None,
            )


def _unit(one: MachineObservation, name: str) -> Mapping[str, Any]:
    return one.daemons.get(name) or {}


def _active(unit: Mapping[str, Any]) -> bool:
    # Without a word about it, nothing is claimed.
    return unit.get("state", "active") in ("active", "reloading")


def _words(unit: Mapping[str, Any]) -> str:
    states = {"failed": "has failed", "activating": "is starting", "deactivating": "is stopping"}
    text = states.get(unit["state"], f"does not run ({unit['state']})")
    if unit.get("sub") == "auto-restart":
        text = f"ends again and again (started {unit['restarts']} times)"
    words = last_words(unit.get("journal") or ())
    return f"{text}: {words}" if words and unit["state"] != "inactive" else text


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no answer"


WATCH_LATE = 120
"""Seconds since its last pass: it makes one every few seconds, and one of them may wait for Compute Engine."""


def failover(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """A watch that does not answer, or has stopped."""
    found = seen.controller.part("failover")
    if not found:
        return
    late = seen.controller.time - found.get("time", 0)
    if found["why"] or late > WATCH_LATE:
        why = found["why"] or f"its last pass was {late / 60:.0f} min ago"
        yield ClusterFinding(
            id="failover-watch",
            where=(seen.controller.name,),
            what=f"nothing watches the controller, which would not come back in its other zone: {why}",
            todo=f"./hpc up {seen.stack}",
            note=f"After ./hpc refresh {seen.stack} it starts what watches, or creates it again. The serial console of "
            "that machine has the reason.",
        )


_YOUNG = "slurmctld has run for"
"""Begins the reason of a pass that only waits for nodes to register."""


def reconcile(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """Brakes that hold, each with the command that lifts it; then what the loop can't do."""
    found = seen.controller.part("reconcile")
    if not found:
        return
    where, command = (seen.controller.name,), f"./hpc ssh {seen.stack} controller --"
    if found["why"] and not found["why"].startswith(_YOUNG):
        what = f"the reconcile loop deletes nothing and sets no node down: {found['why']}"
        yield ClusterFinding(id="reconcile-blind", where=where, what=what, todo=f"./hpc logs {seen.stack} reconcile")
    for brake in found["brakes"]:
        mode = brake["brake"].startswith("mode: ")
        yield ClusterFinding(
            id="reconcile-brake",
            where=where,
            what=f"the reconcile loop is held by {brake['brake']}: {brake['text']}",
            todo=f"./hpc up {seen.stack}" if mode else f"{command} {brake['todo']}",
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
        hours = (seen.controller.time - since) / 3600
        yield ClusterFinding(
            id="repair-waits",
            where=(name,),
            what=f"{name} is repaired, and waits for an idle node to run the NCCL test with, for {hours:.1f} h",
            todo=f"./hpc nodes {seen.stack} resume {name}",
            note="That returns it to jobs without the test; by itself it is measured as soon as a node is idle.",
        )
    for text in found["alerts"]:
        todo = f"./hpc logs {seen.stack} reconcile"
        yield ClusterFinding(id="reconcile-alert", where=where, what=f"needs a person: {text}", todo=todo)
