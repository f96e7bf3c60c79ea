"""Values of charts that the stack file gives: of releases that there are, and keys that their charts have."""

from collections.abc import Iterator, Mapping
from typing import Any

from cluster.catalog.nebius import soperator
from cluster.config.cluster import ClusterConfig
from cluster.findings import Finding, Location, listing, show, suggest
from cluster.platforms.nebius.releases import Facts, releases
from cluster.platforms.nebius.releases.keys import unknown
from cluster.platforms.nebius.releases.overrides import OWNED
from cluster.platforms.nebius.section import Nebius


def find_errors(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    if not settings.values or soperator.parse(settings.soperator.version) < soperator.FIRST:
        return
    bare = config.model_copy(update={"nebius": settings.model_copy(update={"values": {}})})
    charts = {one.name: (one.chart, one.version) for one in releases(bare, Facts(root_keys=()))}
    for name, given in settings.values.items():
        at = ("nebius", "values", name)
        if name not in charts:
            yield Finding(
                id="nebius-release-unknown",
                at=at,
                given=name,
                allowed=f"a release of this cluster: {listing(charts)}",
                todo=suggest(name, charts, "remove it"),
                missing=name,
            )
            continue
        yield from _owned(at, name, given)
        chart, version = charts[name]
        for one in unknown(chart, version, given):
            yield Finding(
                id="nebius-value-unknown",
                at=(*at, *one.path),
                given=show(one.path[-1]),
                allowed=f"a key of chart {chart} {version}: {one.why}",
                todo=f"write {one.nearest}" if one.nearest else "remove it",
            )


def _owned(at: Location, release: str, given: Mapping[str, Any]) -> Iterator[Finding]:
    for path in OWNED.get(release, ()):
        value: Any = given
        for step in path:
            value = value.get(step) if isinstance(value, Mapping) else None
        if value is not None:
            yield Finding(
                id="nebius-value-owned",
                at=(*at, *path),
                given=show(value),
                allowed="other values: the rest of the stack file decides this one",
                todo="remove it, and write what it is for in its own field (nebius.login.root_keys, nodesets)",
            )
