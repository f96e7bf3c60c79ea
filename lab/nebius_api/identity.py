"""Who calls, and where: profile, versions, images, quotas and capacity. All of them exist before a stack."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.platforms.nebius.machine_types import PLATFORMS
from cluster.platforms.nebius.versions import KUBERNETES_VERSIONS
from lab.nebius_api.faults import bad_request

GROUPS = ("admins", "auditors", "editors", "viewers")
"""Groups that every tenant has."""


@dataclass
class Place:
    """The place of the stand-in."""

    tenant: str = "tenant-e00rehearsal"
    region: str = "eu-north1"
    quotas: Mapping[str, tuple[int, int]] = field(
        default_factory=lambda: {"compute.instance.gpu.h100": (64, 0), "mk8s.cluster.count": (4, 0)}
    )
    """Limit and usage, by the quota's name."""
    advice: tuple[Mapping[str, Any], ...] = ()
    """Rows of ResourceAdvice as JSON."""
    deprecated: tuple[str, ...] = tuple(version.name for version in KUBERNETES_VERSIONS.values() if version.deprecated)
    """Versions of Kubernetes that no cluster is created of any more."""
    images: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Presets of drivers of a platform's node images, in place of those of the catalog."""

    def answer(self, method: str, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """The JSON that answers a method such as `ProfileService/Get`; None: not one of these."""
        return None if method not in _METHODS else _METHODS[method](self, request)


def _profile(_place: Place, _request: Mapping[str, Any]) -> dict[str, Any]:
    known = {"metadata": {"id": "serviceaccount-e00rehearsal", "name": "rehearsal"}, "spec": {}}
    return {"service_account_profile": {"info": known}}


def _quotas(place: Place, request: Mapping[str, Any]) -> dict[str, Any]:
    parent = request.get("parent_id", place.tenant)
    rows = [
        {
            "metadata": {"id": f"quotaallowance-{name}", "parent_id": parent, "name": name},
            "spec": {"limit": str(limit), "region": place.region},
            "status": {
                "usage": str(usage),
                "unit": "byte" if ".size." in name else "count",
                "service": name.partition(".")[0],
                "description": name,
            },
        }
        for name, (limit, usage) in place.quotas.items()
    ]
    return {"items": rows}


def _advice(place: Place, _request: Mapping[str, Any]) -> dict[str, Any]:
    return {"items": [dict(row) for row in place.advice]}


def _versions(place: Place, _request: Mapping[str, Any]) -> dict[str, Any]:
    rows = [
        {
            "version": version.name,
            **({"deprecated": True} if version.name in place.deprecated else {}),
            **({"end_of_life": f"{version.end_of_life}T00:00:00Z"} if version.end_of_life else {}),
        }
        for version in KUBERNETES_VERSIONS.values()
    ]
    return {"items": rows}


def _images(place: Place, request: Mapping[str, Any]) -> dict[str, Any]:
    """Images of both systems with and without drivers, of the version alone: the real one has earlier ones besides."""
    version, platform = request.get("cluster_kubernetes_version", ""), request.get("platform", "")
    if version not in KUBERNETES_VERSIONS:
        raise bad_request("cluster_kubernetes_version", f"there is no version {version!r}")
    presets = place.images.get(platform, KUBERNETES_VERSIONS[version].drivers.get(platform, ()))
    known = PLATFORMS.get(platform)
    if known and known.gpu and not presets:
        presets = ("cuda12.8", "cuda13.0")
    items = [
        {"os": system, "drivers_preset": preset, "compatible_platforms": [platform]}
        for system in ("ubuntu22.04", "ubuntu24.04")
        for preset in ("", *presets)
    ]
    return {"versions": [{"kubernetes_version": version, "items": items}]}


_METHODS: Mapping[str, Callable[[Place, Mapping[str, Any]], dict[str, Any]]] = {
    "ProfileService/Get": _profile,
    "ClusterService/ListControlPlaneVersions": _versions, "NodeGroupService/GetCompatibilityMatrix": _images,
    "QuotaAllowanceService/List": _quotas, "ResourceAdviceService/List": _advice,
}  # fmt: skip
SERVICES = (
    "iam.v1:ProfileServiceClient",
    "quotas.v1:QuotaAllowanceServiceClient", "capacity.v1:ResourceAdviceServiceClient",
    "common.v1:OperationServiceClient",
)  # fmt: skip
"""Clients of the services that are not of a kind: the package below `nebius.api.nebius`, and the class."""
