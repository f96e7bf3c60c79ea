"""Machines whose packages are as old as their image."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from cluster.observe.health.finding import Finding
from cluster.observe.observation import ClusterObservation

DAY = 86400
OLDEST = 60
"""Days after which it is told. Ubuntu publishes security updates of what an image has nearly every week."""


def old(seen: ClusterObservation) -> Iterator[Finding]:
    """Machines that take no security updates by themselves, and have had none for too long."""
    for one in seen.machines:
        image = one.part("image") or {}
        since = _since(image)
        if not image.get("baked") or since is None:
            continue
        days = int((one.answered - since) // DAY)
        if days > OLDEST:
            day = datetime.fromtimestamp(since, tz=timezone.utc).date()
            yield Finding(
                id="image-old", where=(one.name,),
                what=f"its packages are of {day}, {days} days ago: security updates since then are missing",
                todo=f"./hpc preview {seen.stack}",
                note="After writing a later day as image.snapshot in the stack file: another image is baked then, and "
                "machines are recreated from it, nodes as their jobs end (docs/gcp/how-to.md).",
                since=since,
            )  # fmt: skip


def _since(image: Mapping[str, Any]) -> float | None:
    """Of when the packages are: the date of Ubuntu's archive, else when the image was made."""
    try:
        return datetime.strptime(f"{image.get('snapshot')}+0000", "%Y%m%dT%H%M%SZ%z").timestamp()
    except ValueError:
        return image.get("made")
