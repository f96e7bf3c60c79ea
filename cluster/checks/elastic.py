"""Checks of elastic nodesets: platforms that have them, settings that fit with them, and times of their machines."""

from collections.abc import Iterator

from cluster import platform_interface
from cluster.catalog.slurm_releases import CONF
from cluster.config.cluster import ClusterConfig
from cluster.config.fields import as_written
from cluster.findings import Finding, Level, Location, listing
from cluster.slurm import power_saving

SHORTEST_IDLE = 300
"""Seconds (ours). A machine takes two minutes or more to boot. With a shorter idle time it would be deleted between the
jobs of one user."""

TUNABLE = ("ResumeRate", "SuspendRate", "SuspendTimeout")
"""Parameters of power saving that `slurm.extra` may set."""


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    yield from _nodesets(config)
    yield from _parameters(config)


def _nodesets(config: ClusterConfig) -> Iterator[Finding]:
    """Check that only elastic nodesets have the settings of elastic nodes."""
    for name, section in config.nodesets.items():
        at: Location = ("nodesets", name)
        if section.idle and not section.elastic:
            yield Finding(
                id="elastic-idle",
                at=(*at, "idle"),
                given=section.idle,
                allowed="idle of an elastic nodeset (count: {min: 2, max: 16}): other nodes stay when they are idle",
                todo="remove it, or make the nodeset elastic",
            )
        if isinstance(section.capacity, tuple) and not section.elastic:
            yield Finding(
                id="elastic-capacity",
                at=(*at, "capacity"),
                given=as_written(section.capacity),
                allowed="one way: only an elastic nodeset has its machines asked for in other ways, at run time",
                todo="keep one of them, or make the nodeset elastic, e.g. count: {min: 2, max: 16}",
            )
        if section.spare >= section.most:
            yield Finding(
                id="spare-count",
                at=(*at, "spare"),
                given=str(section.spare),
                allowed=f"fewer than the nodeset's {section.most} nodes: no job would have one",
                todo="lower it, or add as many nodes to `count`",
            )
        for position, way in enumerate(section.ways):
            if way in section.ways[:position]:
                yield Finding(
                    id="elastic-capacity-twice",
                    at=(*at, "capacity", position),
                    given=as_written(way),
                    allowed="each way once",
                    todo="remove the second one",
                )


def _parameters(config: ClusterConfig) -> Iterator[Finding]:
    """Check parameters of slurm.conf that elastic nodes depend on."""
    settings = power_saving.settings(config)
    owned = [name for name in settings if name not in (*TUNABLE, "PrivateData")]
    for key, value in config.slurm.extra.items():
        if CONF.canonical(key) == "PrivateData" and settings.get("PrivateData"):
            words = str(value).split(",")
            if "cloud" not in words:
                yield Finding(
                    id="elastic-private-data",
                    at=("slurm", "extra", key),
                    given=as_written(value),
                    allowed=f"with elastic nodesets on Slurm {config.slurm_version} a list with cloud in it",
                    todo=f"write `{key}: {','.join(['cloud', *words])}`, or nobody sees powered-down nodes",
                )
        if CONF.canonical(key) in owned:
            yield Finding(
                id="elastic-parameter",
                at=("slurm", "extra", key),
                given=key,
                allowed=f"with elastic nodesets any parameter but {listing(owned)}",
                todo="remove it: idle times are `idle` of nodesets, and the reconcile service runs the programs",
            )


def find_warnings(config: ClusterConfig) -> Iterator[Finding]:
    elastic = power_saving.elastic_nodesets(config)
    on_this_host = platform_interface.get(config.platform).on_this_host
    for name in elastic:
        section = config.nodesets[name]
        partitions = [partition for partition, part in config.partitions.items() if name in part.nodesets]
        if not partitions:
            yield Finding(
                id="elastic-partition-missing",
                level=Level.WARNING,
                at=("nodesets", name),
                what=f"no partition has {name}: no job can ask for its nodes, and no machine is ever created",
                todo="name it in a partition, or write a number as count",
            )
        longest = max(
            (int(power_saving.partition_settings(config, partition)["SuspendTime"] or 0) for partition in partitions),
            default=section.idle_seconds,
        )
        if longest != section.idle_seconds:
            yield Finding(
                id="elastic-idle-shared",
                level=Level.WARNING,
                at=("nodesets", name, "idle"),
                what=f"nodes of {name} are deleted after {longest} s and not {section.idle_seconds} s: Slurm takes the "
                "longest time of all nodesets that share a partition",
                todo="write the same `idle`, or give it a partition of its own",
            )
        if section.idle_seconds < SHORTEST_IDLE and not on_this_host:
            yield Finding(
                id="elastic-idle-short",
                level=Level.WARNING,
                at=("nodesets", name, "idle"),
                what=f"a machine takes minutes to boot, and is deleted after {section.idle_seconds} s without a job",
                todo=f"write {SHORTEST_IDLE // 60}m or more",
            )
    spare = [name for name, section in config.nodesets.items() if section.spare]
    if spare and config.slurm.reconcile.mode != "act":
        yield Finding(
            id="spare-reconcile-off",
            level=Level.WARNING,
            at=("slurm", "reconcile", "mode"),
            what=f"no node of {listing(spare)} is held back, or given to jobs, as a spare",
            todo="write `act`",
        )
    if elastic and config.slurm.reconcile.mode != "act":
        yield Finding(
            id="elastic-reconcile-off",
            level=Level.WARNING,
            at=("slurm", "reconcile", "mode"),
            what=f"nothing creates or deletes machines of {listing(elastic)}: jobs wait, and idle machines cost money",
            todo="write `act`",
        )
