"""What a stack asks of Nebius without creating anything: which subnet, which versions, how much.

Every function raises NebiusError, in words, and reads all pages. `endpoint` is a stand-in's host:port.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from components.nebius.api import client
from components.nebius.api.errors import NOT_FOUND, NebiusError, nebius_error
from components.nebius.api.kinds import kind_of
from components.nebius.api.messages import plain
from components.nebius.api.objects import PAGE, get, list_all


@dataclass(frozen=True)
class Quota:
    """A quota of a tenant or a project (quotas.v1, QuotaAllowance)."""

    name: str
    region: str
    limit: int
    usage: int
    unit: str
    description: str

    @property
    def free(self) -> int:
        """How much is left."""
        return max(0, self.limit - self.usage)


@dataclass(frozen=True)
class Room:
    """How many nodes of a preset a fabric has at present (capacity.v1, ResourceAdvice)."""

    region: str
    fabric: str
    platform: str
    preset: str
    counts: Mapping[str, int]
    """By availability: reserved, on_demand, preemptible; only those whose figures are fresh."""

    def available(self, ways: Iterable[str]) -> int:
        """How many can be had of some of them."""
        return sum(self.counts.get(one, 0) for one in ways)


def first_subnet(project_id: str, endpoint: str = "") -> str:
    """The id of a project's first subnet, as Nebius's own recipe for Soperator takes it."""
    row = next(list_all(kind_of("Subnet"), project_id, endpoint), None)
    if row is None:
        raise nebius_error(
            f"find a subnet of {project_id}", ["the project has none"],
            "set `subnet: create`, or the id of one, in the section `nebius`",
        )  # fmt: skip
    return row.metadata.id


def exists(kind: str, id_: str, endpoint: str = "") -> bool:
    """Whether there is an object of that kind and id."""
    return get(kind_of(kind), id_, endpoint) is not None


def objects_of(kind: str, parent_id: str, endpoint: str = "") -> list[dict[str, Any]]:
    """All objects of a parent, as JSON."""
    return [plain(one) for one in list_all(kind_of(kind), parent_id, endpoint)]


def quotas(parent_id: str, endpoint: str = "") -> list[Quota]:
    """The quotas of a tenant or a project."""
    from nebius.api.nebius.quotas.v1 import ListQuotaAllowancesRequest, QuotaAllowanceServiceClient

    service = QuotaAllowanceServiceClient(client.sdk(endpoint))
    rows = _pages(f"list quotas of {parent_id}", service.list, ListQuotaAllowancesRequest, parent_id=parent_id)
    # One without a limit has none at this level, which is not a limit of 0.
    return [_quota(one) for one in rows if one.check_presence("spec") and one.spec.check_presence("limit")]


def _quota(row: Any) -> Quota:  # noqa: ANN401
    limit, used = int(row.spec.limit or 0), int(row.status.usage or 0)
    # The API may leave the usage out and give its share alone.
    used = used or round(float(row.status.usage_percentage or 0) * limit)
    return Quota(row.metadata.name, row.spec.region, limit, used, row.status.unit, row.status.description)


def kubernetes_versions(endpoint: str = "") -> list[dict[str, Any]]:
    """Versions of Kubernetes (mk8s.v1, ClusterControlPlaneVersion), as JSON."""
    from nebius.api.nebius.mk8s.v1 import ClusterServiceClient, ListClusterControlPlaneVersionsRequest

    method = ClusterServiceClient(client.sdk(endpoint)).list_control_plane_versions
    answer = client.call("list versions of Kubernetes", method, ListClusterControlPlaneVersionsRequest())
    return [plain(one) for one in answer.items]


def node_images(version: str, platform: str, endpoint: str = "") -> list[dict[str, str]]:
    """Operating system and preset of drivers of each image that nodes of a platform can have, with a version of
    Kubernetes (mk8s.v1, NodeGroupCompatibilityMatrix). Node groups here have the cluster's version."""
    from nebius.api.nebius.mk8s.v1 import GetNodeGroupCompatibilityMatrixRequest, NodeGroupServiceClient

    method = NodeGroupServiceClient(client.sdk(endpoint)).get_compatibility_matrix
    request = GetNodeGroupCompatibilityMatrixRequest(cluster_kubernetes_version=version, platform=platform)
    answer = client.call(f"read the node images of {platform}", method, request)
    return [
        {"os": item.os, "drivers_preset": item.drivers_preset}
        for row in answer.versions
        if row.kubernetes_version.removeprefix("v").split(".")[:2] == version.split(".")
        for item in row.items
        if not item.compatible_platforms or platform in item.compatible_platforms
    ]


def rooms(tenant_id: str, endpoint: str = "") -> list[Room]:
    """How many nodes of each preset a tenant can have at present, by region and fabric (ResourceAdvice)."""
    from nebius.api.nebius.capacity.v1 import ListResourceAdviceRequest, ResourceAdviceServiceClient

    service, doing = ResourceAdviceServiceClient(client.sdk(endpoint)), f"read capacity advice of {tenant_id}"
    try:
        rows = [plain(row) for row in _pages(doing, service.list, ListResourceAdviceRequest, parent_id=tenant_id)]
    except NebiusError as error:
        if error.code in (NOT_FOUND, "UNIMPLEMENTED"):
            return []  # not every region gives advice
        raise
    found: list[Room] = []
    for row in rows:
        spec, status = row.get("spec", {}), row.get("status", {})
        machine = spec.get("compute_instance", {})
        fresh = {
            way: int(one.get("available", 0))
            for way, one in status.items()
            if str(one.get("data_state", "")).endswith("FRESH")
        }
        if fresh:
            preset = machine.get("preset", {}).get("name", "")
            region, fabric = spec.get("region", ""), spec.get("fabric", "")
            found.append(Room(region, fabric, machine.get("platform", ""), preset, fresh))
    return found


def _pages(doing: str, method: Any, request: Any, **fields: str) -> Iterator[Any]:  # noqa: ANN401
    token = ""
    while True:
        answer = client.call(doing, method, request(page_size=PAGE, page_token=token, **fields))
        yield from answer.items
        token = answer.next_page_token
        if not token:
            return
