"""Findings in a configuration, and the error that carries all of them at once."""

import difflib
import json
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from cluster.printable import one_line
from scripts.node.judge.kinds import KINDS
from scripts.node.slurm.hostlist import compress

ROOT = "hpc:cluster"
"""The stack-configuration key that holds the cluster; every path starts with it."""

PROVIDERS = ("gcp",)
"""Sections of the cluster that a stack file has as settings of Pulumi's provider: `gcp:zone`."""

Location = tuple[str | int, ...]
"""Keys and list positions below the root, such as `("users", 0, "uid")`."""

_LONGEST_VALUE = 80
_LONGEST_LIST = 20
_LONGEST_PLACE = 160
_LONGEST_LINE = 900


class Level(str, Enum):
    """The severity of a finding."""

    ERROR = "error"
    """The stack is refused."""
    WARNING = "warning"
    """The setting works as it is written, with a disadvantage."""
    INFO = "info"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A problem that a check found in a configuration."""

    id: str
    """Stable name of the rule, such as `login-count`."""
    level: Level = Level.ERROR
    at: Location | str
    """Keys below hpc:cluster, or another key of the stack file as text."""
    what: str = ""
    """The problem, as a sentence without its full stop. Errors have `given` and `allowed` instead."""
    given: str = ""
    """The written value, or `nothing`; shortened to one line."""
    allowed: str = ""
    """The values that may be written there, with an example."""
    todo: str
    """The action to take."""
    missing: str | None = None
    """The name that does not exist, or the key whose value is missing, if that is the problem."""
    line: int | None = None
    """Line of the stack file, from 1 on; None if it is not known."""

    def __post_init__(self) -> None:
        if not self.what:
            object.__setattr__(self, "given", show(self.given))

    @property
    def where(self) -> str:
        """Dotted path, such as `hpc:cluster.partitions.gpu.nodesets[0]`."""
        return self.at if isinstance(self.at, str) else dotted(self.at)

    def __str__(self) -> str:
        if self.what:
            return f"{self.where}: {self.what}. To do: {self.todo}."
        place, allowed, todo = short(self.where, _LONGEST_PLACE), short(self.allowed), short(self.todo)
        place += f", line {self.line}" if self.line else ""
        return f"{place}\n  given:   {short(self.given)}\n  allowed: {allowed}\n  to do:   {todo}"


class ConfigError(Exception):
    """The configuration can't be used, for the reasons in `findings`."""

    def __init__(self, findings: Iterable[Finding], *, more: int = 0, unchecked: Iterable[str] = ()) -> None:
        """`more` is the number of further findings, which are not listed. `unchecked` are places that were not compared
        with the rest of the file, because of the errors in them."""
        self.findings = tuple(findings)
        self.more = more
        self.unchecked = tuple(unchecked)
        super().__init__(str(self))

    def __str__(self) -> str:
        count = len(self.findings) + self.more
        title = "1 error in the stack configuration" if count == 1 else f"{count} errors in the stack configuration"
        parts = [f"{title}:", *map(str, self.findings)]
        if self.more:
            parts.append(f"and {self.more} more, which are not listed")
        if self.unchecked:
            places = ", ".join(short(place, _LONGEST_PLACE) for place in self.unchecked)
            parts.append(f"Not compared with the rest of the file until they are right: {places}")
        return "\n\n".join(parts)


class RefusedError(ValueError):
    """Raised by validators, with what is allowed and what to do. The caller adds the place and the given value."""

    def __init__(self, allowed: str, todo: str) -> None:
        self.allowed = allowed
        self.todo = todo
        super().__init__(f"{allowed}; {todo}")


def show(value: Any) -> str:  # noqa: ANN401 - anything can stand in a YAML file
    """Return a value as a short text on one line."""
    text = "nothing"
    if value is not None:
        text = ""
        for piece in _pieces(value):  # not joined, since of a large value only the beginning is needed
            text += piece
            if len(text) > _LONGEST_LINE:
                break
    if "PRIVATE KEY" in text:
        return "a private key (not shown)"
    text = one_line(" ".join(text.split()))
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def flow(value: Any) -> str:  # noqa: ANN401 - anything can stand in a YAML file
    """Return a value as YAML on one line: `{cpu: {count: 2}}`."""
    return "".join(_pieces(value))


def _pieces(value: Any) -> Iterator[str]:  # noqa: ANN401 - anything can stand in a YAML file
    if isinstance(value, Mapping):
        for number, (key, item) in enumerate(value.items()):
            yield f"{', ' if number else '{'}{key}: "
            yield from _pieces(item)
        yield "}" if value else "{}"
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield ", " if number else "["
            yield from _pieces(item)
        yield "]" if value else "[]"
    elif isinstance(value, bool) or value is None:
        yield json.dumps(value)
    else:
        yield str(value) if str(value).strip() else json.dumps(value)


def short(text: str, longest: int = _LONGEST_LINE) -> str:
    """Return a text on one line, without control characters, and shortened in the middle if it is too long."""
    text = one_line(text[:longest] + text[-longest:] if len(text) > 2 * longest else text)
    half = (longest - 5) // 2
    return text if len(text) <= longest else f"{text[:half]} ... {text[-half:]}"


def dotted(location: Iterable[str | int]) -> str:
    """Return a path below the root as text: `hpc:cluster.users[0].uid` for `("users", 0, "uid")`.

    A provider's setting, `("gcp", "zone")`, is `gcp:zone`, as in the stack file.
    """
    location = tuple(location)
    if len(location) == 2 and location[0] in PROVIDERS:
        return f"{location[0]}:{location[1]}"
    path = ROOT
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant; None if there is none."""
    if len(name) > _LONGEST_VALUE:
        return None
    by_lower = {word.lower(): word for word in known}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[matches[0]] if matches else None


def suggest(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return what to do about an unknown name: write the one that was probably meant, or `otherwise`."""
    meant = nearest(name, known)
    return f"write {meant} if that was meant, else {otherwise}" if meant else otherwise


def listing(names: Iterable[str], most: int = _LONGEST_LIST) -> str:
    """Return names separated by commas: the first `most` of them, and the number of the others."""
    every = list(names)
    others = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + others if every else "none"


def unknown(at: Location, names: Iterable[str], known: Collection[str], what: str, where: str) -> Iterator[Finding]:
    """Yield a finding for each unknown name, at its position in the list."""
    known_names = set(known)
    for position, name in enumerate(names):
        if name not in known_names:
            yield unknown_name((*at, position), name, known, what, where, rule="unknown-name")


def unknown_name(at: Location, name: str, known: Iterable[str], what: str, where: str, *, rule: str) -> Finding:
    """Return a finding about an unknown name. `what` is the noun for it with an article, `where` the key that defines
    such names, and `rule` the id."""
    return Finding(
        id=rule,
        at=at,
        given=name,
        allowed=f"{what} that exists: {listing(known)}",
        todo=suggest(name, known, f"define {name} under `{where}`, or remove it here"),
        missing=name,
    )


def repeated(at: Location, names: Collection[str], what: str, *, rule: str) -> Iterator[Finding]:
    """Yield a finding for each name that a list has more than once."""
    for double in sorted(name for name, times in Counter(names).items() if times > 1):
        yield Finding(
            id=rule, at=at, given=listing(names), allowed=f"each {what} once", todo=f"remove the second {double}"
        )


@dataclass(frozen=True, kw_only=True)
class ClusterFinding:
    """A problem of a running cluster: where, what, since when, and what to do."""

    id: str
    """The kind, for programs: in kebab-case, and never changed."""
    where: tuple[str, ...]
    """Names of the affected machines."""
    what: str
    """The rest of a sentence that begins with the machine's name: `does not answer SSH`."""
    todo: str
    """The command to type."""
    note: str = ""
    """Advice on the command, or the step after it."""
    since: float | None = None
    """Seconds since the epoch; None if unknown."""
    severity: str = ""
    """critical or warning: that of its kind, but for an alert, which has its own."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "severity", self.severity or KINDS[self.id].severity)


def merge_alike(findings: list[ClusterFinding]) -> list[ClusterFinding]:
    """Merge findings that are the same on many machines into one, with a command for all of them, or for the first
    where the command takes one machine."""
    groups: dict[tuple[str, str], list[ClusterFinding]] = {}
    for finding in findings:
        without_name = finding.what.replace(finding.where[0], "")
        groups.setdefault((finding.id, without_name), []).append(finding)
    return [_merge(group) for group in groups.values()]


def _merge(group: list[ClusterFinding]) -> ClusterFinding:
    first, names = group[0], tuple(dict.fromkeys(name for finding in group for name in finding.where))
    takes_many = re.compile(rf"(\./hpc (?:nodes|health) \S+ (?:[a-z]+ )?){re.escape(first.where[0])}(?![\w-])")
    listed = names[0] if len(names) == 1 else shlex.quote(compress(names))
    return replace(
        first,
        where=names,
        todo=takes_many.sub(rf"\g<1>{listed}", first.todo),
        note=takes_many.sub(rf"\g<1>{listed}", first.note),
        since=min((finding.since for finding in group if finding.since is not None), default=None),
    )


class Actor(str, Enum):
    """The person or program that has to act."""

    USER = "user"
    OPERATOR = "operator program"
    SUPPORT = "cloud support"
    ADMIN = "administrator"
