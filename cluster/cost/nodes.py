"""The price of each node of a cluster, for what its jobs have cost, and for its budget."""

from cluster import roster
from cluster.config.cluster import ClusterConfig
from cluster.cost.estimate import estimate
from cluster.observe.money import NodePrice
from scripts.node.interface import BudgetInput


def node_prices(config: ClusterConfig) -> tuple[str, dict[str, NodePrice]]:
    """Return the currency, and size and hourly price of each node, by name."""
    found, prices = estimate(config), dict[str, NodePrice]()
    for name, nodeset in config.nodesets.items():
        gpu = roster.nodeset_gpu(config, nodeset)
        cpus, gpus = roster.sizes(config, nodeset).cpus, gpu.count if gpu else 0
        for nodes, elastic in ((roster.static_names(config, name), False), (roster.elastic_names(config, name), True)):
            price = NodePrice(cpus=cpus, gpus=gpus, hour=found.node_hour(name, elastic=elastic))
            prices |= dict.fromkeys(nodes, price)
    return found.currency, prices


def budget_input(config: ClusterConfig) -> BudgetInput | None:
    """Return the budget with the prices that the controller adds up; None without a budget. An elastic node counts at
    the dearest of its ways, and a part of it without a known price as nothing (none with `stop`)."""
    if config.budget is None:
        return None
    found = estimate(config)
    hours = {name: found.node_hour(name, elastic=True, partly=True) for name in config.nodesets}
    return {
        "month": config.budget.month,
        "currency": config.budget.currency,
        "stop": config.budget.stop == "elastic",
        "hour": found.always,
        "nodes": {name: hour for name, hour in hours.items() if hour is not None},
        "unpriced": list(dict.fromkeys(part.item for part in found.unknown)),
    }
