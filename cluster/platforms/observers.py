"""The observers of clusters whose machines have no set-up of this program, by platform."""

from collections.abc import Callable, Mapping
from typing import Any

from cluster.platforms.observer import Observer


def _nebius() -> Observer:
    from cluster.platforms.nebius.observer import SoperatorObserver

    return SoperatorObserver()


OBSERVERS: Mapping[str, Callable[[], Observer]] = {"nebius": _nebius}
"""Functions that import the observer of a platform and return it."""


def observer_of(outputs: Mapping[str, Any]) -> Observer | None:
    """Return the observer of a stack that is up, from its outputs; None where machines report themselves."""
    observer = OBSERVERS.get((outputs.get("platform") or {}).get("name", ""))
    return observer() if observer else None
