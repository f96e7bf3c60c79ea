"""Machines that follow other orders, or other files of Slurm's, than the controller's."""

from collections.abc import Iterator

from cluster.observe.health.finding import Finding
from cluster.observe.observation import Sight, Sights


def old(seen: Sights) -> Iterator[Finding]:
    """Machines that are behind the controller."""
    newest = (seen.controller.part("board", "newest") or {}).get("digest")
    files = seen.controller.part("files", "etc") or {}
    served = {name: files.get(name) for name in seen.controller.part("files", "applied") or {}}
    for one in seen.machines:
        if not one.told:
            continue
        why = [*_files(one, served), *_orders(one, newest)]
        if why:
            yield Finding(
                id="old-config",
                where=(one.name,),
                what=f"follows another configuration than the controller: {'; '.join(why)}",
                todo=f"./hpc drift {seen.stack}",
                note=f"It tells what differs; ./hpc drift {seen.stack} --mend makes it as the stack says.",
            )


def _files(one: Sight, served: dict[str, str | None]) -> Iterator[str]:
    cached = one.part("files", "cache") or {}
    # A node that shares the controller's machine reads the controller's own files.
    if "node" not in one.roles or not cached or not served:
        return
    differing = sorted(name for name, value in served.items() if value is not None and cached.get(name) != value)
    if differing:
        yield f"its slurmd's {', '.join(differing)} differ{'s' * (len(differing) == 1)} from the controller's"


def _orders(one: Sight, newest: str | None) -> Iterator[str]:
    report = one.part("board", "report") or {}
    # A login machine is set up beside the controller, and told what holds by its own command: it follows no orders.
    if not newest or "node" not in one.roles or report.get("state") == "failed":
        return
    if report and report.get("digest") != newest:
        yield f"it reported orders {report.get('digest') or 'unknown'}, the controller's are {newest}"
    elif one.roles == ("node",) and (followed := one.part("followed")) is not None and followed != newest:
        yield f"it follows orders {followed or 'none'}, the controller's are {newest}"
