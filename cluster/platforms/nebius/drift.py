"""Manual changes of a cluster of pods: releases as Helm 3 records them, their objects, and Slurm's own view.

Helm keeps each revision in a Secret of the type helm.sh/release.v1.
"""

import base64
import binascii
import gzip
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from cluster.config.cluster import ClusterConfig
from cluster.observe.observation import NOTHING, ClusterObservation, Difference, Mends
from cluster.platforms.nebius.names import GROUP, NODESET_LABEL, NODESET_NAME_LABEL
from cluster.platforms.nebius.observation import View
from cluster.platforms.nebius.releases import Facts, Release, releases
from cluster.platforms.nebius.section import Nebius, backs_up
from cluster.roster import node_names
from cluster.slurm.accounting import desired

SELECTOR = "owner=helm,status=deployed"
"""Labels of the Secrets of revisions that are installed."""


@dataclass(frozen=True, kw_only=True)
class Installed:
    """A release that is installed."""

    name: str
    namespace: str
    chart: str
    version: str
    """The version of its chart."""
    revision: int
    values: Mapping[str, Any]
    """The values that it was given, without the chart's own defaults."""
    manifest: str
    """The objects that it applied, as YAML documents."""


def installed(secrets: Iterable[Mapping[str, Any]]) -> dict[str, Installed]:
    """The releases by name; the newest revision of each. A Secret that can't be read is left out."""
    found: dict[str, Installed] = {}
    for secret in secrets:
        release = _installed(secret)
        if release and (release.name not in found or found[release.name].revision < release.revision):
            found[release.name] = release
    return found


def _installed(secret: Mapping[str, Any]) -> Installed | None:
    try:
        packed = base64.b64decode(base64.b64decode((secret.get("data") or {})["release"]))
        # Helm has packed releases since 3.0; what it wrote before is the document itself.
        document = json.loads(gzip.decompress(packed) if packed.startswith(b"\x1f\x8b") else packed)
        metadata = document["chart"]["metadata"]
        return Installed(
            name=document["name"],
            namespace=document["namespace"],
            chart=metadata["name"],
            version=metadata["version"],
            revision=int(document["version"]),
            values=document.get("config") or {},
            manifest=document.get("manifest") or "",
        )
    except (KeyError, TypeError, ValueError, OSError, EOFError, binascii.Error):
        return None


Object = Mapping[str, Any]
UNKNOWN = "(known to the cloud only)"
"""Stands in wanted values for what only the cloud has, such as ids."""
COMPARED = ("data", "spec")
"""Parts of an object that a chart sets and nobody else."""
LONGEST = 120
_HPC_PARTITIONS = ("hidden", "background")
"""Partitions that Soperator adds for its own checks (values.yaml of helm-slurm-cluster)."""
_SUFFIXES = {"m": Decimal("0.001"), "": Decimal(1)}
_SUFFIXES |= {suffix: Decimal(10 ** (3 * power)) for power, suffix in enumerate("kMGT", 1)}
_SUFFIXES |= {f"{suffix}i": Decimal(2 ** (10 * power)) for power, suffix in enumerate("KMGT", 1)}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-zA-Z]{0,2})")


@dataclass(frozen=True, kw_only=True)
class Live:
    """The objects that were read of a cluster."""

    seen: ClusterObservation
    view: View
    releases: Mapping[str, Installed] | None
    """The releases; None where Helm's Secrets could not be read."""
    objects: Mapping[tuple[str, str, str], Object]
    """Objects of the manifests, by kind, namespace and name: as they are now."""
    manifests: Sequence[Object] = ()
    """The same objects, as the charts have them."""
    hosts: Sequence[Object] = field(default_factory=tuple)
    """Kubernetes nodes."""


def differences(config: ClusterConfig, wanted: Sequence[Release], live: Live) -> list[Difference]:
    """Return what differs; empty when nothing does. `wanted` are the stack's releases, with UNKNOWN for what only the
    cloud has."""
    return [
        *_releases(wanted, live),
        *_objects(live),
        *_nodesets(config, live),
        *_hosts(config, live),
        *_nodes(config, live),
        *_partitions(config, live),
        *_database(config, live),
    ]


def wanted_releases(config: ClusterConfig, settings: Nebius) -> tuple[Release, ...]:
    """The releases of a stack, with UNKNOWN for what only the cloud has."""
    backups = {"name": UNKNOWN, "endpoint": UNKNOWN} if backs_up(settings) else {}
    keys = [UNKNOWN, *settings.login.root_keys]
    return releases(config, Facts(root_keys=keys, allocation=UNKNOWN, backups=backups))


def key(item: Object, namespace: str = "") -> tuple[str, str, str]:
    """Kind, namespace and name of an object."""
    metadata = item["metadata"]
    return str(item["kind"]), str(metadata.get("namespace") or namespace), str(metadata["name"])


def _differs(id_: str, where: str, what: str, stack: object, there: object, *, mends: Mends = "up") -> Difference:
    return Difference(id=id_, where=(where,), what=what, stack=_text(stack), there=_text(there), mends=mends)


def _releases(wanted: Sequence[Release], live: Live) -> Iterator[Difference]:
    if live.releases is None:
        return
    for release in wanted:
        name, found = release.name, live.releases.get(release.name)
        if found is None:
            yield _differs("release-missing", name, f"Helm release {name}", "installed", NOTHING)
            continue
        # A chart of a folder has the version that its file says, whatever was asked for.
        if "://" in release.repo and found.version != release.version:
            what = f"version of chart {release.chart}"
            yield _differs("release-version", name, what, release.version, found.version)
        for path, said, there in both_ways(release.values, found.values):
            yield _differs("release-values", name, f"values of release {name}: {path}", said, there)


def _objects(live: Live) -> Iterator[Difference]:
    for wanted in live.manifests:
        kind, namespace, name = key(wanted)
        shown = f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
        found = live.objects.get((kind, namespace, name))
        if found is None:
            yield _differs("object-missing", name, shown, "applied by its chart", NOTHING)
        # The API server and controllers fill in and rewrite what others have.
        elif str(wanted.get("apiVersion", "")).startswith(f"{GROUP}/") or kind == "ConfigMap":
            for part in COMPARED:
                for path, said, there in changed(wanted.get(part), found.get(part), part):
                    yield _differs("object-changed", name, f"{shown}: {path}", said, there, mends="hand")


def changed(wanted: Any, found: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:  # noqa: ANN401 - any JSON
    """Yield where `found` does not have what is `wanted`, by path. What it has besides is its own: defaults, for
    one."""
    if isinstance(wanted, Mapping):
        there = found if isinstance(found, Mapping) else {}
        for name, value in wanted.items():
            yield from changed(value, there.get(name), f"{path}.{name}" if path else str(name))
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for index, (item, other) in enumerate(zip(wanted, found, strict=True)):
            yield from changed(item, other, f"{path}[{index}]")
    elif not _alike(wanted, found):
        yield path, wanted, found


def both_ways(wanted: Any, found: Any) -> Iterator[tuple[str, Any, Any]]:  # noqa: ANN401 - any JSON
    """Yield what `changed` does, and what `found` has besides."""
    by_path = {path: (path, one, other) for path, one, other in changed(wanted, found)}
    more = {path: (path, other, one) for path, one, other in changed(found, wanted)}
    # Of a path and what is below it, the longer one says more.
    yield from by_path.values()
    yield from (row for path, row in more.items() if not any(path.startswith(known) for known in by_path))


def _alike(wanted: object, found: object) -> bool:
    if UNKNOWN in (wanted, found):
        return True
    # A chart that says nothing, and an object that has nothing, are the same.
    if wanted in (None, "", [], {}, False, 0) and found in (None, "", [], {}, False, 0):
        return True
    if wanted == found:
        return True
    if isinstance(wanted, (str, int, float)) and isinstance(found, (str, int, float)):
        return str(wanted) == str(found) or (
            (quantity := _quantity(wanted)) is not None and quantity == _quantity(found)
        )
    return False


def _quantity(value: object) -> Decimal | None:
    match = _QUANTITY.fullmatch(str(value))
    try:
        return Decimal(match[1]) * _SUFFIXES[match[2]] if match and match[2] in _SUFFIXES else None
    except InvalidOperation:
        return None


def _nodesets(config: ClusterConfig, live: Live) -> Iterator[Difference]:
    if "NodeSets" in live.view.unread or "SlurmCluster" in live.view.unread:
        return
    none = "no such nodeset"
    found = {row.name: row.wanted if row.most is None else row.most for row in live.view.nodesets}
    wanted = {name: section.most for name, section in config.nodesets.items()}
    for name in sorted(found.keys() | wanted.keys()):
        if found.get(name) != wanted.get(name) and (name in wanted or found[name]):
            stack, there = wanted.get(name, none), found.get(name, none)
            yield _differs("nodeset-size", name, f"replicas of nodeset {name}", stack, there)


def _hosts(config: ClusterConfig, live: Live) -> Iterator[Difference]:
    """Kubernetes nodes of each nodeset and role: as many as kubectl shows of its node groups."""
    labels = [item["metadata"].get("labels") or {} for item in live.hosts]
    if not any(NODESET_LABEL in row for row in labels):
        return
    wanted = {
        (NODESET_NAME_LABEL, "nodeset", name): (section.static, section.most)
        for name, section in config.nodesets.items()
    }
    logins = config.login.count
    wanted |= {(NODESET_LABEL, "role", "controller"): (1, 1), (NODESET_LABEL, "role", "login"): (logins, logins)}
    for (label, kind, name), (least, most) in wanted.items():
        there = sum(row.get(label) == name for row in labels)
        if not least <= there <= most:
            count = most if least == most else f"{least} to {most}"
            yield _differs("node-group-size", name, f"Kubernetes nodes of {kind} {name}", count, there)


def _nodes(config: ClusterConfig, live: Live) -> Iterator[Difference]:
    found = live.seen.slurm("nodes")
    if found is None:
        return
    wanted = {name for nodeset in config.nodesets for name in node_names(config, nodeset)}
    for name in sorted(wanted - found.keys()):
        yield _differs("node-unknown", name, f"node {name}", "a node", "slurmctld does not know it")
    for name in sorted(found.keys() - wanted):
        yield _differs("node-unknown", name, f"node {name}", "no such node", "slurmctld has it", mends="hand")


def _partitions(config: ClusterConfig, live: Live) -> Iterator[Difference]:
    found = live.seen.slurm("partitions")
    if found is None:
        return
    for name in sorted(config.partitions.keys() - found.keys()):
        yield _of_slurm(live, f"partition {name}", "a partition", "slurmctld does not know it")
    for name in sorted(found.keys() - config.partitions.keys() - set(_HPC_PARTITIONS)):
        yield _of_slurm(live, f"partition {name}", "no such partition", "a partition")
    for name, section in config.partitions.items():
        row = found.get(name)
        if row is None:
            continue
        if row.get("State", "UP") != "UP":
            yield _of_slurm(live, f"partition {name}: State", "UP", row["State"])
        default, there = "YES" if section.default else "NO", row.get("Default", "NO")
        if (there == "YES") != section.default:
            yield _of_slurm(live, f"partition {name}: Default", default, there)


def _database(config: ClusterConfig, live: Live) -> Iterator[Difference]:
    """Accounts, users and QOS that Slurm's database has not, and users with another default account."""
    wanted = desired(config)
    for part, what in (("accounts", "account"), ("qos", "QOS")):
        rows = live.seen.controller.part("slurm", part)
        there = None if rows is None else {row[0] for row in rows}
        for name in (row["name"] for row in wanted[part]):
            if there is not None and name not in there:
                yield _of_slurm(live, f"{what} {name}", what, f"no such {what}")
    rows = live.seen.controller.part("slurm", "users")
    defaults = {row[0]: row[1] for row in rows or () if len(row) > 1}
    for row in wanted["users"] if rows is not None else ():
        name, account = row["name"], row["default_account"]
        if name not in defaults:
            yield _of_slurm(live, f"user {name} in the accounting", "a user", "no such user")
        elif defaults[name] != account:
            yield _of_slurm(live, f"user {name}: default account", account, defaults[name])


def _of_slurm(live: Live, what: str, stack: str, there: str) -> Difference:
    return _differs("value-changed", live.seen.controller.name, what, stack, there, mends="hand")


def _text(value: object) -> str:
    text = NOTHING if value is None else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def unseen(live: Live, more: Iterable[str] = ()) -> list[str]:
    """Return what could not be compared, and why."""
    controller = live.seen.controller
    found = [f"{what}: {why}" for what, why in live.view.unread.items()]
    found += [] if controller.reached else [f"{controller.name}: {controller.why}"]
    for part in ("ping", "nodes", "partitions", "users", "accounts", "qos"):
        if why := controller.error("slurm", part):
            found.append(f"{controller.name}: slurm {part}: {why}")
    if controller.reached and not live.seen.slurmctld_answers:
        found.append(f"{controller.name}: slurmctld does not answer")
    return [*found, *more]
