"""Checks of nodesets and partitions: machine types of the platform, valid names, and limits that nodes can meet."""

from collections import Counter
from collections.abc import Iterator

from cluster import people, platform_interface, roster
from cluster.catalog import IMAGES, MACHINE_TYPES
from cluster.config.cluster import ClusterConfig
from cluster.config.partitions import Partition
from cluster.config.validators import minutes
from cluster.findings import Finding, Location, listing, nearest, repeated, unknown, unknown_name

LONGEST_HOST_NAME = 63
"""The most of a label of the domain name system (RFC 1035), and of sethostname(2)."""


def count_nodes(config: ClusterConfig) -> int:
    """Return the number of machines that only compute."""
    return sum(_counts(config).values())


def _counts(config: ClusterConfig) -> dict[str, int]:
    return {name: 0 if section.on else section.most for name, section in config.nodesets.items()}


def count_errors(config: ClusterConfig) -> Iterator[Finding]:
    """Check the platform's limit of machines, and report it at the largest nodeset. No list of machines is made."""
    counts, total = _counts(config), count_nodes(config)
    others = 1 + (0 if config.login.on else config.login.count)
    others += roster.monitoring_machine(config) is not None
    limit = platform_interface.get(config.platform).limit
    if total + others <= limit.machines:
        return
    largest = max(counts, key=lambda name: counts[name])
    in_all = f", with those of other nodesets {total}" if total > counts[largest] else ""
    yield Finding(
        id="machines-too-many",
        at=("nodesets", largest, "count"),
        given=f"{counts[largest]}{in_all}",
        allowed=f"{limit.machines - others} nodes in all: {limit.of} has {limit.machines} machines at most, with "
        "controller and login",
        todo="lower the count",
    )


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    yield from _image(config)
    yield from _machine_types(config)
    yield from _gpus(config)
    yield from _names(config)
    hosted = [name for name, section in config.nodesets.items() if section.on]
    for name in hosted[1:]:
        yield Finding(
            id="nodeset-on-controller",
            at=("nodesets", name, "on"),
            given="controller",
            allowed="one nodeset on the controller, since a node is in one nodeset",
            todo=f"remove the nodeset and let partitions name {hosted[0]}, or give it machines of its own",
        )
    yield from _partitions(config)


def _image(config: ClusterConfig) -> Iterator[Finding]:
    image = IMAGES[config.image.base]
    fitting = platform_interface.get(config.platform).images
    if image.name not in fitting:
        yield Finding(
            id="image-platform",
            at=("image", "base"),
            given=image.name,
            allowed=f"on {config.platform}: {listing(fitting)}",
            todo=f"write one of these, or remove the key for the default, {fitting[0]}",
        )
    elif config.slurm_version not in image.slurm_versions:
        yield Finding(
            id="slurm-version",
            at=("slurm", "version"),
            given=config.slurm_version,
            allowed=f"what {image.name} can run: {listing(image.slurm_versions)}",
            todo="remove the key: the image decides",
        )


def _machine_types(config: ClusterConfig) -> Iterator[Finding]:
    monitoring = roster.monitoring_machine(config)
    names: dict[Location, str | None] = {
        ("controller", "machine_type"): config.controller.machine_type,
        ("login", "machine_type"): config.login.machine_type,
        **({("monitoring", "machine", "machine_type"): monitoring.machine_type} if monitoring else {}),
        **{("nodesets", name, "machine_type"): section.machine_type for name, section in config.nodesets.items()},
    }
    for at, name in names.items():
        if name is not None:
            yield from wrong_platform(at, name, config.platform)


def wrong_platform(at: Location, name: str, platform: str) -> Iterator[Finding]:
    """Check that the platform has a machine type."""
    if platform_interface.get(platform).on_this_host or platform == MACHINE_TYPES[name].platform:
        return
    fitting = [
        machine_type.name
        for machine_type in MACHINE_TYPES.values()
        if machine_type.platform == platform and machine_type.family.fabric.set_up
    ]
    yield Finding(
        id="machine-type-platform",
        at=at,
        given=name,
        allowed=f"a machine type of {platform}: {listing(fitting)}",
        todo=f"write {nearest(name, fitting) or fitting[0]}" if fitting else "use another platform",
    )


def _gpus(config: ClusterConfig) -> Iterator[Finding]:
    for name, section in config.nodesets.items():
        if section.gpus is None or section.machine_type is None:
            continue
        kind = MACHINE_TYPES[section.machine_type]
        at: Location = ("nodesets", name, "gpus")
        if kind.gpu:
            yield Finding(
                id="gpus-built-in",
                at=at,
                given=f"{section.gpus.count} x {section.gpus.type}",
                allowed=f"no gpus on {kind.name}, which comes with {kind.gpu.count} x {kind.gpu.type}",
                todo="remove `gpus`",
            )
        elif section.gpus.type not in kind.family.gpus:
            suitable = [row.name for row in MACHINE_TYPES.values() if section.gpus.type in row.family.gpus]
            yield Finding(
                id="gpus-unknown",
                at=(*at, "type"),
                given=section.gpus.type,
                allowed=f"on {kind.name}: {listing(kind.family.gpus)}",
                todo=f"use a machine type that takes it: {listing(suitable)}" if suitable else "use another GPU type",
            )


def _names(config: ClusterConfig) -> Iterator[Finding]:
    for name in config.nodesets:
        longest = max(roster.node_names(config, name), key=len)
        if len(longest) > LONGEST_HOST_NAME:
            yield Finding(
                id="host-name-length",
                at=("nodesets", name),
                given=f"a host name of {len(longest)} characters: {longest}",
                allowed=f"names that make host names of at most {LONGEST_HOST_NAME} characters, e.g. gpu",
                todo="shorten the nodeset's or the cluster's name",
            )
    counted = Counter(machine.name for machine in roster.machines(config))
    for name in config.nodesets:
        if name in counted:
            yield Finding(
                id="nodeset-name-taken",
                at=("nodesets", name),
                given=name,
                allowed="a name that no machine has, e.g. cpu",
                todo="rename the nodeset: slurm.conf could not distinguish it from the machine",
            )


def _partitions(config: ClusterConfig) -> Iterator[Finding]:
    yield from _default_partition(config)
    yield from _check_case(config)
    account_names = [account.name for account in people.accounts(config)]
    qos_names = people.qos_names(config)
    group_names = [unix_group.name for unix_group in people.unix_groups(config)]
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
        yield from _partition_limits(config, name, part)


def _default_partition(config: ClusterConfig) -> Iterator[Finding]:
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


def _check_case(config: ClusterConfig) -> Iterator[Finding]:
    """Check that no names differ only in case: Slurm distinguishes them, but MariaDB, which has its database, does
    not."""
    names: dict[str, str] = {}
    for name in config.partitions:
        other = names.setdefault(name.lower(), name)
        if other != name:
            yield Finding(
                id="partition-name-case",
                at=("partitions", name),
                given=name,
                allowed=f"a name that differs from {other} in more than capitals, e.g. {name.lower()}-2",
                todo=f"rename one of the two: Slurm's database takes {name} and {other} for one",
            )


def _partition_limits(config: ClusterConfig, name: str, part: Partition) -> Iterator[Finding]:
    at = ("partitions", name)
    sections = [config.nodesets[nodeset] for nodeset in part.nodesets if nodeset in config.nodesets]
    if len(sections) < len(part.nodesets):
        return
    memory = min(roster.sizes(config, section).memory for section in sections)
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
        yield _exceeds(name, part, "def_mem_per_cpu", "max_mem_per_cpu", rule="partition-memory-default")
    nodes = len({node for nodeset in part.nodesets for node in roster.node_names(config, nodeset)})
    for key, value in (("min_nodes", part.min_nodes), ("max_nodes", part.max_nodes)):
        if value and value > nodes:
            yield Finding(
                id="partition-node-limit",
                at=(*at, key),
                given=str(value),
                allowed=f"at most the partition's {nodes} nodes",
                todo=f"lower {key}, or raise the count of {nearest(name, part.nodesets) or part.nodesets[0]}",
                missing="nodesets",
            )
    if part.min_nodes and part.max_nodes and part.min_nodes > part.max_nodes:
        yield _exceeds(name, part, "min_nodes", "max_nodes", rule="partition-min-nodes")
    if minutes(part.default_time or "0") > minutes(part.max_time):
        yield _exceeds(name, part, "default_time", "max_time", rule="partition-default-time")


def _exceeds(name: str, part: Partition, key: str, limit: str, *, rule: str) -> Finding:
    return Finding(
        id=rule,
        at=("partitions", name, key),
        given=str(getattr(part, key)),
        allowed=f"at most {limit}, {getattr(part, limit)}",
        todo=f"lower {key} or raise {limit}",
    )
