"""Machines that are gone, daemons that do not run, and a set-up of another version."""

from collections.abc import Iterator

from cluster.observe.drift.difference import Difference, Mends, Wanted
from cluster.observe.health import ClusterObservation


def gone(seen: ClusterObservation) -> Iterator[Difference]:
    """Machines that do not answer: nothing can be said of what is on them."""
    for one in seen.machines:
        if not one.reached and not one.late:
            yield Difference(
                id="machine-gone",
                where=(one.name,),
                what="the machine",
                stack="running",
                there=f"no answer: {one.why}",
                mends="up",
            )


def daemons(seen: ClusterObservation) -> Iterator[Difference]:
    """Daemons of a machine's roles that do not run."""
    for one in seen.machines:
        for name, unit in one.daemons.items():
            if unit["state"] not in ("active", "reloading"):
                text = unit["state"] if unit["state"] == unit["sub"] else f"{unit['state']} ({unit['sub']})"
                yield Difference(id="daemon-stopped", where=(one.name,), what=name, stack="running", there=text)


def setup(wanted: Wanted, seen: ClusterObservation) -> Iterator[Difference]:
    """Machines whose set-up is not the one that the stack was made with, or that this program would bring."""
    stack = wanted.setup_of_stack
    if stack and stack != wanted.setup:
        # Not drift of the cluster's, but nothing can be mended with another set-up than its own.
        yield Difference(
            id="setup-old",
            where=(seen.controller.name,),
            what="version of the set-up",
            stack=f"{wanted.setup}, which this program brings",
            there=f"{stack}, which the last `up` brought",
            mends="up",
        )
    for one in seen.machines:
        if one.reached and not one.has_facts:
            kind: str = "setup-old" if one.old else "setup-damaged"
            mends: Mends = "up" if one.old else "mend"
            yield Difference(
                id=kind, where=(one.name,), what="the set-up", stack=wanted.setup, there=one.why, mends=mends
            )
        there = one.part("setup")
        if there and there != (stack or wanted.setup):
            yield Difference(
                id="setup-changed", where=(one.name,), what="files of the set-up", stack=stack or wanted.setup,
                there=there,
            )  # fmt: skip


def cluster_state(seen: ClusterObservation) -> Iterator[Difference]:
    """A cluster state that can't be read, or that is not what the controller wrote."""
    for one in seen.machines:
        if why := one.part("board", "damaged"):
            stack = "the config version, and a report of every machine"
            yield Difference(id="board-damaged", where=(one.name,), what="the cluster state", stack=stack, there=why)
