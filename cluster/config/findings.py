"""What is wrong with a configuration, said in four parts, and the error that carries all of it at once."""

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

ROOT = "hpc:cluster"
"""The stack-configuration key that holds the cluster; every path starts with it."""

Location = tuple[str | int, ...]
"""Keys and list positions below the root, such as `("users", 0, "uid")`."""

_LONGEST_VALUE = 80
_LONGEST_LIST = 20


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    where: str
    """Dotted path, such as `hpc:cluster.partitions.gpu.nodesets[0]`."""
    given: str
    """What stands there, as it would be written in YAML, or `nothing`."""
    allowed: str
    """What may stand there, with an example."""
    todo: str
    """What to do about it."""

    def __str__(self) -> str:
        return f"{self.where}\n  given:   {self.given}\n  allowed: {self.allowed}\n  to do:   {self.todo}"


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A rule between two parts of the configuration that does not hold; a Finding once its place is written out."""

    at: Location
    given: str
    allowed: str
    todo: str
    missing: str | None = None
    """The name that was looked for and not found, if that is what is wrong."""

    def finding(self, at: Location) -> Finding:
        """The finding, at that place of the file."""
        return Finding(where=dotted(at), given=show(self.given), allowed=self.allowed, todo=self.todo)


class ConfigError(Exception):
    """The configuration can't be used; `findings` holds every reason."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__(str(self))

    def __str__(self) -> str:
        count = len(self.findings)
        title = "1 error in the stack configuration" if count == 1 else f"{count} errors in the stack configuration"
        return "\n\n".join([f"{title}:", *map(str, self.findings)])


class Refused(ValueError):  # noqa: N818 - reads as the sentence it raises: "refused: allowed is ..."
    """Raised by validators: says what is allowed and what to do; where and what was given is known to the caller."""

    def __init__(self, allowed: str, todo: str) -> None:
        self.allowed = allowed
        self.todo = todo
        super().__init__(f"{allowed}; {todo}")


def show(value: Any) -> str:  # noqa: ANN401 - anything can stand in a YAML file
    """Write a value shortly, on one line."""
    text = "nothing" if value is None else flow(value)
    if "PRIVATE KEY" in text:
        return "a private key (not shown)"
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def flow(value: Any) -> str:  # noqa: ANN401 - anything can stand in a YAML file
    """Write a value as YAML does on one line: `{cpu: {count: 2}}`."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {flow(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    return str(value) if str(value).strip() else json.dumps(value)


def dotted(location: Iterable[str | int]) -> str:
    """Write a path below the root: `("users", 0, "uid")` is `hpc:cluster.users[0].uid`.

    Of the provider's settings, `("gcp", "zone")`, the place is the stack file's own: `gcp:zone`.
    """
    location = tuple(location)
    if location[:1] == ("gcp",) and len(location) == 2:
        return f"gcp:{location[1]}"
    path = ROOT
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant."""
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def suggest(name: str, known: Iterable[str], otherwise: str) -> str:
    """What to do about an unknown name: write the one that was probably meant, else something different."""
    meant = nearest(name, known)
    return f"write {meant} if that was meant, else {otherwise}" if meant else otherwise


def listing(names: Iterable[str]) -> str:
    """Names in a row; a long row is cut short."""
    every = list(names)
    shown = every[:_LONGEST_LIST]
    more = f" and {len(every) - len(shown)} more" if len(every) > len(shown) else ""
    return ", ".join(shown) + more if every else "none"
