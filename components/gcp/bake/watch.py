"""Waiting for a builder that installs."""

from __future__ import annotations

import time
from collections.abc import Callable

from components.gcp.bake.compute import Compute
from components.gcp.bake.design import GRACE_MINUTES, SHOWN_LINES, TRIAL_ENDING
from components.gcp.bake.errors import BakeError, UnwellError, bake_error

ALIVE = frozenset({"PROVISIONING", "STAGING", "RUNNING"})
"""States of a machine that installs, or will."""
DONE, FAILED = "done", "failed: "
"""What a builder reports at the end; before that, `step N of M: NAME`."""


def watch(compute: Compute, report: Callable[[str], None]) -> None:
    """Wait until the builder reports that all is installed and tested; report each of its steps once.

    Raises BakeError when a step fails, when the builder ends before it is done, and when it takes too long; of the
    first and the last, UnwellError.
    """
    bake = compute.bake
    trial = bake.ending == TRIAL_ENDING
    doing, gone = ("trial boot", "the machine and the image are") if trial else ("bake", "the builder is")
    ends = time.monotonic() + bake.minutes * 60
    last = ""
    while True:
        progress = compute.progress() or last
        if progress == DONE:
            return
        if progress.startswith(FAILED):
            raise bake_error(
                f"the {doing} of {bake.image} failed at: {progress.removeprefix(FAILED)}",
                f"fix the error in its log, then run again; {gone} deleted",
                log=tail(compute),
                kind=UnwellError,
            )
        if progress != last:
            report(f"{bake.image}: {progress}")
            last = progress
        _check_alive(compute, last)
        if time.monotonic() > ends:
            raise bake_error(
                f"the {doing} of {bake.image} was not done within {bake.minutes:g} minutes: {_last(last)}",
                "the serial console may show the reason; machine and image are deleted, and the next run recreates both"
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


def _check_alive(compute: Compute, last: str) -> None:
    """Raises BakeError if the builder will not go on."""
    bake, found = compute.bake, compute.builder()
    if found is None:
        raise bake_error(
            f"the builder {bake.builder} is gone, and its disk with it: {_last(last)}",
            f"it was deleted manually, or it was older than {bake.minutes + GRACE_MINUTES:g} minutes, after which it "
            "deletes itself; run again to restart the bake",
        )
    if found.status not in ALIVE:
        raise bake_error(
            f"the builder {bake.builder} has stopped before it was done ({found.status}): {_last(last)}",
            "it was stopped manually, its host failed, or an own step shut it down; run again to restart the bake",
            log=tail(compute),
        )


def _last(progress: str) -> str:
    return f"it was at {progress}" if progress else "it never reported its progress"
