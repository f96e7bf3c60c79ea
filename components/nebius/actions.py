"""Resources of a cluster that act and create nothing: waits, drains, checks, programs in pods."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pulumi
from pulumi.dynamic import CreateResult, UpdateResult

from components.dynamic import ActionProvider, DynamicResource, given


class ActingProvider(ActionProvider):
    """Acts at its creation and at each update in one way. A deletion does nothing."""

    ID: ClassVar[str]
    """The resource's id, a format of its inputs."""

    def act(self, news: Mapping[str, Any], olds: Mapping[str, Any] | None, /) -> Mapping[str, Any] | None:
        """Do it; outputs besides the inputs. `olds` is None at the creation."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        inputs = given(props)
        return CreateResult(self.ID.format(**inputs), {**inputs, **(self.act(inputs, None) or {})})

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        inputs = given(_news)
        return UpdateResult({**inputs, **(self.act(inputs, given(_olds)) or {})})


class Action(DynamicResource):
    """A resource whose inputs are given by name. The docstring of each class says what they are."""

    PROVIDER: ClassVar[type[ActingProvider]]
    OUTPUTS: ClassVar[tuple[str, ...]] = ()
    """What `act` returns."""

    def __init__(self, name: str, *, opts: pulumi.ResourceOptions | None = None, **inputs: pulumi.Input[Any]) -> None:
        super().__init__(self.PROVIDER(), name, {**inputs, **dict.fromkeys(self.OUTPUTS)}, opts)
