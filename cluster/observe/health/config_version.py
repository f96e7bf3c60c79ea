"""Machines with another config version, or with other files of Slurm, than the controller."""

from collections.abc import Iterator

from cluster.observe.health.finding import Finding
from cluster.observe.observation import ClusterObservation, MachineObservation


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
                id="old-config", where=(one.name,),
                what=f"has another configuration than the controller: {'; '.join(why)}",
                todo=f"./hpc drift {seen.stack}",
                note=f"It shows what differs; ./hpc drift {seen.stack} --mend makes it as the stack says.",
            )  # fmt: skip


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
