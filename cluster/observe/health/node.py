"""What slurmctld says of a node, taken apart."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from cluster.observe.nodes import Node

DOWN = {"DOWN", "NOT_RESPONDING", "NO_RESPOND", "FAIL", "ERROR", "INVALID_REG", "UNKNOWN", "FUTURE"}
"""States of sinfo(1) in which a node takes no job although nobody asked for that."""
ASLEEP = {"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP", "POWER_UP", "CLOUD", "PLANNED", "REBOOT_ISSUED"}
_SIGNED = re.compile(r"^(?P<text>.*?)\s*\[(?P<by>[^\[\]@]+)@(?P<at>[0-9T:-]+)\]$", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """One node, as `scontrol show node` has it."""

    name: str
    states: frozenset[str]
    """Base state and flags; NOT_RESPONDING for the star that scontrol puts behind a state."""
    reason: str
    by: str
    """Who gave the reason: a user, or slurm itself."""
    since: float | None
    """When it was given; seconds since the epoch."""

    @property
    def drained(self) -> bool:
        """Whether it takes no new jobs because somebody, or slurmctld, said so."""
        return "DRAIN" in self.states

    @property
    def down(self) -> bool:
        """Whether it is lost to slurmctld."""
        return bool(self.states & DOWN) and not self.states & ASLEEP

    @property
    def silent(self) -> bool:
        """Whether it does not answer slurmctld."""
        return bool(self.states & {"NOT_RESPONDING", "NO_RESPOND"})

    @property
    def state(self) -> str:
        """The states in a word or two, as sinfo says them: idle, mixed, drained, down*."""
        return Node(name=self.name, states=self.states).word


def view(name: str, row: Mapping[str, str]) -> NodeView:
    """A node from its row of the facts; Slurm printed its times in UTC."""
    raw = row.get("State", "UNKNOWN").replace("*", "+NOT_RESPONDING")
    signed = _SIGNED.match(row.get("Reason", ""))
    return NodeView(
        name=name,
        states=frozenset(raw.rstrip("~#!%$@^-").split("+")),
        reason=signed["text"] if signed else row.get("Reason", ""),
        by=signed["by"] if signed else "",
        since=_time(signed["at"]) if signed else None,
    )


def _time(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None
