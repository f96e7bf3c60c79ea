"""`./hpc status`."""

from dataclasses import asdict
from typing import Any

from typer import Exit

from cli import console, observers, options
from cli.cluster.cluster import connect
from cli.cluster.observation import observe
from cli.display import status_screen
from cluster.capability import Capability
from cluster.findings import ClusterFinding
from cluster.observe.observation import ClusterObservation
from cluster.observe.status_findings import findings
from cluster.platforms.observers import observer_of


def status(stack: options.Stack, *, timeout: options.Timeout = None, json: options.Json = False) -> None:
    """Show how the cluster is: what is wrong with it, its nodes, queue, daemons and storage.

    Machines are asked side by side, those of a rehearsal a few at a time, and nothing is changed. Each is given eight
    seconds; those that are there and late are asked once more, for 24 seconds. Of a cluster of pods, each question to
    kubectl is given 20 seconds. Exit code 0 when all is well, 1 when there is something to look at.

    JSON: {stack, ok, findings [{id, severity, where, what, todo, note, since}], machines {name: {roles, reached,
    late, why, facts}}}; times are seconds since the epoch. An id stands for a kind of fault, and stays.
    """
    cluster = connect(stack, Capability.STATUS)
    if observer := observer_of(cluster.outputs):
        with observers.open_access(cluster, timeout) as access:
            report = observer.status(access)
        raise Exit(observers.print_report(report, json=json))
    observation = observe(cluster, seconds=timeout)
    problems = findings(observation)
    if json:
        console.json(_document(observation, problems))
    else:
        status_screen.show(observation, problems)
    raise Exit(1 if problems else 0)


def _document(observation: ClusterObservation, problems: list[ClusterFinding]) -> dict[str, Any]:
    machines = {
        machine.name: {
            "roles": machine.roles,
            "reached": machine.reached,
            "late": machine.late,
            "why": machine.why,
            "facts": {name: value for name, value in machine.facts.items() if name not in ("name", "roles")},
        }
        for machine in observation.machines
    }
    rows = [asdict(finding) for finding in problems]
    return {"stack": observation.stack, "ok": not problems, "findings": rows, "machines": machines}
