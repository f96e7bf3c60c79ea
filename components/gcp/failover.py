"""A controller in two zones, as a resource.

Google's client takes seconds to import, and a preview does not need it. So the functions that call Google import it.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi.dynamic import ReadResult

from components.dynamic import DynamicResource, given, report, without_traceback
from components.gcp.bake_design import TEMPLATE_KEY, GoogleCloudError, template_mark
from components.gcp.nodes import InstanceProvider, instances_api


class ControllerProvider(InstanceProvider):
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
            compute = instances_api().controller(_with_template(props))
            if compute.zone != props["zones"][0]:
                report(f"{props['name']} is in {compute.zone}, and stays there")
            return _controller_outputs(props, instances_api().start(compute, report), compute.zone)

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """Find it in either zone."""
        with without_traceback(GoogleCloudError):
            compute = instances_api().controller(_with_template(props))
            instance = compute.node()
        if instance is None:
            return ReadResult("", given(props))
        return ReadResult(id_, _controller_outputs(props, instance, compute.zone))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Delete it in both zones. Its disks stay: they are resources of their own."""
        with without_traceback(GoogleCloudError):
            for compute in instances_api().controllers(_with_template(_props)):
                instances_api().delete_node(compute)


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
