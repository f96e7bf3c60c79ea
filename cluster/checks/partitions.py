"""Partitions: they name what exists, exactly one is the default, and their limits can be met."""

from collections.abc import Iterator

from cluster import people, roster
from cluster.checks.names import repeated, unknown, unknown_name
from cluster.config.cluster import ClusterConfig
from cluster.config.partitions import Partition
from cluster.config.validators.settings import minutes
from cluster.findings import Finding, nearest


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    yield from _default(config)
    yield from _alike(config)
    account_names = [one.name for one in people.accounts(config)]
    qos_names = people.qos_names(config)
    group_names = [one.name for one in people.unix_groups(config)]
    for name, part in config.partitions.items():
        at = ("partitions", name)
        yield from unknown((*at, "nodesets"), part.nodesets, config.nodesets, "a nodeset", "nodesets")
        yield from repeated((*at, "nodesets"), part.nodesets, "nodeset", rule="partition-nodeset-twice")
        yield from unknown(
            (*at, "allow_accounts"), part.allow_accounts, account_names, "an account", "accounting.accounts"
        )
        yield from unknown((*at, "allow_groups"), part.allow_groups, group_names, "a group", "groups")
        yield from unknown((*at, "allow_qos"), part.allow_qos, qos_names, "a QOS", "accounting.qos")
        if part.qos and part.qos not in qos_names:
            yield unknown_name(
                (*at, "qos"), part.qos, qos_names, "a QOS", "accounting.qos", rule="partition-qos-unknown"
            )
        yield from _limits(config, name, part)


def _default(config: ClusterConfig) -> Iterator[Finding]:
    defaults = [name for name, part in config.partitions.items() if part.default]
    if not defaults:
        first = next(iter(config.partitions))
        yield Finding(
            id="partition-default-missing",
            at=("partitions",),
            given="no partition with `default: true`",
            allowed="exactly one default partition, where jobs go that name none",
            todo=f"add `default: true` to one of them, e.g. {first}",
            missing="default",
        )
    for name in defaults[1:]:
        yield Finding(
            id="partition-default-twice",
            at=("partitions", name, "default"),
            given=f"true, as in partition {defaults[0]}",
            allowed="true in exactly one partition",
            todo=f"remove `default: true` from {name} or from {defaults[0]}",
        )


def _alike(config: ClusterConfig) -> Iterator[Finding]:
    """Slurm distinguishes CPU and cpu, its database does not: MariaDB compares names without regard to case."""
    seen: dict[str, str] = {}
    for name in config.partitions:
        before = seen.setdefault(name.lower(), name)
        if before != name:
            yield Finding(
                id="partition-name-case",
                at=("partitions", name),
                given=name,
                allowed=f"a name that differs from {before} in more than capitals, e.g. {name.lower()}-2",
                todo=f"rename one of the two: Slurm's database takes {name} and {before} for one",
            )


def _limits(config: ClusterConfig, name: str, part: Partition) -> Iterator[Finding]:
    at = ("partitions", name)
    sections = [config.nodesets[one] for one in part.nodesets if one in config.nodesets]
    if len(sections) < len(part.nodesets):
        return
    memory = min(roster.sizes(config, one).memory for one in sections)
    for key, value in (("def_mem_per_cpu", part.def_mem_per_cpu), ("max_mem_per_cpu", part.max_mem_per_cpu)):
        if value and value > memory:
            yield Finding(
                id="partition-memory-limit",
                at=(*at, key),
                given=str(value),
                allowed=f"1 to {memory} MiB, the memory of the smallest node in the partition",
                todo="lower it, or leave it out: the default shares a node's memory out by CPUs",
            )
    if part.def_mem_per_cpu and part.max_mem_per_cpu and part.def_mem_per_cpu > part.max_mem_per_cpu:
        yield Finding(
            id="partition-memory-default",
            at=(*at, "def_mem_per_cpu"),
            given=str(part.def_mem_per_cpu),
            allowed=f"at most max_mem_per_cpu, {part.max_mem_per_cpu}",
            todo="lower def_mem_per_cpu or raise max_mem_per_cpu",
        )
    nodes = len({node for one in part.nodesets for node in roster.node_names(config, one)})
    for key, value in (("min_nodes", part.min_nodes), ("max_nodes", part.max_nodes)):
        if value and value > nodes:
            yield Finding(
                id="partition-node-limit",
                at=(*at, key),
                given=str(value),
                allowed=f"at most the partition's {nodes} nodes",
                todo=f"lower {key}, or raise the count of {nearest(name, part.nodesets) or part.nodesets[0]}",
            )
    if part.min_nodes and part.max_nodes and part.min_nodes > part.max_nodes:
        yield Finding(
            id="partition-min-nodes",
            at=(*at, "min_nodes"),
            given=str(part.min_nodes),
            allowed=f"at most max_nodes, {part.max_nodes}",
            todo="lower min_nodes or raise max_nodes",
        )
    limit, usual = minutes(part.max_time), minutes(part.default_time or "0")
    if usual > limit:
        yield Finding(
            id="partition-default-time",
            at=(*at, "default_time"),
            given=str(part.default_time),
            allowed=f"at most max_time, {part.max_time}",
            todo="lower default_time or raise max_time",
        )
