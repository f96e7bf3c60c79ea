"""Kubernetes' events of an object, as lines of text."""

from collections.abc import Iterable, Mapping
from typing import Any


def last_lines(events: Iterable[Mapping[str, Any]], count: int) -> list[str]:
    """Reason and message of the last `count` events, the newest last."""
    ordered = sorted(events, key=lambda one: str(one.get("lastTimestamp") or one.get("eventTime") or ""))
    return [" ".join(f"{one.get('reason', '')}: {one.get('message', '')}".split()) for one in ordered[-count:]]


def selector(kind: str, name: str) -> str:
    """The option of `kubectl get events` that selects those of one object."""
    return f"--field-selector=involvedObject.kind={kind},involvedObject.name={name}"
