"""Fixed addresses of the rehearsal's machines.

The network is cut into eight equal blocks:

    block 0    .1 gateway (the host), .2 controller, .3 and up login machines
    block 1-7  one for each nodeset, in the file's order; node 0 has the block's second address

So a nodeset added at the end, or one more node, changes no other address. A nodeset with `addresses`
lives in that block instead.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from cluster.config.cluster import ClusterConfig
from cluster.roster import machines

BLOCKS = 8


@dataclass(frozen=True, kw_only=True)
class AddressPlan:
    """Who has which address."""

    gateway: str
    """The host's own address in the cluster's network."""
    prefix: int
    """Prefix length of the whole network."""
    of: Mapping[str, str]
    """Address of each machine, by name."""


def block(config: ClusterConfig, nodeset: str) -> ipaddress.IPv4Network | None:
    """The addresses set aside for a nodeset; None if it is past the seventh and names none of its own."""
    section = config.nodesets[nodeset]
    if section.addresses:
        return ipaddress.IPv4Network(section.addresses)
    position = list(config.nodesets).index(nodeset) + 1
    if position >= BLOCKS:
        return None
    network = ipaddress.IPv4Network(config.network.cidr)
    return list(network.subnets(prefixlen_diff=3))[position]


def capacity(network: ipaddress.IPv4Network) -> int:
    """Machines that fit a block: its first and last address stay free, as the cluster's own ones must."""
    return max(network.num_addresses - 2, 0)


def plan(config: ClusterConfig) -> AddressPlan:
    """Give each machine its address. The configuration was parsed, so everybody fits."""
    network = ipaddress.IPv4Network(config.network.cidr)
    first = network.network_address
    starts = {name: found.network_address + 1 for name in config.nodesets if (found := block(config, name))}
    of: dict[str, str] = {}
    for machine in machines(config):
        if "controller" in machine.roles:
            address = first + 2
        elif "login" in machine.roles:
            address = first + 3 + machine.index
        else:
            address = starts[machine.nodeset or ""] + machine.index
        of[machine.name] = str(address)
    return AddressPlan(gateway=str(first + 1), prefix=network.prefixlen, of=of)
