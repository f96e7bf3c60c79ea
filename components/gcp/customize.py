"""The stack file's changes to resources (customize), checked by the inputs that pulumi_gcp declares."""

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

    def check(self, given: Mapping[str, Any], at: Location) -> Iterator[Finding]:
        """Names that there are not, and values that an input can't have."""
        for name, value in given.items():
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
                yield from _wrong(value, self.hints[name], (*at, name))

    def merge(self, old: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
        """Inputs with a change, in which parts that have a class of their own are of that class again."""
        return {**old, **{name: _merge(old.get(name), value, self.hints[name]) for name, value in change.items()}}


@cache
def inputs_of(token: str) -> Inputs | Finding:
    """The inputs of a type such as gcp:compute/instance:Instance; a finding, without its place, for an unknown type."""
    module, _, rest = token.removeprefix("gcp:").partition("/")
    found = _resources(module)
    if token in found:
        return Inputs(found[token])
    other = nearest(token, list(found)) or nearest(
        rest.partition(":")[2], [known.rpartition(":")[2] for known in found]
    )
    return Finding(
        id="customize-type",
        at=(),
        given=token,
        allowed="a type of resource of pulumi_gcp, as a preview shows it, e.g. gcp:compute/instance:Instance",
        todo=f"write {other}" if other else "copy it from a preview",
        missing=token,
    )


@cache
def _resources(module: str) -> Mapping[str, type]:
    """Argument class of every type of resource in a module of pulumi_gcp, such as compute; empty for another name."""
    if not re.fullmatch("[a-z]+", module):
        return {}
    try:
        loaded = import_module(f"pulumi_gcp.{module}")
    except ModuleNotFoundError:
        return {}
    found: dict[str, type] = {}
    for name in getattr(loaded, "__all__", None) or dir(loaded):
        kind = getattr(loaded, name)
        token = getattr(kind, "pulumi_type", None)
        if token and issubclass(kind, pulumi.CustomResource):
            own = sys.modules[kind.__module__]
            found[token] = next(getattr(own, args) for args in own.__all__ if args.endswith("Args"))
    return found


@cache
def _hints(owner: type) -> Mapping[str, Any]:
    # pulumi.Input names Output and its own type variable in a string, wherever it is used.
    names = {"Output": pulumi.Output, "T": Any}
    hints = get_type_hints(owner.__init__, vars(sys.modules[owner.__module__]), names)
    return {name: hint for name, hint in hints.items() if name != "return"}


def _choices(hint: Any) -> list[Any]:  # noqa: ANN401 - annotations are of any type
    """Return what a value may be, of a union: without outputs, and without the dictionaries that stand for classes."""
    if get_origin(hint) not in _UNIONS:
        return [] if get_origin(hint) in (Awaitable, pulumi.Output) or is_typeddict(hint) else [hint]
    return [choice for arg in get_args(hint) for choice in _choices(arg)]


def _wrong(value: Any, hint: Any, at: Location) -> Iterator[Finding]:  # noqa: ANN401 - values and types of all kinds
    choices = _choices(hint)
    if value is None:
        if type(None) not in choices:
            yield _finding(value, "a value, since the provider requires one", "write one, or remove the key", at)
        return
    for choice in choices:
        origin, members = get_origin(choice), get_args(choice)
        if choice is Any or (choice is float and type(value) is int) or type(value) is choice:
            return
        if origin is not None and issubclass(origin, Mapping) and isinstance(value, Mapping):
            for key, inner in value.items():
                # null removes a key
                yield from () if inner is None else _wrong(inner, members[1], (*at, key))
            return
        if origin is not None and issubclass(origin, Sequence) and isinstance(value, list | tuple):
            for index, inner in enumerate(value):
                yield from _wrong(inner, members[0], (*at, index))
            return
        if origin is None and _is_part(choice) and isinstance(value, Mapping):
            yield from Inputs(choice).check(value, at)
            return
    allowed = " or ".join(dict.fromkeys(_name(choice) for choice in choices if choice is not type(None)))
    quoted = f', e.g. "{value}"' if str in choices and not isinstance(value, Mapping | Sequence) else ""
    yield _finding(value, allowed + quoted, "write it so", at)


def _finding(value: Any, allowed: str, todo: str, at: Location) -> Finding:  # noqa: ANN401 - anything may be given
    return Finding(id="customize-value", at=at, given=show(value), allowed=allowed, todo=todo)


def _is_part(choice: Any) -> bool:  # noqa: ANN401 - annotations are of any type
    return isinstance(choice, type) and choice.__module__.startswith("pulumi_gcp.")


def _name(choice: Any) -> str:  # noqa: ANN401 - annotations are of any type
    origin = get_origin(choice)
    if origin is not None:
        return "a mapping" if issubclass(origin, Mapping) else "a list"
    return _SINGLE.get(choice, f"a mapping: {listing(sorted(_hints(choice)))}" if _is_part(choice) else str(choice))


def merge(old: Any, change: Any) -> Any:  # noqa: ANN401 - inputs are of any type
    """Return what is there with a change: mappings merge, key by key; lists and single values replace; null removes."""
    if isinstance(old, pulumi.Output):
        return old.apply(lambda known: merge(known, change))
    if not isinstance(change, Mapping):
        return change
    kept = old if isinstance(old, Mapping) else {}
    merged = {**kept, **{key: merge(kept.get(key), value) for key, value in change.items()}}
    return {key: value for key, value in merged.items() if value is not None or key not in change}


def _merge(old: Any, change: Any, hint: Any) -> Any:  # noqa: ANN401 - inputs are of any type
    part = next((choice for choice in _choices(hint) if _is_part(choice)), None)
    if part is None or not isinstance(change, Mapping):
        return merge(old, change)
    kept = {name: getattr(old, name) for name in _hints(part)} if isinstance(old, part) else dict(old or {})
    return part(**{name: value for name, value in Inputs(part).merge(kept, change).items() if value is not None})


class Customizer:
    """The entries of a stack's `customize`, and what each has matched."""

    def __init__(self, config: ClusterConfig) -> None:
        """Raises pulumi.RunError with every input that the provider's classes do not have, or not of this type."""
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
        """Options for the component that all resources are below; none without entries."""
        return pulumi.ResourceOptions(transformations=[self._transform] if self._entries else None)

    def report(self) -> None:
        """Warn of entries that no resource matched, once all are constructed."""
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
