"""What a killed bake left and no state has: removed with the stack."""

from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, ResourceProvider, UpdateResult

from components.dynamic import DynamicResource, changed, given, report, without_traceback
from components.gcp.bake.design import BUILDER_ENDING, DIGEST_LABEL, TRIAL_ENDING, Bake, pace_of
from components.gcp.bake.errors import BakeError

REPLACES = ("project", "cluster")
IN_PLACE = ("zone",)


class LeftoversProvider(ResourceProvider):
    """Creates nothing: what it removes is created by bakes."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Nothing is to be done: the next bake takes over what the last one left."""
        return CreateResult(f"{props['project']}/{props['cluster']}", given(props))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Another zone has other builders; images are in none."""
        replaces = changed(_olds, _news, REPLACES)
        return DiffResult(changes=bool(replaces or changed(_olds, _news, IN_PLACE)), replaces=replaces)

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Remove builders from the zone that is left."""
        with without_traceback(BakeError):
            _remove_builders(_olds)
        return UpdateResult(given(_news))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        return ReadResult(id_, given(props))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Remove builders and images of the cluster's bakes; there are none, unless one was killed."""
        with without_traceback(BakeError):
            _remove_builders(_props)
            _remove_images(_props)


class BakeLeftovers(DynamicResource, module="gcp", name="BakeLeftovers"):
    """The bake depends on it, so it is deleted after the bake, and before the builder's network."""

    def __init__(
        self, name: str, *, project: str, zone: str, cluster: str, endpoint: str = "",
        pace: Mapping[str, float] | None = None, opts: pulumi.ResourceOptions | None = None,
    ) -> None:  # fmt: skip
        props: dict[str, Any] = {"project": project, "zone": zone, "cluster": cluster, "endpoint": endpoint}
        super().__init__(LeftoversProvider(), name, {**props, **({"pace": dict(pace)} if pace else {})}, opts)


def _remove_builders(props: Mapping[str, Any]) -> None:
    for machine in _compute(props).builders_of(props["cluster"]):
        for ending in (BUILDER_ENDING, TRIAL_ENDING):
            image = machine.name.removesuffix(ending)
            if image != machine.name and _baked(props, image, machine.labels):
                report(f"deleting {machine.name}, which an interrupted bake left")
                _compute(props, image, ending).delete_builder()


def _remove_images(props: Mapping[str, Any]) -> None:
    for image in _compute(props).images_of(props["cluster"]):
        if _baked(props, image.name, image.labels):
            report(f"deleting {image.name}, which an interrupted bake left")
            _compute(props, image.name).delete_image()


def _baked(props: Mapping[str, Any], image: str, labels: Mapping[str, str]) -> bool:
    """Whether a bake of this cluster has given that name; copies that people keep have others."""
    return image == f"{props['cluster']}-{labels.get(DIGEST_LABEL)}"


def _compute(props: Mapping[str, Any], image: str = "", ending: str = BUILDER_ENDING) -> Any:  # noqa: ANN401
    # Google's client takes seconds to import: only what calls Google imports it.
    from components.gcp.bake.compute import Compute

    where = {name: props[name] for name in ("project", "zone", "endpoint")}
    return Compute(Bake(**where, image=image, ending=ending, pace=pace_of(props)))
