"""A target (one machine or pod of a cluster, as the stack's outputs describe it) and the interface of drivers."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli.errors import CliError

UNREACHED = 255
"""ssh's own exit code, which a command on a target may have as well."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A machine or pod where commands run."""

    name: str
    method: str
    """The connection method; cli/access/remote.py has a driver for each."""
    roles: tuple[str, ...] = ()
    """Its roles: controller, login, monitoring, node."""
    address: str = ""
    port: int = 22
    host_key: str = ""
    """The public SSH host key, as a line of known_hosts has it after the name. Empty where only the jump host has
    it."""
    jump: "Target | None" = None
    """The jump host, if it does not answer here."""
    here: bool = False
    """True if it is a machine on this host, so that its connections do not leave the host."""
    row: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The outputs' whole row of the target, for the driver of its method."""

    @property
    def direct(self) -> bool:
        """True if its SSH server can be reached from here without a jump host or proxy."""
        return self.method == "ssh" and not self.jump


def read_targets(outputs: Mapping[str, Any]) -> dict[str, Target]:
    """Return the targets of a stack's outputs, by name."""
    rows = outputs.get("targets") or {}
    if kubernetes := outputs.get("kubernetes"):
        # All targets share this output, but a driver only gets the row of its target.
        rows = {name: {**row, "kubernetes": kubernetes} for name, row in rows.items()}
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
        here=bool(row.get("here")),
        row=row,
    )


Argv = Callable[..., list[str]]
"""argv(target, user, command, terminal=False) returns the program and arguments that run a command as a user on a
target. An empty command is the user's login shell. A command of one word that can't be a program's name is a line for a
shell."""


class Driver(ABC):
    """Reaches the targets of one method. The exit code UNREACHED means that a target was not reached."""

    needs_admin_key = False
    """True if the driver logs in with the stack's admin key."""
    own_line: re.Pattern[str] | None = None
    """Matches the beginning of lines that the program itself prints on standard error, if it has messages and exit
    codes of its own beside the command's."""
    last_line: re.Pattern[str] | None = None
    """Matches the program's last line after a command that failed. The command's own last line is in front of it if
    that had no line break."""

    @abstractmethod
    def connect(self, targets: Sequence[Target], admin_key: str, *, seconds: float) -> AbstractContextManager[Argv]:
        """Open connections to these targets. Yields the function that returns the argv for one. Raises CliError: the
        driver can't be used here.

        A target that does not answer within `seconds` is given up.
        """

    def prometheus(self, target: Target, admin_key: str, port: int) -> AbstractContextManager[tuple[Path, str]]:
        """Forward a socket, which only this user can open, to what answers Prometheus' queries, by default this port of
        the target. Yields the socket's path and the path of the API behind it. Raises CliError: it can't be reached."""
        del admin_key, port
        raise CliError(f"Prometheus is not reached by the connection method of {target.name}, {target.method}")

    @staticmethod
    def extra_seconds(target: Target) -> float:  # noqa: ARG004
        """Return how many seconds longer this target may take to reach than one without a jump host or proxy."""
        return 0

    @staticmethod
    @abstractmethod
    def explain(target: Target, stderr: str) -> str:
        """Return why a target was not reached, on one line, from what the program printed."""

    @classmethod
    def outcome(cls, code: int, stderr: str) -> tuple[int, str]:
        """Return the command's own exit code and standard error; UNREACHED if the program itself failed."""
        return code, stderr

    @staticmethod
    def ssh_target(target: Target, seconds: float) -> Target:  # noqa: ARG004
        """Return a login target with its present SSH address. Raises CliError: it has no address."""
        return target
