"""Checks of a rehearsal: address blocks inside the network and apart from each other, and shared directories."""

import ipaddress
from collections.abc import Iterator
from itertools import combinations

from cluster.checks import nodesets_and_partitions
from cluster.config.capacity import Capacity
from cluster.config.cluster import ClusterConfig
from cluster.config.fields import as_written
from cluster.findings import Finding, unknown
from cluster.platforms.local import address_plan
from cluster.roster import monitoring_machine

ROOM_BESIDE_LOGIN = 3
"""Addresses of block 0 that are taken before the login machines: the network's own, gateway, controller."""
WRITTEN = {
    "/home": "people's folders and keys, which the controller makes",
    "/opt/apps": "the scripts and the cluster state by which machines follow the controller",
    "/var/mail": "mailboxes, into which mail about jobs is delivered",
}


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    whole = ipaddress.IPv4Network(config.network.cidr)
    blocks: dict[str, ipaddress.IPv4Network] = {}
    planned = address_plan.blocks(config)
    for name, section in config.nodesets.items():
        if section.on:
            continue
        if isinstance(section.capacity, Capacity) and not section.elastic:
            yield Finding(
                id="local-capacity",
                at=("nodesets", name, "capacity"),
                given=as_written(section.capacity),
                allowed="nothing on local, but for elastic nodes: all machines are of this host",
                todo="remove it here",
            )
        block = planned.get(name)
        if block is None:
            yield _no_block_left(config, name)
        elif not block.subnet_of(whole):
            yield Finding(
                id="addresses-outside",
                at=("nodesets", name, "addresses"),
                given=str(block),
                allowed=f"a block inside network.cidr {whole}, e.g. {list(whole.subnets(prefixlen_diff=3))[7]}",
                todo="choose a block inside the cluster's network, or widen network.cidr",
            )
        else:
            blocks[name] = block
            if section.most > address_plan.capacity(block) and not any(nodesets_and_partitions.count_errors(config)):
                yield _too_many(config, name, block)
    yield from _overlaps(config, blocks)
    yield from _logins(config, whole)
    yield from _shared(config)


def _no_block_left(config: ClusterConfig, name: str) -> Finding:
    return Finding(
        id="addresses-missing",
        at=("nodesets", name),
        given="no addresses, and no block of the network is left",
        allowed=f"{address_plan.BLOCKS - 1} nodesets with a block of their own, e.g. cpu, gpu, debug",
        todo=f"give `addresses:` to {name}, a block inside {config.network.cidr} that no other nodeset uses",
    )


def _too_many(config: ClusterConfig, name: str, block: ipaddress.IPv4Network) -> Finding:
    section = config.nodesets[name]
    # The smallest block that holds the nodes and the two addresses that stay free; the network has eight of them.
    prefix = 32 - (section.most + 1).bit_length()
    if section.addresses:
        wider = f"give `addresses:` a block of /{prefix}"
    else:
        start = config.network.cidr.split("/")[0]
        network = ipaddress.IPv4Network((start, max(prefix - 3, 8)), strict=False)
        wider = f"widen the network: `network: {{cidr: {network}}}`"
    return Finding(
        id="addresses-too-few",
        at=("nodesets", name, "count"),
        given=str(section.most),
        allowed=f"1 to {address_plan.capacity(block)}, as the nodeset's addresses are {block}",
        todo=f"lower the count, or {wider}",
    )


def _overlaps(config: ClusterConfig, blocks: dict[str, ipaddress.IPv4Network]) -> Iterator[Finding]:
    whole = ipaddress.IPv4Network(config.network.cidr)
    first = next(iter(whole.subnets(prefixlen_diff=3)))
    owned = [("", first), *blocks.items()]
    for (first_owner, left), (other, right) in combinations(owned, 2):
        if not left.overlaps(right):
            continue
        yield Finding(
            id="addresses-overlap",
            at=("nodesets", other, "addresses"),
            given=str(right),
            allowed=f"a block that overlaps no other; {left} is {_owner(first_owner)}",
            todo=f"choose a free block inside {whole}",
        )


def _owner(nodeset: str) -> str:
    return f"nodeset {nodeset}'s" if nodeset else "for the gateway, the controller and login machines"


def _logins(config: ClusterConfig, whole: ipaddress.IPv4Network) -> Iterator[Finding]:
    own = monitoring_machine(config) is not None
    room = whole.num_addresses // address_plan.BLOCKS - ROOM_BESIDE_LOGIN - 1 - own
    if config.login.count > room:
        yield Finding(
            id="login-count",
            at=("login", "count"),
            given=str(config.login.count),
            allowed=f"0 to {room}: the first eighth of {whole} holds gateway, controller and login machines"
            + (" and that of Prometheus" if own else ""),
            todo="lower the count, or widen network.cidr",
        )


def _shared(config: ClusterConfig) -> Iterator[Finding]:
    at, given = ("storage", "read_only"), config.storage
    yield from unknown(at, given.read_only, given.shared, "a directory of storage.shared", "storage.shared")
    for position, path in enumerate(given.read_only):
        if path in WRITTEN and path in given.shared:
            yield Finding(
                id="read-only-needed",
                at=(*at, position),
                given=path,
                allowed=f"a directory that the cluster itself does not write to; {path} has {WRITTEN[path]}",
                todo="remove it here, or share another directory for what is only read, e.g. /data",
            )
