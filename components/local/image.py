"""The base image of a stack's machines, made on this host."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, ResourceProvider, UpdateResult

from components.dynamic import DynamicResource, changed, given, report
from components.local.host.images import image
from components.local.host.packages import require_host


class ImageProvider(ResourceProvider):
    def create(self, props: dict[str, Any]) -> CreateResult:
        """Make the image, unless it is there."""
        require_host()
        _ensure(props)
        return CreateResult(props["digest"], given(props))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Another content is another image; one that was pruned is recreated."""
        replaces = changed(_olds, _news, ("base", "images", "digest"))
        gone = not image.has_image(Path(_news["images"]), _news["digest"])
        return DiffResult(changes=bool(replaces or gone), replaces=replaces)

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Recreate the image where it was pruned."""
        require_host()
        _ensure(_news)
        return UpdateResult(given(_news))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        there = image.has_image(Path(props["images"]), props["digest"])
        return ReadResult(id_ if there else "", given(props))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Keep it: images are a cache that stacks share (components.local.host.images.cache prunes it)."""


def _ensure(props: dict[str, Any]) -> None:
    """Make the image, unless it is there."""
    image.ensure_image(props["base"], Path(props["images"]), report, props.get("packages", ()))


class Image(DynamicResource, module="local", name="Image"):
    """A base image on this host."""

    def __init__(
        self,
        name: str,
        *,
        base: str,
        images: str,
        digest: str,
        packages: Sequence[str] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        props = {"base": base, "images": images, "digest": digest}
        # Only where there are some: another input would be a change of every stack that is up.
        props |= {"packages": list(packages)} if packages else {}
        super().__init__(ImageProvider(), name, props, opts)
