"""The reference of a stack file's keys, as a page to read: the schema in words, so it can't drift from the models."""

from typing import Any

from cluster.config.cluster import ClusterConfig
from cluster.impact.table import possible
from cluster.load.model import cluster_model
from cluster.reference.schema import json_schema

MOST = 8  # choices shown; the schema has all

HEAD = """\
# A stack file

<!-- Written by `./hpc schema --write` from cluster/config: change the models, not this page. -->

`Pulumi.<stack>.yaml` describes one cluster under `hpc:cluster`. Its first line names the schema, so that editors
complete and check it. What is not said has a default; what is misspelt is refused, with the nearest name, and every
error of a file is told at once. A key that is given twice is an error too, and so are tags of YAML such as `!!float`
that do not fit, more than 50 levels, and more than 100,000 values with aliases counted. `Pulumi.dev.yaml` is a complete
example, `tests/cluster/examples/smallest.yaml` the smallest one.

On Google Cloud, `gcp:project` and `gcp:zone` stand beside `hpc:cluster`, where the provider reads them too.
`Pulumi.a3mega.yaml` is an example.

Times such as `"24:00:00"` must be quoted: YAML would read a number.

The last column says what changing a key does to running jobs; [changes.md](changes.md) explains the words.
"""


def reference(given: type[ClusterConfig] | None = None) -> str:
    """The page, as Markdown: a table for each section, in the order in which a file names them."""
    model = given or cluster_model()
    definitions = json_schema(model)["$defs"]
    parts = [HEAD]
    waiting = [("hpc:cluster", "ClusterConfig")]
    told: set[str] = set()
    while waiting:
        path, name = waiting.pop(0)
        if name in told:
            continue
        told.add(name)
        section = definitions[name]
        required = set(section.get("required", []))
        rows = [
            _row(key, {**_of(definitions, field), **field}, _effect(model, path, key), required=key in required)
            for key, field in section["properties"].items()
        ]
        table = "\n".join(["| key | what it is | default | allowed | changing it |", "|---|---|---|---|---|", *rows])
        parts.append(f"## `{path}`\n\n{section['description']}\n\n{table}\n")
        waiting += [
            (f"{path}.{key}{step}", inner)
            for key, field in section["properties"].items()
            for step, inner in [_inner(field)]
            if inner
        ]
    return "\n".join(parts)


def _row(key: str, field: dict[str, Any], effect: str, *, required: bool) -> str:
    default = "required" if required else _default(field)
    text = f"| `{key}` | {_cell(field.get('description', ''))} | {default} | {_cell(_allowed(field))} |"
    return f"{text} {effect} |"


def _effect(model: type[ClusterConfig], path: str, key: str) -> str:
    """What a change does to running jobs; nothing for what has keys of its own."""
    place = f"{path}.{key}".removeprefix("hpc:cluster.").replace("[]", ".*").replace(".<name>", ".*")
    found = {effect for below in ("", ".*") for effect in possible(place + below, model)}
    return " or ".join(effect.value for effect in sorted(found, key=lambda effect: effect.harm))


def _of(definitions: dict[str, Any], field: dict[str, Any]) -> dict[str, Any]:
    """What the section is that a key leads to, and whether a text may stand for it."""
    section = definitions[field["$ref"].rpartition("/")[2]] if "$ref" in field else {"description": ""}
    return {key: section[key] for key in ("description", "type", "examples") if key in section}


def _default(field: dict[str, Any]) -> str:
    value = field.get("default")
    if value in (None, "", [], {}) or isinstance(value, dict):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{', '.join(map(str, value)) if isinstance(value, list) else value}`"


def _allowed(field: dict[str, Any]) -> str:
    """What a value may be, in as few words as will do."""
    if "enum" in field:
        shown = ", ".join(f"`{value}`" for value in field["enum"][:MOST])
        return shown + (f" and {len(field['enum']) - MOST} more" if len(field["enum"]) > MOST else "")
    if "const" in field:
        return f"`{field['const']}`"
    kind = field.get("type")
    choices = [{**field, "type": one} for one in kind] if isinstance(kind, list) else field.get("anyOf")
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
    words = {"integer": "a whole number", "string": "text", "boolean": "`true` or `false`"}.get(str(kind), "")
    example = f", e.g. `{field['examples'][0]}`" if field.get("examples") else ""
    return f"{words} {bounds}".strip() + example


def _inner(field: dict[str, Any]) -> tuple[str, str]:
    """Where another section's keys stand below this key, and the section's name; two empty texts if there is none."""
    if "$ref" in field:
        return "", field["$ref"].rpartition("/")[2]
    named = next(iter(field.get("patternProperties", {}).values()), field.get("additionalProperties"))
    for step, below in (("[]", field.get("items")), (".<name>", named)):
        if isinstance(below, dict) and "$ref" in below:
            return step, below["$ref"].rpartition("/")[2]
    return "", ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
