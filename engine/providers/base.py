"""The base class of providers, and the provider of all that is not embedded."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from engine.core.diff import Diff
from engine.errors import EngineError
from engine.values import Props


class UnfinishedStepError(EngineError):
    """A creation failed and left something. The state keeps its note, as after a kill: the next run resumes it, or
    removes what it left."""


@contextmanager
def unfinished(is_left: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Raise errors of this block as UnfinishedStepError, unless it is known that nothing is left of the step."""
    try:
        yield
    except EngineError as error:
        try:
            left = is_left()
        except EngineError:
            left = True
        if left:
            raise UnfinishedStepError(str(error)) from None
        raise


class InputCheckError(EngineError):
    """The inputs of a resource are not acceptable."""


@dataclass(frozen=True)
class Context:
    """The facts about the resource at hand that a provider may use. `timeout` is in seconds (customTimeouts), None for
    no limit; `log(severity, message, ephemeral=False)` shows a line beside the resource; `stopped()` says whether the
    user has asked to stop, so that what merely waits may give up. `settings()` are the inputs of the resource's own
    provider resource (`pulumi:providers:...`)."""

    urn: str
    type: str
    name: str
    log: Callable[..., None]
    timeout: float | None = None
    stopped: Callable[[], bool] = lambda: False
    settings: Callable[[], Props] = dict


class Provider:
    """Creates, updates and deletes resources of some types. Properties come and go as plain values.

    The rule that keeps runs resumable: a run may be killed at any moment. So `create` takes over what an interrupted
    `create` with the same inputs left, `delete` succeeds if there is nothing left to delete, and a `create` that
    raises anything but UnfinishedStepError has left nothing. All but `check` and `diff` are called in updates only,
    never in a preview.
    """

    readable = False
    """True if `read` is implemented."""

    def hidden(self, inputs: Props) -> Props:
        """The inputs whose secrets no message may show: all, unless a provider says which."""
        return inputs

    def check(self, ctx: Context, olds: Props, news: Props) -> Props:  # noqa: ARG002
        """Return the inputs to use, with defaults filled in. Raises InputCheckError."""
        return news

    def diff(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Diff:  # noqa: ARG002
        """Return what the new inputs mean for the resource. Asked in each run, also if the inputs are what they
        were."""
        return Diff()

    def create(self, ctx: Context, news: Props) -> tuple[str, Props]:
        """Create the resource: its id and outputs. The text of any exception is shown."""
        raise NotImplementedError

    def update(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Props:
        """Update the resource in place: its new outputs."""
        raise NotImplementedError

    def delete(self, ctx: Context, id_: str, inputs: Props, outputs: Props) -> None:
        """Delete the resource; by default nothing, as some resources are in the state only."""

    def trivial(self, kind: str, inputs: Props) -> bool:  # noqa: ARG002
        """Return whether a step (creating, updating, deleting) changes nothing outside of the state. Then a run that is
        killed may forget it, and it costs no writing of its own."""
        return False

    def read(self, ctx: Context, id_: str, inputs: Props, outputs: Props) -> tuple[str, Props, Props] | None:
        """Read the resource: its id, inputs and outputs as they really are, or None if it is gone."""
        raise NotImplementedError

    def abandon(self, ctx: Context, inputs: Props, held: frozenset[str]) -> None:
        """Remove what an interrupted `create` may have left, for a resource that is no longer declared. `held` are
        the ids of its type that the state holds: those belong to other resources and stay."""
        id_, outputs = self.create(ctx, inputs)
        if id_ in held:
            ctx.log("warning", f"its interrupted creation left nothing of its own: {id_} belongs to another")
            return
        self.delete(ctx, id_, inputs, outputs)


class Foreign(Provider):
    """A provider that is not embedded: previewed with its outputs unknown, never run."""


class Previewed(Foreign):
    """Previews by a provider that can't run here: it checks and compares inputs as where it can."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    def check(self, ctx: Context, olds: Props, news: Props) -> Props:
        try:
            return self._provider.check(ctx, olds, news)
        except InputCheckError:  # the Pulumi CLI may accept what this engine does not
            return news

    def diff(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Diff:
        return self._provider.diff(ctx, id_, olds, outputs, news)


FRAMEWORKS = {("command", "1.2.1"): "1.2.0"}
"""Providers built on pulumi-go-provider, by package and version, with what that framework says of its own version: the
file .version of its v1.3.0, which provider/go.mod of pulumi-command 1.2.1 names, and what the CLI writes with it."""
_INTERNAL, _FRAMEWORK = "__internal", "__pulumi-go-provider-version"
"""Keys of a provider resource: the engine's own, which is no output, and what the framework writes."""


class ProviderResource(Provider):
    """Providers are resources too: they are recorded with their settings, and there is nothing to do for it."""

    def create(self, ctx: Context, news: Props) -> tuple[str, Props]:
        return str(uuid.uuid4()), self.update(ctx, "", {}, {}, news)

    def update(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Props:  # noqa: ARG002
        return {key: value for key, value in news.items() if key != _INTERNAL}


def provider_properties(package: str, version: str, settings: Props, was: Props) -> tuple[Props, Props]:
    """Inputs and outputs of a provider resource, which had the inputs `was`: what the CLI wrote stays, since it may
    have run another build. (pkg/resource/deploy/providers/registry.go: `__internal` comes with a version.)"""
    if not version:
        return settings, settings
    framework = FRAMEWORKS.get((package, version))
    notes: Props = {_FRAMEWORK: framework} if framework else {}
    notes |= {key: value for key, value in was.items() if key.startswith("__") and key != _INTERNAL}
    outputs = {**notes, **settings, "version": version}
    return {_INTERNAL: was.get(_INTERNAL, {}), **outputs}, outputs
