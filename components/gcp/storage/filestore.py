"""A Filestore share, by NFS."""

from collections.abc import Sequence

import pulumi
from pulumi_gcp import filestore
from pulumi_gcp.filestore.outputs import InstanceNetwork

from cluster.platforms.gcp.address_plan import plan
from cluster.platforms.gcp.filesystems.filestore import Filestore
from cluster.platforms.gcp.names import labels, place
from components.gcp.storage.base import FileSystemComponent


class FilestoreShare(FileSystemComponent[Filestore]):
    """One instance of Filestore with one share."""

    TYPE = "hpc:gcp:FilestoreShare"

    def make(self) -> None:
        config, given, network = self.args.config, self.args.kind.section, self.args.network
        share = share_name(given.mount)
        direct = plan(config).filestore
        instance = filestore.Instance(
            f"{self.name}-instance",
            name=f"{config.name}-filestore",
            location=place(config).region if given.tier == "REGIONAL" else place(config).zone,
            tier=given.tier,
            file_shares=filestore.InstanceFileSharesArgs(name=share, capacity_gb=given.size_gb),
            networks=[
                filestore.InstanceNetworkArgs(
                    network=network.system_network,
                    modes=["MODE_IPV4"],
                    connect_mode="DIRECT_PEERING" if direct else "PRIVATE_SERVICE_ACCESS",
                    reserved_ip_range=direct,
                )
            ],
            labels=labels(config, "storage"),
            opts=pulumi.ResourceOptions(
                parent=self,
                protect=config.deletion_protection,
                depends_on=[network.services or network.ready],
            ),
        )
        address = instance.networks.apply(_address)
        self.source = pulumi.Output.format("{0}:/{1}", address, share)
        self.facts = {
            "tier": given.tier, "mount": given.mount, "source": self.source, "server_ip": address,
            "capacity_gib": given.size_gb,
        }  # fmt: skip
        self.ready = [instance]
        self.register_outputs({"source": self.source})


def share_name(mount: str) -> str:
    """Name of the share: never that of the directory that it is mounted at, which exportfs would stumble over."""
    return "shared" if mount.rpartition("/")[2] != "shared" else "files"


def _address(networks: Sequence[InstanceNetwork]) -> str:
    return (networks[0].ip_addresses or [""])[0]
