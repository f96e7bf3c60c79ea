"""Changes of resources by the stack file (`customize`), checked against the inputs that pulumi_gcp declares."""

import re
import sys
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

import pulumi

from cluster.config.cluster import ClusterConfig
from cluster.findings import ROOT, ConfigError, Finding, Location, listing, nearest, show

_UNIONS = (Union, type(int | str))
_SINGLE = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}


@dataclass(frozen=True)
class Inputs:
    """The inputs of one type of resource, or of a part of one."""

    owner: type
    """The argument class."""

    @property
    def hints(self) -> Mapping[str, Any]:
        return _hints(self.owner)

    def check(self, change: Mapping[str, Any], at: Location) -> Iterator[Finding]:
        """Yield unknown names, and values of another type than the input's."""
        for name, value in change.items():
            if name not in self.hints:
                near = nearest(name, list(self.hints))
                yield Finding(
                    id="customize-input",
                    at=(*at, name),
                    given=show(value),
                    allowed=f"an input of {self.owner.__name__}: {listing(sorted(self.hints))}",
                    todo=f"write {near}" if near else "take one of these",
                    missing=name,
                )
            else:
                yield from _type_errors(value, self.hints[name], (*at, name))

    def merge(self, old: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
        """Return inputs with a change. Parts that have an argument class are of that class again."""
        return {**old, **{name: _merge_typed(old.get(name), value, self.hints[name]) for name, value in change.items()}}


@cache
def inputs_of(token: str) -> Inputs | Finding:
    """Return the inputs of a type such as gcp:compute/instance:Instance; for an unknown type a finding without its
    location."""
    module, _, rest = token.removeprefix("gcp:").partition("/")
    types = _argument_classes(module)
    if token in types:
        return Inputs(types[token])
    other = nearest(token, list(types)) or nearest(rest.partition(":")[2], [name.rpartition(":")[2] for name in types])
    return Finding(
        id="customize-type",
        at=(),
        given=token,
        allowed="a type of resource of pulumi_gcp, as a preview shows it, e.g. gcp:compute/instance:Instance",
        todo=f"write {other}" if other else "copy it from a preview",
        missing=token,
    )


@cache
def _argument_classes(module: str) -> Mapping[str, type]:
    """Return the argument class of every type of resource in a module of pulumi_gcp, such as compute; empty for an
    unknown module."""
    if not re.fullmatch("[a-z]+", module):
        return {}
    try:
        loaded = import_module(f"pulumi_gcp.{module}")
    except ModuleNotFoundError:
        return {}
    classes: dict[str, type] = {}
    for name in getattr(loaded, "__all__", None) or dir(loaded):
        kind = getattr(loaded, name)
        token = getattr(kind, "pulumi_type", None)
        if token and issubclass(kind, pulumi.CustomResource):
            source = sys.modules[kind.__module__]
            classes[token] = next(getattr(source, args) for args in source.__all__ if args.endswith("Args"))
    return classes


@cache
def _hints(owner: type) -> Mapping[str, Any]:
    # pulumi.Input refers to Output and to its type variable by name, which every caller has to resolve.
    names = {"Output": pulumi.Output, "T": Any}
    hints = get_type_hints(owner.__init__, vars(sys.modules[owner.__module__]), names)
    return {name: hint for name, hint in hints.items() if name != "return"}


def _choices(hint: Any) -> list[Any]:  # noqa: ANN401 - annotations are of any type
    """Return the types that a hint allows for a value: without outputs, and without the typed dictionaries that stand
    for argument classes."""
    if get_origin(hint) not in _UNIONS:
        return [] if get_origin(hint) in (Awaitable, pulumi.Output) or is_typeddict(hint) else [hint]
    return [choice for arg in get_args(hint) for choice in _choices(arg)]


def _type_errors(value: Any, hint: Any, at: Location) -> Iterator[Finding]:  # noqa: ANN401 - values and types of all kinds
    choices = _choices(hint)
    if value is None:
        if type(None) not in choices:
            yield _value_error(value, "a value, since the provider requires one", "write one, or remove the key", at)
        return
    for choice in choices:
        origin, members = get_origin(choice), get_args(choice)
        if choice is Any or (choice is float and type(value) is int) or type(value) is choice:
            return
        if origin is not None and issubclass(origin, Mapping) and isinstance(value, Mapping):
            for key, inner in value.items():
                # null removes a key
                yield from () if inner is None else _type_errors(inner, members[1], (*at, key))
            return
        if origin is not None and issubclass(origin, Sequence) and isinstance(value, list | tuple):
            for index, inner in enumerate(value):
                yield from _type_errors(inner, members[0], (*at, index))
            return
        if origin is None and _is_part(choice) and isinstance(value, Mapping):
            yield from Inputs(choice).check(value, at)
            return
    allowed = " or ".join(dict.fromkeys(_name(choice) for choice in choices if choice is not type(None)))
    quoted = f', e.g. "{value}"' if str in choices and not isinstance(value, Mapping | Sequence) else ""
    yield _value_error(value, allowed + quoted, "write it so", at)


def _value_error(value: Any, allowed: str, todo: str, at: Location) -> Finding:  # noqa: ANN401 - anything may be given
    return Finding(id="customize-value", at=at, given=show(value), allowed=allowed, todo=todo)


def _is_part(choice: Any) -> bool:  # noqa: ANN401 - annotations are of any type
    return isinstance(choice, type) and choice.__module__.startswith("pulumi_gcp.")


def _name(choice: Any) -> str:  # noqa: ANN401 - annotations are of any type
    origin = get_origin(choice)
    if origin is not None:
        return "a mapping" if issubclass(origin, Mapping) else "a list"
    return _SINGLE.get(choice, f"a mapping: {listing(sorted(_hints(choice)))}" if _is_part(choice) else str(choice))


def merge(old: Any, change: Any) -> Any:  # noqa: ANN401 - inputs are of any type
    """Return a value with a change: mappings merge key by key, lists and single values replace, null removes."""
    if isinstance(old, pulumi.Output):
        return old.apply(lambda value: merge(value, change))
    if not isinstance(change, Mapping):
        return change
    kept = old if isinstance(old, Mapping) else {}
    merged = {**kept, **{key: merge(kept.get(key), value) for key, value in change.items()}}
    return {key: value for key, value in merged.items() if value is not None or key not in change}


def _merge_typed(old: Any, change: Any, hint: Any) -> Any:  # noqa: ANN401 - inputs are of any type
    part = next((choice for choice in _choices(hint) if _is_part(choice)), None)
    if part is None or not isinstance(change, Mapping):
        return merge(old, change)
    kept = {name: getattr(old, name) for name in _hints(part)} if isinstance(old, part) else dict(old or {})
    return part(**{name: value for name, value in Inputs(part).merge(kept, change).items() if value is not None})


class Customizer:
    """The entries of a stack's `customize`, with the number of resources that each has matched."""

    def __init__(self, config: ClusterConfig) -> None:
        """Raises pulumi.RunError with every unknown input, and every value of another type than the input's."""
        self._entries = config.customize
        self._inputs: dict[str, Inputs] = {}
        self._matched = [0] * len(self._entries)
        self._names: dict[str, list[str]] = {}
        findings = []
        for index, entry in enumerate(self._entries):
            inputs = inputs_of(entry.type)
            if isinstance(inputs, Inputs):
                self._inputs[entry.type] = inputs
                findings += inputs.check(entry.set, ("customize", index, "set"))
            else:
                findings.append(replace(inputs, at=("customize", index, "type")))
        if findings:
            raise pulumi.RunError(str(ConfigError(findings)))

    def options(self) -> pulumi.ResourceOptions:
        """Return options for the component that is the parent of all resources; none without entries."""
        return pulumi.ResourceOptions(transformations=[self._transform] if self._entries else None)

    def report(self) -> None:
        """Warn of entries that matched no resource. Call it once all resources are constructed."""
        for index, entry in enumerate(self._entries):
            if self._matched[index]:
                continue
            names = self._names.get(entry.type)
            types = sorted(self._names)
            todo = (
                f"names of that type: {listing(names)}"
                if names
                else f"the stack has no such type; nearest: {nearest(entry.type, types) or listing(types)}"
            )
            pulumi.log.warn(f"{ROOT}.customize[{index}] matches no resource ({entry.type}, {entry.name}): {todo}")

    def _transform(self, args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        if args.type_.startswith("gcp:"):
            self._names.setdefault(args.type_, []).append(args.name)
        props: dict[str, Any] = dict(args.props)
        for index, entry in enumerate(self._entries):
            if entry.type == args.type_ and fnmatchcase(args.name, entry.name):
                self._matched[index] += 1
                props = self._inputs[entry.type].merge(props, entry.set)
        return pulumi.ResourceTransformationResult(props=props, opts=args.opts) if props != args.props else None
