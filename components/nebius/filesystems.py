"""Shared file systems: created ones, and those that were there before.

With deletion_protection, one that leaves the stack file or the stack is kept: a destroy lists it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pulumi

from cluster.platforms.nebius.node_groups import ACCOUNTING, JAIL, SPOOL, submount_tag
from cluster.platforms.nebius.section import Filesystem, Nebius
from components.nebius.cloud import Cloud, shortened


@dataclass(frozen=True, kw_only=True)
class FilesystemsArgs:
    cloud: Cloud


class Filesystems(pulumi.ComponentResource):
    """File systems by their mount tag."""

    ids: Mapping[str, pulumi.Output[str]]

    def __init__(self, name: str, args: FilesystemsArgs, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:Filesystems", name, {}, opts)
        cloud = args.cloud
        ids: dict[str, pulumi.Output[str]] = {}
        for tag, section in filesystems(cloud.settings):
            if section.spec is None:
                ids[tag] = pulumi.Output.from_input(section.existing or "")
                continue
            made = cloud.resource(
                "Filesystem",
                f"{name}-{tag}",
                {
                    "type": "NETWORK_SSD",
                    "size_gibibytes": section.spec.size_gib,
                    "block_size_bytes": section.spec.block_kib * 1024,
                },
                called=shortened(cloud.config.name, tag),
                opts=pulumi.ResourceOptions(parent=self, retain_on_delete=cloud.config.deletion_protection),
            )
            ids[tag] = made.id
        self.ids = ids
        self.register_outputs({"ids": ids})


def filesystems(settings: Nebius) -> Iterator[tuple[str, Filesystem]]:
    """Mount tag and section of each file system that the cluster has."""
    given = settings.filesystems
    yield JAIL, given.jail
    yield SPOOL, given.controller_spool
    yield ACCOUNTING, given.accounting
    for name, submount in given.submounts.items():
        yield submount_tag(name), submount
