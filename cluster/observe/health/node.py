"""What slurmctld says of a node, taken apart."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from cluster.slurm.node_states import InStates, parse

_SIGNED = re.compile(r"^(?P<text>.*?)\s*\[(?P<by>[^\[\]@]+)@(?P<at>[0-9T:-]+)\]$", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class NodeView(InStates):
    """One node, as `scontrol show node` has it."""

    name: str
    states: frozenset[str]
    reason: str
    by: str
    """Who gave the reason: a user, or slurm itself."""
    since: float | None
    """When it was given; seconds since the epoch."""

    @property
    def state(self) -> str:
        """The states in a word or two, as sinfo says them: idle, mixed, drained, down*."""
        return self.word


def view(name: str, row: Mapping[str, str]) -> NodeView:
    """A node from its row of the facts; Slurm printed its times in UTC."""
    signed = _SIGNED.match(row.get("Reason", ""))
    return NodeView(
        name=name,
        states=parse(row.get("State", "UNKNOWN")),
        reason=signed["text"] if signed else row.get("Reason", ""),
        by=signed["by"] if signed else "",
        since=_time(signed["at"]) if signed else None,
    )


def _time(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None
