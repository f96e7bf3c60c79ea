"""`nebius-api=CHECKOUT`: the API's definitions (github.com/nebius/api) beside what this program sends and reads."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from nebius.aio.request import Request

from components.nebius.api import client, objects
from components.nebius.api.kinds import KINDS, ResourceKind
from components.nebius.api.specs import to_full_json, to_json
from tests.cluster.nebius.clusters import FABRIC, H100, nebius
from tests.harness import ROOT, deploy
from tests.lab.nebius_api import server
from tests.lab.nebius_api.server import NebiusServer
from tests.nebius.deploy import test_cloud_checks, test_components
from tests.nebius.deploy.test_cloud_checks import BLOCK, PROJECT, STATE
from tests.outside.reads import Path as ReadPath
from tests.outside.reads import Read, ReadJson
from tests.outside.recorder import Recorder

_fakes = test_components._fakes  # what Nebius answers, for the resources of a stack
_elsewhere = test_cloud_checks._elsewhere  # registries and programs, for a stack that is checked
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


Services = dict[str, dict[str, tuple[str, str]]]
"""The messages of request and answer of each method of each service."""


def _parse(tokens: list[str]) -> tuple[dict[str, Message], Services]:
    """Messages and enums by name, and services."""
    top, services = Message(""), Services()
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
                services[words[1]] = {}
                stack.append(("service", Message(words[1])))
            else:  # a oneof, whose fields are the message's, or options
                _add_method(services, here, words)
                stack.append((kind if words[:1] == ["oneof"] else "options", here))
            words = []
        elif token == "}":
            stack.pop()
            words = []
        elif token == ";":
            _add_method(services, here, words)
            if kind in ("message", "enum") and "=" in words and words[0] not in ("option", "reserved"):
                at = words.index("=")
                here.fields[words[at - 1]] = ("".join(words[: at - 1]), " ".join(words[at + 2 :]))
            words = []
        else:
            words.append(token)
    return top.inner, services


def _add_method(services: Services, service: Message, words: list[str]) -> None:
    if words[:1] == ["rpc"]:
        services[service.name][words[1]] = (words[3], words[-2])


@cache
def package(folder: Path, module: str) -> tuple[dict[str, Message], Services]:
    messages, services = dict[str, Message](), Services()
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
    if other := re.fullmatch(r"([a-z]\w*\.v\d\w*)\.(\w+)", name):
        return package(folder, other[1])[0].get(other[2])
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


def compare(folder: Path, outside: Recorder, module: str, message: Message, given: Mapping[str, Any]) -> int:
    """Compare fields and values of enums with those of a message, and return how many there are."""
    count = 0
    for path, found, type_, value in paths(folder, module, [message], given):
        key = f"{message.name.removesuffix('Spec')}.{path}"
        if found is None:
            outside.differs(f"field-{key}", "the API has no such field")
        elif "deprecated = true" in found[1]:
            outside.differs(f"deprecated-{key}", "the API marks it deprecated")
        elif isinstance(value, str) and type_ and type_.fields and value not in type_.fields:
            outside.differs(f"enum-{key}", f"given: {value}; allowed: {', '.join(type_.fields)}")
        count += 1
    return count


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
    methods = services.get(f"{name}Service", {})
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
        count += compare(artifact, outside, kind.module, message, spec)
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


PROFILE = {"user_profile": {"tenants": [{"tenant_id": "tenant-e00abc", "tenant_user_account_id": "account-e00abc"}]}}


@dataclass(frozen=True)
class Asked:
    """A call with its answer, as JSON."""

    method: str
    request: Mapping[str, Any]
    answer: Mapping[str, Any]


def checked(monkeypatch: pytest.MonkeyPatch, *, bucket: str, outcome: str) -> tuple[list[Asked], set[ReadPath]]:
    """Return what `check cloud` asks about a stack that asks every question, and the fields of the answers that it
    reads. All rows are green, but for that of the bucket of the state."""
    asked, reads = list[Asked](), set[ReadPath]()
    wait = Request.wait

    def answer(request: Any) -> Any:
        found, method = wait(request), f"{request._service}/{request._method}"
        if hasattr(found, "next_page_token") and not request._input.page_token:
            found.next_page_token = "1"
        asked.append(Asked(method, to_full_json(request._input), to_full_json(found)))
        return Read(found, (method,), reads)

    def as_json(row: Read) -> ReadJson:
        return ReadJson(to_json(row.message), row.at, reads)

    monkeypatch.setattr(Request, "wait", answer)
    monkeypatch.setattr(objects, "to_json", as_json)
    nodesets = {
        name: {"machine_type": H100, "count": 1, "capacity": capacity}
        for name, capacity in {"own": {"reservation": BLOCK}, "spot": {"spot": {}}, "any": {"on_demand": {}}}.items()
    }
    with NebiusServer(place=test_cloud_checks.ample()) as api:
        api.place.groups, api.place.blocks = ("editors", "builders"), {BLOCK: {}}
        api.methods.seed("AccessPermit", "group-builders", "", {"resource_id": PROJECT, "role": "admin"})
        jail = api.methods.seed("Filesystem", PROJECT, "jail", {"type": "NETWORK_SSD"}, "computefilesystem-e00abc")
        state = api.methods.seed("Bucket", PROJECT, "our-state", {"versioning_policy": "ENABLED"})
        api.store.objects[state]["state"] = bucket
        section = {"workers": dict.fromkeys(nodesets, FABRIC), **test_cloud_checks.jail_of(jail)}
        rows = test_cloud_checks.ask(nebius(nodesets=nodesets, nebius=section), state=STATE)
        client.close()
    assert [(row.id, row.outcome.value) for row in rows] == ([("state", outcome)] if outcome != "ok" else []), rows
    return asked, reads


@pytest.mark.parametrize("profile", [None, PROFILE], ids=["service account", "user"])
def test_what_check_cloud_asks_and_reads(
    artifact: Path, outside: Recorder, monkeypatch: pytest.MonkeyPatch, profile: Any
) -> None:
    """The first step of `up` asks part of it."""
    place = {"bucket": "ACTIVE", "outcome": "ok"}
    if profile:
        monkeypatch.setitem(server._METHODS, "ProfileService/Get", lambda *_args: profile)
        place = {"bucket": "SCHEDULED_FOR_DELETION", "outcome": "wrong"}
    asked, reads = checked(monkeypatch, **place)
    for call in asked:
        module, service, method = _parts(call.method)
        messages, services = package(artifact, module)
        if method not in services.get(service, {}):
            outside.differs(f"method-{service}.{method}", f"{module} has {sorted(services)}")
            continue
        request, answer = (messages[name] for name in services[service][method])
        compare(artifact, outside, module, request, call.request)
        compare(artifact, outside, module, answer, call.answer)
        for name, (_, options) in request.fields.items():
            limit = re.search(r"\blte : (\d+)", options)
            if "required = true" in options and name not in call.request:
                outside.differs(f"required-{service}.{method}.{name}", "the API demands it, and it is not sent")
            if limit and int(call.request.get(name, 0)) > int(limit[1]):
                outside.differs(f"limit-{service}.{method}.{name}", f"given: {call.request[name]}; at most {limit[1]}")
    for path, *fields in sorted(reads):
        module, service, method = _parts(path)
        messages, services = package(artifact, module)
        above = [messages[services[service][method][1]]] if method in services.get(service, {}) else []
        for name in fields if above else ():
            if name not in above[-1].fields:
                outside.differs(f"field-{service}.{method}.{'.'.join(fields)}", f"{above[-1].name} has no {name}")
                break
            above.append(_type(artifact, module, above, above[-1].fields[name][0]) or Message("a value"))
    assert len(reads) > 80
    outside.did(f"{len({call.method for call in asked})} methods, {len(reads)} fields of answers that are read")
    outside.holds(
        "nebius-version-calls", "nebius-kubernetes-versions", "nebius-quotas", "nebius-room", "nebius-platform-sizes",
        "nebius-projects", "nebius-roles", "nebius-groups", "nebius-capacity-blocks", "nebius-buckets", "nebius-pages",
    )  # fmt: skip


def _parts(method: str) -> tuple[str, str, str]:
    """Module, service and method of `nebius.compute.v1.PlatformService/List`."""
    path, _, name = method.partition("/")
    module, _, service = path.removeprefix("nebius.").rpartition(".")
    return module, service, name
