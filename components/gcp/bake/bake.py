"""Baking an image: from a builder machine to an image that was tried."""

import time
from collections.abc import Callable

from google.cloud import compute_v1

from components.gcp.bake.compute import READY, Compute
from components.gcp.bake.design import (
    BOOTED_LABEL,
    DIGEST_LABEL,
    GRACE_MINUTES,
    SHOWN_LINES,
    TRIAL_ENDING,
    Bake,
    BakeError,
    UnwellError,
    bake_error,
    image_labels,
)

INPUTS_KEY = "hpc-inputs"
"""Metadata key of the builder's fingerprint."""


def builder(bake: Bake) -> compute_v1.Instance:
    """The machine that installs: in the cluster's network, with no address of its own to the outside."""
    account = compute_v1.ServiceAccount(
        email=bake.service_account, scopes=["https://www.googleapis.com/auth/cloud-platform"]
    )
    return compute_v1.Instance(
        name=bake.builder,
        description=f"Installs {bake.image}, and is gone afterwards",
        machine_type=f"zones/{bake.zone}/machineTypes/{bake.machine_type}",
        labels={**bake.builder_labels, DIGEST_LABEL: bake.digest},
        tags=compute_v1.Tags(items=[bake.tag]),
        disks=[
            compute_v1.AttachedDisk(
                boot=True,
                auto_delete=True,
                initialize_params=compute_v1.AttachedDiskInitializeParams(
                    disk_name=bake.builder,
                    source_image=bake.source_image,
                    disk_size_gb=bake.size_gb,
                    disk_type=f"zones/{bake.zone}/diskTypes/pd-ssd",
                    labels=dict(bake.builder_labels),
                ),
            )
        ],
        # As the cluster's own machines: what is installed for it is then what the builder's network runs by.
        network_interfaces=[compute_v1.NetworkInterface(subnetwork=bake.subnetwork, nic_type="GVNIC")],
        service_accounts=[account] if bake.service_account else [],
        # DKMS builds kernel modules here without a signature, which Secure Boot would not load.
        shielded_instance_config=compute_v1.ShieldedInstanceConfig(
            enable_secure_boot=False, enable_vtpm=True, enable_integrity_monitoring=True
        ),
        scheduling=compute_v1.Scheduling(
            # The run may be killed and never resumed: Google itself deletes the builder then.
            max_run_duration=compute_v1.Duration(seconds=round((bake.minutes + GRACE_MINUTES) * 60)),
            instance_termination_action="DELETE",
            # A host failure is an error: nothing is built on what was on the disk.
            automatic_restart=False,
        ),
        metadata=compute_v1.Metadata(
            items=[
                compute_v1.Items(key=key, value=value)
                for key, value in {
                    "startup-script": bake.script,
                    "enable-guest-attributes": "TRUE",
                    "enable-oslogin": "TRUE",
                    "block-project-ssh-keys": "TRUE",
                    INPUTS_KEY: bake.fingerprint,
                }.items()
            ]
        ),
    )


def fingerprint(instance: compute_v1.Instance) -> str:
    return next((item.value for item in instance.metadata.items if item.key == INPUTS_KEY), "")


def image(bake: Bake) -> compute_v1.Image:
    return compute_v1.Image(
        name=bake.image,
        description=bake.description,
        labels=image_labels(bake),
        source_disk=f"projects/{bake.project}/zones/{bake.zone}/disks/{bake.builder}",
        guest_os_features=[compute_v1.GuestOsFeature(type_=feature) for feature in ("GVNIC", "UEFI_COMPATIBLE")],
        storage_locations=[bake.storage_location] if bake.storage_location else [],
    )


ALIVE = frozenset({"PROVISIONING", "STAGING", "RUNNING"})
"""States of a machine that installs, or will."""
DONE, FAILED = "done", "failed: "
"""Reports of a builder at its end; before that, `step N of M: NAME`."""


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
    compute.make_image(image(compute.bake))
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
    """Return whether the image is there, whole; one that is being written is waited for, a broken one removed."""
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
        if found.status not in ALIVE or fingerprint(found) != bake.fingerprint:
            report(f"{bake.image}: deleting {which} of an interrupted run")
            compute.delete_builder()
            found = None
    if found is None:
        report(f"{bake.image}: creating {which}, a {bake.machine_type} in {bake.zone}")
        compute.make_builder(builder(bake))
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
    for machine in (compute, compute.of(compute.bake.of_trial())):
        found = machine.builder()
        if found is not None and found.labels.get(DIGEST_LABEL) == compute.bake.digest:
            machine.delete_builder()
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
