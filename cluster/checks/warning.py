"""A warning: where it is, what is so, and what to do about it."""

from dataclasses import dataclass

from cluster.findings import Location, dotted


@dataclass(frozen=True, kw_only=True)
class Warned:
    """One warning."""

    at: Location
    """Keys below the root of the configuration."""
    what: str
    """A sentence without its full stop."""
    todo: str
    """Another one."""

    def __str__(self) -> str:
        return f"{dotted(self.at)}: {self.what}. To do: {self.todo}."
