"""Questions to Nebius before `up`, their answers, and the stack that they are about."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.config.cluster import ClusterConfig
from cluster.platforms.nebius.request import request
from cluster.platforms.nebius.stack_file_fields import Nebius, settings_of


@dataclass(frozen=True)
class NebiusQuestion:
    """A question that only reads. Equal ones are asked once."""

    what: str
    """A key of components.nebius.cloud_checks.ANSWERS."""
    args: tuple[str, ...] = ()


def question(what: str, *args: str) -> tuple[NebiusQuestion]:
    """Return the questions of a check that has one."""
    return (NebiusQuestion(what, args),)


UNKNOWN_USAGE = "USAGE_STATE_UNKNOWN"
"""State of the usage of a quota or a capacity block group whose region is out of reach."""


@dataclass(frozen=True)
class Quota:
    """A quota of a tenant or a project (quotas.v1, QuotaAllowance)."""

    name: str
    region: str
    unit: str
    limit: int
    free: int


@dataclass(frozen=True)
class FreeCapacity:
    """The number of nodes of a preset that a fabric has free at present (capacity.v1, ResourceAdvice)."""

    region: str
    fabric: str
    platform: str
    preset: str
    counts: Mapping[str, int]
    """Numbers by availability (reserved, on_demand, preemptible), where the API says that they are fresh."""

    def available(self, ways: Iterable[str]) -> int:
        """Return the sum of the numbers of some availabilities."""
        return sum(self.counts.get(way, 0) for way in ways)


@dataclass(frozen=True, kw_only=True)
class AskedPlace:
    """A request to Nebius, with its place."""

    tenant: str
    project: str
    region: str
    request: Mapping[str, Any]
    """The request, of cluster.platforms.nebius.request."""
    before: Mapping[str, Any] = field(default_factory=dict)
    """The request of the running cluster; empty for a new one."""


@dataclass(frozen=True, kw_only=True)
class NebiusStack:
    """The stack that is checked."""

    config: ClusterConfig
    before: ClusterConfig | None = None
    """The configuration that the running cluster has; None for a new one."""
    state: str = ""
    """URL of the stack's state."""

    @property
    def settings(self) -> Nebius:
        """The stack's section `nebius`."""
        return settings_of(self.config)

    @property
    def place(self) -> AskedPlace:
        """The stack's request with its place."""
        settings, before = self.settings, self.before
        return AskedPlace(
            tenant=settings.tenant,
            project=settings.project,
            region=settings.region,
            request=request(self.config, settings),
            before=request(before, settings_of(before)) if before else {},
        )
