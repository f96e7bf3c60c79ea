"""The project's first subnet, found when the stack is brought up."""

from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, ResourceProvider, UpdateResult

from components.dynamic import DynamicResource, changed, given, without_traceback
from components.nebius.api.errors import NebiusError


class FirstSubnetProvider(ResourceProvider):
    """Finds a subnet once; the stack keeps its id, whatever subnets come later."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Find it. Fails where the project has none."""
        from components.nebius.api import lookups

        with without_traceback(NebiusError):
            return CreateResult(lookups.first_subnet(props["project"], props["endpoint"]), given(props))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Another project has other subnets."""
        replaces = changed(_olds, _news, ("project",))
        return DiffResult(changes=bool(replaces or changed(_olds, _news, ("endpoint",))), replaces=replaces)

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        return UpdateResult(given(_news))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """Whether it is there."""
        from components.nebius.api import lookups

        with without_traceback(NebiusError):
            there = lookups.exists("Subnet", id_, props["endpoint"])
        return ReadResult(id_ if there else "", given(props))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Nothing is to be done: it was there before."""


class FirstSubnet(DynamicResource, module="nebius", name="FirstSubnet"):
    """A look-up; its id is the subnet's."""

    def __init__(self, name: str, *, project: str, endpoint: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(FirstSubnetProvider(), name, {"project": project, "endpoint": endpoint}, opts)
