"""What a stack says, in the form in which machines tell what they have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The cluster as its stack has it."""

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
