"""The observer of clusters that Soperator runs."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from cli.observers import Asked
from cli.soperator import drift, logs, recovery, screen
from cli.soperator.ask import SECONDS, Seen, ask, replaces
from cluster.observe.drift import Difference
from cluster.observe.health.finding import ClusterFinding
from cluster.observe.nodes import Node
from cluster.platforms.nebius.health import actions, findings, health_findings


@dataclass(frozen=True)
class SoperatorReport:
    """What `status` found."""

    seen: Seen
    findings: list[ClusterFinding]

    def document(self) -> dict[str, Any]:
        """It as JSON."""
        return screen.document(self.seen, self.findings)

    def show(self) -> None:
        """Print it for people."""
        screen.show(self.seen, self.findings)


@dataclass(frozen=True)
class HealthReport(SoperatorReport):
    """What Soperator's checks of nodes found."""

    def document(self) -> dict[str, Any]:
        """It as JSON."""
        return screen.health_document(self.seen, self.findings)

    def show(self) -> None:
        """Print it for people."""
        screen.show_health(self.seen, self.findings)


class Soperator:
    """Reads clusters over Kubernetes' API, and slurmctld in its pod."""

    advice: ClassVar[Mapping[str, str]] = {
        "up": "What the stack made and somebody changed: ./hpc refresh STACK, then ./hpc up STACK",
        "hand": "What else was changed: change it back with kubectl, scontrol or sacctmgr, or write it into the stack.",
    }

    @staticmethod
    def status(stack: str, outputs: Mapping[str, Any], seconds: float | None) -> SoperatorReport:
        """What is seen of the cluster, and what is wrong with it."""
        seen = ask(stack, outputs, seconds=seconds or SECONDS)
        return SoperatorReport(seen, findings(seen.cluster, seen.view, now=time.time()))

    @staticmethod
    def health(stack: str, outputs: Mapping[str, Any]) -> HealthReport:
        """What Soperator's checks found."""
        seen = ask(stack, outputs)
        return HealthReport(seen, health_findings(seen.cluster, seen.view, now=time.time()))

    @staticmethod
    def logs(stack: str, outputs: Mapping[str, Any], asked: Asked) -> int:
        """Print logs of pods; the exit code."""
        return logs.logs(stack, outputs, asked)

    @staticmethod
    def drift(stack: str, outputs: Mapping[str, Any], seconds: float | None) -> tuple[list[Difference], list[str]]:
        """What differs from the stack, and what could not be compared."""
        return drift.drift(stack, outputs, seconds=seconds or SECONDS)

    @staticmethod
    def actors(outputs: Mapping[str, Any], nodes: Iterable[Node]) -> dict[str, str]:
        """Who must act on drained nodes, by their names."""
        drained = [node for node in nodes if node.drained]
        if not drained:
            return {}
        return {node.name: action.actor.value for node, action in actions(drained, replaces(outputs), now=time.time())}

    @staticmethod
    def recover(stack: str, outputs: Mapping[str, Any], *, quiet: bool) -> bool:
        """Resume the nodes that a failed `up` drained; whether all are."""
        return recovery.recover(stack, outputs, quiet=quiet)


OBSERVER = Soperator()
