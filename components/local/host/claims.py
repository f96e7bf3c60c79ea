"""Who made a thing of a stack last.

A replacement that somebody asks for (`pulumi up --replace URN`) makes the new one before it deletes the old one, and
here both are the same folder or bridge: with every file of a shared folder, with every machine of a network. So each
creation lays claim to its thing, and a deletion on behalf of an earlier one leaves it alone.
"""

import secrets
import shutil

from components.local.host.locks import write_atomically
from components.local.host.paths import StackPaths

KEY = "claim"
"""The output that has it."""


def lay(paths: StackPaths, what: str, claim: str | None = None) -> str:
    """Lay a claim to a thing of the stack, a new one if none is given; the claim."""
    claim = claim or secrets.token_hex(8)
    write_atomically(paths.claims / what, claim)
    return claim


def holds(paths: StackPaths, what: str, claim: str | None) -> bool:
    """Whether nobody has laid another claim to it since. What an earlier version of ours made has none."""
    try:
        return (paths.claims / what).read_text(encoding="utf-8") == claim
    except FileNotFoundError:
        return True


def give_up(paths: StackPaths, what: str) -> None:
    """Take a claim away, together with its thing."""
    (paths.claims / what).unlink(missing_ok=True)


def remove_all(paths: StackPaths) -> None:
    """Take away all claims of a stack of which nothing is left."""
    shutil.rmtree(paths.claims, ignore_errors=True)
