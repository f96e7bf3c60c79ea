"""Drift of a cluster of pods: manual changes of Helm's releases, of their objects, and in Slurm.

Helm 3 keeps each revision of a release in a Secret of the type helm.sh/release.v1.
"""

import base64
import gzip
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from cluster.config.cluster import ClusterConfig
from cluster.observe.observation import NOTHING, ClusterObservation, Difference, Mends
from cluster.platforms.nebius.names import GROUP, NODESET_LABEL, NODESET_NAME_LABEL
from cluster.platforms.nebius.observation import View
from cluster.platforms.nebius.releases import ChartRelease, CloudFacts, releases
from cluster.platforms.nebius.stack_file_fields import Nebius, backs_up
from cluster.roster import node_names
from cluster.slurm.accounting import desired

SELECTOR = "owner=helm,status=deployed"
"""Labels of the Secrets of installed revisions."""


@dataclass(frozen=True, kw_only=True)
class Installed:
    """An installed release."""

    name: str
    namespace: str
    version: str
    """The version of its chart."""
    revision: int
    values: Mapping[str, Any]
    """The values of its installation, without the chart's own defaults."""
    manifest: str
    """Its objects, as YAML documents."""


def parse_releases(secrets: Iterable[Mapping[str, Any]]) -> dict[str, Installed]:
    """Return the newest revision of each release, by name. A Secret that can't be read is left out."""
    releases: dict[str, Installed] = {}
    for release in filter(None, map(_installed, secrets)):
        if release.name not in releases or releases[release.name].revision < release.revision:
            releases[release.name] = release
    return releases


def _installed(secret: Mapping[str, Any]) -> Installed | None:
    try:
        packed = base64.b64decode(base64.b64decode((secret.get("data") or {})["release"]))
        # Helm has compressed records since 3.0; older records are the document itself.
        document = json.loads(gzip.decompress(packed) if packed.startswith(b"\x1f\x8b") else packed)
        return Installed(
            name=document["name"],
            namespace=document["namespace"],
            version=document["chart"]["metadata"]["version"],
            revision=int(document["version"]),
            values=document.get("config") or {},
            manifest=document.get("manifest") or "",
        )
    except (KeyError, TypeError, ValueError, OSError, EOFError):
        return None


Object = Mapping[str, Any]
UNKNOWN = "(known to the cloud only)"
"""Placeholder in expected values for facts of the cloud, such as ids."""
_LONGEST = 120
_CHECK_PARTITIONS = ("hidden", "background")
"""Partitions that Soperator adds for its own checks (values.yaml of helm-slurm-cluster)."""
_SUFFIXES = {"m": Decimal("0.001"), "": Decimal(1)}
_SUFFIXES |= {suffix: Decimal(10 ** (3 * power)) for power, suffix in enumerate("kMGT", 1)}
_SUFFIXES |= {f"{suffix}i": Decimal(2 ** (10 * power)) for power, suffix in enumerate("KMGT", 1)}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-zA-Z]{0,2})")


@dataclass(frozen=True, kw_only=True)
class Live:
    """The objects of a cluster as they are."""

    seen: ClusterObservation
    view: View
    releases: Mapping[str, Installed] | None
    """The releases; None if Helm's Secrets could not be read."""
    objects: Mapping[tuple[str, str, str], Object]
    """The objects of the manifests as they are now, by kind, namespace and name."""
    manifests: Sequence[Object]
    """The same objects as the charts have them."""
    hosts: Sequence[Object]
    """Kubernetes nodes."""


def differences(config: ClusterConfig, expected: Sequence[ChartRelease], live: Live) -> list[Difference]:
    """Return the differences from the stack, whose releases are `expected`."""
    return [
        *_releases(expected, live),
        *_objects(live),
        *_nodesets(config, live),
        *_hosts(config, live),
        *_nodes(config, live),
        *_partitions(config, live),
        *_database(config, live),
    ]


def expected_releases(config: ClusterConfig, settings: Nebius, stack: str) -> tuple[ChartRelease, ...]:
    """Return the releases of a stack, with UNKNOWN for facts of the cloud."""
    backups = {"name": UNKNOWN, "endpoint": UNKNOWN} if backs_up(settings) else {}
    keys = [UNKNOWN, *settings.login.root_keys]
    return releases(config, CloudFacts(stack=stack, root_keys=keys, allocation=UNKNOWN, backups=backups))


def key(item: Object, namespace: str = "") -> tuple[str, str, str]:
    """Return kind, namespace and name of an object."""
    metadata = item["metadata"]
    return str(item["kind"]), str(metadata.get("namespace") or namespace), str(metadata["name"])


def _difference(id_: str, where: str, what: str, stack: object, actual: object, *, mends: Mends = "up") -> Difference:
    return Difference(id=id_, where=(where,), what=what, stack=_text(stack), there=_text(actual), mends=mends)


def _releases(expected: Sequence[ChartRelease], live: Live) -> Iterator[Difference]:
    if live.releases is None:
        return
    for release in expected:
        name, found = release.name, live.releases.get(release.name)
        if found is None:
            yield _difference("release-missing", name, f"Helm release {name}", "installed", NOTHING)
            continue
        # A chart of a folder has the version of its own file, whatever the release requests.
        if "://" in release.repo and found.version != release.version:
            what = f"version of chart {release.chart}"
            yield _difference("release-version", name, what, release.version, found.version)
        for path, stack, actual in all_value_differences(release.values, found.values):
            yield _difference("release-values", name, f"values of release {name}: {path}", stack, actual)


def _objects(live: Live) -> Iterator[Difference]:
    for manifest in live.manifests:
        kind, namespace, name = key(manifest)
        shown = f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
        found = live.objects.get((kind, namespace, name))
        if found is None:
            yield _difference("object-missing", name, shown, "applied by its chart", NOTHING)
        # In objects of other kinds the API server and controllers change fields.
        elif str(manifest.get("apiVersion", "")).startswith(f"{GROUP}/") or kind == "ConfigMap":
            for part in ("data", "spec"):
                for path, stack, actual in value_differences(manifest.get(part), found.get(part), part):
                    yield _difference("object-changed", name, f"{shown}: {path}", stack, actual, mends="hand")


def value_differences(expected: Any, actual: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:  # noqa: ANN401 - any JSON
    """Yield path, expected and actual value where they differ. Further keys of `actual`, such as defaults, are
    ignored."""
    if isinstance(expected, Mapping):
        fields = actual if isinstance(actual, Mapping) else {}
        for name, value in expected.items():
            yield from value_differences(value, fields.get(name), f"{path}.{name}" if path else str(name))
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for index, (item, other) in enumerate(zip(expected, actual, strict=True)):
            yield from value_differences(item, other, f"{path}[{index}]")
    elif not _equal(expected, actual):
        yield path, expected, actual


def all_value_differences(expected: Any, actual: Any) -> Iterator[tuple[str, Any, Any]]:  # noqa: ANN401 - any JSON
    """Yield what `value_differences` yields, and the further keys of `actual`."""
    rows = {path: (path, value, other) for path, value, other in value_differences(expected, actual)}
    yield from rows.values()
    for path, value, other in value_differences(actual, expected):
        if not path.startswith(tuple(rows)):
            yield path, other, value


def _equal(expected: object, actual: object) -> bool:
    if UNKNOWN in (expected, actual) or expected == actual:
        return True
    # An empty value of a chart and a missing one of an object are the same.
    if expected in (None, "", [], {}, False, 0) and actual in (None, "", [], {}, False, 0):
        return True
    if isinstance(expected, (str, int, float)) and isinstance(actual, (str, int, float)):
        quantity = _quantity(expected)
        return str(expected) == str(actual) or (quantity is not None and quantity == _quantity(actual))
    return False


def _quantity(value: object) -> Decimal | None:
    """Return the number of a quantity of Kubernetes, such as 1.5Gi; None if it is none."""
    match = _QUANTITY.fullmatch(str(value))
    return Decimal(match[1]) * _SUFFIXES[match[2]] if match and match[2] in _SUFFIXES else None


def _nodesets(config: ClusterConfig, live: Live) -> Iterator[Difference]:
    if "NodeSets" in live.view.unread or "SlurmCluster" in live.view.unread:
        return
    none = "no such nodeset"
    actual = {row.name: row.wanted if row.most is None else row.most for row in live.view.nodesets}
    expected = {name: section.most for name, section in config.nodesets.items()}
    for name in sorted(actual.keys() | expected.keys()):
        if actual.get(name) != expected.get(name) and (name in expected or actual[name]):
            what = f"replicas of nodeset {name}"
            yield _difference("nodeset-size", name, what, expected.get(name, none), actual.get(name, none))


def _hosts(config: ClusterConfig, live: Live) -> Iterator[Difference]:
    """Yield nodesets and roles with another number of Kubernetes nodes."""
    labels = [item["metadata"].get("labels") or {} for item in live.hosts]
    if not any(NODESET_LABEL in row for row in labels):
        return
    expected = [
        *((NODESET_NAME_LABEL, "nodeset", name, row.static, row.most) for name, row in config.nodesets.items()),
        (NODESET_LABEL, "role", "controller", 1, 1),
        (NODESET_LABEL, "role", "login", config.login.count, config.login.count),
    ]
    for label, kind, name, least, most in expected:
        actual = sum(row.get(label) == name for row in labels)
        if not least <= actual <= most:
            count = most if least == most else f"{least} to {most}"
            yield _difference("node-group-size", name, f"Kubernetes nodes of {kind} {name}", count, actual)


def _nodes(config: ClusterConfig, live: Live) -> Iterator[Difference]:
    actual = live.seen.slurm_nodes
    if actual is None:
        return
    expected = {name for nodeset in config.nodesets for name in node_names(config, nodeset)}
    for name in sorted(expected - actual.keys()):
        yield _difference("node-unknown", name, f"node {name}", "a node", "slurmctld does not know it")
    for name in sorted(actual.keys() - expected):
        yield _difference("node-unknown", name, f"node {name}", "no such node", "slurmctld has it", mends="hand")


def _partitions(config: ClusterConfig, live: Live) -> Iterator[Difference]:
    actual = live.seen.slurm("partitions")
    if actual is None:
        return
    for name in sorted(config.partitions.keys() - actual.keys()):
        yield _of_slurm(live, f"partition {name}", "a partition", "slurmctld does not know it")
    for name in sorted(actual.keys() - config.partitions.keys() - set(_CHECK_PARTITIONS)):
        yield _of_slurm(live, f"partition {name}", "no such partition", "a partition")
    for name, section in config.partitions.items():
        row = actual.get(name)
        if row is None:
            continue
        if row.get("State", "UP") != "UP":
            yield _of_slurm(live, f"partition {name}: State", "UP", row["State"])
        default = row.get("Default", "NO")
        if (default == "YES") != section.default:
            yield _of_slurm(live, f"partition {name}: Default", "YES" if section.default else "NO", default)


def _database(config: ClusterConfig, live: Live) -> Iterator[Difference]:
    """Yield accounts, users and QOS that Slurm's database lacks, and users with another default account."""
    expected = desired(config)
    for part, what in (("accounts", "account"), ("qos", "QOS")):
        rows = live.seen.controller.part("slurm", part)
        names = {row[0] for row in rows or ()}
        for name in (row["name"] for row in expected[part]):
            if rows is not None and name not in names:
                yield _of_slurm(live, f"{what} {name}", what, f"no such {what}")
    rows = live.seen.controller.part("slurm", "users")
    defaults = {row[0]: row[1] for row in rows or () if len(row) > 1}
    for row in expected["users"] if rows is not None else ():
        name, account = row["name"], row["default_account"]
        if name not in defaults:
            yield _of_slurm(live, f"user {name} in the accounting", "a user", "no such user")
        elif defaults[name] != account:
            yield _of_slurm(live, f"user {name}: default account", account, defaults[name])


def _of_slurm(live: Live, what: str, stack: str, actual: str) -> Difference:
    return _difference("value-changed", live.seen.controller.name, what, stack, actual, mends="hand")


def _text(value: object) -> str:
    text = NOTHING if value is None else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def not_compared(live: Live, more: Iterable[str] = ()) -> list[str]:
    """Return a line for each part that could not be compared, with the reason; `more` are lines of the caller."""
    controller = live.seen.controller
    lines = [f"{what}: {why}" for what, why in live.view.unread.items()]
    lines += [] if controller.reached else [f"{controller.name}: {controller.why}"]
    for part in ("ping", "nodes", "partitions", "users", "accounts", "qos"):
        if why := controller.error("slurm", part):
            lines.append(f"{controller.name}: slurm {part}: {why}")
    if controller.reached and not live.seen.slurmctld_answers:
        lines.append(f"{controller.name}: slurmctld does not answer")
    return [*lines, *more]
