"""Findings of a cluster, from the controller's document: daemons, nodes, jobs, the reconcile loop. Pure functions."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from health import advice
from judge.document import error, is_busy, part, unit
from judge.kinds import HOURS_USED
from judge.machine import Document, is_active, last_line, state_of
from slurm import findings as of_slurm
from slurm.findings import LOGS, MachineFinding
from slurm.hours import Hours
from slurm.nodes import Node

KILL_SHOWN_SECONDS = 86400
_YOUNG = "slurmctld has run for"
"""Prefix of the reason why the loop waits after slurmctld's start: nodes have to register first."""


def daemons(document: Document) -> Iterator[MachineFinding]:
    """Yield the controller's daemons that do not run or do not answer; slurmrestd where the stack has it."""
    slurmctld, mariadb, slurmdbd, slurmrestd = (
        unit(document, name) for name in ("slurmctld", "mariadb", "slurmdbd", "slurmrestd")
    )
    answers, busy = bool(part(document, "slurm", "ping", "up")), is_busy(document)
    if not is_active(slurmctld) or not (answers or busy):
        reason = error(document, "slurm", "ping") or part(document, "slurm", "ping", "said") or ""
        state = state_of(slurmctld) if not is_active(slurmctld) else f"runs, but does not answer: {reason}"
        yield _stopped(document, "slurmctld", slurmctld, f"slurmctld {state}. No job starts; jobs that run go on")
    waiting = part(document, "slurm", "statistics", "waiting")
    count = "" if waiting is None else f"; {waiting} record{'s' * (waiting != 1)} of jobs wait in slurmctld until then"
    for name, title, row in (("mariadb", "MariaDB", mariadb), ("slurmdbd", "slurmdbd", slurmdbd)):
        if not is_active(row):
            what = f"{title} {state_of(row)}. Nothing is written to the accounting{count}"
            yield _stopped(document, name, row, what)
    answer = part(document, "slurm", "database") or {}
    if is_active(slurmdbd) and answer.get("up") is False and is_active(mariadb) and not busy:
        what = f"slurmdbd runs, but does not answer: {last_line(answer.get('said', ''))}{count}"
        yield _stopped(document, "slurmdbd", slurmdbd, what)
    if not is_active(slurmrestd):
        what = f"slurmrestd {state_of(slurmrestd)}. Nobody gets an answer by REST"
        yield _stopped(document, "slurmrestd", slurmrestd, what)


def _stopped(document: Document, name: str, row: Mapping[str, Any], what: str) -> MachineFinding:
    log = f"{LOGS}/{name}.log" if name in ("slurmctld", "slurmdbd") else f"journalctl -u {name}"
    verb = "restart" if is_active(row) else "start"
    return MachineFinding(
        id=f"{name}-down",
        where=document["name"],
        what=what,
        todo=f"./hpc ssh STACK controller -- systemctl {verb} {name}",
        note=f"Its log on that machine: {log}",
        since=None if is_active(row) else row.get("since") or None,
    )


def killed(document: Document) -> Iterator[MachineFinding]:
    """Yield a kill of slurmctld, or a loss of power, within the last day: jobs may be unknown to it since."""
    when = part(document, "killed")
    if when is None or document["time"] - when > KILL_SHOWN_SECONDS:
        return
    start = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(when))
    yield MachineFinding(
        id="slurmctld-killed",
        where=document["name"],
        what=f"slurmctld was killed before its start at {start}. Jobs "
        "that it acknowledged in the last seconds before may be missing, and records of jobs that ended then",
        todo="./hpc ssh STACK controller -- sacctmgr show runawayjobs",
        note="It lists jobs that run in the accounting only, and asks whether to end them there: as COMPLETED at their "
        "start, so that they have used nothing. Users submit missing jobs again. This is shown for a day.",
        since=when,
    )


def slurm(document: Document) -> Iterator[MachineFinding]:
    """Yield nodes that are down or drained, and held jobs."""
    nodes = [Node.of(name, row) for name, row in (part(document, "slurm", "nodes") or {}).items()]
    waits = bool(part(document, "reconcile", "cooling") or part(document, "budget", "refuses"))
    yield from of_slurm.down(nodes, cooling=waits)
    yield from of_slurm.drained(nodes, _drained_by_check)
    yield from of_slurm.held(document["name"], part(document, "slurm", "jobs"))


def _drained_by_check(node: Node) -> MachineFinding | None:
    found = advice.drained(node.name, node.reason)
    return MachineFinding("node-drained", node.name, *found) if found else None


def hours(document: Document) -> Iterator[MachineFinding]:
    """Yield accounts and users that have used up nearly all of their hours, each as its own place."""
    for row in (Hours(**row) for row in part(document, "accounting", "hours") or ()):
        kind = next((kind for kind, least in HOURS_USED.items() if row.share >= least), None)
        if kind:
            yield MachineFinding(
                id=kind,
                where=row.user or row.account,
                what=f"{row.left}: {row.share:.0%} are used",
                todo=f"./hpc usage STACK --account {row.account}",
                note="Jobs whose hours do not fit wait until the period ends. More hours: `limits` in the stack file, "
                "then ./hpc up STACK.",
            )


def places(document: Document) -> Iterator[MachineFinding]:
    """Yield a finding if slurmctld refused the topology.conf with the nodes' latest places."""
    if message := part(document, "topology"):
        yield MachineFinding(
            id="topology-refused",
            where=document["name"],
            what="places jobs by an earlier topology.conf, as slurmctld refused the latest: "
            f"{' '.join(message.split())[:400]}",
            todo="./hpc up STACK",
            note="With slurm.topology: nodesets in the stack file, which does without places. By itself the next other "
            "place that a node reports is tried; the attempts: ./hpc logs STACK topology",
        )


def reconcile(document: Document) -> Iterator[MachineFinding]:
    """Yield brakes of the reconcile loop, each with the command that releases it, then what the loop can't do."""
    found = part(document, "reconcile")
    if not found:
        return
    where, command, log = document["name"], "./hpc ssh STACK controller --", "./hpc logs STACK reconcile"
    if found["why"] and not found["why"].startswith(_YOUNG):
        what = f"the reconcile loop deletes nothing and sets no node down: {found['why']}"
        yield MachineFinding("reconcile-blind", where, what, log)
    elif not is_active(row := unit(document, "hpc-reconcile")):
        what = f"hpc-reconcile {state_of(row)}: machines of elastic nodes may not come, and none is repaired"
        yield MachineFinding(
            "reconcile-blind", where, what, f"{command} systemctl restart hpc-reconcile", "", row["since"]
        )
    for brake in found["brakes"]:
        mode = brake["brake"].startswith("mode: ")
        yield MachineFinding(
            id="reconcile-mode" if mode else "reconcile-brake",
            where=where,
            what=f"the reconcile loop is held by {brake['brake']}: {brake['text']}",
            todo="./hpc up STACK" if mode else f"{command} {brake['todo']}",
            note="With slurm.reconcile.mode: act in the stack file." if mode else "",
        )
    for reason in found["cooling"].values():
        yield MachineFinding(
            id="no-capacity",
            where=where,
            what=reason.removeprefix("hpc: "),
            todo=f"{command} hpc-reconcile lift",
            note="That tries it at once; by itself it is tried at the time given.",
        )
    for name, since in found.get("waits", {}).items():
        hours = (document["time"] - since) / 3600
        yield MachineFinding(
            id="repair-waits",
            where=name,
            what=f"{name} is repaired, and waits for an idle node to run the NCCL test with, for {hours:.1f} h",
            todo=f"./hpc nodes STACK resume {name}",
            note="That returns it to jobs without the test; by itself it is measured as soon as a node is idle.",
        )
    for alert in found["alerts"]:
        yield MachineFinding("reconcile-alert", alert["node"], f"needs a person: {alert['what']}", alert["todo"])


def budget(document: Document) -> Iterator[MachineFinding]:
    """Yield the budget, if it is used, or will be at the end of the month at today's rate."""
    found = part(document, "budget")
    if not found or not (found["used"] or found["expected"] > found["budget"]):
        return
    since = f" since {time.strftime('%Y-%m-%d', time.gmtime(found['since']))}" if found["since"] else ""
    unknown = f". Without a price, in no sum: {', '.join(found['unpriced'])}" if found["unpriced"] else ""
    yield MachineFinding(
        id="budget-used" if found["used"] else "budget-rate",
        where=document["name"],
        what=f"{found['spent']:,.0f} of the budget of {found['budget']:,.0f} {found['currency']} for {found['month']} "
        f"are spent{since}; what is always on brings it to {found['least']:,.0f} by the end of the month, all that "
        f"exists now ({found['hour']:,.2f} an hour) to {found['expected']:,.0f}{unknown}",
        todo="./hpc usage STACK --money",
        note="No machine of an elastic node is created until the month ends, or `budget` in the stack file is higher."
        if found["refuses"]
        else "",
    )


CHECKS = (daemons, reconcile, slurm, hours, budget, places, killed)


def findings(document: Document) -> Iterator[MachineFinding]:
    """Yield the findings of a cluster."""
    for check in CHECKS:
        yield from check(document)
