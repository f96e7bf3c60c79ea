"""Keys of a chart's values as a tree, written as text: `login(size sshd(port) priorityClass@1.22.0)`."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cluster.platforms.nebius.releases.version import Number, number

_TOKEN = re.compile(r"[()]|[^\s()]+")


@dataclass(kw_only=True)
class Key:
    """One key of a chart's values."""

    since: Number = ()
    """The first version that has it."""
    until: Number | None = None
    """The first version that no longer has it."""
    free: bool = False
    """Whether anything may stand below it, such as a probe of Kubernetes."""
    below: dict[str, "Key"] = field(default_factory=dict)
    """The keys of the mapping, or of each mapping of the list, that it holds."""

    def of(self, version: Number) -> bool:
        """Whether charts of a version have the key."""
        return self.since <= version and (self.until is None or version < self.until)

    def children(self, version: Number) -> Mapping[str, "Key"]:
        """The keys below it that charts of a version have."""
        return {name: key for name, key in self.below.items() if key.of(version)}


def parse(text: str) -> Key:
    """The tree of a text.

    `name*` may hold anything; `name(...)` holds those keys; `name@FROM-TO` is known from version FROM on and no longer
    from TO on, each of which may be left out: `name@1.20.0`, `name@-2.0.0`.
    """
    root = Key()
    _fill(root, iter(_TOKEN.findall(text)))
    return root


def _fill(parent: Key, tokens: Iterator[str]) -> None:
    latest = parent
    for piece in tokens:
        if piece == ")":
            return
        if piece == "(":
            _fill(latest, tokens)
            continue
        name, _, span = piece.partition("@")
        since, _, until = span.partition("-")
        latest = Key(since=number(since), until=number(until) if until else None, free=name.endswith("*"))
        parent.below[name.removesuffix("*")] = latest
