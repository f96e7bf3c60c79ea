"""The end of a unit's journal, shortened."""

import re
from collections.abc import Sequence

_TELLING = re.compile(r"error|fatal|fail|killed|exited|denied|refused|no space|cannot|can't|unable", re.IGNORECASE)
# What systemd says of every unit, whatever becomes of it.
_SAID_OF_ALL = re.compile(
    r"(Start(ed|ing)|Stopp(ed|ing)) .*|Failed to start .*"
    r"|.*(Scheduled restart job|Deactivated successfully|Consumed |Failed with result ).*"
)
_LINES = 2
_LONGEST = 160


def last_words(lines: Sequence[str]) -> str:
    """The last lines about errors, else the last one of the daemon itself; may be empty."""
    own = [line.strip().rstrip(".") for line in lines if line.strip() and not _SAID_OF_ALL.match(line)]
    telling = [line for line in own if _TELLING.search(line)]
    return "; ".join(
        line if len(line) <= _LONGEST else line[:_LONGEST] + "..." for line in (telling or own[-1:])[-_LINES:]
    )
