"""Networks between GPUs: which fabric nodes have, and what the cluster needs for it."""

from cluster.catalog.fabrics import NONE, Fabric
from cluster.config.cluster import ClusterConfig
from cluster.roster import nodeset_type


def fabrics(config: ClusterConfig) -> list[Fabric]:
    """The fabrics of the nodes whose GPUs have NICs of their own, each once, in the order of the file."""
    found = (nodeset_type(config, section).family.fabric for section in config.nodesets.values())
    return [fabric for fabric in dict.fromkeys(found) if fabric.nics]


def fabric_of(config: ClusterConfig) -> Fabric:
    """The one fabric that the stack's networks are made for; a check refuses a second one."""
    return next(iter(fabrics(config)), NONE)
