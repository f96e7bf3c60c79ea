"""What runs the pods of a Slurm cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from lab.soperator.wanted import Wanted

NO_ADDRESS = "192.0.2.10"
"""Of the network that is set aside for examples (RFC 5737)."""


@dataclass(frozen=True, kw_only=True)
class State:
    """What is there of a Slurm cluster."""

    addresses: Mapping[str, str] = field(default_factory=dict)
    """Of each machine that runs, by the name of its pod."""
    busy: str = ""
    """What is being done, if it is not yet as wanted."""
    problem: str = ""
    """Why the last attempt failed."""


class Machines(Protocol):
    """Machines that stand for pods."""

    def ensure(self, wanted: Wanted, pods: Mapping[str, str]) -> State:
        """Begin what leads there, and return what is there by now. `pods` are the pods that have a node, with the
        machine type of it."""
        ...

    def remove(self) -> bool:
        """Begin to remove all; True when nothing is left."""
        ...


class NoMachines:
    """Only statuses: nothing can be run in the pods."""

    def ensure(self, wanted: Wanted, pods: Mapping[str, str]) -> State:  # noqa: ARG002
        """All of them are there at once."""
        return State(addresses=dict.fromkeys(pods, NO_ADDRESS))

    def remove(self) -> bool:
        """Nothing is to be removed."""
        return True
