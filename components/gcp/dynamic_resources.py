"""Resources that the provider for Google Cloud does not have: baked images, nodes of flex start, a controller in two
zones, elastic instances at the end of their nodeset, and barriers.

Google's client takes seconds to import, and a preview does not need it. So the functions that call Google import it.
"""

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, ClassVar

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, ResourceProvider, UpdateResult

from components.dynamic import Action, ActionProvider, DynamicResource, changed, given, report, without_traceback
from components.gcp.bake_design import (
    BUILDER_ENDING,
    DIGEST_LABEL,
    OWNER_LABEL,
    TEMPLATE_KEY,
    TRIAL_ENDING,
    Bake,
    GoogleCloudError,
    bake_of,
    pace_of,
    template_mark,
)


def _bake() -> ModuleType:
    from components.gcp import bake

    return bake


def _instances() -> ModuleType:
    from components.gcp import instances

    return instances


# -- images ----------------------------------------------------------------------------------------------------------

REPLACES_IMAGE = ("project", "content")
"""Inputs whose change replaces the image. The others are the image's name and the way it is made, which apply to the
next image only."""
OWN = ("image", "digest")
"""Inputs that an image keeps for its whole life, even if a newer program would compute others."""
KEPT_BACK = ("script", "trial")
"""Inputs that the state does not repeat among the outputs."""


class BakeProvider(ResourceProvider):
    def create(self, props: dict[str, Any]) -> CreateResult:
        """Bake, or take over what an interrupted bake left."""
        with without_traceback(GoogleCloudError):
            compute = _bake().Compute(bake_of(props))
            _bake().bake(compute, report)
            owner = uuid.uuid4().hex[:12]
            if (image := compute.finished_image()) is not None:
                compute.label_image(image, **{OWNER_LABEL: owner})
        return CreateResult(compute.bake.link, {**_image_outputs(props), "owner": owner})

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Another content is another image, created before the old one is deleted.

        A newer program alone does not replace it.
        """
        replaces = changed(_olds, _news, REPLACES_IMAGE)
        changes = bool(replaces or changed(_olds, _news, ("labels",)))
        return DiffResult(changes=changes, replaces=replaces, stables=[] if replaces else ["self_link", *OWN])

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Set the image's labels; recreate a deleted image."""
        props = {**_news, **{name: _olds[name] for name in OWN}}
        with without_traceback(GoogleCloudError):
            compute = _bake().Compute(bake_of(props))
            if compute.finished_image() is None:
                _bake().bake(compute, report)
            if (image := compute.finished_image()) is not None:
                compute.label_image(image)
        return UpdateResult({**_image_outputs(props), **({"owner": _olds["owner"]} if _olds.get("owner") else {})})

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        with without_traceback(GoogleCloudError):
            image = _bake().Compute(bake_of(props)).finished_image()
        return ReadResult(id_ if image else "", _image_outputs(props))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Delete the image. Machines that were created from it have their own disks.

        An image that another resource has taken over, as a forced replacement does, is kept.
        """
        with without_traceback(GoogleCloudError):
            compute = _bake().Compute(bake_of(_props))
            image = compute.image()
            if image is not None and image.labels.get(OWNER_LABEL) in (None, _props.get("owner")):
                compute.delete_image()


def _image_outputs(props: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in given(props).items() if name not in KEPT_BACK}
    return {**kept, "self_link": bake_of(props).link}


class BakedImage(DynamicResource, module="gcp", name="BakedImage"):
    """An image that the stack makes itself."""

    self_link: pulumi.Output[str]

    def __init__(self, name: str, props: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None) -> None:
        """`props` are the fields of `Bake` but for its ending, and `content`: what is in the image."""
        super().__init__(BakeProvider(), name, {**props, "self_link": None}, opts)


class LeftoversProvider(ActionProvider):
    """Creates nothing, and removes what killed bakes left. Builders are in a zone, images in none."""

    ID = "{project}/{cluster}"
    LEAVES_NOTHING = False
    PLACE = ("project", "cluster")
    ACTED_ON = ("zone",)

    def act(self, _news: Mapping[str, Any], olds: Mapping[str, Any] | None, /) -> None:
        """Remove builders from the zone that the stack leaves. In the same zone the next bake takes them over."""
        if olds:
            with without_traceback(GoogleCloudError):
                _remove_builders(olds)

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Remove builders and images of the cluster's bakes; there are none, unless one was killed."""
        with without_traceback(GoogleCloudError):
            _remove_builders(_props)
            for image in _compute(_props).images_of(_props["cluster"]):
                if _is_from_bake(_props, image.name, image.labels):
                    report(f"deleting {image.name}, which an interrupted bake left")
                    _compute(_props, image.name).delete_image()


class BakeLeftovers(Action, module="gcp", name="BakeLeftovers"):
    """The bake depends on it, so it is deleted after the bake, and before the builder's network. Inputs: `project`,
    `zone`, `cluster`, `endpoint`."""

    PROVIDER = LeftoversProvider


def _remove_builders(props: Mapping[str, Any]) -> None:
    for machine in _compute(props).instances_of(props["cluster"]):
        for ending in (BUILDER_ENDING, TRIAL_ENDING):
            image = machine.name.removesuffix(ending)
            if image != machine.name and _is_from_bake(props, image, machine.labels):
                report(f"deleting {machine.name}, which an interrupted bake left")
                _compute(props, image, ending).delete_builder()


def _is_from_bake(props: Mapping[str, Any], image: str, labels: Mapping[str, str]) -> bool:
    """Return whether a bake of this cluster gave that name. Copies that people keep have other names."""
    return image == f"{props['cluster']}-{labels.get(DIGEST_LABEL)}"


def _compute(props: Mapping[str, Any], image: str = "", ending: str = BUILDER_ENDING) -> Any:  # noqa: ANN401
    where = {name: props[name] for name in ("project", "zone", "endpoint")}
    return _bake().Compute(Bake(**where, image=image, ending=ending, pace=pace_of(props)))


# -- nodes of flex start, and a controller in two zones --------------------------------------------------------------


class _InstanceProvider(ResourceProvider):
    """The base of the providers of instances that this program itself creates.

    The id is of the instance's place and name, so an interrupted creation is taken over by the next run.
    """

    ID: ClassVar[str]
    REPLACES: ClassVar[tuple[str, ...]]
    """Inputs whose change replaces the resource."""
    IN_PLACE: ClassVar[tuple[str, ...]]
    """Inputs whose change is an update."""
    STABLE: ClassVar[tuple[str, ...]]
    """Outputs that an update keeps if it does not recreate the instance."""

    def start(self, props: dict[str, Any]) -> dict[str, Any]:
        """Create the instance if it is not there, wait until it runs, and return the outputs."""
        raise NotImplementedError

    def create(self, props: dict[str, Any]) -> CreateResult:
        return CreateResult(self.ID.format(**props), self.start(props))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Compare inputs alone: only a refresh asks Google. Only a controller has the input `body`."""
        replaces = changed(_olds, _news, self.REPLACES)
        recreates = replaces or changed(_olds, _news, ("body",))
        return DiffResult(
            changes=bool(replaces or changed(_olds, _news, self.IN_PLACE)),
            replaces=replaces,
            stables=[] if recreates else list(self.STABLE),
            delete_before_replace=True,
        )

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Set metadata and labels in place; create the instance again if it is gone or has another body."""
        return UpdateResult(self.start(_news))


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
        """Delete what a killed run asked for; nothing, where the node itself was in the state."""
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
            _instances().ask_all(news, report)

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """Return that the queue is gone if a node is: the next `up` then asks for all that ended."""
        with without_traceback(GoogleCloudError):
            return ReadResult("" if _instances().missing_nodes(props) else id_, given(props))


class FlexNodeProvider(_InstanceProvider):
    """Another template is another machine. A node that Google deleted at the end of its run time is requested again."""

    ID = NODE_ID
    REPLACES = ("project", "zone", "name", "cluster", "template")
    IN_PLACE = ("labels", "metadata")
    STABLE = ("instance_id", "address", "ends")

    def start(self, props: dict[str, Any]) -> dict[str, Any]:
        """Ask for the machine and wait, or go on waiting for what an interrupted run asked for."""
        with without_traceback(GoogleCloudError):
            return _node_outputs(props, _instances().start(_instances().FlexCompute(props), report))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        with without_traceback(GoogleCloudError):
            instance = _instances().FlexCompute(props).node()
        return ReadResult(id_, _node_outputs(props, instance)) if instance else ReadResult("", given(props))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Delete the machine; it may have ended already."""
        _delete_flex_node(_props)


def _delete_flex_node(props: Mapping[str, Any]) -> None:
    with without_traceback(GoogleCloudError):
        _instances().delete_node(_instances().FlexCompute(props))


def _node_outputs(props: Mapping[str, Any], instance: Any) -> dict[str, Any]:  # noqa: ANN401 - Google's own class
    nics = instance.network_interfaces
    address, ends = nics[0].network_i_p if nics else "", _instances().end_time(instance)
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


class _FlexRequest(Action, module="gcp", name="FlexRequest"):
    PROVIDER = FlexRequestProvider


class _FlexQueue(Action, module="gcp", name="FlexQueue"):
    PROVIDER = FlexQueueProvider


class ControllerProvider(_InstanceProvider):
    """The controller's instance, which may be in either of two zones, on disks that are in both.

    The zone is no input: the machine that watches the controller may have moved it since the last run. A change of its
    body recreates it on its disks, in the zone where it is; labels and metadata change in place.
    """

    ID = "{project}/{name}"
    REPLACES = ("project", "zones", "name", "cluster")
    IN_PLACE = ("body", "labels", "metadata")
    STABLE = ("boot_id", "zone")

    def start(self, props: dict[str, Any]) -> dict[str, Any]:
        """Create it in its first zone, or take over the instance that is there already."""
        with without_traceback(GoogleCloudError):
            compute = _instances().controller(_with_template(props))
            if compute.zone != props["zones"][0]:
                report(f"{props['name']} is in {compute.zone}, and stays there")
            return _controller_outputs(props, _instances().start(compute, report), compute.zone)

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """Find it in either zone."""
        with without_traceback(GoogleCloudError):
            compute = _instances().controller(_with_template(props))
            instance = compute.node()
        if instance is None:
            return ReadResult("", given(props))
        return ReadResult(id_, _controller_outputs(props, instance, compute.zone))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Delete it in both zones. Its disks stay: they are resources of their own."""
        with without_traceback(GoogleCloudError):
            for compute in _instances().controllers(_with_template(_props)):
                _instances().delete_node(compute)


def _with_template(props: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs with the hash of the body as template, which identifies instances with another body."""
    return {**props, "template": digest(props["body"])}


def digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


def _controller_outputs(props: Mapping[str, Any], instance: Any, zone: str) -> dict[str, Any]:  # noqa: ANN401
    return {**given(props), "boot_id": str(instance.id), "zone": zone}


class FailoverController(DynamicResource, module="gcp", name="Controller"):
    """The controller's instance."""

    boot_id: pulumi.Output[str]
    """The instance's id, which changes at each move."""
    zone: pulumi.Output[str]
    """The zone that it is in."""

    def __init__(self, name: str, inputs: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None) -> None:
        """`inputs`: project, zones, cluster, endpoint, `body` as JSON for instances.insert with {zone} in it, labels
        and metadata."""
        props = {**inputs, "name": name, "boot_id": None, "zone": None}
        super().__init__(ControllerProvider(), name, props, opts)


def whole_body(text: str, labels: Mapping[str, str], metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the body with the instance's labels and metadata, for the machine that creates it in the other zone."""
    items = {**metadata, TEMPLATE_KEY: template_mark(digest(text))}
    rows = [{"key": key, "value": value} for key, value in sorted(items.items())]
    return {**json.loads(text), "labels": dict(labels), "metadata": {"items": rows}}


# -- elastic nodes ---------------------------------------------------------------------------------------------------


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
            _instances().delete_instances(_props, report)


class ElasticInstances(Action, module="gcp", name="ElasticInstances"):
    """The instances that the controller creates for a nodeset.

    The controller depends on it, and it depends on what the instances are made of. So it is deleted after the
    controller, which then creates no more, and before templates, placement policies, networks and accounts. Inputs:
    `project`, `zone`, `cluster`, `nodeset`, `endpoint`.
    """

    PROVIDER = ElasticInstancesProvider


# -- barriers --------------------------------------------------------------------------------------------------------


class BarrierProvider(ActionProvider):
    """Creates nothing: the resource exists once all that it depends on exists."""

    ID = "barrier"


class Barrier(DynamicResource, module="gcp", name="Barrier"):
    """One dependency in place of many: a hundred machines that depend on a hundred addresses are 200 dependencies with
    it, and 10,000 without."""

    def __init__(self, name: str, after: Sequence[pulumi.Resource], *, parent: pulumi.Resource) -> None:
        super().__init__(BarrierProvider(), name, {}, pulumi.ResourceOptions(parent=parent, depends_on=list(after)))
