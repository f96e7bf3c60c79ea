"""A resource that many others depend on in place of many that they would depend on."""

from collections.abc import Sequence

import pulumi

from components.dynamic import ActionProvider, DynamicResource


class BarrierProvider(ActionProvider):
    """Creates nothing: the resource exists once all that it depends on exists."""

    ID = "barrier"


class Barrier(DynamicResource, module="gcp", name="Barrier"):
    """One dependency in place of many: a hundred machines that depend on a hundred addresses are 200 dependencies with
    it, and 10,000 without. The SDK walks the graph for each one (pulumi 3.272, runtime/resource_cycle_breaker.py)."""

    def __init__(self, name: str, after: Sequence[pulumi.Resource], *, parent: pulumi.Resource) -> None:
        super().__init__(BarrierProvider(), name, {}, pulumi.ResourceOptions(parent=parent, depends_on=list(after)))
