"""Images that a stack bakes, as resources.

Google's client takes seconds to import, and a preview does not need it. So the functions that call Google import it.
"""

import uuid
from collections.abc import Mapping
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
from components.gcp.bake_design import (
    BUILDER_ENDING,
    DIGEST_LABEL,
    OWNER_LABEL,
    TRIAL_ENDING,
    Bake,
    GoogleCloudError,
    bake_of,
    pace_of,
)

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


class BakeLeftovers(ActionResource, module="gcp", name="BakeLeftovers"):
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


def _bake() -> ModuleType:
    from components.gcp import bake

    return bake
