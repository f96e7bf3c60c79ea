"""Values against the keys that a chart of a version has."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cluster.findings import nearest
from cluster.platforms.nebius.releases.keys import others, soperator
from cluster.platforms.nebius.releases.keys.tree import Key
from cluster.platforms.nebius.releases.release import Release
from cluster.platforms.nebius.releases.version import Number, number

CHARTS: Mapping[str, Key] = {**soperator.CHARTS, **others.CHARTS}
"""The keys of every chart that a cluster is made of, by the chart's name."""


@dataclass(frozen=True, kw_only=True)
class UnknownKey:
    """A key that a chart of a version does not have."""

    path: tuple[str | int, ...]
    """From the top of the chart's values."""
    why: str
    """In which versions it exists, or that it exists in none."""
    nearest: str | None
    """The key beside it that was probably meant."""

    @property
    def dotted(self) -> str:
        """The path as Helm writes it: `slurmNodes.login.size`, `nodesets[0].name`."""
        text = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in self.path)
        return text.removeprefix(".")


class UnknownValue(ValueError):  # noqa: N818 - reads as the sentence it raises
    """A release has values that its chart does not have."""


def allowed(chart: str, version: str) -> Key:
    """The keys of a chart, those that a version does not have left out. Raises KeyError for an unknown chart."""
    return _at(CHARTS[chart], number(version))


def _at(key: Key, version: Number) -> Key:
    below = {name: _at(one, version) for name, one in key.children(version).items()}
    return Key(since=key.since, until=key.until, free=key.free, below=below)


def unknown(chart: str, version: str, values: Mapping[str, Any]) -> Iterator[UnknownKey]:
    """What a chart of a version does not have of some values."""
    return _unknown(CHARTS[chart], number(version), values, ())


def _unknown(key: Key, version: Number, value: Any, path: tuple[str | int, ...]) -> Iterator[UnknownKey]:  # noqa: ANN401
    if isinstance(value, list | tuple):
        for position, one in enumerate(value):
            yield from _unknown(key, version, one, (*path, position))
    elif isinstance(value, Mapping) and not key.free:
        known = key.children(version)
        for name, below in value.items():
            if name in known:
                yield from _unknown(known[name], version, below, (*path, name))
            else:
                why = _why(str(name), key.below.get(name))
                yield UnknownKey(path=(*path, name), why=why, nearest=nearest(str(name), known))


def _why(name: str, key: Key | None) -> str:
    if key is None and name in soperator.REFUSED:
        return soperator.REFUSED[name]
    if key is None:
        return "the chart has no such key"
    span = f"from {_text(key.since)} on" if key.since else "in all versions"
    return f"the chart has it {f'{span}, until {_text(key.until)}' if key.until else span}"


def _text(version: Number) -> str:
    return ".".join(map(str, version))


def check_values(release: Release) -> None:
    """Raises UnknownValue for a release with values that its chart does not have, with all of them."""
    found = [
        f"{one.dotted}: {one.why}{f'; write {one.nearest} if that was meant' if one.nearest else ''}"
        for one in unknown(release.chart, release.version, release.values)
    ]
    if found:
        raise UnknownValue(f"values of the chart {release.chart} {release.version}: {'. '.join(found)}")
