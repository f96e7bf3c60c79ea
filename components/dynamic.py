"""Base classes of dynamic resources.

Their providers are pickled into the state by reference. So they are classes of importable modules, have no attributes,
and read everything from their inputs, such as the folder of a rehearsal.
"""

import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, Resource, ResourceProvider, UpdateResult

PROVIDER_KEY = "__provider"  # the property that pulumi.dynamic adds


def report(message: str) -> None:
    pulumi.log.info(message)


def given(props: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties without the pickled provider."""
    return {name: value for name, value in props.items() if name != PROVIDER_KEY}


def changed(olds: Mapping[str, Any], news: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Return the names of the inputs that differ, out of `names`."""
    return [name for name in names if olds.get(name) != news.get(name)]


@contextmanager
def without_traceback(kind: type[Exception]) -> Iterator[None]:
    """Show an error of this type without a traceback.

    The Pulumi CLI runs providers in a process that prints the traceback of what they raise, with those of its causes.
    """
    try:
        yield
    except kind as error:
        if hasattr(sys.modules["__main__"], "DynamicResourceProviderServicer"):
            sys.tracebacklimit = 0
        raise kind(str(error)) from None


class ActionProvider(ResourceProvider):
    """A provider of resources that run the same action at their creation and at each update. They create nothing that
    could be read: the state has their inputs. A deletion does nothing."""

    ID: ClassVar[str]
    """The resource's id, a format string with its inputs."""
    LEAVES_NOTHING = True
    """True: after an interrupted creation nothing needs to be removed."""
    ACTED_ON: ClassVar[tuple[str, ...] | None] = None
    """Inputs whose change is an update; None for all inputs."""
    PLACE: ClassVar[tuple[str, ...]] = ()
    """Inputs whose change is a replacement."""
    DELETED_FIRST = False
    """True if the old resource is deleted before the new one is created."""

    def act(self, news: Mapping[str, Any], olds: Mapping[str, Any] | None, /) -> Mapping[str, Any] | None:
        """Run the action and return outputs besides the inputs. `olds` is None at the creation."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        inputs = given(props)
        return CreateResult(self.ID.format(**inputs), {**inputs, **(self.act(inputs, None) or {})})

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Return whether an input of ACTED_ON or PLACE has changed."""
        replaces = changed(_olds, _news, self.PLACE)
        acted = None if self.ACTED_ON is None else bool(changed(_olds, _news, self.ACTED_ON))
        changes = bool(replaces) or acted
        return DiffResult(changes=changes, replaces=replaces, delete_before_replace=self.DELETED_FIRST)

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        inputs = given(_news)
        return UpdateResult({**inputs, **(self.act(inputs, given(_olds)) or {})})

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """Return the inputs in the state."""
        return ReadResult(id_, given(props))


class DynamicResource(Resource):
    """A resource whose provider is a class of this program."""

    def __init__(
        self, provider: ResourceProvider, name: str, props: dict[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        with pickler_restored():
            super().__init__(provider, name, props, opts)


class ActionResource(DynamicResource):
    """A resource whose inputs are keyword arguments. The docstring of each class describes them."""

    PROVIDER: ClassVar[type[ActionProvider]]
    OUTPUTS: ClassVar[tuple[str, ...]] = ()
    """Keys that `act` returns."""

    def __init__(
        self, name: str, /, *, opts: pulumi.ResourceOptions | None = None, **inputs: pulumi.Input[Any]
    ) -> None:
        super().__init__(self.PROVIDER(), name, {**inputs, **dict.fromkeys(self.OUTPUTS)}, opts)


@contextmanager
def pickler_restored() -> Iterator[None]:
    """Undo the SDK's changes of pickle's Pickler.

    Each dynamic resource wraps its methods once more (pulumi 3.272, dynamic.serialize_provider). So each resource would
    be slower than the one before, and after about nine hundred there would be a RecursionError.
    """
    pickler: Any = getattr(pickle, "_Pickler")  # noqa: B009 - private, as is what the SDK changes
    kept = {name: getattr(pickler, name) for name in ("_batch_setitems", "save_dict")}
    try:
        yield
    finally:
        for name, method in kept.items():
            setattr(pickler, name, method)
