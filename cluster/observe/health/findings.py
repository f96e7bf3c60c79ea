"""Everything that is wrong with a cluster: the worst first, and like things of many machines as one."""

from collections.abc import Callable, Iterable

from cluster.observe.health import daemons, disks, machines, munge, nodes, versions
from cluster.observe.health.finding import Finding
from cluster.observe.observation import ClusterObservation

CHECKS: tuple[Callable[[ClusterObservation], Iterable[Finding]], ...] = (
    machines.unreachable,
    machines.late,
    daemons.controller,
    daemons.munged,
    munge.keys,
    munge.clocks,
    machines.cut_off,
    nodes.lost,
    machines.cluster_state,
    machines.not_set_up,
    nodes.drained,
    nodes.held,
    nodes.missing,
    daemons.records,
    disks.missing,
    disks.full,
    daemons.restarting,
    versions.outdated,
    versions.old_packages,
    versions.old_kernels,
)
"""In the order in which their findings are shown: causes before their effects."""


def findings(seen: ClusterObservation) -> list[Finding]:
    """What is wrong; empty when all is well. A pure function."""
    return together([found for check in CHECKS for found in check(seen)])


def together(found: list[Finding]) -> list[Finding]:
    """One finding for what is the same on many machines, with the command for the first of them."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for one in found:
        alike = one.what.replace(one.where[0], "")
        groups.setdefault((one.id, alike), []).append(one)
    return [_one(group) for group in groups.values()]


def _one(group: list[Finding]) -> Finding:
    first = group[0]
    if len(group) == 1:
        return first
    times = [one.since for one in group if one.since is not None]
    return Finding(
        id=first.id,
        where=tuple(name for one in group for name in one.where),
        what=first.what,
        todo=first.todo,
        note=first.note,
        since=min(times, default=None),
    )
