"""`nebius-api=CHECKOUT`: the API's definitions (github.com/nebius/api) beside what this program sends and reads."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.nebius.api.kinds import KINDS, ResourceKind
from tests.harness import ROOT, deploy
from tests.nebius.deploy import test_components
from tests.outside.recorder import Recorder

_fakes = test_components._fakes  # what Nebius answers, for the resources of a stack
ACCEPTED = {
    "immutable-Subnet.network_id": "the API has no way to move a subnet, and does not mark the field",
    "immutable-Bucket.filesystem_bucket": "the SDK 0.6.29 has it, and definitions of before its release have not",
}
"""Differences that are known, by id."""
_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|[\w.]+|[{}\[\]()<>=;,:-]', re.DOTALL)


@dataclass
class Message:
    """A message or an enum of a proto file."""

    name: str
    fields: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Type, and the text of its options, by name; of an enum, names of values."""
    inner: dict[str, "Message"] = field(default_factory=dict)


def _parse(tokens: list[str]) -> tuple[dict[str, Message], dict[str, set[str]]]:
    """Messages and enums by name, and the methods of each service."""
    top, services = Message(""), dict[str, set[str]]()
    stack: list[tuple[str, Message]] = [("file", top)]
    words: list[str] = []
    depth = 0
    for token in tokens:
        if token.startswith(("//", "/*")):
            continue
        kind, here = stack[-1]
        if depth or (token == "[" and kind != "file"):
            depth += {"[": 1, "]": -1}.get(token, 0)
            words.append(token)
        elif token == "{":
            if words[:1] in (["message"], ["enum"]):
                made = here.inner.setdefault(words[1], Message(words[1]))
                stack.append((words[0], made))
            elif words[:1] == ["service"]:
                services[words[1]] = set()
                stack.append(("service", Message(words[1])))
            else:  # a oneof, whose fields are the message's, or options
                stack.append((kind if words[:1] == ["oneof"] else "options", here))
            words = []
        elif token == "}":
            stack.pop()
            words = []
        elif token == ";":
            if kind in ("message", "enum") and "=" in words and words[0] not in ("option", "reserved"):
                at = words.index("=")
                here.fields[words[at - 1]] = ("".join(words[: at - 1]), " ".join(words[at + 2 :]))
            words = []
        else:
            words.append(token)
            if kind == "service" and words[:1] == ["rpc"] and len(words) == 2:
                services[here.name].add(token)
    return top.inner, services


@cache
def package(folder: Path, module: str) -> tuple[dict[str, Message], dict[str, set[str]]]:
    messages, services = dict[str, Message](), dict[str, set[str]]()
    for file in sorted((folder / "nebius" / module.replace(".", "/")).glob("*.proto")):
        found, methods = _parse(_TOKEN.findall(file.read_text(encoding="utf-8")))
        messages |= found
        services |= methods
    return messages, services


def spec_of(folder: Path, kind: ResourceKind) -> Message:
    return package(folder, kind.module)[0][f"{kind.name}Spec"]


def _type(folder: Path, module: str, above: list[Message], name: str) -> Message | None:
    """A field's message or enum: of an enclosing message, of the package, or none for numbers, text and others."""
    name = re.sub(r"^(repeated|optional)", "", name)
    *outer, last = name.split(".")
    if outer and outer[0] in {message.name for message in above}:
        above = [message for message in above if message.name == outer[0]]
    for message in [*reversed(above)]:
        if last in message.inner:
            return message.inner[last]
    return package(folder, module)[0].get(last)


def paths(
    folder: Path, module: str, above: list[Message], spec: Any, at: str = ""
) -> Iterator[tuple[str, tuple[str, str] | None, Message | None, Any]]:
    """Path, field, type and value of everything that a spec has."""
    if isinstance(spec, list):
        for key in spec:
            yield from paths(folder, module, above, key, at)
    elif isinstance(spec, Mapping):
        for name, value in spec.items():
            path = f"{at}.{name}" if at else str(name)
            found = above[-1].fields.get(str(name))
            kind = _type(folder, module, above, found[0]) if found else None
            yield path, found, kind, value
            if found and kind and not found[0].startswith("map"):
                yield from paths(folder, module, [*above, kind], value, path)


def sent() -> Iterator[tuple[ResourceKind, Mapping[str, Any]]]:
    """Specs of every resource of the shipped stack, and of other ways of having one."""
    shipped = yaml.safe_load((ROOT / "Pulumi.nebius.yaml").read_text())["config"]["hpc:cluster"]
    worker = shipped["nodesets"]["worker"]
    ways = ({}, {"subnet": "create"}, {"login": {"service": "NodePort"}})
    capacities = ({}, {"spot": {}}, {"reservation": "capacityblockgroup-e00abc"})
    for way, capacity in zip(ways, capacities, strict=True):
        nodesets = {"worker": {**worker, "capacity": capacity}} if capacity else {"worker": worker}
        recording = deploy({"hpc:cluster": {**shipped, "nebius": {**shipped["nebius"], **way}, "nodesets": nodesets}})
        for resource in recording.resources:
            name = resource.type.rpartition(":")[2]
            if resource.type.startswith("pulumi-python:dynamic/nebius") and name in KINDS:
                yield KINDS[name], resource.inputs["spec"]


@pytest.mark.parametrize("name", KINDS)
def test_calls_and_states(artifact: Path, outside: Recorder, name: str) -> None:
    kind = KINDS[name]
    messages, services = package(artifact, kind.module)
    methods = services.get(f"{name}Service", set())
    listed = "".join(word.capitalize() for word in kind.list_method.split("_"))
    for method in ("Create", "Get", "Delete", listed, *(["Update"] if kind.updatable else [])):
        if method not in methods:
            outside.differs(f"method-{name}.{method}", f"{kind.module} {name}Service has {sorted(methods)}")
    if not kind.updatable and "Update" in methods:
        outside.differs(f"method-{name}.Update", "the API has an update, and this program recreates")
    status = messages.get(f"{name}Status")
    states = status.inner.get("State") if status else None
    states = states or messages.get("State")
    named = kind.ready | kind.failed | (kind.deleting if kind.ready else frozenset())
    known = set(states.fields) if states else set()
    for state in sorted(named - known):
        if not any(value.endswith(f"_{state}") or value == state for value in known):
            outside.differs(f"state-{name}.{state}", f"{name}Status.State has {sorted(known)}")
    outside.did(f"{name}: {len(methods)} methods, {len(known)} states")
    outside.holds("nebius-kinds")


@pytest.mark.usefixtures("_fakes")
def test_fields_that_are_sent(artifact: Path, outside: Recorder) -> None:
    count, required = 0, 0
    seen = set[str]()
    for kind, spec in sent():
        message = spec_of(artifact, kind)
        for path, found, type_, value in paths(artifact, kind.module, [message], spec):
            key = f"{kind.name}.{path}"
            if found is None:
                outside.differs(f"field-{key}", "the API has no such field")
            elif "deprecated = true" in found[1]:
                outside.differs(f"deprecated-{key}", "the API marks it deprecated")
            elif isinstance(value, str) and type_ and type_.fields and value not in type_.fields:
                outside.differs(f"enum-{key}", f"given: {value}; allowed: {', '.join(type_.fields)}")
            count += 1
        for name, (_, options) in message.fields.items():
            if "required = true" in options:
                required += 1
                if name not in spec and f"{kind.name}.{name}" not in seen:
                    outside.differs(f"required-{kind.name}.{name}", "the API demands it, and it is not sent")
                    seen.add(f"{kind.name}.{name}")
    assert count > 300
    outside.did(f"{count} fields of specs that are sent, {required} of them demanded")
    outside.holds("nebius-kinds")


@pytest.mark.parametrize("name", KINDS)
def test_fields_that_replace(artifact: Path, outside: Recorder, name: str) -> None:
    kind = KINDS[name]
    marked = {path for path, options in _every(artifact, kind, [spec_of(artifact, kind)]) if "IMMUTABLE" in options}
    for path in sorted(marked ^ set(kind.immutable)):
        id_ = f"immutable-{name}.{path}"
        if path in kind.immutable:
            outside.differs(
                id_,
                "the API does not mark it",
                accepted=id_ in ACCEPTED or any(field.startswith(f"{path}.") for field in marked),
            )
        elif not any(path.startswith(f"{field}.") for field in kind.immutable):
            outside.differs(id_, "the API marks it, and an edit of it would be an update", accepted=id_ in ACCEPTED)
    outside.did(f"{name}: {len(marked)} immutable fields")
    outside.holds("nebius-kinds")


def _every(folder: Path, kind: ResourceKind, above: list[Message], at: str = "") -> Iterator[tuple[str, str]]:
    for name, (type_, options) in above[-1].fields.items():
        path = f"{at}.{name}" if at else name
        yield path, options
        inner = None if type_.startswith("map") else _type(folder, kind.module, above, type_)
        if inner and inner.fields and inner not in above and len(above) < 6:
            yield from _every(folder, kind, [*above, inner], path)


def test_what_a_preflight_asks(artifact: Path, outside: Recorder) -> None:
    calls = (
        ("mk8s.v1", "ClusterService", "ListControlPlaneVersions", "ClusterControlPlaneVersion",
         {"version", "restricted", "end_of_life", "deprecated"}),
        ("mk8s.v1", "NodeGroupService", "GetCompatibilityMatrix", "NodeGroupCompatibilityVersionItem",
         {"os", "drivers_preset", "compatible_platforms"}),
        ("quotas.v1", "QuotaAllowanceService", "List", "QuotaAllowanceStatus", {"usage", "unit", "usage_percentage"}),
        ("capacity.v1", "ResourceAdviceService", "List", "ResourceAdviceStatus",
         {"reserved", "on_demand", "preemptible"}),
    )  # fmt: skip
    for module, service, method, answer, fields in calls:
        messages, services = package(artifact, module)
        if method not in services.get(service, set()):
            outside.differs(f"method-{service}.{method}", f"{module} has {sorted(services)}")
        for name in sorted(fields - set(messages[answer].fields)):
            outside.differs(f"field-{answer}.{name}", "the API has no such field")
    outside.did(f"{len(calls)} calls of the first step of up")
    outside.holds("nebius-version-calls", "nebius-kubernetes-versions", "nebius-quotas", "nebius-room")
