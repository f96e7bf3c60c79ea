"""The price of each node of a cluster, for what its jobs have cost."""

from cluster import roster
from cluster.config.cluster import ClusterConfig
from cluster.cost.estimate import estimate
from cluster.observe.money import NodePrice


def node_prices(config: ClusterConfig) -> tuple[str, dict[str, NodePrice]]:
    """Return the currency, and size and hourly price of each node, by name."""
    found, prices = estimate(config), dict[str, NodePrice]()
    for name, nodeset in config.nodesets.items():
        gpu = roster.nodeset_gpu(config, nodeset)
        size = (roster.sizes(config, nodeset).cpus, gpu.count if gpu else 0)
        for nodes, elastic in ((roster.static_names(config, name), False), (roster.elastic_names(config, name), True)):
            price = NodePrice(cpus=size[0], gpus=size[1], hour=found.node_hour(name, elastic=elastic))
            prices |= dict.fromkeys(nodes, price)
    return found.currency, prices
