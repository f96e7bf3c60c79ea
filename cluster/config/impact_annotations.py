"""Annotations of a field with the effect of its edits on running jobs. An impact that depends on the edit is a rule in
cluster/impact/rules.py, by the pattern of the field."""

from dataclasses import dataclass
from enum import Enum
from functools import partial

UP = "./hpc up {stack}"


class Effect(str, Enum):
    """Effects of edits, in order of harm to running jobs."""

    NOTHING = "nothing"
    """Jobs and Slurm are not affected."""
    RECONFIGURE = "reconfigure"
    """slurmctld reads its files again, as by `scontrol reconfigure`."""
    RESTART = "restart"
    """slurmctld, and slurmd where needed, restarts. Jobs run on."""
    DRAIN = "drain"
    """Nodes take no new jobs, and `up` waits until theirs have ended."""
    REPLACE = "replace"
    """Machines are removed or recreated. Nodes are drained first."""
    REFUSED = "refused"
    """`up` does not begin: a running cluster can't be changed this way."""

    @property
    def harm(self) -> int:
        """The position in the order of harm."""
        return list(Effect).index(self)

    @property
    def sentence(self) -> str:
        """The effect as a sentence, for an edit whose worst effect this is."""
        return _SENTENCES[self]


_SENTENCES = {
    Effect.NOTHING: "Running jobs are not affected by this edit.",
    Effect.RECONFIGURE: "Running jobs go on: slurmctld only reads its files again.",
    Effect.RESTART: "Running jobs go on: slurmctld restarts, and for some seconds sbatch, srun and squeue wait for it.",
    Effect.DRAIN: "Nodes are drained: jobs that run there finish, and `up` waits for them before it changes anything.",
    Effect.REPLACE: "Machines are removed or recreated: the lines below say which, and what happens to jobs there.",
    Effect.REFUSED: "`up` refuses this edit: a running cluster can't be changed this way.",
}


@dataclass(frozen=True)
class Impact:
    """An edit's effect, the reason, and the command to type."""

    effect: Effect
    reason: str
    command: str = UP
    """`{stack}` stands for the stack's name."""
    by_image: bool = False
    """True if machines get another image, in the steps of cluster/impact/upgrade.py."""


NoEffect = partial(Impact, Effect.NOTHING)
Reconfigure = partial(Impact, Effect.RECONFIGURE)
Restart = partial(Impact, Effect.RESTART)
Drain = partial(Impact, Effect.DRAIN)
Replace = partial(Impact, Effect.REPLACE)
Refuse = partial(Impact, Effect.REFUSED, command="./hpc destroy {stack} && ./hpc up {stack}")
