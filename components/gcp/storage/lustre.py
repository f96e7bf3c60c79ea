"""Lustre file systems as components: what all kinds share, and Managed Lustre."""

from typing import TypeVar

import pulumi
from pulumi_gcp import lustre

from cluster.platforms.gcp.filesystems.lustre import LustreKind, Managed
from cluster.platforms.gcp.names import labels, place
from components.gcp.storage.base import FileSystemComponent

Lustre = TypeVar("Lustre", bound=LustreKind)


class LustreComponent(FileSystemComponent[Lustre]):
    """What the two kinds of Lustre have in common."""

    address: pulumi.Output[str]
    """Address of its management server."""

    def finish(self, address: pulumi.Output[str], source: pulumi.Output[str]) -> None:
        """Report where it is, how large, and how fast it can be at best. `source` is ADDRESS@tcp:/FSNAME."""
        kind, given = self.args.kind, self.args.kind.section
        figures = kind.expected(given)
        self.address, self.source, self.probe = address, source, address.apply(kind.probe)
        self.facts = {
            "kind": kind.name,
            "fsname": given.fsname,
            "mount": given.mount,
            "source": source,
            "server_ip": address,
            "capacity_gib": figures.capacity_gib,
            "bandwidth_mbps": {"read": figures.read_mbps, "write": figures.write_mbps},
            **self.more_facts(),
        }
        self.register_outputs({"source": source, "address": address})

    def more_facts(self) -> dict[str, object]:
        return {}


class ManagedLustre(LustreComponent[Managed]):
    """One instance of Managed Lustre, in the peered network."""

    TYPE = "hpc:gcp:ManagedLustre"

    def make(self) -> None:
        config, given, network = self.args.config, self.args.kind.section, self.args.network
        instance = lustre.Instance(
            f"{self.name}-instance",
            instance_id=f"{config.name}-lustre",
            location=place(config).zone,
            filesystem=given.fsname,
            capacity_gib=str(given.size_gib),
            per_unit_storage_throughput=str(given.throughput),
            network=network.system_network,
            labels=labels(config, "lustre"),
            opts=pulumi.ResourceOptions(
                parent=self,
                protect=config.deletion_protection,
                # An existing network has its own peering, which is not in the stack.
                depends_on=[network.services or network.ready],
            ),
        )
        self.ready = [instance]
        self.finish(instance.mount_point.apply(lambda at: at.partition("@")[0]), instance.mount_point)
