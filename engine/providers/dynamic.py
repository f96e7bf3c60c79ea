"""Dynamic providers (`pulumi.dynamic`): Python objects, pickled in the property `__provider`.

They are called as by the CLI's dynamic provider plugin, but in this process. Their `create` must take over what an
interrupted one left (see `Provider`): after a kill it is called again with the same properties.
"""

import base64
import threading

import dill
from pulumi.dynamic import Config, ConfigureRequest, ResourceProvider
from pulumi.runtime import _serialization, rpc

from engine.core.diff import Diff
from engine.errors import EngineError
from engine.providers.base import Context, InputCheckError, Provider
from engine.values import UNKNOWN, Props, Value, from_struct, plain, to_struct

_KEY = "__provider"


class Dynamic(Provider):
    """Unpickles each provider once, and passes calls on to it."""

    readable = True

    def __init__(self, config: dict[str, Value], project: str) -> None:
        """`config` is the stack's, which providers get in `configure`."""
        self._config, self._project = config, project
        self._providers: dict[str, ResourceProvider] = {}
        self._lock = threading.Lock()

    def check(self, ctx: Context, olds: Props, news: Props) -> Props:  # noqa: ARG002
        provider = self._provider(olds, news)
        if type(provider).check is ResourceProvider.check:
            # The SDK's own check returns the inputs as they are. To call it took a fifth of a preview.
            return news
        result = provider.check(_decode(olds, unknowns=True), _decode(news, unknowns=True))
        if result.failures:
            raise InputCheckError("\n".join(f"{f.property}: {f.reason}" for f in result.failures))
        return self._encode(result.inputs, news)

    def diff(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Diff:  # noqa: ARG002
        # Dynamic providers get the old outputs, not the old inputs.
        provider = self._provider(outputs, news)
        result = provider.diff(id_, _decode(outputs, unknowns=True), _decode(news, unknowns=True))
        return Diff(result.changes, tuple(result.replaces or ()), bool(result.delete_before_replace))

    def create(self, ctx: Context, news: Props) -> tuple[str, Props]:  # noqa: ARG002
        result = self._provider(news, news).create(_decode(news))
        return str(result.id), self._encode(result.outs or {}, news)

    def update(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Props:  # noqa: ARG002
        result = self._provider(news, news).update(id_, _decode(outputs), _decode(news))
        return self._encode(result.outs or {}, news)

    def delete(self, ctx: Context, id_: str, inputs: Props, outputs: Props) -> None:  # noqa: ARG002
        self._provider(outputs, outputs).delete(id_, _decode(outputs))

    def read(self, ctx: Context, id_: str, inputs: Props, outputs: Props) -> tuple[str, Props, Props] | None:  # noqa: ARG002
        state = outputs or inputs
        result = self._provider(state, state).read(id_, _decode(state))
        if not result.id:
            return None
        return (
            str(result.id),
            self._encode(result.inputs, state) if result.inputs else inputs,
            self._encode(result.outs or {}, state),
        )

    def abandon(self, ctx: Context, inputs: Props, existing_ids: frozenset[str]) -> None:
        """Remove what an interrupted `create` left, except for providers with `LEAVES_NOTHING`: their `create` leaves
        nothing, and may wait for long when called."""
        if not getattr(self._provider(inputs, inputs), "LEAVES_NOTHING", False):
            super().abandon(ctx, inputs, existing_ids)

    def _provider(self, olds: Props, news: Props) -> ResourceProvider:
        text = news.get(_KEY)
        text = olds.get(_KEY) if text in (None, UNKNOWN) else text
        if not text:
            raise EngineError("a dynamic resource without its provider: the state was not made by Pulumi")
        with self._lock:
            if text not in self._providers:
                provider = _serialization._deserialize(lambda: dill.loads(base64.b64decode(text)))  # noqa: S301, SLF001
                provider.configure(ConfigureRequest(Config(self._config, self._project)))
                self._providers[text] = provider
            return self._providers[text]

    @staticmethod
    def _encode(result: Value, props: Props) -> Props:
        """Convert a provider's result to properties, with the pickled provider in `props`."""
        coroutine = rpc.serialize_properties({**result, _KEY: props.get(_KEY)}, {})
        # Providers return plain values, so the coroutine never waits.
        try:
            coroutine.send(None)
        except StopIteration as done:
            return from_struct(done.value)
        raise EngineError("a dynamic provider returned an Output; it must return plain values")


def _decode(props: Props, *, unknowns: bool = False) -> dict[str, Value]:
    return rpc.deserialize_properties(to_struct(plain(props)), unknowns)
