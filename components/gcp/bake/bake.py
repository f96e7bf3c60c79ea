"""The bake: all of it, or nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

from components.gcp.bake import builder
from components.gcp.bake.compute import READY, Compute
from components.gcp.bake.design import BOOTED_LABEL, DIGEST_LABEL, GRACE_MINUTES
from components.gcp.bake.errors import BakeError, UnwellError, bake_error
from components.gcp.bake.watch import ALIVE, watch

PENDING = "PENDING"

Report = Callable[[str], None]


def bake(compute: Compute, report: Report) -> None:
    """Make the image, or take the one that is there. What an interrupted run left is taken over: an image that is
    still being written, a builder that still installs.

    Raises BakeError when that can't be done; no builder and no half image is left then.
    """
    compute.image()  # Where this fails, there is nothing to clear.
    try:
        if not _written(compute, report):
            _make(compute, report)
        _boot(compute, report)
        _clear(compute)
    except BakeError as error:
        if left := _left(compute):
            raise BakeError(f"{error}\n  {left}") from error
        raise
    except BaseException:
        # Also after a signal or an exit: no machine may be left running at a cost.
        if left := _left(compute):
            report(left)
        raise


def _make(compute: Compute, report: Report) -> None:
    # A builder of an interrupted run for the same bake continues where it is.
    _ready(compute, report, "the builder")
    watch(compute, report)
    report(f"{compute.bake.image}: installed and tested; stopping the builder")
    compute.stop_builder()
    report(f"{compute.bake.image}: writing the image")
    compute.make_image(builder.image(compute.bake))
    if not _written(compute, report):
        raise bake_error(f"the image {compute.bake.image} was written, and is not there", "run again")


def _boot(compute: Compute, report: Report) -> None:
    """Have a machine boot the image once, before any other does; one that does not boot well is not kept.

    Where the machine can't be had, the image stays, and is tried by the next run.
    """
    image, trial = compute.image(), compute.of(compute.bake.of_trial())
    if image is None or BOOTED_LABEL in image.labels or not compute.bake.trial:
        return
    _ready(trial, report, "the machine that boots it")
    try:
        watch(trial, report)
    except UnwellError:
        compute.delete_image()
        raise
    compute.label_image(image, **{BOOTED_LABEL: "yes"})


def _written(compute: Compute, report: Report) -> bool:
    """Whether the image is there, whole; one that is being written is waited for, a broken one removed."""
    ends = time.monotonic() + compute.bake.pace.image
    image = compute.image()
    if image is not None and image.status == PENDING:
        report(f"{compute.bake.image}: waiting until it is written")
    while image is not None and image.status == PENDING:
        if time.monotonic() > ends:
            raise bake_error(f"the image {compute.bake.image} is still being written", "run again later")
        time.sleep(compute.bake.pace.poll)
        image = compute.image()
    if image is None:
        return False
    _ours(compute, "an image", image.name, image.labels.get(DIGEST_LABEL, ""))
    if image.status == READY:
        return True
    compute.delete_image()
    return False


def _ready(compute: Compute, report: Report, which: str) -> None:
    """Have the machine: the one that an interrupted run left, if it is the same, else a new one."""
    bake, found = compute.bake, compute.builder()
    if found is not None:
        _ours(compute, "a machine", found.name, found.labels.get(DIGEST_LABEL, ""))
        if found.status not in ALIVE or builder.fingerprint(found) != bake.fingerprint:
            report(f"{bake.image}: deleting {which} of an interrupted run")
            compute.delete_builder()
            found = None
    if found is None:
        report(f"{bake.image}: creating {which}, a {bake.machine_type} in {bake.zone}")
        compute.make_builder(builder.builder(bake))
    else:
        report(f"{bake.image}: continuing with {which} of an interrupted run")


def _ours(compute: Compute, kind: str, name: str, digest: str) -> None:
    """Refuse to touch a resource of this name that the stack did not create."""
    if digest != compute.bake.digest:
        raise bake_error(
            f"{compute.bake.project} has {kind} called {name}, which this stack did not make "
            f"(label {DIGEST_LABEL}: {digest or 'none'}, not {compute.bake.digest})",
            "rename or delete it, or give the cluster another name",
        )


def _clear(compute: Compute) -> None:
    """Remove the machines, and an image that is not whole, if they are ours."""
    for one in (compute, compute.of(compute.bake.of_trial())):
        found = one.builder()
        if found is not None and found.labels.get(DIGEST_LABEL) == compute.bake.digest:
            one.delete_builder()
    image = compute.image()
    if image is not None and image.status != READY and image.labels.get(DIGEST_LABEL) == compute.bake.digest:
        compute.delete_image()


def _left(compute: Compute) -> str:
    """Clear; the message about what could not be."""
    bake = compute.bake
    try:
        _clear(compute)
    except BakeError as error:
        return (
            f"perhaps left over: {bake.builder} or {bake.of_trial().builder} in {bake.zone}, because this failed as "
            f"well: {error}\n"
            f"  the next run removes it; where it runs, it deletes itself {bake.minutes + GRACE_MINUTES:g} minutes "
            f"after its start; manually: gcloud compute instances delete {bake.builder} --zone {bake.zone} "
            f"--project {bake.project}"
        )
    return ""
