"""One resource for others to depend on in place of many."""

from collections.abc import Sequence
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult

from components.dynamic import ActionProvider, DynamicResource, given


class BarrierProvider(ActionProvider):
    """Creates nothing: it is there once all that it depends on is."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Nothing is to be done."""
        return CreateResult("barrier", given(props))


class Barrier(DynamicResource, module="gcp", name="Barrier"):
    """A hundred machines that depend on a hundred addresses are 200 dependencies with it, and 10,000 without."""

    def __init__(self, name: str, after: Sequence[pulumi.Resource], *, parent: pulumi.Resource) -> None:
        super().__init__(BarrierProvider(), name, {}, pulumi.ResourceOptions(parent=parent, depends_on=list(after)))
