"""Machines: types that the platform has, names that fit, one nodeset on the controller at most."""

from collections import Counter
from collections.abc import Iterator

from cluster import roster
from cluster.catalog import IMAGES, MACHINE_TYPES
from cluster.config.cluster import ClusterConfig
from cluster.findings import Finding, Location, listing, nearest
from cluster.platforms import registry

LONGEST_HOST_NAME = 63
"""A label of the domain name system (RFC 1035), and what sethostname(2) leaves room for."""


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    yield from _image(config)
    yield from _types(config)
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


def _image(config: ClusterConfig) -> Iterator[Finding]:
    image = IMAGES[config.image.base]
    fitting = registry.get(config.platform).images
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


def _types(config: ClusterConfig) -> Iterator[Finding]:
    given: dict[Location, str | None] = {
        ("controller", "machine_type"): config.controller.machine_type,
        ("login", "machine_type"): config.login.machine_type,
        **{("nodesets", name, "machine_type"): one.machine_type for name, one in config.nodesets.items()},
    }
    for at, name in given.items():
        if name is not None:
            yield from wrong_platform(at, name, config.platform)


def wrong_platform(at: Location, name: str, platform: str) -> Iterator[Finding]:
    """A machine type that the platform does not have."""
    if registry.get(platform).any_machine_type or platform == MACHINE_TYPES[name].platform:
        return
    fitting = [one.name for one in MACHINE_TYPES.values() if one.platform == platform and one.family.usable]
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
            takers = [one.name for one in MACHINE_TYPES.values() if section.gpus.type in one.family.gpus]
            yield Finding(
                id="gpus-unknown",
                at=(*at, "type"),
                given=section.gpus.type,
                allowed=f"on {kind.name}: {listing(kind.family.gpus)}",
                todo=f"use a machine type that takes it: {listing(takers)}" if takers else "use another GPU type",
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
                todo="rename the nodeset: slurm.conf could not tell it from the machine",
            )
