"""The model of `hpc:cluster`: ClusterConfig with the names, own sections and defaults of the registered platforms."""

import copy
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema, create_model

from cluster.config.cluster import ClusterConfig
from cluster.findings import RefusedError, listing, suggest
from cluster.platforms import registry
from cluster.platforms.base import Platform


def validate(given: Mapping[str, Any]) -> ClusterConfig:
    """The cluster as written, with its platform's defaults. Raises pydantic's ValidationError."""
    return cluster_model().model_validate(with_defaults(given))


def cluster_model() -> type[ClusterConfig]:
    """The model, as the registry is now."""
    return _model(tuple(registry.MODULES.items()))


@cache
def _model(_modules: tuple[tuple[str, str], ...]) -> type[ClusterConfig]:
    names = registry.names()
    schema = WithJsonSchema({"type": "string", "enum": list(names)})
    fields: dict[str, Any] = {
        "platform": (Annotated[str, AfterValidator(_registered), schema], ClusterConfig.model_fields["platform"])
    }
    for platform in registry.all_platforms():
        for key, section in platform.sections.items():
            if key not in ClusterConfig.model_fields:
                fields[key] = (section | None, Field(default=None, description=section.__doc__))
    return create_model(
        "ClusterConfig", __base__=ClusterConfig, __module__=__name__, __doc__=ClusterConfig.__doc__, **fields
    )


def _registered(value: str) -> str:
    """A validator, not part of the type: the model is made once, the registry may grow."""
    names = registry.names()
    if value not in names:
        raise RefusedError(listing(names), suggest(value, names, "write one of these"))
    return value


def platform_of(given: Mapping[str, Any]) -> Platform:
    """The platform of a cluster as written; the first one where it names none that exists, so that only this is
    reported and not all that it lacks."""
    names = registry.names()
    name = given.get("platform")
    return registry.get(name if isinstance(name, str) and name in names else names[0])


def with_defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """The cluster as written, with the platform's defaults. Wrong shapes are left for the models to report."""
    filled: dict[str, Any] = dict(given)
    platform = platform_of(given)
    for key, default in platform.defaults.items():
        written = filled.get(key)
        if written is None:
            filled[key] = copy.deepcopy(default)
        elif isinstance(default, Mapping) and isinstance(written, Mapping):
            filled[key] = {**copy.deepcopy(default), **written}
    for key in ("controller", "login"):
        filled[key] = _typed(filled.get(key) or {}, platform.machine_types.get(key))
    nodesets = filled.get("nodesets")
    if isinstance(nodesets, Mapping):
        filled["nodesets"] = {
            name: _typed(one or {}, platform.machine_types.get("node")) for name, one in nodesets.items()
        }
    return filled


def _typed(section: Any, machine_type: str | None) -> Any:  # noqa: ANN401 - what stands in the file may have any shape
    if machine_type is None or not isinstance(section, Mapping) or "on" in section or "machine_type" in section:
        return section
    return {**section, "machine_type": machine_type}
