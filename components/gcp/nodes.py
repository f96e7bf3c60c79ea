"""Resources of nodes that the provider for Google Cloud does not have: nodes of flex start, and the elastic instances
of a nodeset, which are deleted with it.

Google's client takes seconds to import, and a preview does not need it. So the functions that call Google import it.
"""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, ResourceProvider, UpdateResult

from components.dynamic import (
    ActionProvider,
    ActionResource,
    DynamicResource,
    changed,
    given,
    report,
    without_traceback,
)
from components.gcp.bake_design import GoogleCloudError


def instances_api() -> ModuleType:
    """Return the module with the calls for instances, which imports Google's client."""
    from components.gcp import instances

    return instances


NODE_ID = "projects/{project}/zones/{zone}/instances/{name}"
"""The id of a node: the path of its instance."""
PROVIDERS_OWN = "gcp:compute/instanceFromTemplate:InstanceFromTemplate"
FLEX_NODE = "pulumi-python:dynamic/gcp:FlexNode"
"""Types of the two resources that a node can be, each an alias of the other: a node whose capacity changes to or from
flex start is recreated after it was drained and removed."""


class FlexRequestProvider(ActionProvider):
    """Creates nothing. It is in the state before Google is asked for the machine, so that deleting it deletes what a
    killed run asked for."""

    ID = f"{NODE_ID}/request"
    LEAVES_NOTHING = False
    PLACE, ACTED_ON = ("project", "zone", "name", "cluster"), ()
    DELETED_FIRST = True

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Delete the machine that a killed run asked for. A node in the state was deleted before its request."""
        _delete_flex_node(_props)


class FlexQueueProvider(ActionProvider):
    """Asks for all nodes before the first is waited for: engines wait for few at a time, and the first to come would be
    paid for meanwhile. The resources FlexRequest delete what it asked for.

    At each change it asks for all nodes that are missing, at once and not as each is updated.
    """

    ID = "{project}/{zone}/{cluster}"
    PLACE, ACTED_ON = ("project", "zone", "cluster"), ("names", "template", "labels", "metadata")
    DELETED_FIRST = True

    def act(self, news: Mapping[str, Any], _olds: Mapping[str, Any] | None, /) -> None:
        with without_traceback(GoogleCloudError):
            instances_api().ask_all(news, report)

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """Return that the queue is gone if a node is: the next `up` then asks for all that ended."""
        with without_traceback(GoogleCloudError):
            return ReadResult("" if instances_api().missing_nodes(props) else id_, given(props))


class FlexNodeProvider(ResourceProvider):
    """Another template is another machine. A node that Google deleted at the end of its run time is requested again.

    The id is of the machine's place and name, so an interrupted creation is taken over by the next run.
    """

    REPLACES = ("project", "zone", "name", "cluster", "template")
    IN_PLACE = ("labels", "metadata")
    STABLE = ("instance_id", "address", "ends")

    def create(self, props: dict[str, Any]) -> CreateResult:
        return CreateResult(NODE_ID.format(**props), self._start(props))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Compare inputs alone: only a refresh asks Google."""
        replaces = changed(_olds, _news, self.REPLACES)
        return DiffResult(
            changes=bool(replaces or changed(_olds, _news, self.IN_PLACE)),
            replaces=replaces,
            stables=[] if replaces else list(self.STABLE),
            delete_before_replace=True,
        )

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Set metadata and labels in place; request the machine again if it is gone."""
        return UpdateResult(self._start(_news))

    def _start(self, props: dict[str, Any]) -> dict[str, Any]:
        """Ask for the machine and wait, or go on waiting for what an interrupted run asked for."""
        with without_traceback(GoogleCloudError):
            return _node_outputs(props, instances_api().start(instances_api().FlexCompute(props), report))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        with without_traceback(GoogleCloudError):
            instance = instances_api().FlexCompute(props).node()
        return ReadResult(id_, _node_outputs(props, instance)) if instance else ReadResult("", given(props))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Delete the machine; it may have ended already."""
        _delete_flex_node(_props)


def _delete_flex_node(props: Mapping[str, Any]) -> None:
    with without_traceback(GoogleCloudError):
        instances_api().delete_node(instances_api().FlexCompute(props))


def _node_outputs(props: Mapping[str, Any], instance: Any) -> dict[str, Any]:  # noqa: ANN401 - Google's own class
    nics = instance.network_interfaces
    address, ends = nics[0].network_i_p if nics else "", instances_api().end_time(instance)
    return {**given(props), "instance_id": str(instance.id), "address": address, "ends": ends}


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
    """Create all nodes of the nodeset `name`, with their requests and their queue.

    `where` has project, zone, cluster and endpoint, `own` the template, labels and metadata of each node.
    """
    # Deleted after the nodes, which depend on them through the queue.
    requests = [_FlexRequest(f"{name}-request", opts=opts, **{**where, "name": name}) for name in names]
    after = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=requests))
    queue = _FlexQueue(f"{name}-queue", opts=after, **where, **own, names=list(names))
    after = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[queue]))
    return [FlexNode(name, {**where, **own}, after) for name in names]


class _FlexRequest(ActionResource, module="gcp", name="FlexRequest"):
    PROVIDER = FlexRequestProvider


class _FlexQueue(ActionResource, module="gcp", name="FlexQueue"):
    PROVIDER = FlexQueueProvider


class ElasticInstancesProvider(ActionProvider):
    """Creates nothing: the reconcile loop on the controller does, from the nodeset's templates.

    If the place changes, deleting the old resource deletes the instances in the old place.
    """

    ID = "{project}/{zone}/{cluster}/{nodeset}"
    PLACE = ("project", "zone", "cluster", "nodeset")
    ACTED_ON = ("endpoint",)

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Delete the nodeset's elastic instances, and wait until they are gone; a killed run continues here."""
        with without_traceback(GoogleCloudError):
            instances_api().delete_instances(_props, report)


class ElasticInstances(ActionResource, module="gcp", name="ElasticInstances"):
    """The instances that the controller creates for a nodeset.

    The controller depends on it, and it depends on what the instances are made of. So it is deleted after the
    controller, which then creates no more, and before templates, placement policies, networks and accounts. Inputs:
    `project`, `zone`, `cluster`, `nodeset`, `endpoint`.
    """

    PROVIDER = ElasticInstancesProvider
