"""The version of Soperator: a usable one, and what it can't do of what the stack file asks for."""

from collections.abc import Iterator

from cluster.config.cluster import ClusterConfig
from cluster.findings import Finding, Level, Location, listing
from cluster.platforms.nebius import versions
from cluster.platforms.nebius.section import Nebius
from cluster.platforms.nebius.versions import parse

_AT: Location = ("nebius", "soperator", "version")
_TAKEN_NODESETS = ("accounting", "system")
"""Names of other node groups, besides those that no cluster's nodesets have (controller, login)."""
CHECKS_PARTITION = "hidden"
"""The partition that Soperator's active checks run in."""
CHECKS_USERS = ("nebius", "soperatorchecks")
"""Users that Soperator creates for its checks."""


def find_errors(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    version = settings.soperator.version
    if parse(version) < versions.FIRST:
        first = ".".join(map(str, versions.FIRST))
        yield Finding(
            id="nebius-soperator-old",
            at=_AT,
            given=version,
            allowed=f"{first} or later, e.g. {versions.SOPERATOR}: this program follows the newest series and the next",
            todo=f"write {versions.SOPERATOR}",
        )
        return
    if (given := config.slurm.version) and given != settings.slurm_release:
        yield Finding(
            id="nebius-slurm-release",
            at=("slurm", "version"),
            given=given,
            allowed=f"{settings.slurm_release}, the release of Soperator {version}",
            todo="remove it, or write another nebius.soperator.version",
        )
    if (only := versions.cluster_name(version)) and config.name != only:
        yield Finding(
            id="nebius-cluster-name",
            at=("name",),
            given=config.name,
            allowed=f"{only} with Soperator {version}: its chart of active checks has objects in the namespace {only}, "
            "whatever the cluster is called",
            todo=f"write name: {only}; the stack keeps its name",
        )
    yield from _names(config)


def find_warnings(settings: Nebius) -> Iterator[Finding]:
    version = settings.soperator.version
    if not versions.is_known(version):
        yield Finding(
            id="nebius-soperator-unknown",
            level=Level.WARNING,
            at=_AT,
            what=f"the charts of Soperator {version} are not known here, the newest of which are those of "
            f"{versions.SOPERATOR}: values may be missing, and without charts of that version `up` fails",
            todo=f"check that there is such a release, or write {versions.SOPERATOR}",
        )
    faults = versions.faults(version)
    if faults:
        yield Finding(
            id="nebius-soperator-faults",
            level=Level.WARNING,
            at=_AT,
            what=f"Soperator {version} has known faults: "
            + "; ".join(f"{one.what} ({one.name}, nebius/soperator, {one.source})" for one in faults),
            todo=f"write {versions.SOPERATOR}, which has none of them",
        )


def _names(config: ClusterConfig) -> Iterator[Finding]:
    for name in config.nodesets:
        if name in _TAKEN_NODESETS:
            yield Finding(
                id="nebius-nodeset-name",
                at=("nodesets", name),
                given=name,
                allowed=f"any other name than {listing(_TAKEN_NODESETS)}, e.g. gpu",
                todo="rename the nodeset: its pods would have the names of others",
            )
    if CHECKS_PARTITION in config.partitions:
        yield Finding(
            id="nebius-partition-name",
            at=("partitions", CHECKS_PARTITION),
            given=CHECKS_PARTITION,
            allowed="any other name, e.g. main",
            todo=f"rename the partition: Soperator's checks run in one of the name {CHECKS_PARTITION}",
        )
    for position, user in enumerate(config.users):
        if user.name in CHECKS_USERS:
            yield Finding(
                id="nebius-user-name",
                at=("users", position, "name"),
                given=user.name,
                allowed=f"any other name than {listing(CHECKS_USERS)}, e.g. alice",
                todo="rename the user: Soperator creates one of that name for its checks",
            )
