"""A node of flex start as two resources: the request for it, and the machine."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, ResourceProvider, UpdateResult

from components.dynamic import DynamicResource, changed, given, report, without_traceback
from components.gcp.bake.errors import BakeError
from components.gcp.flex.design import wanted_of

PLACE = ("project", "zone", "name", "cluster")
REPLACES = (*PLACE, "template")
IN_PLACE = ("labels", "metadata")
PROVIDERS_OWN = "gcp:compute/instanceFromTemplate:InstanceFromTemplate"
TYPE = "pulumi-python:dynamic/gcp:FlexNode"
"""Types of the two resources that a node can be, each an alias of the other: one that is asked for in another way is
recreated after it was drained and removed, and so is one of an earlier version of this program."""


class FlexRequestProvider(ResourceProvider):
    """Creates nothing. It is in the state before Google is asked for the machine, so that deleting it deletes what a
    killed run asked for."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Nothing is to be done: the node takes over what the last run left."""
        return CreateResult(f"{wanted_of(props).link}/request", given(props))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Another place is another machine's."""
        replaces = changed(_olds, _news, PLACE)
        return DiffResult(changes=bool(replaces), replaces=replaces, delete_before_replace=True)

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        return ReadResult(id_, given(props))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Delete what a killed run asked for; nothing, where the node itself was in the state."""
        with without_traceback(BakeError):
            _google().remove(_google().FlexCompute(wanted_of(_props)))


class FlexNodeProvider(ResourceProvider):
    def create(self, props: dict[str, Any]) -> CreateResult:
        """Ask for the machine and wait, or go on waiting for what an interrupted run asked for."""
        return CreateResult(wanted_of(props).link, _started(props))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Another template is another machine; metadata and labels are changed in place."""
        replaces = changed(_olds, _news, REPLACES)
        return DiffResult(
            changes=bool(replaces or changed(_olds, _news, IN_PLACE)),
            replaces=replaces,
            stables=[] if replaces else ["instance_id", "address"],
            delete_before_replace=True,
        )

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Set metadata and labels; a node that Google deleted at the end of its run time is requested again."""
        return UpdateResult(_started(_news))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        with without_traceback(BakeError):
            found = _google().FlexCompute(wanted_of(props)).node()
        return ReadResult(id_, _outputs(props, found)) if found is not None else ReadResult("", given(props))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Delete the machine; it may have ended already."""
        with without_traceback(BakeError):
            _google().remove(_google().FlexCompute(wanted_of(_props)))


def _google() -> ModuleType:
    # Google's client takes seconds to import, and a preview does not need it: imported where Google is called.
    from components.gcp.flex import start  # noqa: PLC0415

    return start


def _started(props: dict[str, Any]) -> dict[str, Any]:
    with without_traceback(BakeError):
        return _outputs(props, _google().start(_google().FlexCompute(wanted_of(props)), report))


def _outputs(props: Mapping[str, Any], found: Any) -> dict[str, Any]:  # noqa: ANN401 - Google's own class
    nics = found.network_interfaces
    return {**given(props), "instance_id": str(found.id), "address": nics[0].network_i_p if nics else ""}


class FlexNode(DynamicResource, module="gcp", name="FlexNode"):
    """A node that Google is asked to queue, for two hours at most, and that then runs."""

    instance_id: pulumi.Output[str]
    address: pulumi.Output[str]
    """In the system network."""

    def __init__(
        self, name: str, *, project: str, zone: str, cluster: str, template: pulumi.Input[str],
        labels: Mapping[str, str], metadata: pulumi.Input[Mapping[str, pulumi.Input[str]]], endpoint: str = "",
        pace: Mapping[str, float] | None = None, opts: pulumi.ResourceOptions | None = None,
    ) -> None:  # fmt: skip
        place = {"project": project, "zone": zone, "name": name, "cluster": cluster, "endpoint": endpoint}
        place |= {"pace": dict(pace)} if pace else {}
        request = _FlexRequest(f"{name}-request", dict(place), opts)
        inputs = {**place, "template": template, "labels": dict(labels), "metadata": metadata}
        own = pulumi.ResourceOptions(
            depends_on=[request], delete_before_replace=True, aliases=[pulumi.Alias(type_=PROVIDERS_OWN)]
        )
        super().__init__(
            FlexNodeProvider(), name, {**inputs, "instance_id": None, "address": None},
            pulumi.ResourceOptions.merge(opts, own),
        )  # fmt: skip


class _FlexRequest(DynamicResource, module="gcp", name="FlexRequest"):
    """The node depends on it, so it is deleted after the node."""

    def __init__(self, name: str, props: dict[str, Any], opts: pulumi.ResourceOptions | None) -> None:
        super().__init__(FlexRequestProvider(), name, props, opts)
