"""A wait as a resource: it is done again when what it waits for changes."""

from collections.abc import Callable, Mapping
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, UpdateResult

from components.dynamic import ActionProvider, DynamicResource, changed, given, without_traceback
from components.nebius.kubernetes.kubectl import Kubectl
from components.nebius.waits import api, login, nodes, scheduler, slurm_cluster
from components.nebius.waits.poll import WaitError

KINDS: Mapping[str, Callable[[Kubectl, Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]] = {
    "api": api.wait,
    "nodes": nodes.wait,
    "populated": slurm_cluster.wait_populated,
    "available": slurm_cluster.wait_available,
    "nodesets": slurm_cluster.wait_nodesets,
    "scheduler": scheduler.wait,
    "login": login.wait,
}
"""What can be waited for. Each takes kubectl, the specification, and the limits: `seconds` and `pace`."""
AGAIN = ("kind", "access", "spec", "after")
"""Inputs whose change is waited for again. The others are limits."""


class WaitProvider(ActionProvider):
    """Waits, and changes nothing but nodes that have left Slurm."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Wait. An interrupted one waits again."""
        return CreateResult(f"{props['access']['context']}/{props['kind']}", _waited(props))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Another specification is waited for in place."""
        return DiffResult(changes=bool(changed(_olds, _news, AGAIN)))

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Wait again."""
        return UpdateResult(_waited(_news))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Nothing is to be done."""


def _waited(props: dict[str, Any]) -> dict[str, Any]:
    with without_traceback(WaitError), Kubectl(props["access"]) as kubectl:
        facts = KINDS[props["kind"]](kubectl, props["spec"], props)
    return {**given(props), "facts": facts}


class Wait(DynamicResource, module="nebius", name="Wait"):
    """A wait for something of a cluster."""

    facts: pulumi.Output[dict[str, Any]]

    def __init__(
        self, kind: str, name: str, *, access: pulumi.Input[Mapping[str, Any]], spec: pulumi.Input[Mapping[str, Any]],
        seconds: int, pace: float, after: pulumi.Input[str] = "", opts: pulumi.ResourceOptions | None = None,
    ) -> None:  # fmt: skip
        """`kind` is one of KINDS; `after` changes whenever it has to be waited again; `seconds` is the deadline."""
        props: dict[str, Any] = {
            "kind": kind, "access": access, "spec": spec, "after": after, "seconds": seconds, "pace": pace,
            "facts": None,
        }  # fmt: skip
        super().__init__(WaitProvider(), name, props, opts)
