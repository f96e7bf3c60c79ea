"""Networks on Google Cloud: apart from each other, large enough, and open to nobody by accident."""

import ipaddress
from collections.abc import Iterator
from itertools import combinations

from cluster import roster
from cluster.checks import machines
from cluster.config.cluster import ClusterConfig
from cluster.findings import Finding, listing
from cluster.platforms.gcp import address_plan
from cluster.platforms.gcp.defaults import NETWORK
from cluster.platforms.gcp.fabric import fabric_of
from cluster.platforms.gcp.filesystems.registry import file_systems
from cluster.platforms.gcp.image.source import bakes, installs

LARGEST_SERVICES = 22
"""Prefix length: half of it is a /23, Managed Lustre's least (cloud.google.com/managed-lustre/docs/vpc)."""
LARGEST_GPU = 26
"""Prefix length: an eighth of it is a /29, the smallest subnetwork there is (cloud.google.com/vpc/docs/subnets)."""
TAKEN = 4
"""Addresses of each subnetwork that Google keeps (cloud.google.com/vpc/docs/subnets)."""


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    yield from _overlaps(config)
    yield from _sizes(config)
    yield from _public(config)
    if not config.network.nat and not config.network.existing and (bakes(config) or installs(config)):
        yield Finding(
            id="network-nat",
            at=("network", "nat"),
            given="false",
            allowed="true, where machines install packages: an image is baked, or each installs at its first boot",
            todo="remove it, or name an image that is there already: `image: {name: ...}`",
        )


def _used(config: ClusterConfig) -> dict[str, ipaddress.IPv4Network]:
    """The networks that the stack uses, by their keys."""
    network = config.network
    services = any(file_system.peered or file_system.own_range for file_system in file_systems(config))
    fabric = fabric_of(config)
    used = {
        "cidr": network.cidr,
        "gpu_cidr": network.gpu_cidr if fabric.nics else None,
        "second_cidr": network.second_cidr if len(fabric.host_nics) > 1 else None,
        "services_cidr": network.services_cidr if services else None,
    }
    return {key: ipaddress.IPv4Network(value) for key, value in used.items() if value}


def _overlaps(config: ClusterConfig) -> Iterator[Finding]:
    purpose = {
        "cidr": "the machines'",
        "gpu_cidr": "the GPUs'",
        "second_cidr": "of the nodes' second NIC",
        "services_cidr": "for what Google runs",
    }
    for (one, left), (other, right) in combinations(_used(config).items(), 2):
        if not left.overlaps(right):
            continue
        # What the file says is at fault before a default.
        fault, against = (one, other) if str(right) == NETWORK[other] else (other, one)
        networks = {one: left, other: right}
        yield Finding(
            id="network-overlap",
            at=("network", fault),
            given=str(networks[fault]),
            allowed=f"a network that overlaps no other; {networks[against]} is {purpose[against]} ({against})",
            todo=f"choose another, e.g. the default {NETWORK[fault]}"
            if not ipaddress.IPv4Network(NETWORK[fault]).overlaps(networks[against])
            else "choose another private network",
        )


def _sizes(config: ClusterConfig) -> Iterator[Finding]:
    network = config.network
    for crowd in () if any(machines.count_errors(config)) else address_plan.crowded(config):
        yield Finding(
            id="network-size",
            at=("network", "cidr"),
            given=f"{network.cidr}: {crowd}",
            allowed="a network whose sixteen parts hold all machines, e.g. 172.16.0.0/20 "
            "(docs/reference/google-cloud.md)",
            todo="widen it",
        )
    used = _used(config)
    said = ipaddress.IPv4Network(network.gpu_cidr or "10.0.0.0/17")
    if said.prefixlen > LARGEST_GPU:
        yield Finding(
            id="gpu-network-size",
            at=("network", "gpu_cidr"),
            given=str(said),
            allowed=f"a network of /{LARGEST_GPU} or larger, of which each of eight GPU networks gets a part",
            todo="widen it, e.g. 10.0.0.0/17",
        )
    elif gpu := used.get("gpu_cidr"):
        nodes = sum(
            section.count
            for section in config.nodesets.values()
            if roster.nodeset_type(config, section).family.fabric.nics
        )
        room = (gpu.num_addresses // address_plan.GPU_NETWORKS) - TAKEN
        if room < nodes:
            yield Finding(
                id="gpu-network-nodes",
                at=("network", "gpu_cidr"),
                given=str(gpu),
                allowed=f"a network whose eighth holds {nodes} nodes and {TAKEN} addresses of Google's",
                todo="widen it, e.g. 10.0.0.0/17",
            )
    services = used.get("services_cidr")
    if services and services.prefixlen > LARGEST_SERVICES:
        yield Finding(
            id="services-network-size",
            at=("network", "services_cidr"),
            given=str(services),
            allowed=f"a network of /{LARGEST_SERVICES} or larger, e.g. 10.128.0.0/20",
            todo="widen it",
        )


def _public(config: ClusterConfig) -> Iterator[Finding]:
    login, admins = config.login, config.network.admin_cidrs
    if login.public and not login.on and login.count == 0:
        yield Finding(
            id="login-public-nowhere",
            at=("login", "public"),
            given="true, with no login machine",
            allowed="true with a login machine, or `on: controller`",
            todo="raise login.count, or remove `public`: Identity-Aware Proxy reaches the controller",
        )
    elif login.public and not admins:
        yield Finding(
            id="login-public-nobody",
            at=("login", "public"),
            given="true, and nobody in network.admin_cidrs",
            allowed="true together with network.admin_cidrs, e.g. [203.0.113.7/32]",
            todo="say who may reach it, or remove `public`: Identity-Aware Proxy needs no public address",
            missing="admin_cidrs",
        )
    if admins and not login.public:
        yield Finding(
            id="admin-cidrs-unused",
            at=("network", "admin_cidrs"),
            given=listing(admins),
            allowed="networks of those who log in at public addresses, which no machine has",
            todo="remove them, or write `login: {public: true}`",
        )
