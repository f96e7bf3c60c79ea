"""A target: one machine or pod of a cluster, and how it is reached, as the stack's outputs describe it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where commands run."""

    name: str
    method: str
    """How it is reached; cli/access/remote.py has a driver for each method."""
    roles: tuple[str, ...] = ()
    """What it does: controller, login, node."""
    address: str = ""
    port: int = 22
    host_key: str = ""
    """Its public SSH host key, as a line of known_hosts has it after the name. Empty where only the jump host has
    it."""
    jump: "Target | None" = None
    """The jump host, if it does not answer here."""
    row: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """All that the outputs have of it, for the driver of its method."""

    @property
    def direct(self) -> bool:
        """Whether its SSH server answers here, with nothing in between."""
        return self.method == "ssh" and not self.jump


def read_targets(outputs: Mapping[str, Any]) -> dict[str, Target]:
    """The targets of a stack's outputs, by name."""
    rows = outputs.get("targets") or {}
    if shared := outputs.get("kubernetes"):
        # One for all of them, and each driver sees its target's row only.
        rows = {name: {**row, "kubernetes": shared} for name, row in rows.items()}
    return {name: _target(name, rows) for name in rows}


def _target(name: str, rows: Mapping[str, Any]) -> Target:
    row = rows[name]
    return Target(
        name=name,
        method=str(row["method"]),
        roles=tuple(row.get("roles") or ()),
        address=str(row.get("address") or ""),
        port=int(row.get("port") or 22),
        host_key=str(row.get("host_key") or "").strip(),
        jump=_target(row["jump"], rows) if row.get("jump") else None,
        row=row,
    )
