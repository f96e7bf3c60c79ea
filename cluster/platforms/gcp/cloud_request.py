"""Requests to Google Cloud before `up`, and the stack that they are about."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster.config.cluster import ClusterConfig
from cluster.platforms.gcp.names import place

Answer = Mapping[str, Any] | None
"""Google's JSON; None where there is no such resource (404)."""
Query = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class AskedStack:
    """The stack that is checked."""

    config: ClusterConfig
    before: ClusterConfig | None = None
    """The configuration that the running cluster has; None for a new one."""
    state: str = ""
    """URL of the stack's state."""

    @property
    def project(self) -> str:
        """Id of the stack's project."""
        return place(self.config).project

    @property
    def region(self) -> str:
        """The zone's region."""
        return place(self.config).region

    @property
    def zone(self) -> str:
        """The stack's zone."""
        return place(self.config).zone


@dataclass(frozen=True, kw_only=True)
class CloudRequest:
    """A request that only reads. Equal ones are sent once. Paths: Google's discovery documents, which the tests hold
    each request against."""

    service: str
    """The service, by the part before .googleapis.com."""
    path: str
    """Path with the version of the API: v3/projects/my-project."""
    query: Query = ()
    tests: tuple[str, ...] = ()
    """The permissions that a testIamPermissions asks for, which is a POST; all other requests are GET."""
    permission: str = ""
    """The permission that Google requires for it; empty where it requires none (iann0036/iam-dataset 2073fa5,
    gcp/map.json)."""
    role: str = "roles/viewer"
    """A role that has the permission (the same, gcp/roles)."""


def compute(project: str, path: str, permission: str, query: Query = ()) -> CloudRequest:
    """Return a request to Compute Engine, with the path below the project."""
    where = f"compute/v1/projects/{project}/{path}".rstrip("/")
    return CloudRequest(service="compute", path=where, query=query, permission=permission)


def own_permissions(project: str, permissions: tuple[str, ...]) -> CloudRequest:
    """Return the question which of these permissions on a project the caller has."""
    path = f"v3/projects/{project}:testIamPermissions"
    return CloudRequest(service="cloudresourcemanager", path=path, tests=permissions)
