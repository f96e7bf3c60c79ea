"""Parses a stack's settings, or its output `config`, to a ClusterConfig, or to every error at once."""

import contextlib
import copy
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError, WithJsonSchema, create_model
from pydantic_core import ErrorDetails

from cluster.catalog.bounds import MOST_NODES
from cluster.checks import elastic, machines, scripts, settings, users
from cluster.config.cluster import ClusterConfig
from cluster.config.fields import as_written, description, explicit, section_at
from cluster.config.monitoring import SECRETS
from cluster.config.section import OTHER, PLAIN, Section
from cluster.findings import (
    PROVIDERS,
    ROOT,
    ConfigError,
    Finding,
    Location,
    RefusedError,
    dotted,
    listing,
    nearest,
    show,
    suggest,
)
from cluster.platforms import registry
from cluster.platforms.base import Platform, Provider, section_class

_DEEPEST = 50
_MOST_EXPLAINED = 100
"""Most findings that are explained; a file with more was not written as a stack file."""
_SCREEN = 10
"""Findings of such a file that are explained."""


_ROUNDS = 8


class _Hole:
    """Stands where a list item was, until the others are counted."""


@dataclass(kw_only=True)
class _Salvage:
    """A configuration without its wrong parts, and the way back to the file as it is written."""

    config: ClusterConfig
    removed: set[Location]
    stand_ins: Collection[str]
    """Keys of the cluster that others stand in for."""
    unchecked: set[Location]
    """Places that were taken out whole, since nothing is left of them to check without what is wrong in them."""
    positions: Mapping[Location, list[int]] = field(default_factory=dict)
    """Positions in the file of the items that were kept, for each list (by its place in the file)."""

    def written(self, location: Location | str) -> Location | str:
        """The place in the file of a place in the salvaged configuration."""
        return location if isinstance(location, str) else _written(location, self.positions)

    def about_removed(self, name: str) -> bool:
        """Return whether something of that name, or under it, was taken out."""
        return any(name in map(str, place) for place in self.removed)


def parse(stack_config: Mapping[str, Any]) -> ClusterConfig:
    """Read the settings of a stack file, such as `{"hpc:cluster": {...}}`.

    Raises ConfigError with every finding at once. Keys of other namespaces belong to providers and are left to them,
    but for the section that the platform has there.

    The order of a mapping's keys has no meaning: the Pulumi CLI hands them to the program sorted.
    """
    findings = _unknown_keys(stack_config)
    given = with_provider_sections(stack_config, _cluster(stack_config.get(ROOT), findings), findings)
    in_order = _sorted(given)
    with contextlib.suppress(ValidationError):
        config = validate(in_order)
        if not findings and not any(find_errors(config)):
            return config
    # Once more as it is written: errors show what was given, and name the later of two that differ.
    _checked(given, findings)
    return validate(in_order)


def parse_output(exported: Any) -> ClusterConfig:  # noqa: ANN401 - an output may be anything
    """Read the output `config` of a stack, which has all sections in one. Raises ConfigError."""
    return _checked(_cluster(exported, []), [])


def _checked(given: Mapping[str, Any], findings: list[Finding]) -> ClusterConfig:
    try:
        config = validate(given)
    except ValidationError as error:
        wrong = _errors(error)
        explained = wrong if len(wrong) <= _MOST_EXPLAINED else wrong[:_SCREEN]
        findings += [_explain(item, item["loc"]) for item in explained]
        more = len(wrong) - len(explained)
        saved = None if more else _salvage(given, error)
        findings += _of_the_rest(saved) if saved else []
        unchecked = sorted(dotted(place) for place in saved.unchecked) if saved else [ROOT]
        raise ConfigError(findings, more=more, unchecked=unchecked) from None
    findings += islice(find_errors(config), _MOST_EXPLAINED)
    if findings:
        raise ConfigError(findings)
    return config


def _errors(error: ValidationError) -> list[ErrorDetails]:
    """The errors with the places that the file has: without the tags of a field's forms."""
    found = error.errors(include_url=False)
    for item in found:
        item["loc"] = tuple(step for step in item["loc"] if step not in (PLAIN, OTHER))
    return found


def _of_the_rest(saved: _Salvage) -> list[Finding]:
    at_fault = any(place[0] == "partitions" for place in saved.removed)
    return [
        replace(finding, at=saved.written(finding.at))
        for finding in find_errors(saved.config)
        # What was taken out may be just what is missed now, and what stands in for it is not the file's.
        if finding.at[0] not in saved.stand_ins
        and not (
            finding.missing and (saved.about_removed(finding.missing) or (finding.missing == "default" and at_fault))
        )
    ]


def _unknown_keys(stack_config: Mapping[str, Any]) -> list[Finding]:
    """Keys of this program's own namespace that it does not read."""
    namespace = ROOT.split(":", 1)[0]
    unknown = [key for key in stack_config if key.startswith(f"{namespace}:") and key not in (ROOT, *SECRETS)]
    return [
        Finding(
            id="unknown-setting",
            at=key,
            given=show(stack_config[key]),
            allowed=f"{ROOT}, and encrypted {listing(SECRETS)}",
            todo=f"write {ROOT}" if nearest(key, [ROOT]) and ROOT not in stack_config else "remove it",
        )
        for key in unknown[:_MOST_EXPLAINED]
    ]


def _cluster(given: Any, findings: list[Finding]) -> Mapping[str, Any]:  # noqa: ANN401 - may have any shape
    """The cluster as a mapping, which may come as JSON text."""
    if isinstance(given, str):
        # What is no JSON, or nested too deep to be read, is reported below as any other text.
        with contextlib.suppress(ValueError, RecursionError):
            given = json.loads(given)
    if isinstance(given, Mapping) and not _too_deep(given):
        return _keys_as_written(given)
    shape = Finding(
        id="cluster-shape",
        at=ROOT,
        given=f"more than {_DEEPEST} levels of nesting" if isinstance(given, Mapping) else show(given),
        allowed="the cluster as a mapping, e.g. {platform: local, name: dev, nodesets: ..., partitions: ...}",
        todo="describe the cluster under `config: hpc:cluster:` in Pulumi.<stack>.yaml; Pulumi.dev.yaml is an example",
    )
    raise ConfigError([*findings, shape])


def _too_deep(tree: Any, levels: int = _DEEPEST) -> bool:  # noqa: ANN401 - what stands in the file may have any shape
    """Return whether a tree has more levels, as one that holds itself has."""
    below = tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, list) else ()
    return not levels or any(_too_deep(branch, levels - 1) for branch in below)


def _sorted(tree: Any) -> Any:  # noqa: ANN401 - what stands in the file may have any shape
    if isinstance(tree, Mapping):
        return {key: _sorted(tree[key]) for key in sorted(tree, key=str)}
    return [_sorted(branch) for branch in tree] if isinstance(tree, list) else tree


def _keys_as_written(tree: Any) -> Any:  # noqa: ANN401 - what stands in the file may have any shape
    """Undo what YAML 1.1 readers make of the key `on`: a truth value, which is "true" after a passage through JSON."""
    if isinstance(tree, Mapping):
        return {
            "on" if key is True or key == "true" else str(key): _keys_as_written(value) for key, value in tree.items()
        }
    return [_keys_as_written(branch) for branch in tree] if isinstance(tree, list) else tree


def provider_keys() -> dict[str, tuple[str, ...]]:
    """Settings that are read of each provider, by its namespace."""
    return {
        provider.namespace: (*_section_keys(platform, provider), *provider.more)
        for platform in registry.all_platforms()
        if (provider := platform.provider)
    }


def with_provider_sections(
    stack_config: Mapping[str, Any], given: Mapping[str, Any], findings: list[Finding]
) -> dict[str, Any]:
    """The cluster with the section that its platform has in the provider's settings; what is wrong with these is added
    to `findings`."""
    findings += [
        _misplaced(platform.provider, _section_keys(platform, platform.provider), given[platform.provider.namespace])
        for platform in registry.all_platforms()
        if platform.provider and given.get(platform.provider.namespace) is not None
    ]
    keys = provider_keys()
    cluster = {key: value for key, value in given.items() if key not in keys}
    if provider := platform_of(given).provider:
        named = {key: stack_config.get(f"{provider.namespace}:{key}") for key in keys[provider.namespace]}
        settings = {key: value for key, value in named.items() if value is not None}
        findings += provider.check(settings)
        cluster[provider.namespace] = {key: value for key, value in settings.items() if key not in provider.more}
    return cluster


def _section_keys(platform: Platform, provider: Provider) -> tuple[str, ...]:
    return tuple(platform.section(provider.namespace).model_fields)


def _misplaced(provider: Provider, keys: tuple[str, ...], within: object) -> Finding:
    names = [f"{provider.namespace}:{key}" for key in keys]
    return Finding(
        id="provider-section",
        at=f"{ROOT}.{provider.namespace}",
        given=show(within),
        allowed=f"{' and '.join(names)} beside {ROOT}, where the provider reads them too",
        todo=f"remove it, and write {' and '.join(f'`{name}: ...`' for name in names)} under `config:`",
    )


_NO_SECRETS = "remove it: no secret is typed by a person, keys and passwords are generated and kept by the stack"


def _explain(error: ErrorDetails, at: Location) -> Finding:
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
    allowed, todo = error["msg"], "correct it"
    if kind in _KINDS:
        allowed, todo = _KINDS[kind][0].format(**context), _KINDS[kind][1]
    if not todo:
        todo = f"write it so. {description(cluster_model(), tuple(error['loc']))}".removesuffix(". ")
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


_MAPPING = ("a mapping, e.g. {{key: value}}", "")
_LIST = ("a list, e.g. [one, two]", "")
_KINDS: Mapping[str, tuple[str, str]] = {
    "int_type": ("a whole number without quotes, e.g. 2", ""),
    "bool_type": ("true or false", ""),
    "string_type": ("text, in quotes if it looks like something else, e.g. name or '1e3'", ""),
    **dict.fromkeys(("model_type", "model_attributes_type", "mapping_type", "dict_type"), _MAPPING),
    **dict.fromkeys(("tuple_type", "list_type"), _LIST),
    "greater_than_equal": ("a whole number of at least {ge}", "raise it"),
    "less_than_equal": ("a whole number of at most {le}", "lower it"),
    "too_long": ("at most {max_length} entries", "remove some"),
    "too_short": ("at least {min_length} entry", "add one"),
}
"""`allowed`, with values of pydantic's context, and `todo` by kind of error; empty where the key's own text says it."""


def _salvage(given: Mapping[str, Any], first: ValidationError) -> _Salvage | None:
    """Take out what is wrong; None if too little is left."""
    removed: set[Location] = set()
    positions: dict[Location, list[int]] = {}
    unchecked: set[Location] = set()
    error: ValidationError = first
    for _ in range(_ROUNDS):
        before = len(removed)
        for item in _errors(error):
            place = _written(item["loc"], positions)
            if place[-1:] == ("[key]",) or item["type"] == "missing":
                place = place[:-1]
            if error is not first or item["type"] == "missing":
                unchecked.add(place)
            removed.add(place)
        removed.discard(())
        rest, positions = _without(given, removed)
        stand_ins = _fill_in(rest)
        try:
            config, unchecked = validate(rest), unchecked - {(), *((key,) for key in stand_ins)}
            return _Salvage(
                config=config, removed=removed, stand_ins=stand_ins, positions=positions, unchecked=unchecked
            )
        except ValidationError as again:
            if len(removed) == before and again.errors() == error.errors():
                return None
            error = again
    return None


def _fill_in(rest: dict[str, Any]) -> list[str]:
    """Add what nothing can be checked without, where it is missing or was wrong; returns its keys."""
    platform = platform_of(rest)
    sections = {key: stand_in for key in platform.sections if (stand_in := platform.section(key).stand_in)}
    added = {
        key: stand_in
        for key, stand_in in {"platform": platform.name, "name": "cluster", **sections}.items()
        if key not in rest
    }
    rest.update(added)
    return list(added)


def _written(location: Location, positions: Mapping[Location, list[int]]) -> Location:
    place: Location = ()
    for step in location:
        kept = positions.get(place)
        place = (*place, kept[step] if kept is not None and isinstance(step, int) and step < len(kept) else step)
    return place


def _without(given: Mapping[str, Any], removed: set[Location]) -> tuple[dict[str, Any], dict[Location, list[int]]]:
    rest: Any = copy.deepcopy(dict(given))
    for place in removed:
        _remove(rest, place)
    positions: dict[Location, list[int]] = {}
    return _close(rest, (), positions), positions


def _remove(tree: Any, place: Location) -> None:  # noqa: ANN401 - what stands in the file may have any shape
    try:
        for step in place[:-1]:
            tree = tree[step]
    except (KeyError, IndexError, TypeError):
        return  # filled in by a default, or within something else that was taken out
    last = place[-1]
    if isinstance(tree, dict):
        tree.pop(last, None)
    elif isinstance(tree, list) and isinstance(last, int) and last < len(tree):
        tree[last] = _Hole


def _close(tree: Any, place: Location, positions: dict[Location, list[int]]) -> Any:  # noqa: ANN401
    if isinstance(tree, Mapping):
        return {key: _close(value, (*place, key), positions) for key, value in tree.items()}
    if isinstance(tree, list):
        kept = [(position, value) for position, value in enumerate(tree) if value is not _Hole]
        positions[place] = [position for position, _ in kept]
        return [_close(value, (*place, position), positions) for position, value in kept]
    return tree


def validate(given: Mapping[str, Any]) -> ClusterConfig:
    """The cluster as written, with its platform's defaults. Raises pydantic's ValidationError."""
    filled = with_defaults(given)
    # Without the sections of other platforms, which few files have: to import them and build their models takes time.
    return _model(registry.names(), tuple(item for item in _own_sections() if item[0] in filled)).model_validate(filled)


def cluster_model() -> type[ClusterConfig]:
    """The model with the sections of every platform, as the registry is now."""
    return _model(registry.names(), _own_sections())


def _own_sections() -> tuple[tuple[str, str], ...]:
    """Key and class of each section that only a platform has."""
    every = {key: path for platform in registry.all_platforms() for key, path in platform.sections.items()}
    return tuple((key, path) for key, path in every.items() if key not in ClusterConfig.model_fields)


@cache
def _model(platforms: tuple[str, ...], sections: tuple[tuple[str, str], ...]) -> type[ClusterConfig]:
    schema = WithJsonSchema({"type": "string", "enum": list(platforms)})
    fields: dict[str, Any] = {
        "platform": (Annotated[str, AfterValidator(_registered), schema], ClusterConfig.model_fields["platform"])
    }
    for key, path in sections:
        section = section_class(path)
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
    metrics = filled.get("monitoring")
    if isinstance(metrics, Mapping) and metrics.get("machine") is not None:
        own = _typed(metrics["machine"], platform.machine_types.get("monitoring"))
        filled["monitoring"] = {**metrics, "machine": own}
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


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    yield from machines.count_errors(config)
    if machines.count_nodes(config) > MOST_NODES:
        return  # the other rules list machines, which takes a while where nobody meant so many
    yield from registry.get(config.platform).checks(config)
    yield from _platform_fields(config)
    for rules in (machines, elastic, users, settings, scripts):
        yield from rules.find_errors(config)


def find_warnings(config: ClusterConfig) -> list[Finding]:
    """Warnings of a configuration without errors: every preview and `up` shows them."""
    return [
        *scripts.find_warnings(config),
        *users.find_warnings(config),
        *settings.find_warnings(config),
        *elastic.find_warnings(config),
        *scripts.find_warm_up_warnings(config),
        *registry.get(config.platform).warnings(config),
    ]


def _platform_fields(config: ClusterConfig) -> Iterator[Finding]:
    platform, everyone = registry.get(config.platform), registry.all_platforms()
    for at, section in _sections((), config):
        own = [(owner, _own_fields(owner, section)) for owner in everyone]
        for key in type(section).model_fields:
            owners = [owner for owner, keys in own if key in keys]
            if not owners or platform in owners or (value := explicit(section, key)) is None:
                continue
            yield Finding(
                id="platform-field",
                at=(*at, key),
                given=as_written(value),
                allowed=f"nothing on {platform.name}: {key} is for {' and '.join(owner.title for owner in owners)}",
                todo=platform.instead.get(key, "remove it here"),
            )


def _own_fields(platform: Platform, section: Section) -> frozenset[str]:
    """The fields of a section that only some platforms have, this one among them."""
    own = frozenset(platform.sections) if isinstance(section, ClusterConfig) else frozenset[str]()
    return own.union(*(keys for kind, keys in platform.fields.items() if isinstance(section, kind)))


def _sections(at: Location, section: Section) -> Iterator[tuple[Location, Section]]:
    """A section and those below it, by their place; without lists, whose sections are alike on all platforms."""
    yield at, section
    for key, value in section:
        members = value.items() if isinstance(value, dict) else [(None, value)]
        for name, one in members:
            if isinstance(one, Section):
                yield from _sections((*at, key) if name is None else (*at, key, name), one)
