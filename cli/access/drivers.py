"""Which driver reaches a target: one for each method that a stack's outputs may name."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from cli.access.kubectl import Kubectl
from cli.access.ssh import Ssh
from cli.access.ssh_config import IAP
from cli.cluster.target import Target
from cli.errors import CliError

LOOK_UP_SECONDS = 20
"""For each question to a cluster that a target's address is asked of."""
Argv = Callable[..., list[str]]
"""argv(target, user, command, terminal=False): the program and arguments that run a command as a user on a target.

No command is the user's login shell. One single word that could not be a program's name is a line for a shell."""


class Driver(Protocol):
    """Reaches the targets of one method. What its program ends with if a target is not reached is UNREACHED."""

    needs_admin_key: bool
    """Whether it logs in with the stack's admin key."""

    def connected(self, targets: Sequence[Target], admin_key: str, *, seconds: float) -> AbstractContextManager[Argv]:
        """What gives the argv for these targets, while their connections are open; CliError if it can't be used here.

        A target that does not answer within `seconds` is given up.
        """
        ...

    def extra_seconds(self, target: Target) -> float:
        """How much longer this target may take to reach than one that answers here."""
        ...

    def explain(self, target: Target, stderr: str) -> str:
        """Why a target was not reached, on one line, from what the program printed."""
        ...


@runtime_checkable
class Indirect(Protocol):
    """A driver whose program has exit codes and messages of its own beside the command's, and login targets with an SSH
    server besides."""

    own: re.Pattern[str]
    """How lines begin that the program prints itself on standard error."""
    last: re.Pattern[str]
    """What it prints last once the command has failed; behind the command's own last words, if those had no line
    break."""

    def outcome(self, code: int, stderr: str) -> tuple[int, str]:
        """The command's own exit code and standard error; UNREACHED where the program failed itself."""
        ...

    def over_ssh(self, target: Target, seconds: float) -> Target:
        """A login target as SSH reaches it from here, looked up now. Raises CliError: it has no address."""
        ...


_SSH = Ssh()
DRIVERS: Mapping[str, Driver] = {"ssh": _SSH, IAP: _SSH, "kubectl": Kubectl()}
"""Drivers by method. A platform with another way to reach its targets adds its method here."""


def driver_of(target: Target) -> Driver:
    """The driver of a target's method. Raises CliError: this version has none, as when a newer one brought the stack
    up."""
    if target.method not in DRIVERS:
        raise CliError(
            f"{target.name} is reached by {target.method!r}, and this version can use {', '.join(DRIVERS)} only. "
            "Use the version that brought the stack up."
        )
    return DRIVERS[target.method]
