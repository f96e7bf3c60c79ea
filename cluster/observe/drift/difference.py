"""What a stack says of its cluster, and one difference from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

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


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The cluster as its stack has it, in the form in which machines report what they have."""

    files: Mapping[str, str]
    """Slurm's files on the controller by name; slurmdbd.conf with a mark in place of its password."""
    users: Sequence[Mapping[str, Any]]
    """Unix users, as scripts/node/system/users.py takes them."""
    groups: Sequence[Mapping[str, Any]]
    accounting: Mapping[str, Any]
    """As scripts/node/accounting/accounts.py takes it."""
    scripts: Mapping[str, str] = field(default_factory=dict)
    """What must be in the tree of prologs and epilogs, as cluster.slurm.script_tree.expected gives it."""
    root_keys: Sequence[str] = ()
    """Hashes of the keys that the stack lets log in as root, besides the controller's own to the nodes."""
    nodes: Sequence[str]
    """Names in Slurm."""
    setup: str
    """Version of the set-up that this program brings."""
    setup_of_stack: str | None
    """Version that the last `up` brought; None where that is not known."""
