"""Values against the keys that a chart has.

The keys of a chart are written as text: `login(size sshd(port) annotations*)` is the key `login` with three keys below
it, of which `annotations` may hold anything, such as a probe of Kubernetes.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.findings import nearest
from cluster.platforms.nebius.releases.keys import others, soperator
from cluster.platforms.nebius.releases.release import Release

_TOKEN = re.compile(r"[()]|[^\s()]+")


@dataclass(kw_only=True)
class Key:
    """One key of a chart's values."""

    free: bool = False
    """Whether anything may stand below it."""
    below: dict[str, "Key"] = field(default_factory=dict)
    """The keys of the mapping, or of each mapping of the list, that it holds."""


def parse(text: str) -> Key:
    """The tree of a text."""
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
        latest = parent.below[piece.removesuffix("*")] = Key(free=piece.endswith("*"))


CHARTS: Mapping[str, Key] = {name: parse(text) for name, text in {**soperator.CHARTS, **others.CHARTS}.items()}
"""The keys of every chart that a cluster is made of, by the chart's name."""


@dataclass(frozen=True, kw_only=True)
class UnknownKey:
    """A key that a chart does not have."""

    path: tuple[str | int, ...]
    """From the top of the chart's values."""
    why: str
    """Why it is refused."""
    nearest: str | None
    """The key beside it that was probably meant."""

    @property
    def dotted(self) -> str:
        """The path as Helm writes it: `slurmNodes.login.size`, `nodesets[0].name`."""
        text = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in self.path)
        return text.removeprefix(".")


class UnknownValue(ValueError):  # noqa: N818 - reads as the sentence it raises
    """A release has values that its chart does not have."""


def unknown(chart: str, values: Mapping[str, Any]) -> Iterator[UnknownKey]:
    """What a chart does not have of some values. Raises KeyError for an unknown chart."""
    return _unknown(CHARTS[chart], values, ())


def _unknown(key: Key, value: Any, path: tuple[str | int, ...]) -> Iterator[UnknownKey]:  # noqa: ANN401
    if isinstance(value, list | tuple):
        for position, one in enumerate(value):
            yield from _unknown(key, one, (*path, position))
    elif isinstance(value, Mapping) and not key.free:
        for name, below in value.items():
            if name in key.below:
                yield from _unknown(key.below[name], below, (*path, name))
            else:
                why = soperator.REFUSED.get(str(name), "the chart has no such key")
                yield UnknownKey(path=(*path, name), why=why, nearest=nearest(str(name), key.below))


def check_values(release: Release) -> None:
    """Raises UnknownValue for a release with values that its chart does not have, with all of them."""
    found = [
        f"{one.dotted}: {one.why}{f'; write {one.nearest} if that was meant' if one.nearest else ''}"
        for one in unknown(release.chart, release.values)
    ]
    if found:
        raise UnknownValue(f"values of the chart {release.chart} {release.version}: {'. '.join(found)}")
