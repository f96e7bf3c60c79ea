"""How clusters are observed whose machines have no set-up of this program, by the observer that their outputs name."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from cli.errors import CliError
from cluster.observe.drift import Difference
from cluster.observe.health.finding import ClusterFinding
from cluster.observe.nodes import Node


class Report(Protocol):
    """What `status` found."""

    findings: Sequence[ClusterFinding]

    def document(self) -> dict[str, Any]:
        """It as JSON, with the keys of every platform and its own beside them."""
        ...

    def show(self) -> None:
        """Print it for people."""
        ...


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What `logs` is asked for."""

    what: str
    """A log, or a target."""
    on: Sequence[str] = ()
    """Only these targets'."""
    lines: int | None = None
    """The last lines of each; None for all."""
    since: str = ""
    """A point in time as cluster.observe.moment allows it; empty for any."""
    follow: bool = False


class Observer(Protocol):
    """Reads a cluster that is up. All raise CliError: the stack is not up, or what they need is not here."""

    def status(self, stack: str, outputs: Mapping[str, Any], seconds: float | None) -> Report:
        """What is seen of the cluster, and what is wrong with it; also of one that does not answer. `seconds` are those
        of each question, in place of the usual ones."""
        ...

    def logs(self, stack: str, outputs: Mapping[str, Any], asked: Asked) -> int:
        """Print logs; the exit code."""
        ...

    def health(self, stack: str, outputs: Mapping[str, Any]) -> Report:
        """Results of the operator's health checks, and drained nodes with who must act."""
        ...

    advice: Mapping[str, str]
    """How a difference is put right, with STACK for the stack, by its `mends`."""

    def drift(
        self, stack: str, outputs: Mapping[str, Any], seconds: float | None
    ) -> tuple[list[Difference], list[str]]:
        """What differs from the stack, and what could not be compared, and why; `seconds` as for `status`."""
        ...

    def actors(self, outputs: Mapping[str, Any], nodes: Iterable[Node]) -> Mapping[str, str]:
        """Who must act on drained nodes, by their names."""
        ...

    def recover(self, stack: str, outputs: Mapping[str, Any], *, quiet: bool) -> bool:
        """Undo what an `up` that failed left behind, as cli.operation.drain_recovery says; whether that is complete."""
        ...


OBSERVERS: Mapping[str, str] = {"soperator": "cli.soperator.observer"}
"""By name, the module whose OBSERVER it is, imported when it is first asked for."""


def observer_of(outputs: Mapping[str, Any]) -> Observer | None:
    """The observer that a stack's outputs name; None where machines report themselves. Raises CliError: this version
    has none of that name."""
    name = (outputs.get("platform") or {}).get("observer", "")
    if not name:
        return None
    if name not in OBSERVERS:
        raise CliError(
            f"the cluster is observed by {name!r}, which this version does not have. Use the version that brought the "
            "stack up."
        )
    return import_module(OBSERVERS[name]).OBSERVER
