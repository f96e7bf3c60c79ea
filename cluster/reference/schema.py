"""The JSON Schema of a whole stack file, from which editors complete and check.

Made from the models, so it can't drift from them; `docs/schema/cluster.schema.json` is the copy that editors read.
"""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

from pydantic.json_schema import GenerateJsonSchema

from cluster.config.cluster import ClusterConfig
from cluster.config.fields import texts
from cluster.config.section import Section
from cluster.findings import ROOT
from cluster.load.model import cluster_model
from cluster.platforms import registry

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_PULUMI_KEYS: dict[str, Any] = {
    "encryptionsalt": {"type": "string", "description": "Pulumi's own: salt of the stack's passphrase."},
    "encryptedkey": {"type": "string", "description": "Pulumi's own: data key, encrypted by the secrets provider."},
    "secretsprovider": {"type": "string", "description": "Pulumi's own: where the stack's secrets key is kept."},
    "environment": {
        "type": ["array", "object"],
        "description": "Pulumi ESC environments whose configuration this stack takes in.",
    },
}

# Required once read, but filled in from the platform where a file says nothing.
_FILLED = {
    "ClusterConfig": {"network", "storage", "image", "controller", "deletion_protection"},
    "Network": {"cidr"},
    "Image": {"base"},
    "Controller": {"machine_type"},
}


class _Schema(GenerateJsonSchema):
    """Without the title that pydantic makes of each key: editors would show it in place of the description."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ANN401, ARG002 - pydantic's signature
        return False


def json_schema(given: type[ClusterConfig] | None = None) -> dict[str, Any]:
    """Schema of Pulumi.<stack>.yaml."""
    model = given or cluster_model()
    _describe(model)
    cluster = model.model_json_schema(schema_generator=_Schema, ref_template="#/$defs/{model}")
    definitions: dict[str, Any] = cluster.pop("$defs")
    definitions["ClusterConfig"] = cluster
    provider = _provider_settings(cluster["properties"], definitions)
    for definition in definitions.values():
        for key in definition["properties"].values():
            _tidy(key)
    for name, filled in _FILLED.items():
        required = [key for key in definitions[name].get("required", []) if key not in filled]
        definitions[name].pop("required", None)
        if required:
            definitions[name]["required"] = required
    return {
        "$schema": DIALECT,
        "title": "Stack configuration of a Slurm cluster",
        "type": "object",
        "properties": {
            "config": {
                "type": "object",
                "description": "Configuration of the stack.",
                "properties": {ROOT: {"$ref": "#/$defs/ClusterConfig"}, **provider},
                "required": [ROOT],
                # Providers read keys of their own namespaces; in ours there is only one.
                "patternProperties": {"^hpc:(?!cluster$)": False},
            },
            **_PULUMI_KEYS,
        },
        "required": ["config"],
        "additionalProperties": False,
        "$defs": dict(sorted(definitions.items())),
    }


def _provider_settings(sections: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Take the sections that providers read as well out of the cluster's: their keys stand beside `hpc:cluster`."""
    found: dict[str, Any] = {}
    for platform in registry.all_platforms():
        if provider := platform.provider:
            del sections[provider.namespace]
            keys = definitions.pop(platform.sections[provider.namespace].__name__)["properties"]
            keys |= {key: {"type": "string", "description": text} for key, text in provider.more.items()}
            found |= {f"{provider.namespace}:{key}": one for key, one in keys.items()}
    return found


@cache
def _describe(section: type[Section]) -> None:
    """Give the fields of a section, and of all sections below it, the texts that stand under them."""
    for name, field in section.model_fields.items():
        for below in _sections(field.annotation):
            _describe(below)
        field.description = field.description or texts(section).get(name)
    section.model_rebuild(force=True)


def _sections(annotation: Any) -> Iterator[type[Section]]:  # noqa: ANN401 - annotations are of any type
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for part in get_args(annotation):
        yield from _sections(part)


def _tidy(key: dict[str, Any]) -> None:
    """Put the description on one line, and say nothing of null: a key is left out rather than written as nothing."""
    if "description" in key:
        key["description"] = " ".join(key["description"].split())
    choices = [one for one in key.get("anyOf", []) if one != {"type": "null"}]
    if len(choices) == 1 and len(key["anyOf"]) == 2:
        del key["anyOf"]
        key.update(choices[0])
    if key.get("default", ...) is None or isinstance(key.get("default"), dict):
        del key["default"]  # of sections: their own keys have the defaults


def schema_text() -> str:
    """The schema as the file holds it."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
