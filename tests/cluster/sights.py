"""A healthy cluster as its machines told of themselves, for tests that then break something in it.

`facts` holds what `look` printed on a controller, a login machine and a node of a real cluster of two nodes.
"""

import copy
import json
from pathlib import Path
from typing import Any

from cluster.observe.health import Finding, Sight, Sights, findings

FACTS = Path(__file__).parent / "facts"
ROLES = {"controller": "controller", "login-0": "login", "cpu-0": "node", "cpu-1": "node"}
NOW = 1795242470.0


def machine(name: str, role: str) -> Sight:
    """One machine; nodes are alike but for their names."""
    facts: dict[str, Any] = json.loads((FACTS / f"{role}.json").read_text())
    facts |= {"name": f"hc-{name}", "time": NOW}
    return Sight(name=f"hc-{name}", roles=(role,), reached=True, facts=facts, asked=NOW - 0.5, answered=NOW + 0.5)


def healthy(nodes: int = 2) -> Sights:
    """All machines, of which nothing is wrong."""
    names = {"controller": "controller", "login-0": "login", **{f"cpu-{n}": "node" for n in range(nodes)}}
    seen = Sights(stack="hc", machines=tuple(machine(name, role) for name, role in names.items()))
    rows: dict[str, Any] = facts(seen, "controller")["slurm"]["nodes"]
    for number in range(nodes):
        rows[f"hc-cpu-{number}"] = copy.deepcopy(rows["hc-cpu-0"])
    return seen


def facts(seen: Sights, name: str) -> dict[str, Any]:
    """The facts of a machine, to change them."""
    found = next(one for one in seen.machines if one.name == f"hc-{name}").facts
    assert isinstance(found, dict)
    return found


def without(seen: Sights, name: str, why: str = "no answer within 8 s") -> Sights:
    """The same, where one machine does not answer."""
    lost = [
        Sight(name=one.name, roles=one.roles, reached=False, why=why) if one.name == f"hc-{name}" else one
        for one in seen.machines
    ]
    return Sights(stack=seen.stack, machines=tuple(lost))


def only(seen: Sights) -> Finding:
    """The one finding that there is."""
    found = findings(seen)
    assert [one.id for one in found] == [found[0].id]
    return found[0]


def stop(seen: Sights, machine: str, unit: str, **more: Any) -> None:
    """A daemon does not run."""
    facts(seen, machine)["daemons"][unit].update({"state": "inactive", "sub": "dead", "since": NOW - 60, **more})


def silence(seen: Sights) -> None:
    """slurmctld answers nothing."""
    slurm = facts(seen, "controller")["slurm"]
    slurm.update({name: {"error": "nothing listens on slurmctld's port 6817"} for name in slurm if name != "database"})


def state(seen: Sights, node: str, **row: str) -> None:
    """What slurmctld says of a node."""
    facts(seen, "controller")["slurm"]["nodes"][f"hc-{node}"].update(row)
