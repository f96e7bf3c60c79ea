"""What is seen of a cluster of pods over Kubernetes' API. All times are seconds since the epoch."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cluster.platforms.nebius.names import AVAILABLE


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition of an object."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: float | None = None


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod that has not ended well."""

    namespace: str
    name: str
    ready: bool
    phase: str
    why: str = ""
    """Why it is not ready, as Kubernetes says it."""
    container: str = ""
    """The first container that does not run, or is not ready."""
    restarts: int = 0
    component: str = ""
    node: str = ""
    """Name of its Kubernetes node."""
    since: float | None = None
    events: tuple[str, ...] = ()
    """Its last events, the newest last."""

    @property
    def crashes(self) -> bool:
        """Whether a container of it was started again, and does not run."""
        return bool(self.container) and self.restarts > 0


@dataclass(frozen=True, kw_only=True)
class NodeSet:
    """Workers of one kind."""

    name: str
    wanted: int
    ready: int
    phase: str = ""


@dataclass(frozen=True, kw_only=True)
class Check:
    """A check that Soperator runs by itself."""

    name: str
    result: str
    """Of its last run; empty where it has not run."""
    since: float | None = None
    suspended: bool = False
    drains: bool = False
    """Whether its failure drains nodes."""
    needs: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    """Slurm jobs of the last run that failed, with the reason."""

    @property
    def failed(self) -> bool:
        """Whether the last run ended badly."""
        return self.result in ("Failed", "Error")

    @property
    def done(self) -> bool:
        """Whether the last run ended well."""
        return self.result == "Complete"


@dataclass(frozen=True, kw_only=True)
class View:
    """What is seen of a cluster over Kubernetes' API."""

    namespace: str = ""
    """The cluster's own, and its name."""
    phase: str = ""
    """Of the SlurmCluster, as the operator says it; empty where there is none."""
    conditions: tuple[Condition, ...] = ()
    nodesets: tuple[NodeSet, ...] = ()
    checks: tuple[Check, ...] = ()
    pods: tuple[Pod, ...] = ()
    hosts: Mapping[str, tuple[Condition, ...]] = field(default_factory=dict)
    """Kubernetes nodes, with the conditions that say that something is wrong."""
    replacement: bool = False
    """Whether the operator may replace nodes."""
    logs: Mapping[str, str] = field(default_factory=dict)
    """The last lines of containers that crashed, by the name of their pod."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """What could not be read, and why."""

    @property
    def available(self) -> bool:
        """Whether the operator calls the cluster available."""
        return self.phase == AVAILABLE
