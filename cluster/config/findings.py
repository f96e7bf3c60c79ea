"""What is wrong with a configuration, said in four parts, and the error that carries all of it at once."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

ROOT = "hpc:cluster"
"""The stack-configuration key that holds the cluster; every path starts with it."""

_LONGEST_VALUE = 80


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
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = value if isinstance(value, str) and value else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def dotted(location: Iterable[str | int]) -> str:
    """Write a path below the root: `("users", 0, "uid")` is `hpc:cluster.users[0].uid`."""
    path = ROOT
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path
