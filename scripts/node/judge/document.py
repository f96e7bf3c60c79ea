"""Parts of the document that phase `look` prints (scripts/node/collect.py). Pure functions."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

LATE = re.compile("(no answer|did not end) within")
"""Text in documents about a command that did not end in time."""
_WITHOUT_DAEMON = ("boot", "followed", "setup", "unix", "keys")

_TELLING = re.compile(r"error|fatal|fail|killed|exited|denied|refused|no space|cannot|can't|unable", re.IGNORECASE)
# Messages of systemd about any unit, which give no cause.
_OF_SYSTEMD = re.compile(
    r"(Start(ed|ing)|Stopp(ed|ing)) .*|Failed to start .*"
    r"|.*(Scheduled restart job|Deactivated successfully|Consumed |Failed with result ).*"
)
_LINES = 2
_LONGEST = 160


def part(document: Mapping[str, Any], *path: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return a part; None if it is missing or could not be read."""
    found: Any = document
    for name in path:
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = found[name]
    return None if _unread(found) else found


def error(document: Mapping[str, Any], *path: str) -> str:
    """Return why a part could not be read; empty if it could, or is missing."""
    found: Any = document
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return str(found["error"]) if isinstance(found, Mapping) and _unread(found) else ""


def is_busy(document: Mapping[str, Any]) -> bool:
    """Return whether parts that need no daemon are late. Then the silence of a daemon is no finding."""
    return any(LATE.search(error(document, name)) for name in _WITHOUT_DAEMON)


def _unread(value: object) -> bool:
    return isinstance(value, Mapping) and set(value) == {"error"}


def unit(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the state of a systemd unit; empty if it was not reported."""
    return part(document, "daemons", name) or {}


def last_words(lines: Sequence[str]) -> str:
    """Return the last lines of a journal about errors, else the daemon's last line; empty if there is none."""
    own = [line.strip().rstrip(".") for line in lines if line.strip() and not _OF_SYSTEMD.match(line)]
    telling = [line for line in own if _TELLING.search(line)]
    return "; ".join(
        line if len(line) <= _LONGEST else line[:_LONGEST] + "..." for line in (telling or own[-1:])[-_LINES:]
    )


def setup_failure(document: Mapping[str, Any]) -> str:
    """Return why the last set-up of a machine failed; empty if it did not."""
    report = part(document, "cluster_state", "report") or {}
    # A report of an earlier boot does not apply to this one.
    if report.get("state") == "failed" and report.get("boot") == part(document, "boot", "id"):
        return str(report.get("message", "")).strip()
    row = unit(document, "hpc-node")
    if row.get("state") == "failed" or row.get("sub") == "auto-restart":
        return last_words(row.get("journal") or ()) or "its journal says nothing"
    return ""


def bytes_used(disk: Mapping[str, Any]) -> float:
    """Return the used share of the space that is not reserved for root, as df(1) computes it."""
    total = disk["used"] + disk["free"]
    return disk["used"] / total if total else 1.0


def inodes_used(disk: Mapping[str, Any]) -> float:
    """Return the used share of the inodes; 0 if the file system has no fixed number of them."""
    return 1 - disk["inodes_free"] / disk["inodes"] if disk["inodes"] else 0.0
