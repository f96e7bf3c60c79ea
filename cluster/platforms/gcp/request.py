"""Machines, disks and networks of a stack on Google Cloud, which cost money or count against quotas."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cluster.catalog import MACHINE_TYPES, Gpu, MachineType
from cluster.config.capacity import BasicCapacity, Capacity
from cluster.config.cluster import ClusterConfig
from cluster.platforms.gcp.address_plan import NAT_ADDRESSES, fabric_of, plan, reserved, table
from cluster.platforms.gcp.disks import boot_disk, state_disk, state_zones
from cluster.platforms.gcp.filesystems.registry import file_systems, peered, servers
from cluster.platforms.gcp.image import bakes
from cluster.platforms.gcp.names import host_project, place
from cluster.platforms.gcp.permissions import BUDGETS, policies, roles
from cluster.printable import counted
from cluster.roster import MachineSpec, elastic_machine, elastic_machines, machines

LEAST_NETWORKS = 5
"""Networks that a project may have at least, by the quota NETWORKS: those of new projects, as the description of a
network says (docs.ansible.com, google.cloud.gcp_compute_network, from Google's API)."""
LOCAL_SSD = "local SSD"
"""The key of local SSDs among disk types."""
LOCAL_SSD_GB = 375
"""GB of one local SSD (cloud.google.com/compute/docs/disks/local-ssd)."""
_WAYS = {
    "on_demand": "on demand",
    "spot": "spot",
    "reservation": "from reservation",
    "flex": "flex start",
    "calendar": "from future reservation",
}
"""Kinds of capacity, in words."""


@dataclass(frozen=True, kw_only=True)
class MachineRequest:
    """Machines of one kind."""

    count: int
    machine_type: MachineType
    gpu: Gpu | None = None
    what: str
    """The role in the cluster."""
    way: str = _WAYS["on_demand"]
    """The kind of their capacity, in words."""
    capacity: BasicCapacity | Capacity | None = None
    """The first way of it that is tried; None for on demand."""

    @property
    def line(self) -> str:
        """The request as text."""
        gpus = f", {counted(self.count * self.gpu.count, 'GPU')} ({self.gpu.type})" if self.gpu else ""
        cpus = self.count * self.machine_type.cpus
        return f"{self.count} x {self.machine_type.name}: {self.what}, {self.way}; {counted(cpus, 'CPU')}{gpus}"


def machine_requests(config: ClusterConfig) -> list[MachineRequest]:
    """Return the machines by kind: controller, login machines, machine of Prometheus, nodesets, Lustre servers."""
    requests = []
    for spec in machines(config):
        if spec.index and "controller" not in spec.roles:
            continue
        if "controller" in spec.roles:
            count, what, capacity = 1, "controller", config.controller.capacity
        elif spec.nodeset:
            section = config.nodesets[spec.nodeset]
            count, what, capacity = section.static, f"nodeset {spec.nodeset}", section.ways[0]
        elif "monitoring" in spec.roles:
            count, what, capacity = 1, "monitoring", None
        else:
            count, what, capacity = config.login.count, "login", config.login.capacity
        way, gpu = _way(capacity), spec.gpu if spec.nodeset else None
        requests.append(
            MachineRequest(count=count, machine_type=spec.machine_type, gpu=gpu, what=what, way=way, capacity=capacity)
        )
    kinds = Counter((server.kind, server.machine_type) for server in servers(config))
    return requests + [
        MachineRequest(count=count, machine_type=machine_type, what=f"Lustre {kind}")
        for (kind, machine_type), count in kinds.items()
    ]


def _way(capacity: BasicCapacity | Capacity | None) -> str:
    if not isinstance(capacity, Capacity):
        return _WAYS[capacity.way if capacity else "on_demand"]
    if reservation := capacity.reservation:
        policy = f" (placement policy {reservation.placement_policy})" if reservation.placement_policy else ""
        return f"{_WAYS[capacity.way]} {reservation.name}{policy}"
    return f"{_WAYS[capacity.way]} {capacity.calendar.name}" if capacity.calendar else _WAYS[capacity.way]


def elastic_requests(config: ClusterConfig) -> list[MachineRequest]:
    """Return the largest number of machines of elastic nodes, without those that always exist."""
    requests = []
    for name, section in config.nodesets.items():
        if spec := elastic_machine(config, name):
            ways = ", then ".join(map(_way, section.ways))
            what = f"elastic nodes of {name}, deleted after {section.idle or '10m'} idle"
            count = section.most - section.static
            requests.append(
                MachineRequest(
                    count=count,
                    machine_type=spec.machine_type,
                    gpu=spec.gpu,
                    what=what,
                    way=ways,
                    capacity=section.ways[0],
                )
            )
    return requests


def _describe_elastic(config: ClusterConfig) -> list[str]:
    """Return lines about the machines that elastic nodes may add at most."""
    requests = elastic_requests(config)
    if not requests:
        return []
    count = sum(request.count for request in requests)
    gpus = sum(request.count * request.gpu.count for request in requests if request.gpu)
    fabrics = [(request.count, request.machine_type.family.fabric) for request in requests]
    nics = sum(count * (len(fabric.host_nics) + fabric.nics) for count, fabric in fabrics)
    sizes = ", ".join(f"{size:,} GB of {kind}" for kind, size in elastic_disks(config).items())
    return [
        *(f"up to {request.line}" for request in requests),
        *(
            f"jobs on {name} may wait for hours in the queue of flex start, which costs nothing; then all machines of "
            f"a job are paid for until it has ended and they were idle, {way.flex.max_run} at most"
            for name, section in config.nodesets.items()
            for way in section.ways
            if section.elastic and way.flex
        ),
        f"elastic nodes add at most {count:,} machines, {gpus:,} GPUs, {nics:,} internal addresses, {sizes}",
    ]


def disks(config: ClusterConfig) -> Mapping[str, int]:
    """Return GB of disks by their type, with local SSDs, which are part of machines. Elastic nodes are left out."""
    sizes = _disks_of(config, machines(config))
    kind, size = state_disk(config)
    # A disk that is in two zones is paid for in both.
    sizes[kind] += size * len(state_zones(config))
    for server in servers(config):
        for disk in server.disks:
            sizes[disk.targets.type] += disk.targets.size_gb
    return dict(sorted(sizes.items()))


def elastic_disks(config: ClusterConfig) -> Mapping[str, int]:
    """Return GB of the disks that elastic nodes may add at most, by type."""
    return _disks_of(config, elastic_machines(config))


def _disks_of(config: ClusterConfig, specs: Iterable[MachineSpec]) -> Counter[str]:
    """Return GB of the boot disks and local SSDs of machines, by type, sorted."""
    sizes: Counter[str] = Counter()
    for spec in specs:
        kind, size = boot_disk(config, spec)
        sizes[kind] += size
        if spec.machine_type.family.local_ssds:
            sizes[LOCAL_SSD] += spec.machine_type.family.local_ssds * LOCAL_SSD_GB
    return Counter(dict(sorted(sizes.items())))


def builder_request(config: ClusterConfig) -> MachineRequest | None:
    """Return the machine that bakes the image and is then deleted, with its disk; None if the stack bakes none."""
    if not bakes(config):
        return None
    builder = config.image.builder
    what = f"builder of the image, with {builder.size_gb:,} GB of pd-ssd"
    way = "on demand until the image is made"
    return MachineRequest(count=1, machine_type=MACHINE_TYPES[builder.machine_type], what=what, way=way)


def networks(config: ClusterConfig) -> Mapping[str, int]:
    """Return the numbers of network resources of a stack, which count against quotas."""
    own = config.network.existing is None
    nat = own and config.network.nat
    logins = sum("login" in machine.roles for machine in machines(config)) if config.login.public else 0
    ranges, one_network = plan(config), bool(fabric_of(config).profile)
    others = own + (ranges.second is not None)
    return {
        "networks": others + (1 if one_network else len(ranges.gpu)),
        "subnetworks": others + len(ranges.gpu),
        "internal addresses": len(reserved(config)),
        "public addresses": NAT_ADDRESSES * nat + logins,
        "routers with Cloud NAT": int(nat),
    }


def _conditions(config: ClusterConfig) -> Iterator[str]:
    """Yield lines about the project that `up` depends on and that a preview does not ask Google for."""
    where, count = place(config), networks(config)["networks"]
    if count > LEAST_NETWORKS:
        yield (
            f"quota NETWORKS must have room for {count} networks, and that of a new project may be {LEAST_NETWORKS}: "
            f"`gcloud compute project-info describe --project {where.project}` shows it, and "
            f"https://console.cloud.google.com/iam-admin/quotas?project={where.project} is where to ask for more"
        )
    if config.network.existing and peered(config):
        network, host = config.network.existing.network.rpartition("/")[2], host_project(config) or where.project
        # cloud.google.com/sdk/gcloud/reference/services/vpc-peerings/list
        yield (
            f"network {network} must have private service access with {config.network.services_cidr}: `gcloud services "
            f"vpc-peerings list --network {network} --project {host}` prints servicenetworking.googleapis.com"
        )
    named = [way.reservation.name for section in config.nodesets.values() for way in section.ways if way.reservation]
    for name in dict.fromkeys(named):
        whole = name.partition("/reservationBlocks/")[0]
        project = whole.split("/")[1] if "/" in whole else where.project
        # A machine that names any other is refused (cluster-toolkit v1.95.0, schedmd-slurm-gcp-v6-nodeset/main.tf:
        # specific_reservation_required).
        yield (
            f"reservation {name} must be specific: `gcloud compute reservations describe {whole.rpartition('/')[2]} "
            f"--project {project} --zone {where.zone} --format='value(specificReservationRequired)'` prints True"
        )


def describe_request(config: ClusterConfig) -> list[str]:
    """Return lines for the end of a preview: machines, networks, disks, file systems, roles, addresses."""
    lines = [request.line for request in (*machine_requests(config), builder_request(config)) if request]
    lines += _describe_elastic(config)
    lines += [
        f"{section.spare} of the {section.most} nodes of {name} take no jobs until another is out of service: spares "
        "are paid for while their machines are there"
        for name, section in config.nodesets.items()
        if section.spare
    ]
    lines.append(", ".join(f"{what}: {count}" for what, count in networks(config).items()))
    lines += _conditions(config)
    lines.append("disks: " + ", ".join(f"{size:,} GB of {kind}" for kind, size in disks(config).items()))
    lines += [line for file_system in file_systems(config) for line in file_system.summary()]
    lines += [
        f"whoever runs it needs: {', '.join(roles(config))}",
        *(
            [f"for its budget, who is not Owner of the project also needs {BUDGETS} on {config.budget.billing_account}"]
            if config.budget and config.budget.billing_account
            else []
        ),
        "organisation policies that would refuse it (docs/reference/google-cloud.md), where in force: "
        + ", ".join(policies(config)),
    ]
    return [*lines, *table(plan(config), builder=bakes(config)).splitlines()]
