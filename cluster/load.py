"""Parsing a stack's settings, or its output `config`. Returns a ClusterConfig, or raises all errors at once."""

import contextlib
import copy
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import count, islice
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError, WithJsonSchema, create_model
from pydantic_core import ErrorDetails

from cluster.catalog.bounds import MOST_NODES
from cluster.checks import elastic, nodesets_and_partitions, pricing, scripts, settings, users
from cluster.config.cluster import ClusterConfig
from cluster.config.fields import as_written, description, explicit, section_at
from cluster.config.monitoring import SECRETS
from cluster.config.section import OTHER, PLAIN, ProviderSection, Section
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
from cluster.platform_interface import Platform
from cluster.platforms import registry

_DEEPEST = 50
_MOST_EXPLAINED = 100
"""Most findings that are explained. A file with more was not written as a stack file."""
_SCREEN = 10
"""Findings of such a file that are explained."""


_SECTIONS: Collection[Location] = (
    ("nodesets",),
    ("partitions",),
    ("groups",),
    ("accounting",),
    ("login",),
    ("network",),
)
"""Sections with what other sections name."""
_LISTS: Collection[Location] = (("accounting", "accounts"), ("accounting", "qos"))
"""Lists of such parts. A removed entry may have had any name."""


@dataclass(kw_only=True)
class _Salvage:
    """A configuration without the wrong parts of a file, whose other parts can be checked."""

    config: ClusterConfig
    rest: Mapping[str, Any]
    """The cluster that `config` was read from."""
    removed: set[Location]
    stand_ins: Collection[str]
    """Keys of the cluster whose values are stand-ins."""
    unchecked: set[Location]
    """Places that were removed with more than the wrong value, so that nothing of them was checked."""

    def hides(self, finding: Finding) -> bool:
        """Return whether a finding may be wrong without what was removed: it is about a stand-in, about a name that a
        removed part may have, or about a nodeset with a default in place of its own value."""
        at, name = finding.at, finding.missing
        return (
            at[0] in self.stand_ins
            or (name is not None and self._may_be_removed(name))
            or any(self._is_about(nodeset, at) for nodeset in self.nodesets)
        )

    def _may_be_removed(self, name: str) -> bool:
        """Return whether something of that name, or below it, may have been removed; for `default`, a partition."""
        if name == "default":
            return any(place[:1] == ("partitions",) for place in self.removed)
        return "nodesets" in self.stand_ins or any(
            name in map(str, place) or place in _SECTIONS or place in _LISTS or place[:-1] in _LISTS
            for place in self.removed
        )

    @property
    def nodesets(self) -> set[str]:
        """Names of the nodesets of which a value was removed."""
        return {str(place[1]) for place in self.removed if place[:1] == ("nodesets",) and len(place) > 2}

    def _is_about(self, nodeset: str, at: Location | str) -> bool:
        """Return whether a place is below the nodeset's name, or its value is the name of a partition with its
        nodes."""
        if nodeset in at and at[0] != "partitions":
            return True
        named: Any = self.rest
        for step in () if isinstance(at, str) else at:
            with contextlib.suppress(KeyError, IndexError, TypeError):
                named = named[step]
        partition = self.config.partitions.get(named) if isinstance(named, str) else None
        return partition is not None and nodeset in partition.nodesets


def parse(stack_config: Mapping[str, Any], beside: Mapping[str, Any] | None = None) -> ClusterConfig:
    """Read the settings of a stack file, such as `{"hpc:cluster": {...}}`. `beside` are the keys of the file that stand
    beside `config:` and that Pulumi does not read.

    Raises ConfigError with all findings. Keys of other namespaces are for providers, except the section that the
    platform has there.

    The order of a mapping's keys has no meaning, since the Pulumi CLI passes them to the program sorted.
    """
    findings = [*_keys_beside_config(beside or {}), *_unknown_keys(stack_config)]
    cluster = with_provider_sections(stack_config, _read_cluster(stack_config.get(ROOT), findings), findings)
    in_order = _sorted(cluster)
    with contextlib.suppress(ValidationError):
        config = validate(in_order)
        if not findings and not any(find_errors(config)):
            return config
    # Again in the file's order: of two values that exclude each other, the error is about the later one.
    _validated(cluster, findings)
    return validate(in_order)


def parse_output(exported: Any) -> ClusterConfig:  # noqa: ANN401 - an output may be anything
    """Read the output `config` of a stack, which has all sections in one mapping. Raises ConfigError."""
    return _parse_exported(exported) if isinstance(exported, str) else _validated(_read_cluster(exported, []), [])


@lru_cache(maxsize=4)
def _parse_exported(text: str) -> ClusterConfig:
    """Read the text that the program exports, once for all parts of a command that need it."""
    return _validated(_read_cluster(text, []), [])


def deployed_config(exported: Any) -> ClusterConfig | None:  # noqa: ANN401 - an output may be anything
    """Return the configuration that a cluster runs with, from the stack's output `config`; None for a new stack and for
    one that an older version of this program created."""
    if exported is None:
        return None
    try:
        return parse_output(exported)
    except ConfigError:
        return None


def _validated(cluster: Mapping[str, Any], findings: list[Finding]) -> ClusterConfig:
    """Return a cluster's configuration. Raises ConfigError with the findings so far and all others."""
    try:
        config = validate(cluster)
    except ValidationError as error:
        errors = _errors(error)
        explained = errors if len(errors) <= _MOST_EXPLAINED else errors[:_SCREEN]
        findings += [_explain(item, item["loc"]) for item in explained]
        more = len(errors) - len(explained)
        salvage = None if more else _salvage(cluster, error)
        findings += _other_findings(salvage) if salvage else []
        unchecked = sorted(dotted(place) for place in salvage.unchecked) if salvage else [ROOT]
        raise ConfigError(findings, more=more, unchecked=unchecked) from None
    findings += islice(find_errors(config), _MOST_EXPLAINED)
    if findings:
        raise ConfigError(findings)
    return config


def _errors(error: ValidationError) -> list[ErrorDetails]:
    """Return pydantic's errors with places of the file, that is, without the tags of a field's forms."""
    errors = error.errors(include_url=False)
    for item in errors:
        item["loc"] = tuple(step for step in item["loc"] if step not in (PLAIN, OTHER))
    within = {item["loc"][:-1] for item in errors}
    # pydantic counts only the valid entries.
    return [item for item in errors if item["type"] != "too_short" or item["loc"] not in within]


def _other_findings(salvage: _Salvage) -> list[Finding]:
    """Return the findings about the parts of a file that are not wrong."""
    return [
        finding if isinstance(finding.at, str) else replace(finding, at=_place_in_file(finding.at, salvage.removed))
        for finding in find_errors(salvage.config)
        if not salvage.hides(finding)
    ]


def _unknown_keys(stack_config: Mapping[str, Any]) -> list[Finding]:
    """Return findings about keys of this program's namespace that it does not read. Pulumi puts a key without a
    namespace into that of the project."""
    unknown = [key for key in stack_config if _section_of(key) is not None and key not in (ROOT, *SECRETS)]
    return [
        Finding(
            id="unknown-setting",
            at=key,
            given=show(stack_config[key]),
            allowed=f"{ROOT}, and encrypted {listing(SECRETS)}",
            todo=_place_of(_section_of(key))
            or (f"write {ROOT}" if nearest(key, [ROOT]) and ROOT not in stack_config else "remove it"),
        )
        for key in unknown[:_MOST_EXPLAINED]
    ]


def _keys_beside_config(beside: Mapping[str, Any]) -> list[Finding]:
    """Return findings about keys in the first column of a stack file, which Pulumi does not read."""
    return [
        Finding(
            id="key-beside-config",
            at=key,
            given=f"{key}: {show(value)} beside `config:`",
            allowed="there only `config:`, and the keys that Pulumi writes",
            todo=_place_of(_section_of(key))
            or ("indent it, so that it is below `config:`" if ":" in key else "remove it"),
        )
        for key, value in islice(beside.items(), _MOST_EXPLAINED)
    ]


def _section_of(key: str) -> str | None:
    """Return the name of a key of this program's namespace; None if it is of another one."""
    namespace, colon, name = key.rpartition(":")
    return name if not colon or namespace == ROOT.split(":", 1)[0] else None


def _place_of(section: str | None) -> str:
    """Return what to do about a section of the cluster that stands outside of it; empty if there is none."""
    is_section = section in ClusterConfig.model_fields or section in dict(_platform_sections())
    return f"indent it, so that it is below `{ROOT}:`, as `platform:` is" if is_section else ""


def _read_cluster(value: Any, findings: list[Finding]) -> Mapping[str, Any]:  # noqa: ANN401 - may have any shape
    """Return the cluster as a mapping; it may be given as JSON text. Raises ConfigError if it is neither."""
    if isinstance(value, str):
        # A text that is not JSON, or nested too deep to be read, is reported below.
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(value)
    if isinstance(value, Mapping) and not _too_deep(value):
        return value
    shape = Finding(
        id="cluster-shape",
        at=ROOT,
        given=f"more than {_DEEPEST} levels of nesting" if isinstance(value, Mapping) else show(value),
        allowed="the cluster as a mapping, e.g. {platform: local, name: dev, nodesets: ..., partitions: ...}",
        todo="describe the cluster under `config: hpc:cluster:` in Pulumi.<stack>.yaml; Pulumi.dev.yaml is an example",
    )
    raise ConfigError([*findings, shape])


def _too_deep(tree: Any, levels: int = _DEEPEST) -> bool:  # noqa: ANN401 - what stands in the file may have any shape
    """Return whether a tree has more levels. A tree that contains itself has."""
    below = tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, list) else ()
    return not levels or any(_too_deep(branch, levels - 1) for branch in below)


def _sorted(tree: Any) -> Any:  # noqa: ANN401 - what stands in the file may have any shape
    if isinstance(tree, Mapping):
        return {key: _sorted(tree[key]) for key in sorted(tree, key=str)}
    return [_sorted(branch) for branch in tree] if isinstance(tree, list) else tree


def provider_keys() -> dict[str, tuple[str, ...]]:
    """Return the settings that are read of each provider, by its namespace."""
    return {name: (*provider.model_fields, *provider.more) for name, provider in provider_sections().items()}


def provider_sections() -> dict[str, type[ProviderSection]]:
    """Return the sections that the stack file has as settings of providers, by the platform and its provider."""
    return {platform.name: provider for platform in registry.all_platforms() if (provider := platform.provider())}


def with_provider_sections(
    stack_config: Mapping[str, Any], cluster: Mapping[str, Any], findings: list[Finding]
) -> dict[str, Any]:
    """Return the cluster with the section that its platform has in the provider's settings, and add findings about
    that section to `findings`."""
    sections = provider_sections()
    findings += [
        _misplaced_section(name, provider, cluster[name])
        for name, provider in sections.items()
        if cluster.get(name) is not None
    ]
    complete = {key: value for key, value in cluster.items() if key not in sections}
    name = platform_of(cluster).name
    if provider := sections.get(name):
        values = {key: stack_config.get(f"{name}:{key}") for key in (*provider.model_fields, *provider.more)}
        settings = {key: value for key, value in values.items() if value is not None}
        findings += provider.find_errors(settings)
        complete[name] = {key: value for key, value in settings.items() if key not in provider.more}
    return complete


def _misplaced_section(platform: str, provider: type[ProviderSection], section: object) -> Finding:
    names = [f"{platform}:{key}" for key in provider.model_fields]
    return Finding(
        id="provider-section",
        at=f"{ROOT}.{platform}",
        given=show(section),
        allowed=f"{' and '.join(names)} beside {ROOT}, where the provider reads them too",
        todo=f"remove it, and write {' and '.join(f'`{name}: ...`' for name in names)} under `config:`",
    )


_NO_SECRETS = "remove it: no secret is typed by a person, keys and passwords are generated and kept by the stack"


def _explain(error: ErrorDetails, at: Location) -> Finding:
    """Return the finding about one of pydantic's errors."""
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
        return _wrong_choice(at, given, str(context["expected"]))
    allowed, todo = error["msg"], "correct it"
    if kind in _KINDS:
        allowed, todo = _KINDS[kind][0].format(**context), _KINDS[kind][1]
    if kind == "string_type" and isinstance(given, int | float):
        todo = f'put it in quotes: "{show(given)}"'
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


def _wrong_choice(at: Location, given: object, expected: str) -> Finding:
    choices = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
    meant = nearest(str(given), choices)
    todo = f"write {meant or 'one of these' if len(choices) > 1 else choices[0]}"
    if not isinstance(given, str) and str(given) in choices:
        todo = f'put it in quotes: "{given}"'
    return Finding(
        id="value-choice",
        at=at,
        given=show(given),
        allowed=listing(choices) if len(choices) > 1 else f"only {choices[0]}",
        todo=todo,
    )


_MAPPING = ("a mapping, e.g. {{key: value}}", "")
_LIST = ("a list, e.g. [one, two]", "")
_KINDS: Mapping[str, tuple[str, str]] = {
    "int_type": ("a whole number without quotes, e.g. 2", ""),
    "bool_type": ("true or false", ""),
    "string_type": ("text, in quotes if it looks like something else, e.g. name or '1e3'", ""),
    **dict.fromkeys(("model_type", "model_attributes_type", "mapping_type", "dict_type"), _MAPPING),
    **dict.fromkeys(("tuple_type", "list_type"), _LIST),
    "float_type": ("a number without quotes, e.g. 61.5", ""),
    "greater_than": ("a number above {gt}", "raise it"),
    "less_than": ("a number below {lt}", "lower it"),
    "greater_than_equal": ("a whole number of at least {ge}", "raise it"),
    "less_than_equal": ("a whole number of at most {le}", "lower it"),
    "too_long": ("at most {max_length} entries", "remove some"),
    "too_short": ("at least {min_length} entry", "add one"),
}
"""`allowed`, with values of pydantic's context, and `todo` by kind of error. An empty `todo` stands for the description
of the key."""


def _salvage(cluster: Mapping[str, Any], error: ValidationError) -> _Salvage | None:
    """Remove the wrong values of a cluster, and what can't be read without them, such as a partition without its
    nodesets. Returns None if the rest can't be read either."""
    removed: set[Location] = set()
    wrong = {item["loc"] for item in _errors(error)}
    while more := {_wrong_part(item, removed) for item in _errors(error)} - removed:
        removed |= more
        rest = _without_places(cluster, removed)
        stand_ins = _add_stand_ins(rest)
        try:
            config = validate(rest)
        except ValidationError as next_error:
            error = next_error
        else:
            unchecked = removed - wrong - {(), *((key,) for key in stand_ins)}
            return _Salvage(config=config, rest=rest, removed=removed, stand_ins=stand_ins, unchecked=unchecked)
    return None


def _wrong_part(error: ErrorDetails, removed: Collection[Location]) -> Location:
    """Return the place in the file of what must be removed for an error."""
    place = _place_in_file(error["loc"], removed)
    return place[:-1] if error["type"] == "missing" or place[-1:] == ("[key]",) else place


def _add_stand_ins(rest: dict[str, Any]) -> list[str]:
    """Add stand-ins for required keys that are missing or were removed. Returns these keys."""
    platform = platform_of(rest)
    own = platform.section()
    sections = {platform.name: own.stand_in} if own and own.stand_in else {}
    added = {
        key: stand_in
        for key, stand_in in {"platform": platform.name, "name": "cluster", **sections}.items()
        if key not in rest
    }
    if not rest.get("nodesets"):
        added["nodesets"] = {"nodes": {"count": 1}}
    if not rest.get("partitions"):
        # As many as the file's nodesets, so that none of them is in no partition.
        added["partitions"] = {"rest": {"nodesets": list(rest.get("nodesets") or added["nodesets"]), "default": True}}
    rest.update(added)
    return list(added)


def _place_in_file(place: Location, removed: Collection[Location]) -> Location:
    """Return a place with the positions that list items had in the file before others were removed."""
    found: Location = ()
    for step in place:
        left = (position for position in count() if (*found, position) not in removed)
        found = (*found, next(islice(left, step, None)) if isinstance(step, int) else step)
    return found


def _without_places(cluster: Mapping[str, Any], removed: Collection[Location]) -> dict[str, Any]:
    """Return a copy of the cluster without some places."""
    rest = copy.deepcopy(dict(cluster))
    # From the end of each list, and an item after what is in it: positions of others stay until they are used.
    for place in sorted(
        removed, key=lambda place: (len(place), [step for step in place[-1:] if isinstance(step, int)]), reverse=True
    ):
        tree: Any = rest
        # What is not there is a default, or the cluster itself, of which something is missing.
        with contextlib.suppress(KeyError, IndexError, TypeError):
            for step in place[:-1]:
                tree = tree[step]
            del tree[place[-1]]
    return rest


def validate(cluster: Mapping[str, Any]) -> ClusterConfig:
    """Return the configuration of a cluster, with its platform's defaults. Raises pydantic's ValidationError."""
    filled = with_defaults(cluster)
    # Sections of other platforms are left out unless the file has them: to import and build their models takes time.
    return _model(registry.names(), _platform_sections(filled)).model_validate(filled)


def cluster_model() -> type[ClusterConfig]:
    """Return the model with the sections of all platforms that are registered now."""
    return _model(registry.names(), _platform_sections())


def _platform_sections(among: Collection[str] | None = None) -> tuple[tuple[str, type[Section]], ...]:
    """Return key and class of each section that only one platform has, of those with a key in `among`; else of all."""
    return tuple(
        (name, section)
        for name in registry.names()
        if (among is None or name in among) and (section := registry.get(name).section())
    )


@cache
def _model(platforms: tuple[str, ...], sections: tuple[tuple[str, type[Section]], ...]) -> type[ClusterConfig]:
    schema = WithJsonSchema({"type": "string", "enum": list(platforms)})
    fields: dict[str, Any] = {
        "platform": (Annotated[str, AfterValidator(_check_platform), schema], ClusterConfig.model_fields["platform"])
    }
    for key, section in sections:
        fields[key] = (section | None, Field(default=None, description=section.__doc__))
    return create_model(
        "ClusterConfig", __base__=ClusterConfig, __module__=__name__, __doc__=ClusterConfig.__doc__, **fields
    )


def _check_platform(value: str) -> str:
    """Check that a platform is registered. A validator, because the registry may grow after the model was built."""
    names = registry.names()
    if value not in names:
        raise RefusedError(listing(names), suggest(value, names, "write one of these"))
    return value


def platform_of(cluster: Mapping[str, Any]) -> Platform:
    """Return the platform of a cluster. If it names none that exists, return the first one: then only the name is
    reported, and not everything that depends on it."""
    names = registry.names()
    name = cluster.get("platform")
    return registry.get(name if isinstance(name, str) and name in names else names[0])


def with_defaults(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """Return a cluster with its platform's defaults. Values of a wrong type are left for the models to report."""
    filled: dict[str, Any] = dict(cluster)
    platform = platform_of(cluster)
    for key, default in platform.defaults.items():
        written = filled.get(key)
        if written is None:
            filled[key] = copy.deepcopy(default)
        elif isinstance(default, Mapping) and isinstance(written, Mapping):
            filled[key] = {**copy.deepcopy(default), **written}
    for key in ("controller", "login"):
        filled[key] = _with_machine_type(filled.get(key) or {}, platform.machine_types.get(key))
    metrics = filled.get("monitoring")
    if isinstance(metrics, Mapping) and metrics.get("machine") is not None:
        machine = _with_machine_type(metrics["machine"], platform.machine_types.get("monitoring"))
        filled["monitoring"] = {**metrics, "machine": machine}
    nodesets = filled.get("nodesets")
    if isinstance(nodesets, Mapping):
        filled["nodesets"] = {
            name: _with_machine_type(section or {}, platform.machine_types.get("node"))
            for name, section in nodesets.items()
        }
    return filled


def _with_machine_type(section: Any, machine_type: str | None) -> Any:  # noqa: ANN401 - what stands in the file may have any shape
    if machine_type is None or not isinstance(section, Mapping) or "on" in section or "machine_type" in section:
        return section
    return {**section, "machine_type": machine_type}


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    yield from nodesets_and_partitions.count_errors(config)
    if nodesets_and_partitions.count_nodes(config) > MOST_NODES:
        return  # the other rules list machines, which takes long for such a number
    yield from registry.get(config.platform).find_errors(config)
    yield from _platform_fields(config)
    for rules in (nodesets_and_partitions, elastic, users, settings, scripts, pricing):
        yield from rules.find_errors(config)


def find_warnings(config: ClusterConfig) -> list[Finding]:
    """Return the warnings about a configuration without errors, which every preview and `up` prints."""
    return [
        *scripts.find_warnings(config),
        *users.find_warnings(config),
        *settings.find_warnings(config),
        *elastic.find_warnings(config),
        *pricing.find_warnings(config),
        *scripts.find_warm_up_warnings(config),
        *registry.get(config.platform).find_warnings(config),
    ]


def _platform_fields(config: ClusterConfig) -> Iterator[Finding]:
    """Yield fields that the cluster's platform does not have."""
    platform = registry.get(config.platform)
    for at, section in _sections((), config):
        own_fields = [(owner, _own_fields(owner, section)) for owner in registry.all_platforms()]
        for key in type(section).model_fields:
            owners = [owner for owner, keys in own_fields if key in keys]
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
    """Return the fields of a section that this platform has and some others do not."""
    own = frozenset({platform.name} if isinstance(section, ClusterConfig) else ())
    return own.union(*(keys for kind, keys in platform.fields.items() if isinstance(section, kind)))


def _sections(at: Location, section: Section) -> Iterator[tuple[Location, Section]]:
    """Yield a section and those below it, with their places. Lists are left out: their sections are the same on all
    platforms."""
    yield at, section
    for key, value in section:
        members = value.items() if isinstance(value, dict) else [(None, value)]
        for name, member in members:
            if isinstance(member, Section):
                yield from _sections((*at, key) if name is None else (*at, key, name), member)
