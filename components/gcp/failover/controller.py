"""A controller that may be in either of two zones, on disks that are in both."""

import hashlib
import json
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, ResourceProvider, UpdateResult

from components.dynamic import DynamicResource, changed, given, report, without_traceback
from components.gcp.bake.design import TEMPLATE_KEY, BakeError, mark_of

PLACE = ("project", "zones", "name", "cluster")
IN_PLACE = ("body", "labels", "metadata")


class ControllerProvider(ResourceProvider):
    """The zone is no input: the machine that watches the controller may have moved it since the last run.

    A change of its body recreates it on its disks, in the zone where it is; labels and metadata change in place.
    """

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Create it in its first zone, or take over the instance that is there already."""
        return CreateResult(f"{props['project']}/{props['name']}", _started(props))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Compare inputs alone: only a refresh asks Google for the zone."""
        replaces = changed(_olds, _news, PLACE)
        body = changed(_olds, _news, ("body",))
        return DiffResult(
            changes=bool(replaces or changed(_olds, _news, IN_PLACE)),
            replaces=replaces,
            stables=[] if replaces or body else ["boot_id", "zone"],
            delete_before_replace=True,
        )

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        return UpdateResult(_started(_news))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """Find it in either zone."""
        with without_traceback(BakeError):
            compute = _google().controller(_named(props))
            found = compute.node()
        if found is None:
            return ReadResult("", given(props))
        return ReadResult(id_, {**given(props), "boot_id": str(found.id), "zone": compute.zone})

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Delete it in both zones. Its disks stay: they are resources of their own."""
        with without_traceback(BakeError):
            for compute in _google().controllers(_named(_props)):
                _google().remove(compute)


def _google() -> ModuleType:
    # Google's client takes seconds to import, and a preview does not need it: imported where Google is called.
    from components.gcp import instances  # noqa: PLC0415

    return instances


def _named(props: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs with the hash of the body as template, by which an instance of another body is recognized."""
    return {**props, "template": digest(props["body"])}


def digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


def _started(props: dict[str, Any]) -> dict[str, Any]:
    with without_traceback(BakeError):
        compute = _google().controller(_named(props))
        if compute.zone != props["zones"][0]:
            report(f"{props['name']} is in {compute.zone}, and stays there")
        found = _google().start(compute, report)
    return {**given(props), "boot_id": str(found.id), "zone": compute.zone}


class FailoverController(DynamicResource, module="gcp", name="Controller"):
    """The controller's instance."""

    boot_id: pulumi.Output[str]
    """The instance's id: another one at each move."""
    zone: pulumi.Output[str]
    """The zone that it is in."""

    def __init__(self, name: str, inputs: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None) -> None:
        """`inputs`: project, zones, cluster, endpoint, `body` as JSON for instances.insert with {zone} in it, labels
        and metadata."""
        props = {**inputs, "name": name, "boot_id": None, "zone": None}
        super().__init__(ControllerProvider(), name, props, opts)


def whole_body(text: str, labels: Mapping[str, str], metadata: Mapping[str, str]) -> dict[str, Any]:
    """The body with all that the instance has, for the machine that creates it in the other zone. A pure function."""
    items = {**metadata, TEMPLATE_KEY: mark_of(digest(text))}
    rows = [{"key": key, "value": value} for key, value in sorted(items.items())]
    return {**json.loads(text), "labels": dict(labels), "metadata": {"items": rows}}
