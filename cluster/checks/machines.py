"""Machines: types that the platform has, names that fit, one nodeset on the controller at most."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cluster import roster
from cluster.catalog import IMAGES, MACHINE_TYPES
from cluster.findings import Broken, Location, listing, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.config.cluster import ClusterConfig

LONGEST_HOST_NAME = 63
"""A label of the domain name system (RFC 1035), and what sethostname(2) leaves room for."""


def broken(config: ClusterConfig) -> Iterator[Broken]:
    """Rules of machines that do not hold."""
    yield from _image(config)
    if config.image.presents_as and config.platform != "local":
        yield Broken(
            at=("image", "presents_as"),
            given=config.image.presents_as,
            allowed="nothing on platforms but local, whose machines run what `image.base` says",
            todo=f"remove it, and set `image: {{base: {config.image.presents_as}}}` if that is what is meant",
        )
    yield from _types(config)
    yield from _gpus(config)
    yield from _names(config)
    hosted = [name for name, section in config.nodesets.items() if section.on]
    for name in hosted[1:]:
        yield Broken(
            at=("nodesets", name, "on"),
            given="controller",
            allowed="one nodeset on the controller, since a node is in one nodeset",
            todo=f"remove the nodeset and let partitions name {hosted[0]}, or give it machines of its own",
        )


def _image(config: ClusterConfig) -> Iterator[Broken]:
    image = IMAGES[config.image.base]
    fitting = [one.name for one in IMAGES.values() if config.platform in one.platforms]
    if config.platform not in image.platforms:
        yield Broken(
            at=("image", "base"),
            given=image.name,
            allowed=f"on {config.platform}: {listing(fitting)}",
            todo=f"write one of these, or remove the key for the default, {fitting[0] if fitting else 'none'}",
        )
    elif config.slurm_version not in image.slurm_versions:
        yield Broken(
            at=("slurm", "version"),
            given=config.slurm_version,
            allowed=f"what {image.name} can run: {listing(image.slurm_versions)}",
            todo="remove the key: the image decides",
        )


def _types(config: ClusterConfig) -> Iterator[Broken]:
    given: dict[Location, str | None] = {
        ("controller", "machine_type"): config.controller.machine_type,
        ("login", "machine_type"): config.login.machine_type,
        **{("nodesets", name, "machine_type"): one.machine_type for name, one in config.nodesets.items()},
    }
    for at, name in given.items():
        if name is not None:
            yield from wrong_platform(at, name, config.platform)


def wrong_platform(at: Location, name: str, platform: str) -> Iterator[Broken]:
    """A machine type that the platform does not have. A rehearsal may claim to be any machine; a cloud has its own."""
    if platform in ("local", MACHINE_TYPES[name].platform):
        return
    fitting = [one.name for one in MACHINE_TYPES.values() if one.platform == platform and one.family.usable]
    yield Broken(
        at=at,
        given=name,
        allowed=f"a machine type of {platform}: {listing(fitting)}",
        todo=f"write {nearest(name, fitting) or fitting[0]}" if fitting else "use another platform",
    )


def _gpus(config: ClusterConfig) -> Iterator[Broken]:
    for name, section in config.nodesets.items():
        if section.gpus is None or section.machine_type is None:
            continue
        kind = MACHINE_TYPES[section.machine_type]
        at: Location = ("nodesets", name, "gpus")
        if kind.gpu:
            yield Broken(
                at=at,
                given=f"{section.gpus.count} x {section.gpus.type}",
                allowed=f"no gpus on {kind.name}, which comes with {kind.gpu.count} x {kind.gpu.type}",
                todo="remove `gpus`",
            )
        elif section.gpus.type not in kind.family.gpus:
            takers = [one.name for one in MACHINE_TYPES.values() if section.gpus.type in one.family.gpus]
            yield Broken(
                at=(*at, "type"),
                given=section.gpus.type,
                allowed=f"on {kind.name}: {listing(kind.family.gpus)}",
                todo=f"use a machine type that takes it: {listing(takers)}" if takers else "use another GPU type",
            )


def _names(config: ClusterConfig) -> Iterator[Broken]:
    for name in config.nodesets:
        longest = max(roster.node_names(config, name), key=len)
        if len(longest) > LONGEST_HOST_NAME:
            yield Broken(
                at=("nodesets", name),
                given=f"a host name of {len(longest)} characters: {longest}",
                allowed=f"names that make host names of at most {LONGEST_HOST_NAME} characters, e.g. gpu",
                todo="shorten the nodeset's or the cluster's name",
            )
    counted = Counter(machine.name for machine in roster.machines(config))
    for name in config.nodesets:
        if name in counted:
            yield Broken(
                at=("nodesets", name),
                given=name,
                allowed="a name that no machine has, e.g. cpu",
                todo="rename the nodeset: slurm.conf could not tell it from the machine",
            )
