"""A resource that takes no time."""

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ResourceProvider

from components.dynamic import DynamicResource


class MadeProvider(ResourceProvider):
    """Makes nothing."""

    def create(self, props: dict[str, object]) -> CreateResult:
        """As if it were there."""
        return CreateResult(str(props["name"]), {**props, "made": props["name"]})

    def diff(self, _id: str, _olds: dict[str, object], _news: dict[str, object]) -> DiffResult:
        """Nothing ever differs."""
        return DiffResult(changes=False)


class Made(DynamicResource, module="bench", name="Made"):
    """One of many."""

    made: pulumi.Output[str]

    def __init__(self, name: str, *, of: pulumi.Input[str], parent: pulumi.Resource) -> None:
        props = {"name": name, "of": of, "text": "x" * 200, "made": None}
        super().__init__(MadeProvider(), name, props, pulumi.ResourceOptions(parent=parent))
