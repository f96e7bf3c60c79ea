"""The base of our dynamic resources.

Their providers are pickled into the state by reference, so they are classes of importable modules without state of
their own, and everything they need is in their plain inputs, such as the folder that a rehearsal lives in.
"""

import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pulumi
from pulumi.dynamic import DiffResult, ReadResult, Resource, ResourceProvider, UpdateResult

PROVIDER_KEY = "__provider"  # the property that pulumi.dynamic adds


def report(message: str) -> None:
    pulumi.log.info(message)


def given(props: Mapping[str, Any]) -> dict[str, Any]:
    """Properties without the pickled provider."""
    return {name: value for name, value in props.items() if name != PROVIDER_KEY}


def changed(olds: Mapping[str, Any], news: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Return which of the inputs called `names` differ."""
    return [name for name in names if olds.get(name) != news.get(name)]


@contextmanager
def without_traceback(kind: type[Exception]) -> Iterator[None]:
    """Show an error of that kind by its message alone.

    The Pulumi CLI runs providers in a process that prints the traceback of what they raise, with those of its causes.
    """
    try:
        yield
    except kind as error:
        if hasattr(sys.modules["__main__"], "DynamicResourceProviderServicer"):
            sys.tracebacklimit = 0
        raise kind(str(error)) from None


class ActionProvider(ResourceProvider):
    """A provider of resources that act and create nothing that could be read: the state keeps their inputs."""

    LEAVES_NOTHING = True
    """A creation that was interrupted has nothing to be removed."""
    ACTED_ON: tuple[str, ...] = ()
    """Inputs whose change is an update. Changes of the others are not, unless none is named here."""
    PLACE: tuple[str, ...] = ()
    """Inputs whose change is another resource, in the place of the old one."""

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Return whether an input changed that is acted on, or the place."""
        replaces = changed(_olds, _news, self.PLACE)
        acted = bool(changed(_olds, _news, self.ACTED_ON)) if self.ACTED_ON else None
        return DiffResult(changes=bool(replaces) or acted, replaces=replaces)

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Record the inputs."""
        return UpdateResult(given(_news))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """Return what the state has."""
        return ReadResult(id_, given(props))


class DynamicResource(Resource):
    """A resource whose provider is a class of this program."""

    def __init__(
        self, provider: ResourceProvider, name: str, props: dict[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        with _pickler_restored():
            super().__init__(provider, name, props, opts)


@contextmanager
def _pickler_restored() -> Iterator[None]:
    """Undo what the SDK does to pickle's Pickler.

    Each dynamic resource wraps its methods once more (pulumi 3.272, dynamic.serialize_provider), so that the nine
    hundredth or so would end in a RecursionError, and every one would be slower than the one before.
    """
    pickler: Any = getattr(pickle, "_Pickler")  # noqa: B009 - private, as is what the SDK changes
    kept = {name: getattr(pickler, name) for name in ("_batch_setitems", "save_dict")}
    try:
        yield
    finally:
        for name, method in kept.items():
            setattr(pickler, name, method)
