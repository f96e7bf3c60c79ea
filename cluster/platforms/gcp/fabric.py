"""Networks between GPUs: which fabric nodes have, and what the cluster needs for it."""

from cluster.catalog.families import Fabric, Family
from cluster.config.cluster import ClusterConfig
from cluster.roster import nodeset_type


def families(config: ClusterConfig) -> list[Family]:
    """Families of the nodes whose GPUs have a fabric, each once, in the order of the file."""
    found = {kind.name: kind for one in config.nodesets.values() if (kind := nodeset_type(config, one).family).gpu_nics}
    return list(found.values())


def tcpxo(config: ClusterConfig) -> bool:
    """Whether there are nodes with GPUDirect-TCPXO, for which images have its kernel modules and settings."""
    return any(one.fabric is Fabric.TCPXO for one in families(config))


def gpu_networks(config: ClusterConfig) -> int:
    """How many networks the NICs of the fabric need: each NIC of a machine must be in a network of its own."""
    return max((one.gpu_nics for one in families(config)), default=0)


def gpu_mtu(config: ClusterConfig) -> int | None:
    """MTU of these networks, in bytes."""
    return max((one.gpu_mtu or 0 for one in families(config)), default=None)
