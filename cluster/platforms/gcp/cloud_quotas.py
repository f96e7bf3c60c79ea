"""Compute Engine's quotas that a stack uses, by their exact names: asked, used, limit.

Source of names: enum Quota.metric of Compute's discovery document, revision 20261106; which resource counts against
which: GoogleCloudPlatform/cluster-toolkit 1047080, pkg/validators/quota.go.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cluster.catalog.machine_families import ACCELERATORS
from cluster.cloud_checks import CloudCheck, Seen
from cluster.config.capacity import Capacity
from cluster.config.cluster import ClusterConfig
from cluster.platforms.gcp.cloud_request import Answer, AskedStack, compute
from cluster.platforms.gcp.request import (
    MachineRequest,
    builder_request,
    disks,
    elastic_disks,
    elastic_requests,
    machine_requests,
    networks,
)

CPUS: Mapping[str, str] = {"c2": "C2_CPUS", "e2": "CPUS", "n1": "CPUS", "n2": "N2_CPUS"}
"""The quota of vCPUs by family. Those of A3 and A4 are not among Compute Engine's answers."""
DISKS: Mapping[str, str] = {
    "hyperdisk-balanced": "HDB_TOTAL_GB",
    "pd-balanced": "SSD_TOTAL_GB",
    "pd-ssd": "SSD_TOTAL_GB",
    "pd-standard": "DISKS_TOTAL_GB",
}
"""The quota of GB by disk type."""
NETWORKS: Mapping[str, tuple[str, ...]] = {
    "networks": ("NETWORKS",),
    "subnetworks": ("SUBNETWORKS",),
    "internal addresses": ("INTERNAL_ADDRESSES",),
    "public addresses": ("STATIC_ADDRESSES", "IN_USE_ADDRESSES"),
    "routers with Cloud NAT": ("ROUTERS",),
}
"""The quotas of network resources, by their names in cluster.platforms.gcp.request.networks."""
SPOT = "PREEMPTIBLE_"


@dataclass(frozen=True, kw_only=True)
class ComputeQuota:
    """A quota of Compute Engine."""

    metric: str
    instead: str = ""
    """The quota that counts where the project has none of this name: that of other machines, for spot machines
    (cloud.google.com/compute/docs/instances/create-use-spot, "Before you begin")."""


def needed(config: ClusterConfig) -> Counter[ComputeQuota]:
    """Return how much of each quota a stack uses at most, with all elastic nodes and the builder of its image."""
    amounts = Counter[ComputeQuota]()
    for what, count in networks(config).items():
        for metric in NETWORKS[what]:
            amounts[ComputeQuota(metric=metric)] += count
    for sizes in (disks(config), elastic_disks(config)):
        for kind, size in sizes.items():
            if kind in DISKS:
                amounts[ComputeQuota(metric=DISKS[kind])] += size
    for request in (*machine_requests(config), *elastic_requests(config), builder_request(config)):
        if request:
            amounts[ComputeQuota(metric="INSTANCES")] += request.count
            amounts.update(_of_machines(request))
    return +amounts


def _of_machines(request: MachineRequest) -> Counter[ComputeQuota]:
    """Return the quotas of machines that come from no reservation: a reservation counted when it was made."""
    if _is_reserved(request):
        return Counter()
    # Flex start takes the quotas of preemptible GPUs.
    spot = bool(request.capacity and request.capacity.way in ("spot", "flex"))
    amounts = Counter[ComputeQuota]()
    if metric := CPUS.get(request.machine_type.family.name):
        amounts[_quota(metric, f"{SPOT}CPUS", spot=spot)] += request.count * request.machine_type.cpus
    if request.gpu and request.gpu.type in ACCELERATORS:
        metric = f"NVIDIA_{request.gpu.type.upper()}_GPUS"
        count = request.count * request.gpu.count
        amounts[_quota(metric, f"{SPOT}{metric}", spot=spot)] += count
        amounts[ComputeQuota(metric="GPUS_ALL_REGIONS")] += count
    return amounts


def _is_reserved(request: MachineRequest) -> bool:
    capacity = request.capacity if isinstance(request.capacity, Capacity) else None
    return bool(capacity and (capacity.reservation or capacity.calendar))


def _quota(metric: str, of_spot: str, *, spot: bool) -> ComputeQuota:
    return ComputeQuota(metric=of_spot, instead=metric) if spot else ComputeQuota(metric=metric)


def quotas(stack: AskedStack) -> Iterator[CloudCheck]:
    """Yield a check for each quota that `up` uses more of than the running cluster."""
    amounts = needed(stack.config)
    amounts.subtract(needed(stack.before) if stack.before else {})
    asks = (
        compute(stack.project, f"regions/{stack.region}", "compute.regions.get"),
        compute(stack.project, "", "compute.projects.get"),
    )
    page = f"https://console.cloud.google.com/iam-admin/quotas?project={stack.project}"
    for quota, amount in sorted((+amounts).items(), key=lambda row: row[0].metric):

        def read(region: Answer, project: Answer, quota: ComputeQuota = quota, amount: int = amount) -> Seen:
            rows = {row["metric"]: row for answer in (region, project) if answer for row in answer["quotas"]}
            row = rows.get(quota.metric)
            if quota.instead and not (row and row["limit"]):
                row = rows.get(quota.instead)
            if row is None:
                return Seen(text=f"{amount:,} asked; Google's answer has no such quota", todo=page, unclear=True)
            text = f"{amount:,} asked, {row['usage']:,.0f} used of {row['limit']:,.0f}"
            text += f" ({row['metric']})" if row["metric"] != quota.metric else ""
            fits = row["usage"] + amount <= row["limit"]
            return Seen(text=text, todo="" if fits else f"ask for more {row['metric']} in {stack.region}: {page}")

        yield CloudCheck(id="quota", asks=f"quota {quota.metric}", requests=asks, read=read)
    yield from _of_families(stack, page)


def _of_families(stack: AskedStack, page: str) -> Iterator[CloudCheck]:
    """Yield a row for GPUs of families whose quota Compute Engine does not answer."""
    config = stack.config
    found = dict.fromkeys(
        request.machine_type.name
        for request in (*machine_requests(config), *elastic_requests(config))
        if request.gpu and request.gpu.type not in ACCELERATORS and not _is_reserved(request)
    )
    for name in found:
        text = "Compute Engine's API does not answer this quota (GPUS_PER_GPU_FAMILY)"
        todo = f"compare the quota of GPUs of this family with the preview's: {page}"
        seen = Seen(text=text, todo=todo, unclear=True)
        yield CloudCheck(id="quota", asks=f"quota of GPUs of {name}", requests=(), read=lambda seen=seen: seen)
