"""The address plan on Google Cloud.

The system network is divided into sixteen equal parts:

    part 0-7    the controller has the second address; Google assigns all others to nodes and builders
    part 8      login machines; near its end the machine of Prometheus
    part 9      Lustre's management server, then its metadata servers
    part 10-15  Lustre's object storage servers

So one more server or login machine changes no other address. Google assigns addresses from a subnetwork's low end, as
far as is known, but does not guarantee it. So nodes have the low addresses, and fixed addresses are above them. Fixed
addresses are reserved before any machine is created.
In an existing network Google chooses all addresses, since other machines use that network too.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cluster.catalog.fabrics import NONE, Fabric
from cluster.config.cluster import ClusterConfig
from cluster.platforms.gcp.defaults import NETWORK
from cluster.platforms.gcp.filesystems.registry import file_systems, peered, servers
from cluster.roster import elastic_machines, machines, nodeset_type

PARTS = 16
FIRST = 2
"""Google keeps a subnetwork's first two addresses (network, gateway)..."""
KEPT_AT_END = 2
"""...and its last two (cloud.google.com/vpc/docs/subnets#unusable-ip-addresses-in-every-subnet)."""
GPU_NETWORKS = 8
"""Networks that the GPUs' range is divided into: each NIC of a machine must be in a network of its own."""
NAT_ADDRESSES = 2
"""Public addresses of Cloud NAT: each has 64512 ports, enough for 1008 machines with the fewest ports."""
LOGIN, METADATA, OBJECTS = 8, 9, 10
"""First part of each kind of machine with a fixed address; nodes have all parts below the first."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The addresses of all machines."""

    system: str
    """Range of the system subnetwork."""
    gpu: tuple[str, ...] = ()
    """Range of each GPU subnetwork, in the order of the NICs; empty where no node has GPU NICs."""
    second: str | None = None
    """Range of the network of the host's second NIC; None if nodes have one host NIC."""
    managed: str | None = None
    """Range of services that are reached by private service access: Managed Lustre, Filestore."""
    filestore: str | None = None
    """Range of a Filestore of a basic tier, which has a peering of its own."""
    of: Mapping[str, str] = field(default_factory=dict)
    """Fixed addresses of all machines but nodes, with Lustre's servers, by name; empty in an existing network."""
    dynamic: str = ""
    """The nodes' addresses: first and last."""


def plan(config: ClusterConfig) -> Plan:
    """Return the addresses of all machines. They overlap in a network for which `shortages` returns something."""
    system = ipaddress.IPv4Network(config.network.cidr)
    gpu = ipaddress.IPv4Network(config.network.gpu_cidr or NETWORK["gpu_cidr"])
    fabric = fabric_of(config)
    services = ipaddress.IPv4Network(config.network.services_cidr or NETWORK["services_cidr"])
    own_range = any(file_system.own_range for file_system in file_systems(config))
    fixed = {} if config.network.existing else dict(_fixed(config, system))
    last_dynamic = _start(system, LOGIN) - 2
    return Plan(
        system=str(system),
        gpu=tuple(map(str, gpu.subnets(prefixlen_diff=3)))[: fabric.nics],
        second=(config.network.second_cidr or NETWORK["second_cidr"]) if len(fabric.host_nics) > 1 else None,
        # The lower half, and the last eight addresses: they can't overlap.
        managed=str(next(services.subnets())) if peered(config) else None,
        filestore=f"{services.broadcast_address - 7}/29" if own_range else None,
        of=fixed,
        dynamic=str(system) if config.network.existing else f"{system.network_address + FIRST + 1} - {last_dynamic}",
    )


def callback_ports(config: ClusterConfig) -> list[str] | None:
    """Return the ports of the machines that servers run by Google connect to; None for all ports."""
    needed = [file_system.callback_ports for file_system in file_systems(config)]
    return None if None in needed else sorted({port for ports in needed for port in ports or ()})


def service_ranges(config: ClusterConfig) -> list[str]:
    """Return the ranges of those servers."""
    if config.network.existing and config.network.services_cidr and callback_ports(config) != []:
        return [config.network.services_cidr]
    ranges = plan(config)
    return [cidr for cidr in (ranges.managed, ranges.filestore) if cidr]


def fabrics(config: ClusterConfig) -> list[Fabric]:
    """Return the different fabrics of nodes whose GPUs have NICs of their own, in the order of the file."""
    all_fabrics = (nodeset_type(config, section).family.fabric for section in config.nodesets.values())
    return [fabric for fabric in dict.fromkeys(all_fabrics) if fabric.nics]


def fabric_of(config: ClusterConfig) -> Fabric:
    """Return the one fabric that the stack's networks are created for; a check refuses a second one."""
    return next(iter(fabrics(config)), NONE)


def reserved(config: ClusterConfig) -> tuple[str, ...]:
    """Return the names of the machines with a reserved address, which they keep while they are in the stack."""
    names = [machine.name for machine in machines(config) if machine.roles != ("node",)]
    return (*names, *(server.name for server in servers(config)))


def room(config: ClusterConfig) -> dict[str, tuple[int, int]]:
    """Return for each kind of machine its count, and the number of addresses that the plan has for it."""
    system = ipaddress.IPv4Network(config.network.cidr)
    part = system.num_addresses // PARTS
    all_machines = machines(config)
    lustre = [server.kind for server in servers(config)]
    # The nodes' addresses include the controller's, and the builder's during a bake.
    nodes = LOGIN * part - FIRST - 2
    return {
        "login machines": (
            sum(machine.roles == ("login",) for machine in all_machines),
            part - (3 if any(machine.roles == ("monitoring",) for machine in all_machines) else 1),
        ),
        "Lustre metadata servers": (lustre.count("mds"), part - 2),
        "Lustre object storage servers": (lustre.count("oss"), (PARTS - OBJECTS) * part - 1 - KEPT_AT_END),
        "nodes": (sum(machine.roles == ("node",) for machine in all_machines) + len(elastic_machines(config)), nodes),
    }


def shortages(config: ClusterConfig) -> list[str]:
    """Return the kinds of machines for which the system network has too few addresses, in words; none in an existing
    network."""
    if config.network.existing:
        return []
    return [f"{count} {kind}, for {fits} addresses" for kind, (count, fits) in room(config).items() if count > fits]


def table(plan: Plan, *, builder: bool) -> str:
    """Return the plan as text, one range or address in each line. `builder`: whether the stack bakes an image."""
    rows = [("system network", plan.system, "")]
    if plan.of:
        gateway = ipaddress.IPv4Network(plan.system).network_address + 1
        rows += [("  gateway", str(gateway), "Google's"), *(("  fixed", ip, name) for name, ip in plan.of.items())]
    rows.append(("  as they come", plan.dynamic, "nodes, builder" if builder else "nodes"))
    rows += [("second network", plan.second, "NIC 1 of each GPU node")] if plan.second else []
    first = 2 if plan.second else 1
    rows += [
        (f"GPU network {index}", cidr, f"NIC {index + first} of each GPU node") for index, cidr in enumerate(plan.gpu)
    ]
    rows += [("services", cidr, "run by Google") for cidr in (plan.managed, plan.filestore) if cidr]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "".join(f"{a:{widths[0]}}  {b:{widths[1]}}  {c}".rstrip() + "\n" for a, b, c in rows)


def _fixed(config: ClusterConfig, system: ipaddress.IPv4Network) -> Iterable[tuple[str, str]]:
    for machine in machines(config):
        if "controller" in machine.roles:
            yield machine.name, str(system.network_address + FIRST)
        elif "login" in machine.roles:
            yield machine.name, str(_start(system, LOGIN) + machine.index)
        elif "monitoring" in machine.roles:
            yield machine.name, str(_start(system, METADATA) - 3)
    for server in servers(config):
        at = {"mgs": _start(system, METADATA), "mds": _start(system, METADATA) + 1, "oss": _start(system, OBJECTS)}
        yield server.name, str(at[server.kind] + server.index)


def _start(system: ipaddress.IPv4Network, part: int) -> ipaddress.IPv4Address:
    """Return a part's second address: many programs take an address that ends in .0 for that of a network."""
    return system.network_address + part * (system.num_addresses // PARTS) + 1
