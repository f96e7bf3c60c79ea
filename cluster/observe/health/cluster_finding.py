"""A finding about a running cluster, as its user reads it, and who has to act on it."""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, kw_only=True)
class ClusterFinding:
    """A problem of a running cluster: where, what, since when, and what to do."""

    id: str
    """The kind, for programs: kebab-case, and kept from version to version."""
    where: tuple[str, ...]
    """Names of the machines that it is about."""
    what: str
    """A sentence without its end, which goes on from the name of the machine: `does not answer SSH`."""
    todo: str
    """The command to type."""
    note: str = ""
    """Advice on the command, or the step after it."""
    since: float | None = None
    """Seconds since the epoch; None if unknown."""


def together(found: list[ClusterFinding]) -> list[ClusterFinding]:
    """Merge findings that are the same on many machines into one, with the command for the first of them."""
    groups: dict[tuple[str, str], list[ClusterFinding]] = {}
    for one in found:
        alike = one.what.replace(one.where[0], "")
        groups.setdefault((one.id, alike), []).append(one)
    return [_as_one(group) for group in groups.values()]


def _as_one(group: list[ClusterFinding]) -> ClusterFinding:
    first = group[0]
    if len(group) == 1:
        return first
    times = [finding.since for finding in group if finding.since is not None]
    return ClusterFinding(
        id=first.id,
        where=tuple(name for finding in group for name in finding.where),
        what=first.what,
        todo=first.todo,
        note=first.note,
        since=min(times, default=None),
    )


class Actor(str, Enum):
    """The person or program who has to act."""

    USER = "user"
    OPERATOR = "operator program"
    SUPPORT = "cloud support"
    ADMIN = "administrator"
