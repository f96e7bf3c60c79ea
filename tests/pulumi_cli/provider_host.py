"""Plugins of the Pulumi CLI that serve the embedded engine's providers: command, random and tls, which no registry of
packages has as programs. Other packages get the least that a preview needs: inputs are kept as they are.

With it a test compares the two engines; that the providers do what the real ones do is for `./hpc test --outside
pulumi=FOLDER`.
"""

import importlib.metadata
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from engine.core.diff import differences
from engine.errors import EngineError
from engine.providers import Providers
from engine.providers.base import Context, Foreign, InputCheckError, Provider
from engine.values import Props, from_struct, is_secret, plain, secret, to_struct
from tests.pulumi_cli.plugin import serve

_INTERNAL: dict[str, Props] = {"command": {"__pulumi-go-provider-version": "1.2.0"}}
"""What a provider adds to its own settings. pulumi-command 1.2.1 is built on pulumi-go-provider v1.3.0 (go.mod of its
provider), whose file .version has 1.2.0, and which adds it in CheckConfig (infer/configuration.go)."""
_CHANGES = {
    True: provider_pb2.DiffResponse.DIFF_SOME,
    False: provider_pb2.DiffResponse.DIFF_NONE,
}


Method = TypeVar("Method", bound=Callable[..., Any])


def _answered(method: Method) -> Method:
    """Answer with the text of an error that is meant for the user."""

    @wraps(method)
    def answer(self: Any, request: Any, context: Any) -> Any:
        try:
            return method(self, request, context)
        except EngineError as error:
            return context.abort(grpc.StatusCode.UNKNOWN, str(error))

    return cast("Method", answer)


class Plugin(provider_pb2_grpc.ResourceProviderServicer):
    """One package."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._providers = Providers(Path.cwd(), {}, "")

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's names
        return plugin_pb2.PluginInfo(version=importlib.metadata.version(f"pulumi-{self._package}"))

    def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        inputs = {**from_struct(request.news), **_INTERNAL.get(self._package, {})}
        return provider_pb2.CheckResponse(inputs=to_struct(inputs))

    def Configure(self, request: Any, context: Any) -> Any:  # noqa: N802
        return provider_pb2.ConfigureResponse(acceptResources=True, acceptSecrets=self._keeps_secrets)

    @_answered
    def Invoke(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.tok != "command:local:run":
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{request.tok}: no such function here")
        provider: Any = self._providers.of("command:local:Command")
        result = provider.invoke(lambda *_words, **_options: None, plain(from_struct(request.args)))
        answer: dict[str, Any] = {"return": to_struct(result)}
        return provider_pb2.InvokeResponse(**answer)

    @_answered
    def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        provider, ctx = self._of(request)
        try:
            inputs = provider.check(ctx, _props(request.olds), _props(request.news))
        except InputCheckError as error:
            return provider_pb2.CheckResponse(failures=[provider_pb2.CheckFailure(reason=str(error))])
        return provider_pb2.CheckResponse(inputs=self._returned(inputs, request.news))

    @_answered
    def Diff(self, request: Any, context: Any) -> Any:  # noqa: N802
        provider, ctx = self._of(request)
        olds, news = _props(request.old_inputs), _props(request.news)
        diff = provider.diff(ctx, request.id, olds, _props(request.olds), news)
        changes = bool(differences(olds, news)) if diff.changes is None else diff.changes
        replaces = set(diff.replaces)
        # To the real provider a value that is secret differs from the same value that is not (diff in infer/resource.go
        # of pulumi-go-provider v1.3.0).
        if self._keeps_secrets and _raw(request.old_inputs, "triggers") != _raw(request.news, "triggers"):
            replaces.add("triggers")
        return provider_pb2.DiffResponse(
            changes=_CHANGES[changes or bool(replaces)],
            replaces=sorted(replaces),
            deleteBeforeReplace=diff.delete_first,
        )

    @_answered
    def Create(self, request: Any, context: Any) -> Any:  # noqa: N802
        provider, ctx = self._of(request)
        id_, outputs = provider.create(ctx, _props(request.properties))
        return provider_pb2.CreateResponse(id=id_, properties=self._returned(outputs, request.properties))

    @_answered
    def Update(self, request: Any, context: Any) -> Any:  # noqa: N802
        provider, ctx = self._of(request)
        old_inputs, outputs, news = (_props(bag) for bag in (request.old_inputs, request.olds, request.news))
        outputs = provider.update(ctx, request.id, old_inputs, outputs, news)
        return provider_pb2.UpdateResponse(properties=self._returned(outputs, request.news))

    @_answered
    def Delete(self, request: Any, context: Any) -> Any:  # noqa: N802
        provider, ctx = self._of(request)
        provider.delete(ctx, request.id, _props(request.old_inputs), _props(request.properties))
        return empty_pb2.Empty()

    def Read(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return the resource as it is in the state: none of these is anywhere else."""
        return provider_pb2.ReadResponse(id=request.id, properties=request.properties, inputs=request.inputs)

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802
        return empty_pb2.Empty()

    @property
    def _keeps_secrets(self) -> bool:
        """Whether the real provider gets secrets as such, and returns them so (AcceptSecrets in provider.go of
        pulumi-go-provider v1.3.0, on which pulumi-command 1.2.1 is built)."""
        return self._package == "command"

    def _returned(self, result: Props, given: Any) -> Any:
        return to_struct(_marked(result, from_struct(given)) if self._keeps_secrets else result)

    def _of(self, request: Any) -> tuple[Provider, Context]:
        provider = self._providers.of(request.type)
        if isinstance(provider, Foreign) and self._package in ("command", "random", "tls"):
            raise EngineError(f"{request.type}: no such type here")
        timeout = getattr(request, "timeout", 0) or None
        return provider, Context(request.urn, request.type, request.name, lambda *_words, **_options: None, timeout)


def _marked(value: Any, given: Any) -> Any:
    """Mark what is secret in `given` at the same place of a value, as infer/internal/ende of pulumi-go-provider v1.3.0
    does."""
    if is_secret(given):
        return secret(_marked(value, given["value"]))
    if isinstance(value, dict) and isinstance(given, dict):
        return {key: _marked(part, given.get(key)) for key, part in value.items()}
    if isinstance(value, list) and isinstance(given, list) and len(value) == len(given):
        return list(map(_marked, value, given))
    return value


def _raw(struct: Any, name: str) -> Any:
    return from_struct(struct).get(name)


def _props(struct: Any) -> Props:
    return plain(from_struct(struct))


def main(package: str, *_engine: str) -> None:
    """Serve a package until the CLI ends."""
    plugin = Plugin(package)
    serve(lambda server: provider_pb2_grpc.add_ResourceProviderServicer_to_server(plugin, server))
