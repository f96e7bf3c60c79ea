"""The version of Soperator: a usable one, and what it can't do of what the stack file asks for."""

from collections.abc import Iterator

from cluster.catalog.nebius import soperator
from cluster.catalog.nebius.soperator import parse
from cluster.config.cluster import ClusterConfig
from cluster.findings import Finding, Level, Location, listing
from cluster.platforms.nebius.names import WORKER
from cluster.platforms.nebius.section import Nebius
from cluster.roster import has_gpus

_AT: Location = ("nebius", "soperator", "version")
_TAKEN_NODESETS = ("accounting", "system")
"""Names of other node groups, besides those that no cluster's nodesets have (controller, login)."""
CHECKS_PARTITION = "hidden"
"""The partition that Soperator's active checks run in."""
CHECKS_USERS = ("nebius", "soperatorchecks")
"""Users that Soperator creates for its checks."""


def find_errors(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    version = settings.soperator.version
    if parse(version) < soperator.FIRST:
        first = ".".join(map(str, soperator.FIRST))
        yield Finding(
            id="nebius-soperator-old",
            at=_AT,
            given=version,
            allowed=f"{first} or later, e.g. {soperator.DEFAULT}: this program follows the newest series and the next",
            todo=f"write {soperator.DEFAULT}",
        )
        return
    for fault in soperator.faults(version):
        if fault.fatal and (has_gpus(config) or not fault.needs_gpus):
            fixed = " or ".join(".".join(map(str, one)) for one in fault.fixed)
            yield Finding(
                id="nebius-soperator-fault",
                at=_AT,
                given=f"{version} ({fault.name}: {fault.what})",
                allowed=f"a version without the fault, from {fixed} on (nebius/soperator, {fault.source})",
                todo=f"write {soperator.DEFAULT}",
            )
    if (given := config.slurm.version) and given != settings.slurm_release:
        yield Finding(
            id="nebius-slurm-release",
            at=("slurm", "version"),
            given=given,
            allowed=f"{settings.slurm_release}, the release of Soperator {version}",
            todo="remove it, or write another nebius.soperator.version",
        )
    if (only := soperator.cluster_name(version)) and config.name != only:
        yield Finding(
            id="nebius-cluster-name",
            at=("name",),
            given=config.name,
            allowed=f"{only} with Soperator {version}: its chart of active checks has objects in the namespace {only}, "
            "whatever the cluster is called",
            todo=f"write name: {only}; the stack keeps its name",
        )
    yield from _names(config)
    if not settings.has_nodesets:
        yield from _one_nodeset(config, settings)
        yield from _only_newer(config, settings)
    else:
        yield from _only_older(settings)


def find_warnings(settings: Nebius) -> Iterator[Finding]:
    version = settings.soperator.version
    if not soperator.is_known(version):
        yield Finding(
            id="nebius-soperator-unknown",
            level=Level.WARNING,
            at=_AT,
            what=f"the charts of Soperator {version} are not known here, the newest of which are those of "
            f"{soperator.DEFAULT}: values may be missing, and without charts of that version `up` fails",
            todo=f"check that there is such a release, or write {soperator.DEFAULT}",
        )
    milder = [one for one in soperator.faults(version) if not one.fatal]
    if milder:
        yield Finding(
            id="nebius-soperator-faults",
            level=Level.WARNING,
            at=_AT,
            what=f"Soperator {version} has known faults: "
            + "; ".join(f"{one.what} ({one.name}, nebius/soperator, {one.source})" for one in milder),
            todo=f"write {soperator.DEFAULT}, which has none of them",
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


def _one_nodeset(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    version = settings.soperator.version
    for name in config.nodesets:
        if name != WORKER:
            yield Finding(
                id="nebius-nodeset-before-3",
                at=("nodesets", name),
                given=name,
                allowed=f"with Soperator {version} exactly one nodeset, with the name {WORKER}; more from 3.0 on",
                todo=f"rename it to {WORKER} and have no other, or write nebius.soperator.version: {soperator.DEFAULT}",
            )


def _only_newer(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    """What charts before 3.0 have no values for."""
    version = parse(settings.soperator.version)
    for name, section in config.nodesets.items():
        if section.node_conf:
            yield _too_old(("nodesets", name, "node_conf"), "parameters", "3.0.0", settings)
        if section.features and version < (1, 20, 0):
            yield _too_old(("nodesets", name, "features"), listing(section.features), "1.20.0", settings)
    for name, workers in settings.workers.items():
        for key in ("local_disks", "image_disk"):
            if getattr(workers, key):
                yield _too_old(("nebius", "workers", name, key), "a disk of each node", "3.0.0", settings)
    if settings.health.scope != type(settings.health).model_fields["scope"].default:
        yield _too_old(("nebius", "health", "scope"), settings.health.scope, "3.0.0", settings)
    if settings.generation > 1:
        yield from _nccl(settings)


def _only_older(settings: Nebius) -> Iterator[Finding]:
    yield from _nccl(settings)


def _nccl(settings: Nebius) -> Iterator[Finding]:
    nccl = settings.health.nccl
    if nccl != type(nccl)():
        yield Finding(
            id="nebius-nccl-check",
            at=("nebius", "health", "nccl"),
            given="settings of the NCCL CronJob",
            allowed=f"nothing with Soperator {settings.soperator.version}: from 1.22 on active checks test NCCL",
            todo="remove it",
        )


def _too_old(at: Location, given: str, since: str, settings: Nebius) -> Finding:
    return Finding(
        id="nebius-soperator-field",
        at=at,
        given=given,
        allowed=f"nothing with Soperator {settings.soperator.version}: its charts have it from {since} on",
        todo=f"remove it, or write nebius.soperator.version: {soperator.DEFAULT}",
    )
