"""Which resource created a stack's folder or network last.

A forced replacement (`pulumi up --replace URN`) creates the new resource before it deletes the old one, and here both
are the same folder or bridge. So each creation records a claim, and a deletion with an older claim keeps it.
"""

import secrets
import shutil

from components.local.host.locks import write_atomically
from components.local.host.paths import StackPaths

KEY = "claim"
"""The output that has it."""


def make(paths: StackPaths, what: str, claim: str | None = None) -> str:
    """Record a claim, a new one if none is given; returns it."""
    claim = claim or secrets.token_hex(8)
    write_atomically(paths.claims / what, claim)
    return claim


def holds(paths: StackPaths, what: str, claim: str | None) -> bool:
    """Whether no other claim was recorded since. What earlier versions made has none."""
    try:
        return (paths.claims / what).read_text(encoding="utf-8") == claim
    except FileNotFoundError:
        return True


def remove(paths: StackPaths, what: str) -> None:
    (paths.claims / what).unlink(missing_ok=True)


def remove_all(paths: StackPaths) -> None:
    """Remove all claims of a stack of which nothing is left."""
    shutil.rmtree(paths.claims, ignore_errors=True)
