"""One thing that is not as the stack says."""

from dataclasses import dataclass
from typing import Literal

Mends = Literal["mend", "up", "hand"]
NOTHING = "(nothing)"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Where, what, what the stack says, what is there, and who puts it right."""

    id: str
    """Its kind, for programs: kebab-case, and kept from version to version."""
    where: tuple[str, ...]
    """Names of the machines."""
    what: str
    """Which thing: `slurm.conf, line 12`, `user alice: shell`."""
    stack: str
    there: str
    mends: Mends = "mend"
    """`./hpc drift --mend`, `./hpc up`, or a hand."""
    sacctmgr: tuple[str, ...] = ()
    """The words that put it right in Slurm's database, where that takes more than the set-up's own phase."""
