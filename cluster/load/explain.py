"""Pydantic's errors, said as findings."""

from collections.abc import Callable
from typing import Any

from pydantic_core import ErrorDetails

from cluster.config.fields import description, section_at
from cluster.findings import PROVIDERS, Finding, Location, RefusedError, dotted, listing, nearest, show
from cluster.load.model import cluster_model

_NO_SECRETS = "remove it: no secret is typed by a person, keys and passwords are generated and kept by the stack"


def explain(error: ErrorDetails, at: Location) -> Finding:
    """One error as a finding; `at` is its place in the file as it is written."""
    context: dict[str, Any] = error.get("ctx") or {}
    kind, given = error["type"], error["input"]
    if at and at[-1] == "[key]":
        at, given = at[:-1], at[-2]
    if isinstance(refused := context.get("error"), RefusedError):
        return Finding(id="value-invalid", at=at, given=show(given), allowed=refused.allowed, todo=refused.todo)
    if kind == "missing":
        return _missing(at)
    if kind == "extra_forbidden":
        return _unknown_key(at, given)
    if kind == "literal_error":
        return _no_choice(at, given, str(context["expected"]))
    allowed, todo = _KINDS.get(kind, _otherwise)(error)
    return Finding(id="value-invalid", at=at, given=show(given), allowed=allowed, todo=todo)


def _missing(at: Location) -> Finding:
    todo = f"add `{at[-1]}:` under {dotted(at[:-1])}"
    if len(at) == 2 and at[0] in PROVIDERS:
        example = description(cluster_model(), at).rpartition("e.g. ")[2]
        todo = f"add `{dotted(at)}: {example}` under `config:`, or `pulumi config set {dotted(at)} {example}`"
    return Finding(
        id="value-missing", at=at, given="nothing", allowed=description(cluster_model(), at) or "a value", todo=todo
    )


def _unknown_key(at: Location, given: object) -> Finding:
    key = str(at[-1])
    section = section_at(cluster_model(), at[:-1])
    known = [name for name in section.model_fields if len(at) > 1 or name not in PROVIDERS] if section else []
    meant = nearest(key, known)
    todo = f"write `{meant}:`" if meant else "remove it"
    if key == "secure":
        todo = _NO_SECRETS
    return Finding(
        id="key-unknown",
        at=at,
        given=f"{key}: {show(given)}" if key != "secure" else "an encrypted value",
        allowed=f"the keys {', '.join(known)}",
        todo=todo,
    )


def _no_choice(at: Location, given: object, expected: str) -> Finding:
    choices = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
    meant = nearest(str(given), choices)
    return Finding(
        id="value-choice",
        at=at,
        given=show(given),
        allowed=listing(choices) if len(choices) > 1 else f"only {choices[0]}",
        todo=f"write {meant or 'one of these' if len(choices) > 1 else choices[0]}",
    )


def _type(allowed: str) -> Callable[[ErrorDetails], tuple[str, str]]:
    def words(error: ErrorDetails) -> tuple[str, str]:
        text = description(cluster_model(), tuple(error["loc"]))
        return allowed, f"write it so. {text}" if text else "write it so"

    return words


def _bound(words: str, key: str, todo: str) -> Callable[[ErrorDetails], tuple[str, str]]:
    return lambda error: (words.format((error.get("ctx") or {})[key]), todo)


def _otherwise(error: ErrorDetails) -> tuple[str, str]:
    return error["msg"], "correct it"


_MAPPING = "a mapping, e.g. {key: value}"
_LIST = "a list, e.g. [one, two]"
_KINDS: dict[str, Callable[[ErrorDetails], tuple[str, str]]] = {
    "int_type": _type("a whole number without quotes, e.g. 2"),
    "bool_type": _type("true or false"),
    "string_type": _type("text, in quotes if it looks like something else, e.g. name or '1e3'"),
    "model_type": _type(_MAPPING),
    "model_attributes_type": _type(_MAPPING),
    "mapping_type": _type(_MAPPING),
    "dict_type": _type(_MAPPING),
    "tuple_type": _type(_LIST),
    "list_type": _type(_LIST),
    "greater_than_equal": _bound("a whole number of at least {}", "ge", "raise it"),
    "less_than_equal": _bound("a whole number of at most {}", "le", "lower it"),
    "too_long": _bound("at most {} entries", "max_length", "remove some"),
    "too_short": _bound("at least {} entry", "min_length", "add one"),
}
