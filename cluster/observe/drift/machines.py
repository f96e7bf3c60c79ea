"""Machines that are gone, daemons that do not run, and a set-up of another version."""

from collections.abc import Iterator

from cluster.observe.drift.difference import Difference, Mends
from cluster.observe.drift.wanted import Wanted
from cluster.observe.health import Sights


def gone(seen: Sights) -> Iterator[Difference]:
    """Machines that do not answer: nothing can be said of what is on them."""
    for one in seen.machines:
        if not one.reached:
            yield Difference(
                id="machine-gone",
                where=(one.name,),
                what="the machine",
                stack="running",
                there=f"no answer: {one.why}",
                mends="up",
            )


def daemons(seen: Sights) -> Iterator[Difference]:
    """Daemons of a machine's roles that do not run."""
    for one in seen.machines:
        for name, unit in (one.part("daemons") or {}).items():
            if unit["state"] not in ("active", "reloading"):
                text = unit["state"] if unit["state"] == unit["sub"] else f"{unit['state']} ({unit['sub']})"
                yield Difference(id="daemon-stopped", where=(one.name,), what=name, stack="running", there=text)


def setup(wanted: Wanted, seen: Sights) -> Iterator[Difference]:
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
        if one.reached and not one.told:
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


def board(seen: Sights) -> Iterator[Difference]:
    """A board that can't be read, or that says something else than the controller wrote."""
    for one in seen.machines:
        if why := one.part("board", "damaged"):
            stack = "the controller's orders, and what every machine reports"
            yield Difference(id="board-damaged", where=(one.name,), what="the board", stack=stack, there=why)
