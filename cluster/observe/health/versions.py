"""Machines with another config version or other files of Slurm than the controller, and those with old packages."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from cluster.catalog.recipes import OLDEST_KERNEL
from cluster.observe.health.finding import Finding
from cluster.observe.observation import ClusterObservation, MachineObservation

DAY = 86400
OLDEST = 60
"""Days after which old packages are a finding. Ubuntu publishes security updates nearly every week."""


def outdated(seen: ClusterObservation) -> Iterator[Finding]:
    """Machines that are behind the controller."""
    newest = (seen.controller.part("board", "newest") or {}).get("digest")
    files = seen.controller.part("files", "etc") or {}
    served = {name: files.get(name) for name in seen.controller.part("files", "applied") or {}}
    for one in seen.machines:
        if not one.has_facts:
            continue
        why = [*_files(one, served), *_version(one, newest)]
        if why:
            yield Finding(
                id="old-config",
                where=(one.name,),
                what=f"has another configuration than the controller: {'; '.join(why)}",
                todo=f"./hpc drift {seen.stack}",
                note=f"It shows what differs; ./hpc drift {seen.stack} --mend makes it as the stack says.",
            )


def _files(one: MachineObservation, served: dict[str, str | None]) -> Iterator[str]:
    cached = one.part("files", "cache") or {}
    # A node that shares the controller's machine reads the controller's own files.
    if "node" not in one.roles or not cached or not served:
        return
    differing = sorted(name for name, value in served.items() if value is not None and cached.get(name) != value)
    if differing:
        yield f"its slurmd's {', '.join(differing)} differ{'s' * (len(differing) == 1)} from the controller's"


def _version(one: MachineObservation, newest: str | None) -> Iterator[str]:
    report = one.report
    # A login machine is configured by its own command of `up`, not by the config version.
    if not newest or "node" not in one.roles or report.get("state") == "failed":
        return
    if report and report.get("digest") != newest:
        yield f"it reported config version {report.get('digest') or 'unknown'}, the controller has {newest}"
    elif one.roles == ("node",) and (followed := one.part("followed")) is not None and followed != newest:
        yield f"it applied config version {followed or 'none'}, the controller has {newest}"


def old_packages(seen: ClusterObservation) -> Iterator[Finding]:
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
                id="image-old",
                where=(one.name,),
                what=f"its packages are of {day}, {days} days ago: security updates since then are missing",
                todo=f"./hpc preview {seen.stack}",
                note="After writing a later day as image.snapshot in the stack file: another image is baked then, and "
                "machines are recreated from it, nodes as their jobs end (docs/guides/google-cloud.md).",
                since=since,
            )


def old_kernels(seen: ClusterObservation) -> Iterator[Finding]:
    """Machines whose kernel, which is held, lacks the fixes of too long a time."""
    for one in seen.machines:
        day = (one.part("image") or {}).get("kernel")
        since = datetime.strptime(f"{day}+0000", "%Y-%m-%d%z").timestamp() if day else one.answered
        days = int((one.answered - since) // DAY)
        if days > OLDEST_KERNEL:
            yield Finding(
                id="kernel-old",
                where=(one.name,),
                what=f"its kernel is of {day}, {days} days ago: security fixes since then are missing",
                todo=f"./hpc preview {seen.stack}",
                note="After writing a newer image.recipe in the stack file: its kernel comes with another image, and "
                "machines are recreated from it, nodes as their jobs end (docs/guides/google-cloud.md).",
                since=since,
            )


def _since(image: Mapping[str, Any]) -> float | None:
    """Of when the packages are: the date of Ubuntu's archive, else when the image was made."""
    try:
        return datetime.strptime(f"{image.get('snapshot')}+0000", "%Y%m%dT%H%M%SZ%z").timestamp()
    except ValueError:
        return image.get("made")
