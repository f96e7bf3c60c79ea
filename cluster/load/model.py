"""The model of `hpc:cluster`: ClusterConfig with the names and the own sections of the registered platforms."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema, create_model

from cluster.config.cluster import ClusterConfig
from cluster.findings import Refused, listing, suggest
from cluster.load.defaults import with_defaults
from cluster.platforms import registry


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
        raise Refused(listing(names), suggest(value, names, "write one of these"))
    return value
