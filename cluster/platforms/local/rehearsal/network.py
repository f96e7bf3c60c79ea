"""The rehearsal's network: large enough for its machines, and cut into blocks as its address plan has them."""

import ipaddress
from collections.abc import Iterator, Mapping

from cluster.platforms.local.address_plan import BLOCKS

PRIVATE = ipaddress.IPv4Network("10.0.0.0/8")
FIRST = ipaddress.IPv4Address("10.78.0.0")
"""Where candidates begin: after the network of Pulumi.dev.yaml, so that both can be up."""
USUAL = 20
"""Prefix length that a rehearsal has unless it needs more room: 510 nodes in each of seven nodesets."""


def candidates(room: int) -> Iterator[str]:
    """Private networks of the usual size, or of the prefix length `room` if that is larger, always in the same order;
    none where no network is that large."""
    prefix = min(USUAL, room)
    if prefix < PRIVATE.prefixlen:
        return
    start = ipaddress.IPv4Network((FIRST, prefix), strict=False)
    first = int(start.network_address)
    for address in range(first, int(PRIVATE.broadcast_address), start.num_addresses):
        yield f"{ipaddress.IPv4Address(address)}/{prefix}"


def prefix(counts: Mapping[str, int], logins: int) -> int:
    """Longest prefix of a network for nodesets with so many nodes, 0 for one on the controller."""
    # A block's first and last address stay free; the first block has the network's own, the host and the controller.
    block = max(*(count + 2 for count in counts.values()), logins + 4, 1)
    bits = (block - 1).bit_length()
    while len(counts) >= BLOCKS and len(counts) > ((BLOCKS - 1) << (bits - _bits(block))):
        bits += 1
    return 32 - 3 - bits


def blocks(cidr: str, counts: Mapping[str, int]) -> dict[str, str]:
    """Blocks that nodesets must be given by name: none where each has an eighth of the network anyway."""
    if len(counts) < BLOCKS:
        return {}
    network = ipaddress.IPv4Network(cidr)
    size = 1 << _bits(max(counts.values()) + 2)
    first = int(network.network_address) + network.num_addresses // BLOCKS
    length = 33 - size.bit_length()
    return {
        name: f"{ipaddress.IPv4Address(first + position * size)}/{length}"
        for position, name in enumerate(name for name, count in counts.items() if count)
    }


def _bits(addresses: int) -> int:
    return (addresses - 1).bit_length()
