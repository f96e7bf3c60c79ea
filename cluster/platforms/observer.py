"""The interface for clusters whose machines lack the set-up of this program: the platform's observer reads a cluster
through `Access` and returns reports. Commands open the access, and print them."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from cluster.findings import ClusterFinding
from cluster.observe.observation import ClusterObservation, Difference
from scripts.node.slurm.nodes import Node


@dataclass(frozen=True, kw_only=True)
class KubectlResult:
    """The exit code and output of kubectl."""

    code: int
    out: str
    err: str
    why: str = ""
    """The reason why it failed, on one line; empty if it did not."""

    @property
    def items(self) -> list[dict[str, Any]]:
        """The objects in the output, which is JSON; none if kubectl failed. For an object by its name kubectl prints no
        list, and nothing if there is no object."""
        if self.code or not self.out.strip():
            return []
        document = json.loads(self.out)
        return list(document.get("items") or ()) if document.get("kind", "List").endswith("List") else [document]


@dataclass(frozen=True, kw_only=True)
class ControllerResult:
    """The result of a command on the controller, or of the attempt to reach it."""

    reached: bool
    out: str
    err: str
    asked: float
    answered: float
    """The time of its answer, in seconds since the epoch."""


@dataclass(frozen=True, kw_only=True)
class ClusterAccess:
    """The connection over which a running cluster is read. Each request has a time limit."""

    stack: str
    namespace: str
    """The cluster's own, in Kubernetes."""
    controller: str
    """Name of the target with slurmctld."""
    roles: Mapping[str, tuple[str, ...]]
    """The roles of every target, by its name."""
    pods: Mapping[str, str]
    """Its pods, by the target's name."""
    kubectl: Callable[..., KubectlResult]
    """kubectl(*words, stdin="")."""
    run: Callable[[str], ControllerResult]
    """Runs a line as root on the controller, from the thread that handles signals."""


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """A table of a report."""

    heading: tuple[str, ...]
    rows: Sequence[tuple[str | float | None, ...]]
    """Numbers are times, in seconds since the epoch, of which the age is shown."""
    widest: int = 48
    """Characters of the last column."""


@dataclass(frozen=True, kw_only=True)
class StatusReport:
    """The findings of `status` or `health`."""

    seen: ClusterObservation
    findings: list[ClusterFinding]
    tables: Sequence[ReportTable | str]
    """The tables in their order; a name stands for a table of every platform: nodes, partitions, queue."""
    document: Mapping[str, Any]
    """The report as JSON, with the keys of every platform and its own beside them."""


@dataclass(frozen=True, kw_only=True)
class LogRequest:
    """The arguments of `./hpc logs`."""

    what: str
    """A log, or a target."""
    on: Sequence[str] = ()
    """Names of targets; empty for all."""
    lines: int | None = None
    """Number of last lines of each log; None for all."""
    since: str = ""
    """A point in time in the form of cluster.observe.moment; empty for any."""
    follow: bool = False


class Observer(Protocol):
    """Reads clusters that an operator runs."""

    operator: ClassVar[str]
    """The operator's name for users."""
    advice: ClassVar[Mapping[str, str]]
    """The actions that mend a difference, with STACK for the stack, by the difference's `mends`."""

    def status(self, access: ClusterAccess) -> StatusReport:
        """Return the observation of the cluster and its findings, even if the cluster does not answer."""
        ...

    def health(self, access: ClusterAccess) -> StatusReport:
        """Return the results of the operator's health checks, and the drained nodes with who must act."""
        ...

    def drift(self, access: ClusterAccess, config: Any) -> tuple[list[Difference], list[str]]:  # noqa: ANN401
        """Return the differences from the last `up`'s configuration, and for what could not be compared the reason.

        The configuration is a ClusterConfig, which only `drift` imports: the models take a tenth of a second.
        """
        ...

    def logs(self, asked: LogRequest, pods: Sequence[Mapping[str, Any]], namespace: str) -> Mapping[str, list[str]]:
        """Arguments of kubectl for each log, by what stands in front of its lines. `since` is in RFC 3339. Raises
        LookupError, with a message for people: nothing is called so."""
        ...

    def shown(self, line: str) -> str:
        """A line of a log without what kubectl put in front of it, if it has a time of its own."""
        ...

    def actors(self, access: ClusterAccess, nodes: Iterable[Node]) -> Mapping[str, str]:
        """Return who must act on drained nodes, by their names."""
        ...
