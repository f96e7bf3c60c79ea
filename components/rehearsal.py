"""The rehearsal of a stack on this machine: what a platform's module of `Platform.rehearsal` has."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Report = Callable[[str], None]


class RehearsalError(Exception):
    """The stack can't be rehearsed as asked; the text says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The arguments of the command."""

    stack: str
    file: Path
    """The stack's file."""
    nodes: int | None = None
    """Nodes of each nodeset."""
    cidr: str | None = None
    """Network of the machines."""
    kept: str | None = None
    """The network that the rehearsal has from the last time."""
    real_prolog: bool = False
    elastic: bool = False
    """Keep elastic nodesets so."""
    faults: bool = False
    """Faults are going to be played."""
    folder: Path
    """A folder for what belongs to the rehearsal besides its stack file and its state."""


class Rehearsal(ABC):
    """A stack's rehearsal: what the module's function `rehearse(config, request)` returns. It raises RehearsalError or
    HostError.

    A rehearsal that keeps something in the request's folder has a file `module` there, with the name of the module,
    whose functions `resume(folder, report)` and `remove(folder, report)` start again and remove what `start` started.
    """

    differences: Sequence[Mapping[str, Any]] = ()
    """Differences of Slurm's files, a row each: `text`, and `counted` for what follows from the number of nodes."""
    stood_in: Sequence[str] = ()
    """Other differences from production."""

    ssh: str = ""
    """Text after the stack's name in the example of `./hpc ssh`, with a space in front."""

    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """Return what the rehearsal's stack file has under `config`; after `start` it is complete."""

    def play_faults(self) -> int:
        """Have faults happen to the running rehearsal, and print what was lost; the exit code. Raises RehearsalError
        where there is no cloud whose faults could be played."""
        raise RehearsalError("there is no cloud whose faults could be played: leave out --faults")

    @abstractmethod
    def start(self, report: Report) -> None:
        """Start what the stack needs before it is brought up. Raises HostError."""
