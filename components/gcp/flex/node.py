"""Nodes of flex start: a request for each, one queue that asks for all of a nodeset at once, and the machines."""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, ResourceProvider, UpdateResult

from components.dynamic import Action, ActionProvider, DynamicResource, changed, given, report, without_traceback
from components.gcp.bake.design import BakeError

NODE_ID = "projects/{project}/zones/{zone}/instances/{name}"
"""The id of a node: the path of its instance."""
REPLACES = ("project", "zone", "name", "cluster", "template")
IN_PLACE = ("labels", "metadata")
PROVIDERS_OWN = "gcp:compute/instanceFromTemplate:InstanceFromTemplate"
TYPE = "pulumi-python:dynamic/gcp:FlexNode"
"""Types of the two resources that a node can be, each an alias of the other: one that is asked for in another way is
recreated after it was drained and removed."""


class FlexRequestProvider(ActionProvider):
    """Creates nothing. It is in the state before Google is asked for the machine, so that deleting it deletes what a
    killed run asked for."""

    ID = f"{NODE_ID}/request"
    LEAVES_NOTHING = False
    PLACE, ACTED_ON = ("project", "zone", "name", "cluster"), ()
    DELETED_FIRST = True

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Delete what a killed run asked for; nothing, where the node itself was in the state."""
        with without_traceback(BakeError):
            _google().remove(_google().FlexCompute(_props))


class FlexQueueProvider(ActionProvider):
    """Asks for all nodes before the first is waited for: engines wait for few at a time, and the first to come would be
    paid for meanwhile. The resources FlexRequest delete what it asked for.

    At each change it asks for all nodes that are missing, at once and not as each is updated.
    """

    ID = "{project}/{zone}/{cluster}"
    PLACE, ACTED_ON = ("project", "zone", "cluster"), ("names", "template", *IN_PLACE)
    DELETED_FIRST = True

    def act(self, news: Mapping[str, Any], _olds: Mapping[str, Any] | None, /) -> None:
        with without_traceback(BakeError):
            _google().ask_all(news, report)

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """Gone where a node is: the next `up` asks for all that ended."""
        with without_traceback(BakeError):
            return ReadResult("" if _google().missing(props) else id_, given(props))


class FlexNodeProvider(ResourceProvider):
    def create(self, props: dict[str, Any]) -> CreateResult:
        """Ask for the machine and wait, or go on waiting for what an interrupted run asked for."""
        return CreateResult(NODE_ID.format(**props), _started(props))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Another template is another machine; metadata and labels are changed in place."""
        replaces = changed(_olds, _news, REPLACES)
        return DiffResult(
            changes=bool(replaces or changed(_olds, _news, IN_PLACE)),
            replaces=replaces,
            stables=[] if replaces else ["instance_id", "address", "ends"],
            delete_before_replace=True,
        )

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Set metadata and labels; a node that Google deleted at the end of its run time is requested again."""
        return UpdateResult(_started(_news))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        with without_traceback(BakeError):
            found = _google().FlexCompute(props).node()
        return ReadResult(id_, _outputs(props, found)) if found is not None else ReadResult("", given(props))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Delete the machine; it may have ended already."""
        with without_traceback(BakeError):
            _google().remove(_google().FlexCompute(_props))


def _google() -> ModuleType:
    # Google's client takes seconds to import, and a preview does not need it: imported where Google is called.
    from components.gcp import instances  # noqa: PLC0415

    return instances


def _started(props: dict[str, Any]) -> dict[str, Any]:
    with without_traceback(BakeError):
        return _outputs(props, _google().start(_google().FlexCompute(props), report))


def _outputs(props: Mapping[str, Any], found: Any) -> dict[str, Any]:  # noqa: ANN401 - Google's own class
    nics = found.network_interfaces
    address = nics[0].network_i_p if nics else ""
    return {**given(props), "instance_id": str(found.id), "address": address, "ends": _google().ends(found)}


class FlexNode(DynamicResource, module="gcp", name="FlexNode"):
    """A node that Google is asked to queue, for two hours at most, and that then runs."""

    instance_id: pulumi.Output[str]
    address: pulumi.Output[str]
    """The address in the system network."""
    ends: pulumi.Output[int]
    """Seconds since 1970; 0 where it is not known."""

    def __init__(self, name: str, inputs: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None) -> None:
        own = pulumi.ResourceOptions(delete_before_replace=True, aliases=[pulumi.Alias(type_=PROVIDERS_OWN)])
        props = {**inputs, "name": name, "instance_id": None, "address": None, "ends": None}
        super().__init__(FlexNodeProvider(), name, props, pulumi.ResourceOptions.merge(opts, own))


def flex_nodes(
    name: str,
    names: Sequence[str],
    where: Mapping[str, Any],
    own: Mapping[str, Any],
    opts: pulumi.ResourceOptions | None = None,
) -> list[FlexNode]:
    """Return all nodes of a nodeset called `name`.

    `where` has project, zone, cluster and endpoint, `own` the template, labels and metadata of each node.
    """
    # Deleted after the nodes, which depend on them through the queue.
    requests = [_FlexRequest(f"{name}-request", opts=opts, **{**where, "name": name}) for name in names]
    after = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=requests))
    queue = _FlexQueue(f"{name}-queue", opts=after, **where, **own, names=list(names))
    after = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[queue]))
    return [FlexNode(name, {**where, **own}, after) for name in names]


class _FlexRequest(Action, module="gcp", name="FlexRequest"):
    PROVIDER = FlexRequestProvider


class _FlexQueue(Action, module="gcp", name="FlexQueue"):
    PROVIDER = FlexQueueProvider
