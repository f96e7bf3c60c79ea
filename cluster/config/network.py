"""The cluster's networks."""

from typing import Annotated

from pydantic import AfterValidator, Field

from cluster.config.impact_annotations import NoEffect, Refuse
from cluster.config.section import Section
from cluster.config.types import Cidr, ClusterCidr, Flag, PublicCidr
from cluster.config.validators import cloud_resource

RANGES = Refuse("machines and file systems are known by their addresses in it")

ResourceName = Annotated[
    str, AfterValidator(cloud_resource("networks", "(global/networks|regions/REGION/subnetworks)", "shared-vpc"))
]


class ExistingNetwork(Section):
    """A network that is there already, and stays."""

    network: ResourceName = Field(examples=["shared-vpc"])
    """Its name, or projects/PROJECT/global/networks/NAME."""
    subnetwork: ResourceName = Field(examples=["hpc"])
    """A subnetwork of it in the stack's region, by name or projects/PROJECT/regions/REGION/subnetworks/NAME; its range
    is network.cidr."""


class Network(Section):
    """The cluster's own networks."""

    cidr: Annotated[ClusterCidr, Refuse("machines are known by their addresses")]
    """Private IPv4 network for all machines; no other network in reach may overlap it. Default on local: 10.77.0.0/20,
    on gcp 172.16.0.0/20."""
    gpu_cidr: Annotated[Cidr | None, RANGES] = None
    """On gcp: private network that the GPUs' eight networks (on A3 Ultra and A4: subnetworks of one network) are cut
    from, where nodes have any. Default: 10.0.0.0/17, eight of /20."""
    second_cidr: Annotated[Cidr | None, RANGES] = None
    """On gcp: private network of the nodes' second NIC, where they have one for other traffic than the GPUs': A3 Ultra
    and A4. Default: 10.1.0.0/20."""
    services_cidr: Annotated[Cidr | None, RANGES] = None
    """On gcp: private network for what Google runs for the stack (Managed Lustre, Filestore). Default: 10.128.0.0/20.
    """
    existing: Annotated[ExistingNetwork | None, RANGES] = None
    """On gcp: a network to use in place of one of the stack's own. It must have a way out (NAT) for first boots."""
    nat: Annotated[
        Flag, NoEffect("machines reach the internet from then on, or no longer; the cluster's own network stays")
    ] = True
    """On gcp: whether machines without a public address can reach the internet, for packages and container images."""
    admin_cidrs: Annotated[
        tuple[PublicCidr, ...], NoEffect("who may reach SSH of the login machines from then on; sessions stay")
    ] = ()
    """On gcp: who may reach SSH of the login machines at their public addresses, e.g. [203.0.113.7/32]; Identity-Aware
    Proxy reaches every machine in any case."""
