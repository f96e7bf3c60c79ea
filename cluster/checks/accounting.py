"""Accounts form a tree, and names are given once."""

from collections.abc import Iterator, Mapping

from cluster import people, roster
from cluster.checks.names import unknown
from cluster.config.accounting import Qos
from cluster.config.cluster import ClusterConfig
from cluster.findings import Finding, Location, listing, suggest


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    given = config.accounting
    yield from _twice("accounts", [one.name for one in given.accounts])
    yield from _twice("qos", [one.name for one in given.qos])
    parents = {one.name: one.parent for one in given.accounts}
    above = {name: (parent,) if parent else () for name, parent in parents.items()}
    doubtful = _in_circles(above)
    for position, account in enumerate(given.accounts):
        at = ("accounting", "accounts", position)
        if account.name == "root":
            yield Finding(
                id="account-root",
                at=(*at, "name"),
                given="root",
                allowed="any name but root, e.g. research",
                todo="rename the account: root is the top of Slurm's own tree",
            )
        if account.parent not in (None, "root", *parents):
            known = [name for name in parents if name != account.name]
            yield Finding(
                id="account-parent-unknown",
                at=(*at, "parent"),
                given=str(account.parent),
                allowed=f"root or an account that exists: {listing(known)}",
                todo=suggest(str(account.parent), known, f"define {account.parent}, or leave `parent` out"),
                missing=account.parent,
            )
        elif account.name in doubtful and (circle := _round(account.name, above)):
            yield Finding(
                id="account-circle",
                at=(*at, "parent"),
                given=str(account.parent),
                allowed="accounts that lead up to root",
                todo=f"break the circle {' -> '.join(circle)}: leave out one `parent`",
            )
    yield from _preemption(config)
    names = people.qos_names(config)
    preempted = {one.name: one.preempt for one in given.qos}
    doubtful = _in_circles(preempted)
    tracked = _tracked(config)
    for position, qos in enumerate(given.qos):
        at = ("accounting", "qos", position)
        yield from unknown((*at, "preempt"), qos.preempt, names, "a QOS", "accounting.qos")
        yield from _resources(tracked, at, qos)
        if qos.name in doubtful and (circle := _round(qos.name, preempted)):
            yield Finding(
                id="qos-circle",
                at=(*at, "preempt"),
                given=listing(qos.preempt),
                allowed="QOS that preempt no QOS which preempts them",
                todo=f"break the circle {' -> '.join(circle)}",
            )


def _preemption(config: ClusterConfig) -> Iterator[Finding]:
    """slurmctld does not start with preempt/qos and PreemptMode=OFF, and another PreemptType forgets what QOS say."""
    fits = {"preempttype": ("preempt/qos",), "preemptmode": ("CANCEL", "REQUEUE", "SUSPEND,GANG")}
    for name, value in config.slurm.extra.items():
        allowed = fits.get(name.lower())
        if allowed and people.preempts(config) and str(value).lower() not in {one.lower() for one in allowed}:
            yield Finding(
                id="preemption-settings",
                at=("slurm", "extra", name),
                given=str(value),
                allowed=f"{' or '.join(allowed)}, since a QOS of this cluster preempts others",
                todo="remove it, or take `preempt` out of accounting.qos",
            )


def _tracked(config: ClusterConfig) -> list[str]:
    kinds = {gpu.type for one in config.nodesets.values() if (gpu := roster.nodeset_gpu(config, one))}
    gpus = ["gres/gpu", *(f"gres/gpu:{kind}" for kind in sorted(kinds))] if kinds else []
    return ["cpu", "mem", "node", "billing", "energy", "fs/disk", *gpus]


def _resources(tracked: list[str], at: Location, qos: Qos) -> Iterator[Finding]:
    """sacctmgr refuses a limit on what slurmctld does not track, which would only show on the running cluster."""
    for key in ("max_tres_per_job", "max_tres_per_user", "grp_tres"):
        for name in getattr(qos, key):
            if name not in tracked:
                yield Finding(
                    id="qos-limit-untracked",
                    at=(*at, key, name),
                    given=name,
                    allowed=f"what this cluster has: {listing(tracked)}",
                    todo="remove the limit, or add nodes that have such GPUs",
                )


def _twice(key: str, names: list[str]) -> Iterator[Finding]:
    seen: set[str] = set()
    for position, name in enumerate(names):
        if name in seen:
            yield Finding(
                id="accounting-name-twice",
                at=("accounting", key, position, "name"),
                given=name,
                allowed="each name once",
                todo="remove or rename one of the two",
            )
        seen.add(name)


def _round(name: str, named: Mapping[str, tuple[str, ...]]) -> list[str]:
    """A way from one over those that it names back to itself, if there is one."""
    came_from: dict[str, str] = {}
    waiting = [name]
    while waiting:
        at = waiting.pop()
        for below in named.get(at, ()):
            if below == name:
                way = [at]
                while way[-1] != name:
                    way.append(came_from[way[-1]])
                return [*reversed(way), name]
            if below not in came_from:
                came_from[below] = at
                waiting.append(below)
    return []


def _in_circles(named: Mapping[str, tuple[str, ...]]) -> set[str]:
    """Names that may be in a circle; every other name leads to one that names none of these."""
    left = {name: {one for one in names if one in named} for name, names in named.items()}
    naming: dict[str, list[str]] = {}
    for name, names in left.items():
        for one in names:
            naming.setdefault(one, []).append(name)
    free = [name for name, names in left.items() if not names]
    while free:
        gone = free.pop()
        del left[gone]
        for name in naming.get(gone, ()):
            if name in left:
                left[name].discard(gone)
                if not left[name]:
                    free.append(name)
    return set(left)
