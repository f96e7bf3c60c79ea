"""Values of charts that the stack file gives: of releases that there are, and keys that their charts have."""

from collections.abc import Iterator, Mapping
from typing import Any

from cluster.config.cluster import ClusterConfig
from cluster.findings import Finding, listing, nearest, show, suggest
from cluster.platforms.nebius import versions
from cluster.platforms.nebius.releases.configured import configured_releases
from cluster.platforms.nebius.releases.inputs import Inputs
from cluster.platforms.nebius.releases.keys import CHARTS, unknown
from cluster.platforms.nebius.releases.overrides import OWNED
from cluster.platforms.nebius.releases.release import Facts, Release
from cluster.platforms.nebius.section import Nebius

_NODESETS = "nodesets"


def find_errors(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    """Values of no release, of no key of its chart, or that a field sets."""
    if not settings.values or versions.parse(settings.soperator.version) < versions.FIRST:
        return
    facts = Facts(root_keys=(), backups={"name": "", "endpoint": ""})
    try:
        every = {one.name: one for one in configured_releases(Inputs(config=config, settings=settings, facts=facts))}
    except (KeyError, StopIteration):
        return  # for a machine type that there is not, which has a finding of its own
    for name, values in settings.values.items():
        if name in every:
            yield from _of(every[name], values, config)
        else:
            yield Finding(
                id="nebius-release-unknown",
                at=("nebius", "values", name),
                given=name,
                allowed=f"a release of this cluster: {listing(every)}",
                todo=suggest(name, every, "remove it"),
                missing=name,
            )


def _of(release: Release, values: Mapping[str, Any], config: ClusterConfig) -> Iterator[Finding]:
    at = ("nebius", "values", release.name)
    for one in unknown(release.chart, values):
        known = [*_keys(release, one.path[:-1])]
        yield Finding(
            id="nebius-value-unknown",
            at=(*at, *one.path),
            given=str(one.path[-1]),
            allowed=f"a key of {release.chart} {release.version}: {listing(known)}" if known else one.why,
            todo=f"write {one.nearest} if that was meant, else remove it: {one.why}"
            if one.nearest
            else f"remove it: {one.why}",
        )
    for path, field in OWNED.items():
        for given in _at(values, path[1:]) if path[0] == release.name else ():
            yield Finding(
                id="nebius-value-owned",
                at=(*at, *path[1:]),
                given=show(given),
                allowed=f"nothing: {field} decides this one",
                todo=f"remove it, and write {field}",
            )
    if release.name == _NODESETS:
        yield from _nodesets(values, config)


def _nodesets(values: Mapping[str, Any], config: ClusterConfig) -> Iterator[Finding]:
    given = values.get(_NODESETS)
    for position, one in enumerate(given if isinstance(given, list) else ()):
        name = one.get("name") if isinstance(one, Mapping) else None
        if name not in config.nodesets:
            yield Finding(
                id="nebius-value-nodeset",
                at=("nebius", "values", _NODESETS, _NODESETS, position),
                given=str(name) if name else "no name",
                allowed=f"the name of a nodeset: {listing(config.nodesets)}",
                todo=f"write name: {nearest(str(name), config.nodesets) or next(iter(config.nodesets))}",
            )


def _keys(release: Release, path: tuple[str | int, ...]) -> Iterator[str]:
    key = CHARTS[release.chart]
    for step in path:
        if isinstance(step, str):
            key = key.below[step]
    yield from key.below


def _at(value: Any, path: tuple[str, ...]) -> Iterator[Any]:  # noqa: ANN401 - values are of any type
    """Every value at a path, of all members of lists on it."""
    if isinstance(value, list):
        for one in value:
            yield from _at(one, path)
    elif not path:
        yield value
    elif isinstance(value, Mapping) and path[0] in value:
        yield from _at(value[path[0]], path[1:])
