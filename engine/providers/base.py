"""The base classes of providers, and the provider of types that are not embedded."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from engine.core.diff import Diff, differences
from engine.errors import EngineError
from engine.values import Props


class InputCheckError(EngineError):
    """The inputs of a resource are not allowed."""


@dataclass(frozen=True)
class Context:
    """The resource of a step, and what its provider may use of the run. `timeout` is in seconds (customTimeouts), None
    for no limit. `log(severity, message, ephemeral=False)` shows a line beside the resource. `stopped()` returns
    whether the user has asked to stop, so that a step that only waits can end."""

    urn: str
    type: str
    name: str
    log: Callable[..., None]
    timeout: float | None = None
    stopped: Callable[[], bool] = lambda: False


class Provider:
    """Creates, updates and deletes resources of some types. Arguments and results are plain values.

    A run may be killed at any moment and must be resumable. So `create` takes over what an interrupted `create` with
    the same inputs left, `delete` succeeds if the resource does not exist, and a `create` that raises must leave
    nothing behind. A preview calls only `check` and `diff`.
    """

    readable = False
    """True if `read` is implemented."""

    def hidden(self, inputs: Props) -> Props:
        """Return the inputs whose secrets are removed from messages; by default all."""
        return inputs

    def check(self, ctx: Context, olds: Props, news: Props) -> Props:  # noqa: ARG002
        """Return the inputs to use, with defaults filled in. Raises InputCheckError."""
        return news

    def diff(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Diff:  # noqa: ARG002
        """Return whether the new inputs update or replace the resource. Called in each run, also for equal inputs."""
        return Diff()

    def create(self, ctx: Context, news: Props) -> tuple[str, Props]:
        """Create the resource. Returns its id and outputs. The text of any exception is shown."""
        raise NotImplementedError

    def update(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Props:
        """Update the resource in place. Returns its new outputs."""
        raise NotImplementedError

    def delete(self, ctx: Context, id_: str, inputs: Props, outputs: Props) -> None:
        """Delete the resource. By default this does nothing, as some resources are in the state only."""

    def trivial(self, kind: str, inputs: Props) -> bool:  # noqa: ARG002
        """Return whether a step (creating, updating, deleting) changes nothing outside of the state. Such a step need
        not be recorded before it begins, and is written with the next one."""
        return False

    def read(self, ctx: Context, id_: str, inputs: Props, outputs: Props) -> tuple[str, Props, Props] | None:
        """Return the resource's actual id, inputs and outputs; None if it does not exist."""
        raise NotImplementedError

    def abandon(self, ctx: Context, inputs: Props, existing_ids: frozenset[str]) -> None:
        """Remove what an interrupted `create` may have left, for a resource that is no longer declared. `existing_ids`
        are the ids of this type in the state: they belong to other resources and stay."""
        id_, outputs = self.create(ctx, inputs)
        if id_ in existing_ids:
            ctx.log("warning", f"its interrupted creation left nothing of its own: {id_} belongs to another")
            return
        self.delete(ctx, id_, inputs, outputs)


class StateOnly(Provider):
    """Base of providers whose resources are in the state only. A changed input replaces the resource."""

    def diff(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Diff:  # noqa: ARG002
        return Diff(replaces=changed_inputs(olds, news))

    def update(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Props:  # noqa: ARG002
        return {**outputs, **news}

    def abandon(self, ctx: Context, inputs: Props, existing_ids: frozenset[str]) -> None:
        """Do nothing: the resource is in the state only."""


def changed_inputs(olds: Props, news: Props) -> tuple[str, ...]:
    """Return the names of the inputs that differ."""
    return tuple(dict.fromkeys(change.path.split(".")[0].split("[")[0] for change in differences(olds, news)))


class Foreign(Provider):
    """A provider that is not embedded: its resources are previewed with unknown outputs, and never created."""


FRAMEWORKS = {("command", "1.2.1"): "1.2.0"}
"""Providers built on pulumi-go-provider, by package and version, with the version that this framework writes into the
state. Its v1.3.0, which provider/go.mod of pulumi-command 1.2.1 requires, has 1.2.0 in the file .version."""
_INTERNAL, _FRAMEWORK = "__internal", "__pulumi-go-provider-version"
"""Keys of a provider resource: the engine's own, which is not an output, and the framework's."""


class ProviderResource(Provider):
    """The provider of provider resources, which are only recorded with their settings."""

    def create(self, ctx: Context, news: Props) -> tuple[str, Props]:
        return str(uuid.uuid4()), self.update(ctx, "", {}, {}, news)

    def update(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Props:  # noqa: ARG002
        return {key: value for key, value in news.items() if key != _INTERNAL}


def provider_properties(package: str, version: str, settings: Props, old_inputs: Props) -> tuple[Props, Props]:
    """Return inputs and outputs of a provider resource. Internal keys of `old_inputs` stay, since the CLI that wrote
    them may have run another build (pkg/resource/deploy/providers/registry.go: `__internal` comes with a version)."""
    if not version:
        return settings, settings
    framework = FRAMEWORKS.get((package, version))
    internal: Props = {_FRAMEWORK: framework} if framework else {}
    internal |= {key: value for key, value in old_inputs.items() if key.startswith("__") and key != _INTERNAL}
    outputs = {**internal, **settings, "version": version}
    return {_INTERNAL: old_inputs.get(_INTERNAL, {}), **outputs}, outputs
