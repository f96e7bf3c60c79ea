"""Checks of prologs and epilogs, of their interpreters, and of nodes' warm-up."""

from collections.abc import Collection, Iterator

from cluster.catalog.prologs import RXDM_VERSIONS
from cluster.catalog.slurm_releases import CONF
from cluster.config.cluster import ClusterConfig
from cluster.config.slurm import Script
from cluster.findings import Finding, Level, Location, listing, repeated, show, unknown, unknown_name
from cluster.people import admits_root
from cluster.placed_scripts import interpreter, placed_scripts

_WARM_UP = ("slurm", "warm_up")


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    yield from _script_names(config)
    yield from _interpreters(config)
    yield from _rxdm(config)
    yield from _health(config)
    yield from _prolog_parameters(config)
    yield from _warm_up(config)


def _prolog_parameters(config: ClusterConfig) -> Iterator[Finding]:
    if config.slurm.rxdm is None and not any(placed_scripts(config)):
        return
    for key in config.slurm.extra:
        if CONF.canonical(key) in ("Prolog", "Epilog"):
            yield Finding(
                id="script-parameter",
                at=("slurm", "extra", key),
                given=show(config.slurm.extra[key]),
                allowed=f"{key} only in a stack without scripts, which are run by a program of their own",
                todo="remove it, and give the script under `slurm.scripts`",
            )


def find_warnings(config: ClusterConfig) -> Iterator[Finding]:
    """Warn of partitions with rxdm whose nodes run several jobs."""
    for name in config.slurm.rxdm.partitions if config.slurm.rxdm else ():
        if not config.partitions[name].exclusive:
            yield Finding(
                id="rxdm-shared-nodes",
                level=Level.WARNING,
                at=("partitions", name, "exclusive"),
                what="jobs that share a node end each other's rxdm: the prolog of the second stops the container of "
                "the first",
                todo="write `exclusive: true`, as rxdm serves one job on a node",
            )


def find_warm_up_warnings(config: ClusterConfig) -> Iterator[Finding]:
    warm, rxdm = config.slurm.warm_up, config.slurm.rxdm
    if warm is None:
        return
    partitions = warm.partitions or tuple(config.partitions)
    if closed := _partitions_without_root(config, partitions):
        yield Finding(
            id="warm-up-closed",
            level=Level.WARNING,
            at=_WARM_UP,
            what=f"root's jobs download what nodes need, and may not run in {listing(closed)} (allow_accounts, "
            "allow_qos): nodes that are in no other partition stay as they are",
            todo="limit these partitions with allow_groups, which does not keep root out, or leave them out of "
            "slurm.warm_up.partitions",
        )
    if warm.containers:
        return
    if not set(partitions) & set(rxdm.partitions if rxdm else ()):
        yield Finding(
            id="warm-up-nothing",
            level=Level.WARNING,
            at=_WARM_UP,
            what="there is nothing to download: no `containers`, and rxdm runs in none of the partitions",
            todo="name images under `containers`, or remove the section",
        )


def _script_names(config: ClusterConfig) -> Iterator[Finding]:
    """Check that a name stands for one script, and is in a list once."""
    by_name: dict[str, tuple[Location, Script]] = {}
    for at, script in placed_scripts(config):
        first_at, first = by_name.setdefault(script.name, (at, script))
        if first_at == at:
            continue
        if first_at[:-1] == at[:-1]:
            yield Finding(
                id="script-name-twice",
                at=(*at, "name"),
                given=script.name,
                allowed="each name once in a list",
                todo="remove the second one, or rename it; `on: [prolog, epilog]` runs one script before and after",
            )
        elif (first.file, first.url, first.text) != (script.file, script.url, script.text):
            yield Finding(
                id="script-name-differs",
                at=(*at, "name"),
                given=script.name,
                allowed="the same script wherever the name stands: it is one file on the cluster",
                todo="rename one of the two",
            )


def _interpreters(config: ClusterConfig) -> Iterator[Finding]:
    for at, script in placed_scripts(config):
        if script.text is not None and (finding := interpreter(config, (*at, "text"), script.text)):
            yield finding


def _health(config: ClusterConfig) -> Iterator[Finding]:
    """Check the users that health checks name, and parameters of slurm.conf that they set."""
    health = config.slurm.health
    if health is None:
        return
    names = [user.name for user in config.users]
    for name, test in (("nccl", health.nccl), ("fabric", health.fabric)):
        if test and test.user and test.user not in names:
            at = ("slurm", "health", name, "user")
            yield unknown_name(at, test.user, names, "a user", "users", rule="health-user-unknown")
    for key in config.slurm.extra:
        name = CONF.canonical(key) or key
        if name.startswith("HealthCheck") or (name in ("Prolog", "Epilog") and (health.prolog or health.epilog)):
            yield Finding(
                id="health-parameter",
                at=("slurm", "extra", key),
                given=show(config.slurm.extra[key]),
                allowed=f"{key} only in a stack without `slurm.health`, which sets it",
                todo="remove it, or remove `slurm.health`",
            )


def _rxdm(config: ClusterConfig) -> Iterator[Finding]:
    rxdm = config.slurm.rxdm
    if rxdm is None:
        return
    at = ("slurm", "rxdm")
    yield from unknown((*at, "partitions"), rxdm.partitions, config.partitions, "a partition", "partitions")
    yield from repeated((*at, "partitions"), rxdm.partitions, "partition", rule="rxdm-partition-twice")
    version = RXDM_VERSIONS.get(rxdm.sha256 or "")
    if version and not version.usable:
        yield Finding(
            id="rxdm-version",
            at=(*at, "sha256"),
            given=f"{version.sha256[:16]}..., the version of {version.date}",
            allowed="a version that writes the exports that NCCL needs; this one does not, on any system",
            todo="remove url and sha256 for the one that goes with the image's driver",
        )


def _warm_up(config: ClusterConfig) -> Iterator[Finding]:
    warm = config.slurm.warm_up
    if warm is None:
        return
    at = (*_WARM_UP, "partitions")
    yield from unknown(at, warm.partitions, config.partitions, "a partition", "partitions")
    yield from repeated(at, warm.partitions, "partition", rule="warm-up-partition-twice")
    yield from repeated((*_WARM_UP, "containers"), warm.containers, "image", rule="warm-up-image-twice")


def _partitions_without_root(config: ClusterConfig, names: Collection[str]) -> list[str]:
    """Return the partitions that do not admit root, and of whose nodes some are in no other that does."""
    partitions = {name: config.partitions[name] for name in names if name in config.partitions}
    admitted = {nodeset for part in partitions.values() if admits_root(part) for nodeset in part.nodesets}
    return [name for name, part in partitions.items() if not admits_root(part) and not admitted >= set(part.nodesets)]
