"""Checks of a network that exists (`network.existing`): the network, its subnetwork, routes, private service access.

Source of fields: Compute's discovery document, revision 20261106.
"""

import ipaddress
from collections.abc import Callable, Iterator

from cluster.cloud_checks import CloudCheck, Seen
from cluster.findings import listing
from cluster.platforms.gcp.address_plan import fabric_of, plan
from cluster.platforms.gcp.cloud_request import Answer, AskedStack, CloudRequest, compute
from cluster.platforms.gcp.filesystems.registry import peered
from cluster.platforms.gcp.names import host_project

PEERING = "servicenetworking-googleapis-com"
"""Name of the peering of private service access (hashicorp/terraform-provider-google,
resource_service_networking_connection.go)."""


def network(stack: AskedStack) -> Iterator[CloudCheck]:
    """Yield checks of a network that exists: it and its subnetwork, the range, private service access."""
    existing, config = stack.config.network.existing, stack.config
    if existing is None:
        return
    project = host_project(config) or stack.project
    vpc, subnetwork = existing.network.rpartition("/")[2], existing.subnetwork.rpartition("/")[2]

    def read_network(answer: Answer) -> Seen:
        if answer is None:
            return Seen(text="there is none", todo=f"correct network.existing: {_list('networks', project)}")
        active = {row["name"] for row in answer.get("peerings", ()) if row.get("state") == "ACTIVE"}
        if peered(config) and PEERING not in active:
            todo = f"gcloud services vpc-peerings connect --service servicenetworking.googleapis.com --network {vpc}"
            return Seen(text="it has no private service access", todo=f"{todo} --project {project} --ranges RANGE")
        mtu, own = answer.get("mtu", 1460), fabric_of(config).system_mtu
        text = f"MTU {mtu}" + (f", less than the {own} of a network of the stack's own" if mtu < own else "")
        return Seen(text=text + (", with private service access" if peered(config) else ""))

    def read_subnetwork(answer: Answer) -> Seen:
        if answer is None:
            return Seen(text="there is none", todo=f"correct network.existing: {_list('networks subnets', project)}")
        ours, theirs = ipaddress.ip_network(str(config.network.cidr)), ipaddress.ip_network(answer["ipCidrRange"])
        wrong = ours != theirs
        text = f"range {theirs}" + (f", and network.cidr is {ours}" if wrong else "")
        return Seen(text=text, todo=f"write network.cidr: {theirs}" if wrong else "")

    def read_routes(routes: Answer, routers: Answer) -> Seen:
        found = (routes or {}).get("items", ())
        own = [ipaddress.ip_network(cidr) for cidr in (*plan(config).gpu, plan(config).second) if cidr]
        theirs = [(row["name"], ipaddress.ip_network(row["destRange"])) for row in found]
        used = [f"{cidr} ({name})" for name, cidr in theirs if cidr.prefixlen and any(map(cidr.overlaps, own))]
        if used:
            todo = "if nodes need what is there, write network.gpu_cidr and network.second_cidr outside of it"
            text = f"ranges of the nodes' other networks overlap {listing(sorted(used))}"
            return Seen(text=text, todo=todo, unclear=True)
        out = [row for row in found if row["destRange"] == "0.0.0.0/0"]
        has_nat = any(router.get("nats") for router in (routers or {}).get("items", ()))
        if any(not row.get("nextHopGateway") or has_nat for row in out):
            return Seen(text=f"{len(found)} routes, with a way out")
        # Routes that a router learns are not listed.
        text = "no Cloud NAT, and no default route to anything else" if out else "no default route"
        page = f"https://console.cloud.google.com/net-services/nat/list?project={project}"
        todo = f"give machines without public addresses a way out: {page}"
        return Seen(text=text, todo=todo, unclear=True)

    def read_allocated(answer: Answer) -> Seen:
        rows = [row for row in (answer or {}).get("items", ()) if row["network"].endswith(f"/{vpc}")]
        ranges = [ipaddress.IPv4Network(f"{row['address']}/{row['prefixLength']}") for row in rows]
        within = ipaddress.IPv4Network(str(config.network.services_cidr))
        text = f"allocated: {listing(list(map(str, ranges)))}; network.services_cidr is {within}"
        # The stack's firewall refuses servers outside of it.
        todo = f"write a network.services_cidr that contains them, or allocate one: {_list('addresses', project)}"
        found = {each.subnet_of(within) for each in ranges}
        # Some may be for other services, or for file systems that exist.
        return Seen(text=text, todo="" if found == {True} else todo, unclear=len(found) > 1)

    def check(asks: str, read: Callable[..., Seen], *requests: CloudRequest) -> CloudCheck:
        return CloudCheck(id="network", asks=f"{asks} in {project}", requests=requests, read=read)

    region, of_this = f"regions/{stack.region}", (("filter", f"network eq .*/{vpc}"), ("maxResults", "500"))
    of_subnetwork = compute(project, f"{region}/subnetworks/{subnetwork}", "compute.subnetworks.get")
    routes = compute(project, "global/routes", "compute.routes.list", of_this)
    routers = compute(project, f"{region}/routers", "compute.routers.list", of_this)
    yield check(f"network {vpc}", read_network, compute(project, f"global/networks/{vpc}", "compute.networks.get"))
    yield check(f"subnetwork {subnetwork}", read_subnetwork, of_subnetwork)
    yield check(f"routes of {vpc}", read_routes, routes, routers)
    if peered(config) and config.network.services_cidr:
        purpose = (("filter", "purpose eq VPC_PEERING"), ("maxResults", "500"))
        allocated = compute(project, "global/addresses", "compute.globalAddresses.list", purpose)
        yield check(f"private service access of {vpc}", read_allocated, allocated)


def _list(what: str, project: str) -> str:
    return f"gcloud compute {what} list --project {project}"
