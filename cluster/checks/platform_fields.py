"""Keys that only one platform has: told where they say something on another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cluster.config.section import Section
from cluster.findings import Broken, Location, flow

if TYPE_CHECKING:
    from cluster.config.cluster import ClusterConfig

NETWORK = ("gpu_cidr", "services_cidr", "existing", "nat", "admin_cidrs")
STORAGE = ("lustre", "filestore", "buckets")
IMAGE = ("bake", "recipe", "snapshot", "name", "provision", "builder")


def broken(config: ClusterConfig) -> Iterator[Broken]:
    """Keys of other platforms than the cluster's."""
    nodesets = [(("nodesets", name), section) for name, section in config.nodesets.items()]
    if config.platform != "gcp":
        yield from _said(
            config.platform,
            "Google Cloud",
            [
                ((), config, ("customize",)),
                (("network",), config.network, NETWORK),
                (("storage",), config.storage, STORAGE),
                (("image",), config.image, IMAGE),
                (("controller",), config.controller, ("disk", "state_disk", "capacity")),
                (("login",), config.login, ("disk", "capacity", "public")),
                *((at, section, ("disk", "capacity")) for at, section in nodesets),
            ],
        )
    if config.platform != "local":
        yield from _said(
            config.platform,
            "the rehearsal on local machines",
            [
                (("storage",), config.storage, ("shared", "read_only")),
                *((at, section, ("addresses",)) for at, section in nodesets),
            ],
        )


def given(section: Section, key: str) -> Any:  # noqa: ANN401 - a field may be anything
    """What a key says, other than its default; None where it says nothing."""
    value = getattr(section, key)
    default = type(section).model_fields[key].get_default(call_default_factory=True, validated_data={})
    return None if value == default else value


def shown(value: Any) -> str:  # noqa: ANN401 - a field may be anything
    """A value as the file has it."""
    if isinstance(value, Section):
        value = value.model_dump(exclude_none=True, exclude_defaults=True)
    if isinstance(value, tuple):
        return "[" + ", ".join(map(shown, value)) + "]"
    return flow(value)


def _said(platform: str, owner: str, places: list[tuple[Location, Any, tuple[str, ...]]]) -> Iterator[Broken]:
    for at, section, keys in places:
        for key in keys:
            value = given(section, key)
            if value is None:
                continue
            yield Broken(
                at=(*at, key),
                given=shown(value),
                allowed=f"nothing on {platform}: {key} is for {owner}",
                todo="remove it here",
            )
