"""A target: one machine or pod of a cluster, as the stack's outputs describe it, and what every driver has."""

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
    """True if it is a machine of this host, so that what goes there does not leave it."""
    row: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The outputs' whole row of the target, for the driver of its method."""

    @property
    def direct(self) -> bool:
        """True if its SSH server answers here, with nothing in between."""
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
        here=bool(row.get("here")),
        row=row,
    )


Argv = Callable[..., list[str]]
"""argv(target, user, command, terminal=False): the program and arguments that run a command as a user on a target.

No command is the user's login shell. One single word that could not be a program's name is a line for a shell."""


class Driver(ABC):
    """Reaches the targets of one method. What its program ends with if a target is not reached is UNREACHED."""

    needs_admin_key = False
    """True if the driver logs in with the stack's admin key."""
    own: re.Pattern[str] | None = None
    """Beginnings of lines that the program itself prints on standard error, where it has messages and exit codes of its
    own beside the command's."""
    last: re.Pattern[str] | None = None
    """The program's last line once the command has failed; behind the command's own last words, if those had no line
    break."""

    @abstractmethod
    def connect(self, targets: Sequence[Target], admin_key: str, *, seconds: float) -> AbstractContextManager[Argv]:
        """Return what gives the argv for these targets, while their connections are open; CliError if it can't be used
        here.

        A target that does not answer within `seconds` is given up.
        """

    def prometheus(self, target: Target, admin_key: str, port: int) -> AbstractContextManager[tuple[Path, str]]:
        """Have what answers queries as Prometheus does, by default on this port of the target, as a socket of this
        user's alone: its path, and the path of the API behind it. Raises CliError: it can't be reached."""
        del admin_key, port
        raise CliError(f"Prometheus is not reached by the connection method of {target.name}, {target.method}")

    @staticmethod
    def extra_seconds(target: Target) -> float:  # noqa: ARG004
        """Return how much longer this target may take to reach than one that answers here."""
        return 0

    @staticmethod
    @abstractmethod
    def explain(target: Target, stderr: str) -> str:
        """Return why a target was not reached, on one line, from what the program printed."""

    @classmethod
    def outcome(cls, code: int, stderr: str) -> tuple[int, str]:
        """The command's own exit code and standard error; UNREACHED where the program failed itself."""
        return code, stderr

    @staticmethod
    def over_ssh(target: Target, seconds: float) -> Target:  # noqa: ARG004
        """A login target as SSH reaches it from here, looked up now. Raises CliError: it has no address."""
        return target
