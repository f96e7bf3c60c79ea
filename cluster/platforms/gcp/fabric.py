"""Networks between GPUs: which fabric nodes have, and what the cluster needs for it."""

from cluster.catalog.fabrics import NONE, Fabric
from cluster.config.cluster import ClusterConfig
from cluster.roster import nodeset_type


def fabrics(config: ClusterConfig) -> list[Fabric]:
    """The fabrics of the nodes whose GPUs have NICs of their own, each once, in the order of the file."""
    found = (nodeset_type(config, section).family.fabric for section in config.nodesets.values())
    return [fabric for fabric in dict.fromkeys(found) if fabric.nics]


def gpu_networks(config: ClusterConfig) -> int:
    """How many networks the NICs of the fabric need: each NIC of a machine must be in a network of its own."""
    return max((fabric.nics for fabric in fabrics(config)), default=0)


def gpu_mtu(config: ClusterConfig) -> int | None:
    """MTU of these networks, in bytes."""
    return max((fabric.mtu or 0 for fabric in fabrics(config)), default=None)


def system_mtu(config: ClusterConfig) -> int:
    """MTU of the system network, in bytes."""
    return max(fabric.system_mtu for fabric in fabrics(config) or [NONE])
