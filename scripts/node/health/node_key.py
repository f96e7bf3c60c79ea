"""By which settings are kept for all nodes of a nodeset. The stack's side uses it too."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"-[0-9]+$")


def key(name: str) -> str:
    """The host name without its number; the controller's own name where it is a node."""
    return _NUMBER.sub("", name)
