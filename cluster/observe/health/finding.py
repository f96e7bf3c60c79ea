"""One thing that is wrong with a cluster, as its user reads it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Where, what, since when, and what to do."""

    id: str
    """Its kind, for programs: kebab-case, and kept from version to version."""
    where: tuple[str, ...]
    """Names of the machines that it is about."""
    what: str
    """A sentence without its end, which goes on from the name of the machine: `does not answer SSH`."""
    todo: str
    """The command to type."""
    note: str = ""
    """What to know of that command, or to do after it."""
    since: float | None = None
    """Seconds since the epoch; None if unknown."""
