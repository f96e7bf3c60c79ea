"""Who calls, and where: profile, tenants, projects, quotas and capacity. All of them exist before a stack."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from components.nebius.rehearsal.api.faults import refusal

GROUPS = ("admins", "auditors", "editors", "viewers")
"""Groups that every tenant has."""


@dataclass
class Place:
    """Where the stand-in is."""

    tenant: str = "tenant-e00rehearsal"
    region: str = "eu-north1"
    quotas: Mapping[str, tuple[int, int]] = field(
        default_factory=lambda: {"compute.instance.gpu.h100": (64, 0), "mk8s.cluster.count": (4, 0)}
    )
    """Limit and usage, by the quota's name."""
    advice: tuple[Mapping[str, Any], ...] = ()
    """Rows of ResourceAdvice as JSON."""

    def answer(self, method: str, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """The JSON that answers a method such as `ProfileService/Get`; None: not one of these."""
        return None if method not in _METHODS else _METHODS[method](self, request)


def _profile(_place: Place, _request: Mapping[str, Any]) -> dict[str, Any]:
    known = {"metadata": {"id": "serviceaccount-e00rehearsal", "name": "rehearsal"}, "spec": {}}
    return {"service_account_profile": {"info": known}}


def _project(place: Place, request: Mapping[str, Any]) -> dict[str, Any]:
    id_ = str(request.get("id", ""))
    if not id_.startswith("project-"):
        raise refusal("resource_not_found", "Project", id_)
    return {"metadata": {"id": id_, "parent_id": place.tenant, "name": "default"}, "spec": {"region": place.region}}


def _projects(place: Place, _request: Mapping[str, Any]) -> dict[str, Any]:
    return {"items": [_project(place, {"id": "project-e00rehearsal"})]}


def _tenant(_place: Place, request: Mapping[str, Any]) -> dict[str, Any]:
    id_ = str(request.get("id", ""))
    if not id_.startswith("tenant-"):
        raise refusal("resource_not_found", "Tenant", id_)
    return {"metadata": {"id": id_, "name": "rehearsal"}, "spec": {}}


def _tenants(place: Place, _request: Mapping[str, Any]) -> dict[str, Any]:
    return {"items": [_tenant(place, {"id": place.tenant})]}


def _quotas(place: Place, request: Mapping[str, Any]) -> dict[str, Any]:
    parent = request.get("parent_id", place.tenant)
    rows = [
        {
            "metadata": {"id": f"quotaallowance-{name}", "parent_id": parent, "name": name},
            "spec": {"limit": str(limit), "region": place.region},
            "status": {"usage": str(usage), "unit": "count", "service": name.partition(".")[0], "description": name},
        }
        for name, (limit, usage) in place.quotas.items()
    ]
    return {"items": rows}


def _advice(place: Place, _request: Mapping[str, Any]) -> dict[str, Any]:
    return {"items": [dict(row) for row in place.advice]}


_METHODS: Mapping[str, Callable[[Place, Mapping[str, Any]], dict[str, Any]]] = {
    "ProfileService/Get": _profile,
    "ProjectService/Get": _project, "ProjectService/List": _projects,
    "TenantService/Get": _tenant, "TenantService/List": _tenants,
    "QuotaAllowanceService/List": _quotas, "ResourceAdviceService/List": _advice,
}  # fmt: skip
SERVICES = (
    "iam.v1:ProfileServiceClient", "iam.v1:ProjectServiceClient",
    "iam.v2:ProjectServiceClient", "iam.v1:TenantServiceClient", "iam.v2:TenantServiceClient",
    "quotas.v1:QuotaAllowanceServiceClient", "capacity.v1:ResourceAdviceServiceClient",
    "common.v1:OperationServiceClient",
)  # fmt: skip
"""Clients of the services that are not of a kind: the package below `nebius.api.nebius`, and the class."""
