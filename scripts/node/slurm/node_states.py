"""States of nodes as slurmctld has them, and nodes that this set-up has drained."""

from __future__ import annotations

from typing import TypedDict

from slurm.output import rows, signed
from system.host import SetupError, log, run

# States in which a node takes or runs jobs, and those in which it does not; cluster/slurm/node_states.py has them all.
WORKING = {"IDLE", "MIXED", "ALLOCATED", "COMPLETING"}
BROKEN = {
    "DOWN", "DRAIN", "ERROR", "FAIL", "FUTURE", "INVALID_REG", "NOT_RESPONDING", "NO_RESPOND", "POWERED_DOWN",
    "REBOOT_ISSUED", "UNKNOWN",
}  # fmt: skip
# Why a node was drained here (drain.py), and that it may be resumed as soon as it is there. Known by these texts, also
# to other versions.
LEAVES = "hpc: leaves the cluster"
RESHAPED = "hpc: gets other sockets, cores or GPUs"
REMADE = "hpc: its machine is made anew"
OURS = (LEAVES, RESHAPED, REMADE)


class State(TypedDict):
    """What slurmctld says of a node."""

    states: set[str]
    reason: str


def states() -> dict[str, State]:
    """Every node's states and reason."""
    return parse(run("scontrol", "--oneliner", "--all", "show", "node"))


def parse(text: str) -> dict[str, State]:
    """The output of `scontrol --oneliner show node`. The star of `IDLE*+DRAIN` marks a node that does not answer."""
    return {
        row["NodeName"]: State(
            states=set(row.get("State", "UNKNOWN").replace("*", "+NOT_RESPONDING").split("+")),
            reason=signed(row.get("Reason", ""))[0],
        )
        for row in rows(text)
        if "NodeName" in row
    }


def resume(names: list[str]) -> None:
    """Resume nodes that slurmctld holds although they answer."""
    for name in names:
        try:
            run("scontrol", "update", f"NodeName={name}", "State=RESUME")
        except SetupError:
            # slurmctld refuses it for a node that has just registered, and so is in service by itself.
            if states().get(name, State(states={"DOWN"}, reason=""))["states"] & {"DOWN", "DRAIN"}:
                raise
            continue
        log(f"resumed {name}")
