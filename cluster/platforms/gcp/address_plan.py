"""The address plan on Google Cloud.

The system network is cut into sixteen equal parts:

    part 0-7    the controller has the second address; all others go to nodes and builders, as they come
    part 8      login machines; near its end the machine of Prometheus
    part 9      Lustre's management server, then its metadata servers
    part 10-15  Lustre's object storage servers

So one more server or login machine changes no other address. Google gives out addresses from a subnetwork's low end, as
far as is known, though it does not promise to: so what grows by itself lies there, and what is fixed above. Fixed
addresses are reserved before any machine is made.
In a network that was there before the stack, Google chooses: others live there.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cluster.catalog.fabrics import NONE, Fabric
from cluster.config.cluster import ClusterConfig
from cluster.platforms.gcp.filesystems.registry import file_systems, peered, servers
from cluster.platforms.gcp.platform import NETWORK
from cluster.roster import elastic_machines, machines, nodeset_type

PARTS = 16
FIRST = 2
"""Google keeps a subnetwork's first two addresses (network, gateway)..."""
KEPT_AT_END = 2
"""...and its last two (cloud.google.com/vpc/docs/subnets#unusable-ip-addresses-in-every-subnet)."""
GPU_NETWORKS = 8
"""Networks that the GPUs' part is cut into: a machine's NICs must all be in different ones."""

NAT_ADDRESSES = 2
"""Public addresses of Cloud NAT: 64512 ports each, so 1008 machines at the least ports that one is given."""

LOGIN, METADATA, OBJECTS = 8, 9, 10
"""First part of each kind of machine with a fixed address; nodes have all below the first."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The addresses of all machines."""

    system: str
    """Range of the system subnetwork."""
    gpu: tuple[str, ...] = ()
    """Range of each GPU subnetwork, in the order of the NICs; empty where no node has GPU NICs."""
    second: str | None = None
    """Range of the network of the nodes' second NIC, where they have one beside those of the GPUs."""
    managed: str | None = None
    """Range of what Google runs in a network peered by private service access: Managed Lustre, Filestore."""
    filestore: str | None = None
    """Range of a Filestore of a basic tier, which has a peering of its own."""
    of: Mapping[str, str] = field(default_factory=dict)
    """Fixed address of machines that are no nodes, Lustre servers among them, by name; empty in an existing network."""
    dynamic: str = ""
    """The range of nodes' addresses: first and last."""


def plan(config: ClusterConfig) -> Plan:
    """Give each part of the cluster its addresses. `crowded` says what does not fit; here it would overlap."""
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
        # The lower half, and the last eight addresses: the two can't meet.
        managed=str(next(services.subnets())) if peered(config) else None,
        filestore=f"{services.broadcast_address - 7}/29" if own_range else None,
        of=fixed,
        dynamic=str(system) if config.network.existing else f"{system.network_address + FIRST + 1} - {last_dynamic}",
    )


def fabrics(config: ClusterConfig) -> list[Fabric]:
    """The fabrics of the nodes whose GPUs have NICs of their own, each once, in the order of the file."""
    found = (nodeset_type(config, section).family.fabric for section in config.nodesets.values())
    return [fabric for fabric in dict.fromkeys(found) if fabric.nics]


def fabric_of(config: ClusterConfig) -> Fabric:
    """The one fabric that the stack's networks are made for; a check refuses a second one."""
    return next(iter(fabrics(config)), NONE)


def reserved(config: ClusterConfig) -> tuple[str, ...]:
    """Names of the machines that keep one address for as long as they are in the stack."""
    ours = [machine.name for machine in machines(config) if machine.roles != ("node",)]
    return (*ours, *(server.name for server in servers(config)))


def room(config: ClusterConfig) -> dict[str, tuple[int, int]]:
    """Return for each kind of machine: how many there are, and for how many the plan has addresses."""
    system = ipaddress.IPv4Network(config.network.cidr)
    part = system.num_addresses // PARTS
    found = machines(config)
    lustre = [server.kind for server in servers(config)]
    # Among the nodes' addresses is the controller's, and the builder's for as long as that lives.
    nodes = LOGIN * part - FIRST - 2
    return {
        "login machines": (
            sum(machine.roles == ("login",) for machine in found),
            part - (3 if any(machine.roles == ("monitoring",) for machine in found) else 1),
        ),
        "Lustre metadata servers": (lustre.count("mds"), part - 2),
        "Lustre object storage servers": (lustre.count("oss"), (PARTS - OBJECTS) * part - 1 - KEPT_AT_END),
        "nodes": (sum(machine.roles == ("node",) for machine in found) + len(elastic_machines(config)), nodes),
    }


def crowded(config: ClusterConfig) -> list[str]:
    """Return what the system network is too small for, in words; empty where all fits, and in an existing network."""
    if config.network.existing:
        return []
    return [f"{wanted} {kind}, for {fits} addresses" for kind, (wanted, fits) in room(config).items() if wanted > fits]


def table(plan: Plan) -> str:
    """The plan as text, one range or address a line."""
    rows = [("system network", plan.system, "")]
    if plan.of:
        gateway = ipaddress.IPv4Network(plan.system).network_address + 1
        rows += [("  gateway", str(gateway), "Google's"), *(("  fixed", ip, name) for name, ip in plan.of.items())]
    rows.append(("  as they come", plan.dynamic, "nodes, builder"))
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
    """A part's second address: one that ends in .0 is taken for a network's own by too many programs."""
    return system.network_address + part * (system.num_addresses // PARTS) + 1
