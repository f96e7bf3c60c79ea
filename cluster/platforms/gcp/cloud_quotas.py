"""Quotas that a stack uses, by their exact names: asked, used, limit; of some only the limit is answered.

Source of names: enum Quota.metric of Compute's discovery document, revision 20261106; which resource counts against
which: GoogleCloudPlatform/cluster-toolkit 1047080, pkg/validators/quota.go.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from cluster.catalog.machine_families import ACCELERATORS
from cluster.cloud_checks import CloudCheck, Seen
from cluster.config.capacity import Capacity
from cluster.config.cluster import ClusterConfig
from cluster.platforms.gcp.cloud_names import firewall_rules
from cluster.platforms.gcp.cloud_request import Answer, AskedStack, CloudRequest, compute
from cluster.platforms.gcp.filesystems.registry import file_systems
from cluster.platforms.gcp.image import boots_from
from cluster.platforms.gcp.names import host_project
from cluster.platforms.gcp.request import (
    LOCAL_SSD_GB,
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


@dataclass(frozen=True, kw_only=True, order=True)
class ComputeQuota:
    """A quota of Compute Engine."""

    metric: str
    instead: str = ""
    """The quota that counts where the project has none of this name: that of other machines, for spot machines
    (cloud.google.com/compute/docs/instances/create-use-spot, "Before you begin")."""
    host: str = ""
    """The project that counts it, if it is another than the stack's."""


Quota = TypeVar("Quota")


def needed(config: ClusterConfig, *, elastic: bool = True) -> Counter[ComputeQuota]:
    """Return how much of each quota a stack uses, with all nodes if `elastic`."""
    amounts = Counter[ComputeQuota]()
    for what, count in networks(config).items():
        for metric in NETWORKS[what]:
            amounts[ComputeQuota(metric=metric)] += count
    # Those of all networks of a project count together (cloud.google.com/vpc/docs/quota).
    for host in {"", host_project(config) or ""}:
        amounts[ComputeQuota(metric="FIREWALLS", host=host)] = len(firewall_rules(config, host))
    for sizes in (disks(config), elastic_disks(config) if elastic else {}):
        for kind, size in sizes.items():
            if kind in DISKS:
                amounts[ComputeQuota(metric=DISKS[kind])] += size
    for request in (*machine_requests(config), *(elastic_requests(config) if elastic else ())):
        amounts.update(_of_machines(request))
    return +amounts


def _of_builder(stack: AskedStack) -> Counter[ComputeQuota]:
    """Return the quotas of the builder of an image that is to be baked; it is deleted before machines boot from it."""
    request = builder_request(stack.config)
    if request is None or (stack.before and boots_from(stack.before) == boots_from(stack.config)):
        return Counter()
    disk = Counter({ComputeQuota(metric="SSD_TOTAL_GB"): stack.config.image.builder.size_gb})
    return _of_machines(request) + disk


def _of_machines(request: MachineRequest) -> Counter[ComputeQuota]:
    """Return the quotas of machines. Of those that come from a reservation, it counted when it was made."""
    amounts = Counter({ComputeQuota(metric="INSTANCES"): request.count})
    if _is_reserved(request):
        return amounts
    spot = _is_spot(request)
    if metric := CPUS.get(request.machine_type.family.name):
        amounts[_quota(metric, f"{SPOT}CPUS", spot=spot)] += request.count * request.machine_type.cpus
    if request.gpu and request.gpu.type in ACCELERATORS:
        metric = f"NVIDIA_{request.gpu.type.upper()}_GPUS"
        count = request.count * request.gpu.count
        amounts[_quota(metric, f"{SPOT}{metric}", spot=spot)] += count
        amounts[ComputeQuota(metric="GPUS_ALL_REGIONS")] += count
    return amounts


def _is_spot(request: MachineRequest) -> bool:
    # Flex start takes the quotas of preemptible GPUs.
    return bool(request.capacity and request.capacity.way in ("spot", "flex"))


def _is_reserved(request: MachineRequest) -> bool:
    capacity = request.capacity if isinstance(request.capacity, Capacity) else None
    return bool(capacity and (capacity.reservation or capacity.calendar))


def _quota(metric: str, of_spot: str, *, spot: bool) -> ComputeQuota:
    return ComputeQuota(metric=of_spot, instead=metric) if spot else ComputeQuota(metric=metric)


def _more(
    stack: AskedStack, of: Callable[..., Counter[Quota]], first: Counter[Quota]
) -> Iterator[tuple[Quota, int, int]]:
    """Yield each quota that `up` may use more of than the running cluster, how much more, and how much at least: its
    elastic nodes may exist, and those that become static with them. `first` is used before all else."""
    most, static = of(stack.config), of(stack.config, elastic=False)
    was, was_static = (of(stack.before), of(stack.before, elastic=False)) if stack.before else (Counter(), Counter())
    least, more = (static - was) | first, (most - was) | (static - was_static) | first
    yield from ((quota, amount, least[quota]) for quota, amount in more.items())


def _page(project: str) -> str:
    return f"https://console.cloud.google.com/iam-admin/quotas?project={project}"


def quotas(stack: AskedStack) -> Iterator[CloudCheck]:
    """Yield a check for each quota that `up` uses more of than the running cluster."""
    region = compute(stack.project, f"regions/{stack.region}", "compute.regions.get")
    for quota, amount, least in sorted(_more(stack, needed, _of_builder(stack))):
        project = quota.host or stack.project
        yield CloudCheck(
            id="quota",
            asks=f"quota {quota.metric}" + (" of the network's project" if quota.host else ""),
            requests=(region, compute(project, "", "compute.projects.get")),
            read=partial(_read, quota, amount, least, f"{stack.region}: {_page(project)}"),
        )
    for (what, path), amount, least in _more(stack, _of_services, Counter()):
        yield _limits(stack, what, path, amount, least)


def _read(  # noqa: PLR0917 - what is bound, then the answers
    quota: ComputeQuota, amount: int, least: int, where: str, region: Answer, project: Answer
) -> Seen:
    # Both list addresses: the project's are global ones, which a stack has none of.
    rows = {row["metric"]: row for answer in (project, region) if answer for row in answer["quotas"]}
    row = rows.get(quota.metric)
    if quota.instead and not (row and row["limit"]):
        row = rows.get(quota.instead)
    if row is None:
        todo = f"compare it in {where}"
        return Seen(text=f"{amount:,} asked; Google's answer has no such quota", todo=todo, unclear=True)
    text = f"{amount:,} asked, {row['usage']:,.0f} used of {row['limit']:,.0f}"
    text += f" ({row['metric']})" if row["metric"] != quota.metric else ""
    if row["usage"] + amount <= row["limit"]:
        return Seen(text=text)
    todo = f"ask for more {row['metric']} in {where}"
    if least <= 0 or row["usage"] + least <= row["limit"]:
        return Seen(text=f"{text}: not all nodes that are or were elastic can come", todo=todo, unclear=True)
    return Seen(text=text, todo=todo)


_METRICS = "compute.googleapis.com/consumerQuotaMetrics/compute.googleapis.com%2F"
FAMILIES = f"{_METRICS}gpus_per_gpu_family"
"""The quota of GPUs of newer families (docs.cloud.google.com/docs/quotas/configure-dimensions, 2026-11)."""
SPOT_FAMILIES = f"{_METRICS}preemptible_gpus_per_gpu_family"
"""That of spot machines and flex start, which take the other where the project has none of this name (an answer of
Service Usage: jldupont/pygcloud 25ff7e3, tests/gcp.services/samples.py)."""
LOCAL_SSDS = f"{_METRICS}local_ssd_total_storage_per_vm_family"
"""The quota of GB of local SSD by family of machines (docs.cloud.google.com/docs/quotas/view-manage, 2026-11).
LOCAL_SSD_TOTAL_GB among Compute Engine's answers has no limit any more (9.22337e+18 in
GoogleCloudPlatform/pubsec-declarative-toolkit issue 590, 2023-11-03)."""


def _of_services(config: ClusterConfig, *, elastic: bool = True) -> Counter[tuple[str, str]]:
    """Return what counts against quotas that only Service Usage answers, with the path of the quotas: GPUs and local
    SSDs by machine type, GiB of file systems. Nothing documents the quota of spot machines' local SSDs."""
    amounts = Counter[tuple[str, str]]()
    requests = (*machine_requests(config), *(elastic_requests(config) if elastic else ()))
    for request in (request for request in requests if not _is_reserved(request)):
        name, spot = request.machine_type.name, _is_spot(request)
        if request.gpu and request.gpu.type not in ACCELERATORS:
            row = (f"GPUs of {name} (spot)", SPOT_FAMILIES) if spot else (f"GPUs of {name}", FAMILIES)
            amounts[row] += request.count * request.gpu.count
        size = request.count * request.machine_type.family.local_ssds * LOCAL_SSD_GB
        amounts[f"GB of local SSD of {name}", LOCAL_SSDS] += 0 if spot else size
    for file_system in file_systems(config):
        if file_system.location:
            service = f"{file_system.service}.googleapis.com"
            size = round(sum(part.count for part in file_system.cost_parts()))
            amounts[f"GiB of {service}", f"{service}/consumerQuotaMetrics"] += size
    return amounts


def _limits(stack: AskedStack, what: str, path: str, amount: int, least: int) -> CloudCheck:
    """Return the check of a quota whose limits have dimensions. How much is used has a price (Cloud Monitoring), and
    which limit counts is for a person to compare, unless none is large enough for `least`, the static nodes."""
    here = {"region": stack.region, "zone": stack.zone}

    def read(answer: Answer) -> Seen:
        metrics = (answer or {}).get("metrics", [answer or {}])
        limits = [
            (row.get("displayName", ""), limit) for row in metrics for limit in row.get("consumerQuotaLimits", ())
        ]
        found: dict[str, int] = {}
        for name, limit in limits:
            # From the least to the most specific; limits of requests have no place.
            for bucket in limit["quotaBuckets"] if "{region}" in limit["unit"] or "{zone}" in limit["unit"] else ():
                dimensions = bucket.get("dimensions", {})
                if all(dimensions.get(key, value) == value for key, value in here.items()):
                    family = dimensions.get("gpu_family", dimensions.get("vm_family", name))
                    found[family] = int(bucket.get("effectiveLimit", 0))
        text = f"{amount:,} asked; limits in {stack.region}: "
        text += ", ".join(f"{name} {limit:,}" for name, limit in sorted(found.items())) or "none answered"
        short = path == FAMILIES and found and all(0 <= limit < least for limit in found.values())
        page = _page(stack.project)
        todo = f"ask for more in {stack.region}: {page}" if short else f"compare, with what is used: {page}"
        return Seen(text=text, todo=todo, unclear=not short)

    where = f"v1beta1/projects/{stack.project}/services/{path}"
    request = CloudRequest(service="serviceusage", path=where, permission="serviceusage.quotas.get")
    return CloudCheck(id="quota", asks=f"quota of {what}", requests=(request,), read=read)
