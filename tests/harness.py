"""The one way to test components: run a program over Pulumi's mocks and look at all that it registered.

A test that builds resources without this registers nothing and passes. Mocks hide much of what the engine would refuse,
so the harness looks at the requests themselves: options, dependencies, secrets, and names that occur twice.
"""

from __future__ import annotations

import asyncio
import json
import runpy
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import grpc
import pulumi
import yaml
from google.protobuf import json_format, struct_pb2
from pulumi.runtime import mocks, run_in_stack, settings
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc, source_pb2

from engine.core.program import InlineExecutor
from tests.fake_outputs import FAKE_SECRETS, FAKES, FLEX

__all__ = [
    "FAKE_SECRETS",
    "FLEX",
    "Recording",
    "Registered",
    "as_text",
    "deploy",
    "provider_process",
    "stack_config",
    "stacks",
]

Value = TypeVar("Value")
ROOT = Path(__file__).parents[1]
SIGNATURE = "4dabf18193072939515e22adb298388d"  # the key that marks a special value on the wire
SECRET = "1b47061264138c4ac30d75fd1eb44270"  # and its value for a secret
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"  # what an unknown value is on the wire


@dataclass(frozen=True)
class Registered:
    """One resource as the program registered it."""

    type: str
    name: str
    urn: str
    parent: str
    custom: bool
    inputs: dict[str, Any]
    request: Any = field(repr=False)
    """The request itself: protect, dependencies, propertyDependencies, aliases, deleteBeforeReplace ..."""

    def secret(self, key: str) -> bool:
        """Return whether the whole input `key`, or something inside it, is marked secret."""
        return _has_secret(_plain(self.request.object).get(key))

    @property
    def shown(self) -> dict[str, Any]:
        """The inputs as a preview shows them to anybody: what is marked secret is gone."""
        return _tidy(_shown(_plain(self.request.object)))


@dataclass
class Recording:
    """All that a program registered, and its outputs."""

    resources: list[Registered] = field(default_factory=list)
    outputs: dict[str, Any] = field(default_factory=dict)
    """The stack's own."""
    registered_outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Those of every component, and the stack, by URN."""
    shown_outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The same without what is marked secret."""
    was: Mapping[str, Any] = field(default_factory=dict)
    """The stack's outputs of the run before."""
    logs: list[str] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    """Keys of the settings that the program read."""
    tunnels: list[tuple[Any, int]] = field(default_factory=list)
    """Instance and local port of every tunnel that a real run would have opened."""

    def all(self, type_: str) -> list[Registered]:
        """Every resource of a type."""
        return [r for r in self.resources if r.type == type_]

    def one(self, name: str) -> Registered:
        """The one custom resource or component called `name`."""
        found = [r for r in self.resources if r.name == name]
        assert len(found) == 1, f"{len(found)} resources are called {name}: {sorted(r.name for r in self.resources)}"
        return found[0]

    async def opened(self, instance: Any, port: int) -> None:
        """Stands for a tunnel to a machine that is not there."""
        self.tunnels.append((instance, port))

    def waits_for(self, later: Registered, earlier: Registered) -> bool:
        """Return whether `later` depends on `earlier`, directly or through others."""
        by_urn = {r.urn: r for r in self.resources}
        seen: set[str] = set()
        stack = list(later.request.dependencies)
        while stack:
            urn = stack.pop()
            if urn == earlier.urn:
                return True
            if urn in by_urn and urn not in seen:
                seen.add(urn)
                stack.extend(by_urn[urn].request.dependencies)
        return False


class _Monitor(mocks.MockMonitor):
    """Records requests, gives every resource its true URN, and refuses what the engine would refuse."""

    def __init__(self, recording: Recording, *, unknown: bool) -> None:
        super().__init__(_Mocks(recording, unknown=unknown))
        self.recording = recording

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        qualified = parent.split("::")[2] if parent else ""
        prefix = "" if qualified in ("", "pulumi:pulumi:Stack") else qualified + "$"
        return f"urn:pulumi:{settings.get_stack()}::{settings.get_project()}::{prefix}{type_}::{name}"

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 - the monitor's own name
        response = super().RegisterResource(request)
        # The engine marks what a resource type declares secret; mocks hand it out bare.
        for key in set(request.additionalSecretOutputs) & set(response.object):
            bare = struct_pb2.Value()
            bare.CopyFrom(response.object.fields[key])
            response.object.fields[key].struct_value.fields[SIGNATURE].string_value = SECRET
            response.object.fields[key].struct_value.fields["value"].CopyFrom(bare)
        if request.type != "pulumi:pulumi:Stack":
            assert response.urn not in {r.urn for r in self.recording.resources}, (
                f"Duplicate resource URN {response.urn}"
            )
            self.recording.resources.append(
                Registered(
                    type=request.type,
                    name=request.name,
                    urn=response.urn,
                    parent=request.parent,
                    custom=request.custom,
                    inputs=_tidy(_plain(request.object)),
                    request=request,
                )
            )
        return response

    def RegisterResourceOutputs(self, request: Any) -> Any:  # noqa: N802
        plain = _plain(request.outputs)
        self.recording.registered_outputs[request.urn] = _tidy(plain)
        self.recording.shown_outputs[request.urn] = _tidy(_shown(plain))
        return super().RegisterResourceOutputs(request)


class _Mocks(mocks.Mocks):
    def __init__(self, recording: Recording, *, unknown: bool) -> None:
        self.recording, self.unknown = recording, unknown

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        if self.unknown and args.custom:
            return None, dict(args.inputs)
        fake = FAKES.get(args.typ, dict)
        return f"{args.name}-id", fake(args.inputs)

    def call(self, args: mocks.MockCallArgs) -> Any:
        if args.token == "pulumi:pulumi:readStackOutputs":
            return {**args.args, "outputs": dict(self.recording.was), "secretOutputNames": []}
        raise AssertionError(f"the program called {args.token}, which the harness has no answer for")


def deploy(
    program: Callable[[], Any] | Mapping[str, Any] | str,
    *,
    preview: bool = False,
    unknown: bool = False,
    was: Mapping[str, Any] | None = None,
) -> Recording:
    """Run a program and record it: a function, or the project's own with the settings of a stack.

    Settings are given as a stack file has them under `config:`, or by the name of a stack of this repository.
    `preview` is what `pulumi preview` is to the program; `unknown` leaves every output of every resource unknown too.
    `was` are the stack's outputs of the run before.
    """
    recording = Recording(was=was or {})
    name = program if isinstance(program, str) else "test"
    if callable(program):
        config, run = {}, program
    else:
        config = stack_config(program) if isinstance(program, str) else as_text(program)

        def run() -> None:
            runpy.run_path(str(ROOT / "__main__.py"), run_name="__main__")

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    # The monitor's methods are functions of this process, which take no time.
    loop.set_default_executor(InlineExecutor())
    # A failed registration fails its waiters too; asyncio would print each of them again whenever it is collected.
    loop.set_exception_handler(lambda _, context: recording.logs.append(str(context.get("message"))))
    monitor, full_key = _Monitor(recording, unknown=unknown), pulumi.Config.full_key

    def noted(own: pulumi.Config, key: str) -> str:
        recording.read.add(full := full_key(own, key))
        return full

    mocks.set_mocks(monitor.mocks, project="hpc", stack=name, preview=preview or unknown, monitor=monitor)
    try:
        pulumi.runtime.set_all_config(config)
        settings.ROOT.set(None)  # set_mocks made an empty one; the program gets one of its own
        # A stack trace for each resource is a fifth of the time, and nobody looks at it.
        with (
            mock.patch("components.gcp.access.open_tunnel", recording.opened),
            mock.patch("pulumi.runtime.resource._get_stack_trace", source_pb2.StackTrace),
            mock.patch("pulumi.Config.full_key", noted),
            mock.patch("pulumi.runtime.mocks._sync_await", _result),
        ):
            loop.run_until_complete(run_in_stack(run))
        recording.outputs = next((v for k, v in recording.registered_outputs.items() if "pulumi:pulumi:Stack" in k), {})
    finally:
        settings.reset_options()
        loop.close()
        asyncio.set_event_loop(None)
    return recording


def _result(serialization: Coroutine[Any, Any, Value]) -> Value:
    """Return the serialized outputs of a mock, which are plain values.

    The SDK would run the event loop for them, inside of the one that runs: that starts more registrations, each with a
    loop inside of it, until Python's limit of recursion is reached, and the program waits for ever.
    """
    try:
        serialization.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("outputs of a mock are not plain values: their serialization waits")


def stack_config(name: str) -> dict[str, str]:
    """The settings of a stack of this repository, as the SDK gets them."""
    return as_text(yaml.safe_load((ROOT / f"Pulumi.{name}.yaml").read_text()).get("config", {}))


def as_text(given: Mapping[str, Any]) -> dict[str, str]:
    """Settings as the SDK gets them: every value a text, objects as JSON."""
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()}


def stacks() -> Iterator[str]:
    """The names of the stacks that this repository ships."""
    for path in sorted(ROOT.glob("Pulumi.*.yaml")):
        yield path.name.removeprefix("Pulumi.").removesuffix(".yaml")


def _plain(struct: Any) -> dict[str, Any]:
    return json_format.MessageToDict(struct)


def _has_secret(value: Any) -> bool:
    if isinstance(value, Mapping):
        return SECRET in value.values() or any(_has_secret(v) for v in value.values())
    if isinstance(value, list):
        return any(_has_secret(v) for v in value)
    return False


def _shown(value: Any) -> Any:
    if isinstance(value, Mapping):
        return None if SECRET in value.values() else {k: _shown(v) for k, v in value.items()}
    return [_shown(v) for v in value] if isinstance(value, list) else value


def _tidy(value: Any) -> Any:
    """Wire values as a reader expects them: whole numbers as int, secrets unwrapped, unknowns as None."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return _tidy(value["value"]) if SECRET in value.values() else {k: _tidy(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_tidy(v) for v in value]
    return None if value == UNKNOWN else value


@contextmanager
def provider_process() -> Iterator[provider_pb2_grpc.ResourceProviderStub]:
    """The process that the Pulumi CLI runs dynamic providers in, which is the SDK's."""
    command = [sys.executable, "-m", "pulumi.dynamic", "127.0.0.1:1"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout
        with grpc.insecure_channel(f"127.0.0.1:{process.stdout.readline().strip()}") as channel:
            stub = provider_pb2_grpc.ResourceProviderStub(channel)
            stub.Configure(provider_pb2.ConfigureRequest(args=struct_pb2.Struct()))
            yield stub
        process.terminate()
