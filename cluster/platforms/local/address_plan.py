"""Fixed addresses of the rehearsal's machines.

The network is cut into eight equal blocks:

    block 0    .1 gateway (the host), .2 controller, .3 and up login machines; the last but one that of Prometheus
    block 1-7  one for each nodeset, in the order of their names; node 0 has the block's second address

A nodeset with `addresses` has that block instead. `keep` writes the blocks of a running cluster into its configuration,
so that a nodeset that is added or removed changes no other address.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from cluster.config.cluster import ClusterConfig
from cluster.roster import elastic_machines, machines

CLOUD_PORT = 8774
"""Port of the process that creates elastic nodes, at the gateway's address. It is outside of the range that Linux uses
for clients (ip_local_port_range)."""

BLOCKS = 8


@dataclass(frozen=True, kw_only=True)
class AddressPlan:
    """The addresses of all machines."""

    gateway: str
    """The host's own address in the cluster's network."""
    prefix: int
    """Prefix length of the whole network."""
    of: Mapping[str, str]
    """Address of each machine, by name, those of elastic nodes included."""


def blocks(config: ClusterConfig) -> dict[str, ipaddress.IPv4Network]:
    """Return the block of each nodeset: its `addresses`, else the block of its position, else the first free one.

    A nodeset without a free block is missing, and so is a nodeset on the controller.
    """
    blocks = {name: ipaddress.IPv4Network(row.addresses) for name, row in config.nodesets.items() if row.addresses}
    whole = list(ipaddress.IPv4Network(config.network.cidr).subnets(prefixlen_diff=3))
    for position, (name, section) in enumerate(config.nodesets.items(), start=1):
        if name in blocks or section.on:
            continue
        candidates = [*whole[position : position + 1], *whole[1:]]
        free = next((candidate for candidate in candidates if not _overlaps(candidate, blocks)), None)
        if free is not None:
            blocks[name] = free
    return blocks


def keep(before: ClusterConfig | None, config: ClusterConfig) -> ClusterConfig:
    """Return the configuration with the addresses of every nodeset.

    A nodeset of the running cluster (`before`) keeps its block, unless the stack file names another one for it, or
    gives the block to another nodeset.
    """
    written = {name: ipaddress.IPv4Network(row.addresses) for name, row in config.nodesets.items() if row.addresses}
    if before is not None and before.network.cidr == config.network.cidr:
        for name, block in blocks(before).items():
            if name in config.nodesets and name not in written and not _overlaps(block, written):
                written[name] = block
    return _with_addresses(config, blocks(_with_addresses(config, written)))


def _with_addresses(config: ClusterConfig, of: Mapping[str, ipaddress.IPv4Network]) -> ClusterConfig:
    nodesets = {
        name: section.model_copy(update={"addresses": str(of[name])}) if name in of else section
        for name, section in config.nodesets.items()
    }
    return config.model_copy(update={"nodesets": nodesets})


def _overlaps(block: ipaddress.IPv4Network, others: Mapping[str, ipaddress.IPv4Network]) -> bool:
    return any(block.overlaps(other) for other in others.values())


def capacity(network: ipaddress.IPv4Network) -> int:
    """Return the number of machines for a block. Its first and last address are not used, like the network's."""
    return max(network.num_addresses - 2, 0)


def plan(config: ClusterConfig) -> AddressPlan:
    """Return the address of each machine. The checks of the configuration ensure that all fit."""
    network = ipaddress.IPv4Network(config.network.cidr)
    first = network.network_address
    starts = {name: block.network_address + 1 for name, block in blocks(config).items()}
    of: dict[str, str] = {}
    for machine in (*machines(config), *elastic_machines(config)):
        if "controller" in machine.roles:
            address = first + 2
        elif "login" in machine.roles:
            address = first + 3 + machine.index
        elif "monitoring" in machine.roles:
            address = first + network.num_addresses // BLOCKS - 2
        else:
            address = starts[machine.nodeset or ""] + machine.index
        of[machine.name] = str(address)
    return AddressPlan(gateway=str(first + 1), prefix=network.prefixlen, of=of)
