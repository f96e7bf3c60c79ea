"""A healthy cluster as its machines reported it, for tests that then break something in it.

`facts` holds what `look` printed on a controller, a login machine and a node of a real cluster of two nodes.
"""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from judge import findings as judge

from cluster.findings import ClusterFinding
from cluster.observe import status_findings
from cluster.observe.observation import ClusterObservation, MachineObservation, Observation

FACTS = Path(__file__).parents[1] / "facts"
ROLES = {"controller": "controller", "login-0": "login", "cpu-0": "node", "cpu-1": "node"}
NOW = 1795242470.0


def machine(name: str, role: str) -> MachineObservation:
    """One machine; nodes are alike but for their names."""
    facts: Observation = json.loads((FACTS / f"{role}.json").read_text())
    facts["name"], facts["time"] = f"hc-{name}", NOW
    return MachineObservation(
        name=f"hc-{name}", roles=(role,), reached=True, facts=facts, asked=NOW - 0.5, answered=NOW + 0.5
    )


def healthy(nodes: int = 2) -> ClusterObservation:
    """All machines, of which nothing is wrong."""
    names = {"controller": "controller", "login-0": "login", **{f"cpu-{n}": "node" for n in range(nodes)}}
    seen = ClusterObservation(stack="hc", machines=tuple(machine(name, role) for name, role in names.items()))
    rows: dict[str, Any] = facts(seen, "controller")["slurm"]["nodes"]
    for number in range(nodes):
        rows[f"hc-cpu-{number}"] = copy.deepcopy(rows["hc-cpu-0"])
    return seen


def facts(seen: ClusterObservation, name: str) -> dict[str, Any]:
    """The facts of a machine, to change them."""
    return cast("dict[str, Any]", next(observed for observed in seen.machines if observed.name == f"hc-{name}").facts)


def without(seen: ClusterObservation, name: str, why: str = "no answer within 8 s") -> ClusterObservation:
    """The same, where one machine does not answer."""
    lost = [
        MachineObservation(name=observed.name, roles=observed.roles, reached=False, why=why)
        if observed.name == f"hc-{name}"
        else observed
        for observed in seen.machines
    ]
    return ClusterObservation(stack=seen.stack, machines=tuple(lost))


def judged(seen: ClusterObservation) -> ClusterObservation:
    """The same, where each machine that reports has decided on its findings."""
    for observed in seen.machines:
        if observed.facts:
            document = {"name": observed.name, "roles": [*observed.roles], "time": NOW, **observed.facts}
            rows = [finding._asdict() for finding in judge.findings(document)]
            cast("dict[str, Any]", observed.facts)["findings"] = json.loads(json.dumps(rows))
    return seen


def findings(seen: ClusterObservation) -> list[ClusterFinding]:
    """The findings of `status`."""
    return status_findings.findings(judged(seen))


def only(seen: ClusterObservation) -> ClusterFinding:
    """The one finding that there is."""
    found = findings(seen)
    assert [finding.id for finding in found] == [found[0].id]
    return found[0]


def stop(seen: ClusterObservation, machine: str, unit: str, **more: Any) -> None:
    """A daemon does not run."""
    facts(seen, machine)["daemons"][unit].update({"state": "inactive", "sub": "dead", "since": NOW - 60, **more})


def silence(seen: ClusterObservation) -> None:
    """slurmctld answers nothing."""
    slurm = facts(seen, "controller")["slurm"]
    slurm.update({name: {"error": "nothing listens on slurmctld's port 6817"} for name in slurm if name != "database"})


def state(seen: ClusterObservation, node: str, **row: str) -> None:
    """What slurmctld says of a node."""
    facts(seen, "controller")["slurm"]["nodes"][f"hc-{node}"].update(row)


Change = Callable[[ClusterObservation], ClusterObservation | None]
"""Of an observation that is given, or to another."""


def part(machine: str, *path: str, **values: Any) -> Change:
    """A change of a part of a machine's document."""

    def change(seen: ClusterObservation) -> None:
        found = facts(seen, machine)
        for key in path:
            found = found.setdefault(key, {})
        found.update(values)

    return change
