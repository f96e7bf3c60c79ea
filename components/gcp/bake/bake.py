"""The bake: all of it, or nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

from components.gcp.bake import builder
from components.gcp.bake.compute import READY, Compute
from components.gcp.bake.design import BOOTED_LABEL, DIGEST_LABEL, GRACE_MINUTES
from components.gcp.bake.errors import BakeError, UnwellError, told
from components.gcp.bake.watch import ALIVE, watch

PENDING = "PENDING"

Say = Callable[[str], None]


def bake(compute: Compute, say: Say) -> None:
    """Make the image, or take the one that is there. What an interrupted run left is taken over: an image that is
    still being written, a builder that still installs.

    Raises BakeError when that can't be done; no builder and no half image is left then.
    """
    compute.image()  # Who can't even ask has left nothing to clear.
    try:
        if not _written(compute, say):
            _make(compute, say)
        _boot(compute, say)
        _clear(compute)
    except BakeError as error:
        raise _after_clearing(compute, error) from error
    except BaseException:
        # Whoever interrupts this, by a signal or by an end of the program, wants no machine to go on costing.
        if left := _left(compute):
            say(left)
        raise


def _make(compute: Compute, say: Say) -> None:
    _install(compute, say)
    say(f"{compute.bake.image}: installed and tested; stopping the builder")
    compute.stop_builder()
    say(f"{compute.bake.image}: writing the image")
    compute.make_image(builder.image(compute.bake))
    if not _written(compute, say):
        raise told(f"the image {compute.bake.image} was written, and is not there", "run again")


def _boot(compute: Compute, say: Say) -> None:
    """Have a machine boot the image once, before any other does; one that does not boot well is not kept.

    Where the machine can't be had, the image stays, and is tried by the next run.
    """
    image, trial = compute.image(), compute.of(compute.bake.of_trial())
    if image is None or BOOTED_LABEL in image.labels or not compute.bake.trial:
        return
    _ready(trial, say, "the machine that boots it")
    try:
        watch(trial, say)
    except UnwellError:
        compute.delete_image()
        raise
    compute.label_image(image, **{BOOTED_LABEL: "yes"})


def _written(compute: Compute, say: Say) -> bool:
    """Whether the image is there, whole; one that is being written is waited for, a broken one removed."""
    ends = time.monotonic() + compute.bake.pace.image
    image = compute.image()
    if image is not None and image.status == PENDING:
        say(f"{compute.bake.image}: waiting until it is written")
    while image is not None and image.status == PENDING:
        if time.monotonic() > ends:
            raise told(f"the image {compute.bake.image} is still being written", "run again later")
        time.sleep(compute.bake.pace.poll)
        image = compute.image()
    if image is None:
        return False
    _ours(compute, "image", image.name, image.labels.get(DIGEST_LABEL, ""))
    if image.status == READY:
        return True
    compute.delete_image()
    return False


def _install(compute: Compute, say: Say) -> None:
    """Have a builder install; one that an interrupted run left for the same bake goes on where it is."""
    _ready(compute, say, "the builder")
    watch(compute, say)


def _ready(compute: Compute, say: Say, which: str) -> None:
    """Have the machine: the one that an interrupted run left, if it is the same, else a new one."""
    bake, found = compute.bake, compute.builder()
    if found is not None:
        _ours(compute, "machine", found.name, found.labels.get(DIGEST_LABEL, ""))
        if found.status not in ALIVE or builder.fingerprint(found) != bake.fingerprint:
            say(f"{bake.image}: deleting {which} that an interrupted run left")
            compute.delete_builder()
            found = None
    if found is None:
        say(f"{bake.image}: making {which}, a {bake.machine_type} in {bake.zone}")
        compute.make_builder(builder.builder(bake))
    else:
        say(f"{bake.image}: going on with {which} that an interrupted run left")


def _ours(compute: Compute, kind: str, name: str, digest: str) -> None:
    """Refuse to touch what has the name of ours and is something else."""
    if digest != compute.bake.digest:
        raise told(
            f"{compute.bake.project} has {_a(kind)} called {name}, which this stack did not make "
            f"(label {DIGEST_LABEL}: {digest or 'none'}, not {compute.bake.digest})",
            "rename or delete it, or give the cluster another name",
        )


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _clear(compute: Compute) -> None:
    """Remove the machines, and an image that is not whole, if they are ours."""
    for one in (compute, compute.of(compute.bake.of_trial())):
        found = one.builder()
        if found is not None and found.labels.get(DIGEST_LABEL) == compute.bake.digest:
            one.delete_builder()
    image = compute.image()
    if image is not None and image.status != READY and image.labels.get(DIGEST_LABEL) == compute.bake.digest:
        compute.delete_image()


def _after_clearing(compute: Compute, error: BakeError) -> BakeError:
    """The error, with what could not be cleared."""
    left = _left(compute)
    return BakeError(f"{error}\n  {left}") if left else error


def _left(compute: Compute) -> str:
    """Clear; what to say of what could not be."""
    bake = compute.bake
    try:
        _clear(compute)
    except BakeError as error:
        return (
            f"perhaps left over: {bake.builder} or {bake.of_trial().builder} in {bake.zone}, because this failed as "
            f"well: {error}\n"
            f"  the next run removes it; where it runs, it deletes itself {bake.minutes + GRACE_MINUTES:g} minutes "
            f"after its start; by hand: gcloud compute instances delete {bake.builder} --zone {bake.zone} "
            f"--project {bake.project}"
        )
    return ""
