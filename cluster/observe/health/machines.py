"""Machines that do not answer, are not set up, or are cut off from their controller."""

from collections.abc import Iterator, Mapping
from typing import Any

from cluster.observe.health.finding import Finding
from cluster.observe.health.journal import last_words
from cluster.observe.observation import ClusterObservation, MachineObservation


def unreachable(seen: ClusterObservation) -> Iterator[Finding]:
    """Controller and login machines that do not answer SSH; nodes have a finding of their own."""
    for one in seen.machines:
        if one.reached or one.late or one.roles == ("node",):
            continue
        loss = (
            "no job starts and nobody can ask for one; jobs that run go on"
            if "controller" in one.roles
            else "nobody can log in there"
        )
        kind = "controller machine" if "controller" in one.roles else "login machine"
        yield Finding(
            id="machine-unreachable",
            where=(one.name,),
            what=f"{kind} does not answer SSH ({one.why}): {loss}",
            todo=f"./hpc up {seen.stack}",
            note=f"It starts the machine again if it is not running; on Google Cloud after ./hpc refresh {seen.stack}.",
        )


def late(seen: ClusterObservation) -> Iterator[Finding]:
    """Machines that are there and gave no report, or a part of one, in time: nothing is known of what is missing."""
    todo = f"./hpc status {seen.stack} --timeout 60"
    silent = [one for one in seen.machines if one.late]
    if len(silent) == len(seen.machines) > 1:
        yield Finding(
            id="host-busy",
            where=tuple(one.name for one in silent),
            what=f"each accepts connections, and none gave a report ({silent[0].why}): this host is busy, or the "
            "network to them is slow. Nothing is known of the cluster",
            todo=todo,
        )
        return
    for one in seen.machines:
        if one.late or one.is_busy:
            yield Finding(
                id="machine-late",
                where=(one.name,),
                what=f"is there, and gave no report: {one.why}" if one.late else "gave a part of its report only",
                todo=todo,
                note="It or this host is busy, or it hangs. What is missing is not checked.",
            )


def not_set_up(seen: ClusterObservation) -> Iterator[Finding]:
    """Machines without the set-up, or with one that failed."""
    for one in seen.machines:
        if not one.reached:
            continue
        if not one.has_facts:
            yield Finding(
                id="setup-missing",
                where=(one.name,),
                what=f"has no set-up that can tell how it is ({one.why})",
                # `up` compares the stack with what it did last, and finds nothing to do where it was damaged since.
                todo=f"./hpc up {seen.stack}" if one.old else f"./hpc drift {seen.stack} --mend",
                note="" if one.old else "It brings the set-up again, and has the machine do its part.",
            )
        elif why := failure(one):
            yield Finding(
                id="setup-failed",
                where=(one.name,),
                what=f"its set-up failed: {why}",
                todo=f"./hpc ssh {seen.stack} {one.name} -- journalctl -u hpc-node -n 50",
                note="It is tried again by itself, every few seconds.",
                since=joining(one).get("since"),
            )


def cluster_state(seen: ClusterObservation) -> Iterator[Finding]:
    """A cluster state that can't be read: nodes apply no new config version, and their reports are lost."""
    for one in seen.machines:
        if why := one.part("board", "damaged"):
            yield Finding(
                id="board-damaged",
                where=(one.name,),
                what=f"the cluster state, from which nodes read their configuration, is damaged: {why}",
                todo=f"./hpc drift {seen.stack} --mend",
                note="The controller writes it again, and machines report again.",
            )


def failure(one: MachineObservation) -> str:
    """Why the set-up of a machine failed at its last try; empty where it did not."""
    report = one.report
    # A report of another boot says nothing about this one.
    if report.get("state") == "failed" and report.get("boot") == one.part("boot", "id"):
        return str(report.get("message", "")).strip()
    unit = joining(one)
    if unit.get("state") == "failed" or unit.get("sub") == "auto-restart":
        return last_words(unit.get("journal") or ()) or "its journal says nothing"
    return ""


def joining(one: MachineObservation) -> Mapping[str, Any]:
    """The unit by which a node sets itself up; empty on other machines."""
    return one.daemons.get("hpc-node") or {}


def cut_off(seen: ClusterObservation) -> Iterator[Finding]:
    """Machines that answer us but can't reach slurmctld, although it is up."""
    for one in seen.machines:
        port = one.controller
        if port.get("reached") is not False or not seen.slurmctld_answers:
            continue
        address = f"{port.get('host')}:{port.get('port')}"
        yield Finding(
            id="network-cut",
            where=(one.name,),
            what=f"answers SSH from here, but cannot reach the controller ({address}: {port.get('why', '')}), where "
            "slurmctld is up: the network between the two is cut",
            todo=f"./hpc ssh {seen.stack} {one.name} -- ping -c 3 {port.get('host')}",
            note="Look at its network and at firewalls between the two.",
        )
