"""The bake as a resource: an image of Google Cloud that is whole, or not there."""

import uuid
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, ResourceProvider, UpdateResult

from components.dynamic import DynamicResource, changed, given, report, without_traceback
from components.gcp.bake.design import OWNER_LABEL, bake_of
from components.gcp.bake.errors import BakeError

REPLACES = ("project", "content")
"""Inputs that make it another image. The others are its name and how it is made, and matter only for a new one."""
BEFORE = ("project", "source_image", "size_gb")
"""What is compared instead where the state is of a version that recorded no content..."""
BEFORE_LABELS = ("kernel", "driver", "cuda", "slurm", "lustre")
"""...and the labels that described the image's content."""
OWN = ("image", "digest")
"""What an image keeps for as long as it is there, whatever a newer program would call it."""
KEPT_BACK = ("script", "trial")
"""Inputs that the state does not repeat among the outputs."""


class BakeProvider(ResourceProvider):
    def create(self, props: dict[str, Any]) -> CreateResult:
        """Bake, or take over what an interrupted bake left."""
        with without_traceback(BakeError):
            compute = _google().Compute(bake_of(props))
            _google().bake(compute, report)
            owner = uuid.uuid4().hex[:12]
            if (image := compute.finished_image()) is not None:
                compute.label_image(image, **{OWNER_LABEL: owner})
        return CreateResult(compute.bake.link, {**_outputs(props), "owner": owner})

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Another content is another image, created before the old one is deleted.

        A newer program alone does not replace it.
        """
        known = bool(_olds.get("content"))
        replaces = changed(_olds, _news, REPLACES if known else BEFORE)
        if not known and changed(_olds["labels"], _news["labels"], BEFORE_LABELS):
            replaces = [*replaces, "labels"]
        noted = bool(changed(_olds, _news, ("labels",))) or (not known and bool(_news.get("content")))
        return DiffResult(
            changes=bool(replaces or noted), replaces=replaces, stables=[] if replaces else ["self_link", *OWN]
        )

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Set its labels, and record its content; a deleted image is recreated."""
        props = {**_news, **{name: _olds[name] for name in OWN}}
        with without_traceback(BakeError):
            compute = _google().Compute(bake_of(props))
            if compute.finished_image() is None:
                _google().bake(compute, report)
            if (image := compute.finished_image()) is not None:
                compute.label_image(image)
        return UpdateResult({**_outputs(props), **({"owner": _olds["owner"]} if _olds.get("owner") else {})})

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        with without_traceback(BakeError):
            found = _google().Compute(bake_of(props)).finished_image()
        return ReadResult(id_ if found else "", _outputs(props))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Delete the image. Machines that were made from it have their own disks.

        One that another resource has taken over, as a forced replacement does, is kept.
        """
        with without_traceback(BakeError):
            compute = _google().Compute(bake_of(_props))
            image = compute.image()
            if image is not None and image.labels.get(OWNER_LABEL) in (None, _props.get("owner")):
                compute.delete_image()


def _google() -> ModuleType:
    # Google's client takes seconds to import, and a preview does not need it: imported where Google is called.
    from components.gcp.bake import bake

    return bake


def _outputs(props: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in given(props).items() if name not in KEPT_BACK}
    return {**kept, "self_link": bake_of(props).link}


class BakedImage(DynamicResource, module="gcp", name="BakedImage"):
    """An image that the stack makes itself."""

    self_link: pulumi.Output[str]

    def __init__(
        self, name: str, *, project: str, zone: str, image: str, digest: str, labels: Mapping[str, str],
        builder_labels: Mapping[str, str], description: str, source_image: str, machine_type: str, size_gb: int,
        minutes: float, subnetwork: pulumi.Input[str], tag: pulumi.Input[str], service_account: pulumi.Input[str],
        script: str, trial: str = "", content: Mapping[str, str] | None = None, storage_location: str = "",
        endpoint: str = "", pace: Mapping[str, float] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:  # fmt: skip
        props = {
            "project": project, "zone": zone, "image": image, "digest": digest, "labels": dict(labels),
            "builder_labels": dict(builder_labels), "description": description, "source_image": source_image,
            "machine_type": machine_type, "size_gb": size_gb, "minutes": minutes, "subnetwork": subnetwork, "tag": tag,
            "service_account": service_account, "script": script, **({"trial": trial} if trial else {}),
            **({"content": dict(content)} if content else {}), "storage_location": storage_location,
            "endpoint": endpoint, **({"pace": dict(pace)} if pace else {}), "self_link": None,
        }  # fmt: skip
        super().__init__(BakeProvider(), name, props, opts)
