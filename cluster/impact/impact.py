"""What changing a field does to running jobs: the words for it, from harmless to impossible."""

from dataclasses import dataclass
from enum import Enum

UP = "./hpc up {stack}"


class Effect(str, Enum):
    """In order of harm to running jobs."""

    NOTHING = "nothing"
    """Jobs and Slurm don't notice."""
    RECONFIGURE = "reconfigure"
    """slurmctld reads its files again, as by `scontrol reconfigure`."""
    RESTART = "restart"
    """slurmctld, and where it must slurmd, starts anew. Jobs run on."""
    DRAIN = "drain"
    """Nodes take no new jobs, and `up` waits until theirs have ended."""
    REPLACE = "replace"
    """Machines are removed or made anew. Nodes are drained first."""
    REFUSED = "refused"
    """`up` does not begin: it can't be changed on a living cluster."""

    @property
    def harm(self) -> int:
        """Position in the order of harm."""
        return list(Effect).index(self)

    @property
    def sentence(self) -> str:
        """What an edit does whose worst effect this is."""
        return _SENTENCES[self]


_SENTENCES = {
    Effect.NOTHING: "Running jobs do not notice this edit.",
    Effect.RECONFIGURE: "Running jobs go on: slurmctld only reads its files again.",
    Effect.RESTART: "Running jobs go on: slurmctld restarts, and for some seconds sbatch, srun and squeue wait for it.",
    Effect.DRAIN: "Nodes are drained: jobs that run there finish, and `up` waits for them before it changes anything.",
    Effect.REPLACE: "Machines are removed or made anew: read below which, and what becomes of the jobs there.",
    Effect.REFUSED: "`up` refuses this edit: it can't be made on a living cluster.",
}


@dataclass(frozen=True, kw_only=True)
class Consequence:
    """What one edit does, why, and what to type."""

    effect: Effect
    reason: str
    command: str = UP
    """`{stack}` stands for the stack's name."""


def nothing(reason: str, command: str = UP) -> Consequence:
    """Jobs and Slurm don't notice."""
    return Consequence(effect=Effect.NOTHING, reason=reason, command=command)


def reconfigure(reason: str, command: str = UP) -> Consequence:
    """slurmctld reads its files again."""
    return Consequence(effect=Effect.RECONFIGURE, reason=reason, command=command)


def restart(reason: str, command: str = UP) -> Consequence:
    """Daemons start anew."""
    return Consequence(effect=Effect.RESTART, reason=reason, command=command)


def drain(reason: str, command: str = UP) -> Consequence:
    """`up` waits until nodes are empty."""
    return Consequence(effect=Effect.DRAIN, reason=reason, command=command)


def replace(reason: str, command: str = UP) -> Consequence:
    """Machines go, or are made anew."""
    return Consequence(effect=Effect.REPLACE, reason=reason, command=command)


def refused(reason: str, command: str = "./hpc destroy {stack} && ./hpc up {stack}") -> Consequence:
    """`up` does not begin."""
    return Consequence(effect=Effect.REFUSED, reason=reason, command=command)
