"""The JSON Schema of a stack file, by which editors complete and check it, and the reference pages of its keys.

Both are generated from the models. `docs/schema/cluster.schema.json` is the copy that editors read."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

from pydantic.json_schema import GenerateJsonSchema

from cluster.config.cluster import ClusterConfig
from cluster.config.fields import texts
from cluster.config.section import Section
from cluster.findings import ROOT
from cluster.impact.table import possible_effects
from cluster.load import cluster_model, provider_sections

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

# Required by the models, but optional in a file: the platform's defaults fill them in.
_FILLED = {
    "ClusterConfig": {"network", "storage", "image", "controller", "deletion_protection"},
    "Network": {"cidr"},
    "Image": {"base"},
    "Controller": {"machine_type"},
}


class _Schema(GenerateJsonSchema):
    """A schema without pydantic's titles of keys, which editors would show in place of the descriptions."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ANN401, ARG002 - pydantic's signature
        return False


def json_schema(model: type[ClusterConfig] | None = None) -> dict[str, Any]:
    """Return the schema of Pulumi.<stack>.yaml."""
    model = model or cluster_model()
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
                # Providers read other keys of their own namespaces; this program reads no other key of its own.
                "patternProperties": {"^hpc:(?!cluster$)": False},
            },
            **_PULUMI_KEYS,
        },
        "required": ["config"],
        "additionalProperties": False,
        "$defs": dict(sorted(definitions.items())),
    }


def _provider_settings(sections: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Remove the sections of providers from the cluster's, and return their keys, which stand beside `hpc:cluster`."""
    settings: dict[str, Any] = {}
    for namespace, provider in provider_sections().items():
        if sections.pop(namespace, None):
            keys = definitions.pop(provider.__name__)["properties"]
            keys |= {key: {"type": "string", "description": text} for key, text in provider.more.items()}
            settings |= {f"{namespace}:{key}": schema for key, schema in keys.items()}
    return settings


@cache
def _describe(section: type[Section]) -> None:
    """Set the descriptions of a section's fields, and of all sections below it, to the docstrings under them."""
    for name, field in section.model_fields.items():
        for below in _sections_in(field.annotation):
            _describe(below)
        field.description = field.description or texts(section).get(name)
    section.model_rebuild(force=True)


def _sections_in(annotation: Any) -> Iterator[type[Section]]:  # noqa: ANN401 - annotations are of any type
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for part in get_args(annotation):
        yield from _sections_in(part)


def _tidy(key: dict[str, Any]) -> None:
    """Put the description on one line, and remove null, since a key is left out rather than written as null."""
    if "description" in key:
        key["description"] = " ".join(key["description"].split())
    for choice in key.get("anyOf", []):
        choice.update({"anyOf": choice.pop("oneOf")} if "oneOf" in choice else {})
    if "oneOf" in key:
        key["anyOf"] = key.pop("oneOf")
    choices = [choice for choice in key.get("anyOf", []) if choice != {"type": "null"}]
    if len(choices) == 1 and len(key["anyOf"]) == 2:
        del key["anyOf"]
        key.update(choices[0])
    if key.get("default", ...) is None or isinstance(key.get("default"), dict):
        del key["default"]  # of sections: their own keys have the defaults


def schema_text() -> str:
    """Return the text of the schema file."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


MOST_CHOICES = 8  # choices shown; the schema has all
_MOST_SECTIONS = 3  # of a key that stands on the first page

HEAD = """\
# A stack file

<!-- Written by `./hpc schema --write` from cluster/config: change the models, not this page. -->

`Pulumi.<stack>.yaml` describes one cluster under `hpc:cluster`. Its first line names the schema, so that editors
complete and check it. What is not said has a default; what is misspelt is refused, with the nearest name, and every
error of a file is printed at once. A key that is given twice is an error too, and so are tags of YAML such as `!!float`
that do not fit, more than 50 levels, and more than 100,000 values with aliases counted. `Pulumi.dev.yaml` is a complete
example, `tests/cluster/examples/smallest.yaml` the smallest one.

On Google Cloud, `gcp:project` and `gcp:zone` stand beside `hpc:cluster`, where the provider reads them too.
`Pulumi.a3mega.yaml` is an example.

Times such as `"24:00:00"` must be quoted: YAML would read a number.

The last column says what changing a key does to running jobs; [changes.md](../changes.md) explains the words.
"""

_PAGE = """\
# Stack file: `{root}.{key}`

<!-- Written by `./hpc schema --write` from cluster/config: change the models, not this page. -->

[The stack file](README.md) explains the columns.
"""


def reference(model: type[ClusterConfig] | None = None) -> dict[str, str]:
    """Return Markdown pages by file name: README.md, and one for each key of the stack file with many sections below
    it. A page has a table for each section, in the order of a stack file."""
    model = model or cluster_model()
    definitions = json_schema(model)["$defs"]
    by_key: dict[str, list[str]] = {}
    waiting = [(ROOT, "ClusterConfig")]
    described: set[str] = set()
    while waiting:
        path, name = waiting.pop(0)
        if name in described:
            continue
        described.add(name)
        section = definitions[name]
        required = set(section.get("required", []))
        rows = [
            _row(key, {**_definition(definitions, field), **field}, _effect(model, path, key), required=key in required)
            for key, field in section["properties"].items()
        ]
        table = "\n".join(["| key | what it is | default | allowed | changing it |", "|---|---|---|---|---|", *rows])
        key = path.removeprefix(f"{ROOT}.").partition(".")[0].partition("[")[0]
        by_key.setdefault(key, []).append(f"## `{path}`\n\n{section['description']}\n\n{table}\n")
        waiting += [
            (f"{path}.{key}{step}", inner)
            for key, field in section["properties"].items()
            for step, inner in [_inner(field)]
            if inner
        ]
    large = {key: parts for key, parts in by_key.items() if len(parts) > _MOST_SECTIONS}
    links = "".join(f"- [`{ROOT}.{key}`]({key}.md)\n" for key in large)
    small = [part for key, parts in by_key.items() if key not in large for part in parts]
    pages = {"README.md": "\n".join([HEAD, f"Sections with a page of their own:\n\n{links}", *small])}
    return pages | {f"{key}.md": "\n".join([_PAGE.format(root=ROOT, key=key), *large[key]]) for key in large}


def _row(key: str, field: dict[str, Any], effect: str, *, required: bool) -> str:
    default = "required" if required else _default(field)
    text = f"| `{key}` | {_cell(field.get('description', ''))} | {default} | {_cell(_allowed(field))} |"
    return f"{text} {effect} |"


def _effect(model: type[ClusterConfig], path: str, key: str) -> str:
    pattern = f"{path}.{key}".removeprefix("hpc:cluster.").replace("[]", ".*").replace(".<name>", ".*")
    effects = {effect for below in ("", ".*") for effect in possible_effects(pattern + below, model)}
    return " or ".join(effect.value for effect in sorted(effects, key=lambda effect: effect.harm))


def _definition(definitions: dict[str, Any], field: dict[str, Any]) -> dict[str, Any]:
    """Return description, type and examples of the section that a key leads to."""
    section = definitions[field["$ref"].rpartition("/")[2]] if "$ref" in field else {"description": ""}
    return {key: section[key] for key in ("description", "type", "examples") if key in section}


def _default(field: dict[str, Any]) -> str:
    value = field.get("default")
    if value in (None, "", [], {}) or isinstance(value, dict):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{', '.join(map(str, value)) if isinstance(value, list) else value}`"


_WORDS = {"integer": "a whole number", "number": "a number", "string": "text", "boolean": "`true` or `false`"}


def _allowed(field: dict[str, Any]) -> str:
    if "enum" in field:
        others = len(field["enum"]) - MOST_CHOICES
        listed = ", ".join(f"`{value}`" for value in field["enum"][:MOST_CHOICES])
        return listed + (f" and {others} more" if others > 0 else "")
    if "const" in field:
        return f"`{field['const']}`"
    kind = field.get("type")
    choices = [{**field, "type": type_} for type_ in kind] if isinstance(kind, list) else field.get("anyOf")
    if choices:
        return " or ".join(dict.fromkeys(filter(None, map(_allowed, choices))))
    if kind == "array":
        inner = _allowed(field.get("items", {}))
        return f"a list of {inner.replace('a mapping', 'mappings')}" if inner else "a list"
    if kind == "object" or ("$ref" in field and kind is None):
        return "a mapping"
    bounds = " ".join(
        f"{sign} {field[word]}" for sign, word in (("≥", "minimum"), ("≤", "maximum")) if field.get(word) is not None
    )
    words = _WORDS.get(str(kind), "")
    example = f", e.g. `{field['examples'][0]}`" if field.get("examples") else ""
    return f"{words} {bounds}".strip() + example


def _inner(field: dict[str, Any]) -> tuple[str, str]:
    """Return the path from a key to the keys of another section, and the section's name; two empty texts if there is
    none."""
    if "$ref" in field:
        return "", field["$ref"].rpartition("/")[2]
    for form in field.get("anyOf", ()):
        if (inner := _inner(form))[1]:
            return inner
    named = next(iter(field.get("patternProperties", {}).values()), field.get("additionalProperties"))
    for step, below in (("[]", field.get("items")), (".<name>", named)):
        if isinstance(below, dict) and "$ref" in below:
            return step, below["$ref"].rpartition("/")[2]
    return "", ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
