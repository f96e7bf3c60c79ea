"""Waiting for a builder that installs."""

from __future__ import annotations

import time
from collections.abc import Callable

from components.gcp.bake.compute import Compute
from components.gcp.bake.design import GRACE_MINUTES, SHOWN_LINES, TRIAL_ENDING
from components.gcp.bake.errors import BakeError, UnwellError, told

ALIVE = frozenset({"PROVISIONING", "STAGING", "RUNNING"})
"""States of a machine that installs, or will."""
DONE, FAILED = "done", "failed: "
"""What a builder says at the end; before it, `step N of M: NAME`."""


def watch(compute: Compute, say: Callable[[str], None]) -> None:
    """Wait until the builder says that all is installed and tested, and tell each of its steps once.

    Raises BakeError when a step fails, when the builder ends before it is done, and when it takes too long; of the
    first and the last, UnwellError.
    """
    bake = compute.bake
    trial = bake.ending == TRIAL_ENDING
    doing, gone = ("trial boot", "the machine and the image are") if trial else ("bake", "the builder is")
    ends = time.monotonic() + bake.minutes * 60
    last = ""
    while True:
        said = compute.progress() or last
        if said == DONE:
            return
        if said.startswith(FAILED):
            raise told(
                f"the {doing} of {bake.image} failed at: {said.removeprefix(FAILED)}",
                f"mend what its log tells of, then run again; {gone} deleted",
                log=tail(compute),
                kind=UnwellError,
            )
        if said != last:
            say(f"{bake.image}: {said}")
            last = said
        _look(compute, last)
        if time.monotonic() > ends:
            raise told(
                f"the {doing} of {bake.image} was not done within {bake.minutes:g} minutes: {_last(last)}",
                "its console may say why; the machine and the image are deleted, and the next run makes both anew"
                if trial
                else "set image.builder.minutes to more, or image.builder.machine_type to a type with more cores",
                log=tail(compute),
                kind=UnwellError,
            )
        time.sleep(bake.pace.poll)


def tail(compute: Compute) -> list[str]:
    """The end of the builder's console; nothing, if that can't be had."""
    try:
        return compute.console()[-SHOWN_LINES:]
    except BakeError:
        return []


def _look(compute: Compute, last: str) -> None:
    """Raises BakeError if the builder will not go on."""
    bake, found = compute.bake, compute.builder()
    if found is None:
        raise told(
            f"the builder {bake.builder} is gone, and its disk with it: {_last(last)}",
            f"somebody deleted it, or it was older than {bake.minutes + GRACE_MINUTES:g} minutes, after which it "
            "deletes itself; run again to begin anew",
        )
    if found.status not in ALIVE:
        raise told(
            f"the builder {bake.builder} has stopped before it was done ({found.status}): {_last(last)}",
            "somebody stopped it, its host failed, or one of your own steps shut it down; run again to begin anew",
            log=tail(compute),
        )


def _last(said: str) -> str:
    return f"it was at {said}" if said else "it never said how far it was"
