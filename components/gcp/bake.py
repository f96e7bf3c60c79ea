"""A bake: from a builder machine to an image that a machine has booted."""

import time
from collections.abc import Callable

from google.cloud import compute_v1

from components.gcp.bake_design import (
    BOOTED_LABEL,
    DIGEST_LABEL,
    GRACE_MINUTES,
    SHOWN_LINES,
    TRIAL_ENDING,
    Bake,
    BuilderError,
    GoogleCloudError,
    cloud_error,
    image_labels,
)
from components.gcp.compute_engine import READY, Compute

INPUTS_KEY = "hpc-inputs"
"""Metadata key of the builder's fingerprint."""
ALIVE = frozenset({"PROVISIONING", "STAGING", "RUNNING"})
"""States of a machine that installs, or will."""
PENDING = "PENDING"
"""Status of an image that is being written."""
DONE, FAILED = "done", "failed: "
"""Reports of a builder at its end; before that, `step N of M: NAME`."""

Report = Callable[[str], None]


def builder_instance(bake: Bake) -> compute_v1.Instance:
    """Return the request for the machine that installs: in the cluster's network, without a public address."""
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
        # The same NIC type as the cluster's machines, so that the builder tests the network driver that it installs.
        network_interfaces=[compute_v1.NetworkInterface(subnetwork=bake.subnetwork, nic_type="GVNIC")],
        service_accounts=[account] if bake.service_account else [],
        # DKMS builds kernel modules here without a signature, which Secure Boot would not load.
        shielded_instance_config=compute_v1.ShieldedInstanceConfig(
            enable_secure_boot=False, enable_vtpm=True, enable_integrity_monitoring=True
        ),
        scheduling=compute_v1.Scheduling(
            # If the run is killed and never resumed, Google deletes the builder.
            max_run_duration=compute_v1.Duration(seconds=round((bake.minutes + GRACE_MINUTES) * 60)),
            instance_termination_action="DELETE",
            # A host failure is an error: a bake does not continue on a disk that was cut off.
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


def image_resource(bake: Bake) -> compute_v1.Image:
    """Return the request for the image of the builder's disk."""
    return compute_v1.Image(
        name=bake.image,
        description=bake.description,
        labels=image_labels(bake),
        source_disk=f"projects/{bake.project}/zones/{bake.zone}/disks/{bake.builder}",
        guest_os_features=[compute_v1.GuestOsFeature(type_=feature) for feature in ("GVNIC", "UEFI_COMPATIBLE")],
        storage_locations=[bake.storage_location] if bake.storage_location else [],
    )


def wait_for_builder(compute: Compute, report: Report) -> None:
    """Wait until the builder reports that all is installed and tested; report each of its steps once.

    Raises BuilderError when a step fails or the builder takes too long, and GoogleCloudError when the builder ends
    before it is done.
    """
    bake = compute.bake
    trial = bake.ending == TRIAL_ENDING
    stage, deleted = ("trial boot", "the machine and the image are") if trial else ("bake", "the builder is")
    deadline = time.monotonic() + bake.minutes * 60
    last = ""
    while True:
        progress = compute.progress() or last
        if progress == DONE:
            return
        if progress.startswith(FAILED):
            raise cloud_error(
                f"the {stage} of {bake.image} failed at: {progress.removeprefix(FAILED)}",
                f"fix the error in its log, then run again; {deleted} deleted",
                log=console_tail(compute),
                kind=BuilderError,
            )
        if progress != last:
            report(f"{bake.image}: {progress}")
            last = progress
        _check_alive(compute, last)
        if time.monotonic() > deadline:
            raise cloud_error(
                f"the {stage} of {bake.image} was not done within {bake.minutes:g} minutes: {_last_progress(last)}",
                "the serial console may show the reason; machine and image are deleted, and the next run recreates both"
                if trial
                else "set image.builder.minutes to more, or image.builder.machine_type to a type with more cores",
                log=console_tail(compute),
                kind=BuilderError,
            )
        time.sleep(bake.pace.poll)


def console_tail(compute: Compute) -> list[str]:
    """Return the last lines of the builder's console; none if it can't be read."""
    try:
        return compute.console()[-SHOWN_LINES:]
    except GoogleCloudError:
        return []


def _check_alive(compute: Compute, last: str) -> None:
    """Raise GoogleCloudError if the builder was deleted or has stopped."""
    bake, instance = compute.bake, compute.builder()
    if instance is None:
        raise cloud_error(
            f"the builder {bake.builder} is gone, and its disk with it: {_last_progress(last)}",
            f"it was deleted manually, or it was older than {bake.minutes + GRACE_MINUTES:g} minutes, after which it "
            "deletes itself; run again to restart the bake",
        )
    if instance.status not in ALIVE:
        raise cloud_error(
            f"the builder {bake.builder} has stopped before it was done ({instance.status}): {_last_progress(last)}",
            "it was stopped manually, its host failed, or an own step shut it down; run again to restart the bake",
            log=console_tail(compute),
        )


def _last_progress(progress: str) -> str:
    return f"it was at {progress}" if progress else "it never reported its progress"


def bake(compute: Compute, report: Report) -> None:
    """Create the image and boot it once, or use the image that exists. A bake continues what an interrupted run left:
    an image that is still being written, a builder that still installs.

    Raises GoogleCloudError when that can't be done; then neither a builder nor an incomplete image is left.
    """
    compute.image()  # If this fails, there is nothing to delete.
    try:
        if not _wait_for_image(compute, report):
            _create_image(compute, report)
        _boot_image(compute, report)
        _delete_leftovers(compute)
    except GoogleCloudError as error:
        if leftovers := _try_to_delete_leftovers(compute):
            raise GoogleCloudError(f"{error}\n  {leftovers}") from error
        raise
    except BaseException:
        # Also after a signal or an exit: no machine may be left running at a cost.
        if leftovers := _try_to_delete_leftovers(compute):
            report(leftovers)
        raise


def _create_image(compute: Compute, report: Report) -> None:
    # A builder of an interrupted run for the same bake continues where it is.
    _ensure_machine(compute, report, "the builder")
    wait_for_builder(compute, report)
    report(f"{compute.bake.image}: installed and tested; stopping the builder")
    compute.stop_builder()
    report(f"{compute.bake.image}: writing the image")
    compute.create_image(image_resource(compute.bake))
    if not _wait_for_image(compute, report):
        raise cloud_error(f"the image {compute.bake.image} was written, and is not there", "run again")


def _boot_image(compute: Compute, report: Report) -> None:
    """Boot the image once on a trial machine, before other machines use it, and delete it if its tests fail.

    If there is no capacity for the trial machine, the image is kept, and the next run boots it.
    """
    image, trial = compute.image(), compute.with_bake(compute.bake.trial_bake())
    if image is None or BOOTED_LABEL in image.labels or not compute.bake.trial:
        return
    _ensure_machine(trial, report, "the machine that boots it")
    try:
        wait_for_builder(trial, report)
    except BuilderError:
        compute.delete_image()
        raise
    compute.label_image(image, **{BOOTED_LABEL: "yes"})


def _wait_for_image(compute: Compute, report: Report) -> bool:
    """Return whether the image exists and is complete. Wait for an image that is being written, and delete a broken
    one."""
    deadline = time.monotonic() + compute.bake.pace.image
    image = compute.image()
    if image is not None and image.status == PENDING:
        report(f"{compute.bake.image}: waiting until it is written")
    while image is not None and image.status == PENDING:
        if time.monotonic() > deadline:
            raise cloud_error(f"the image {compute.bake.image} is still being written", "run again later")
        time.sleep(compute.bake.pace.poll)
        image = compute.image()
    if image is None:
        return False
    _require_own(compute, "an image", image.name, image.labels.get(DIGEST_LABEL, ""))
    if image.status == READY:
        return True
    compute.delete_image()
    return False


def _ensure_machine(compute: Compute, report: Report, which: str) -> None:
    """Create the machine, or continue with that of an interrupted run if it has the same inputs."""
    bake, instance = compute.bake, compute.builder()
    if instance is not None:
        _require_own(compute, "a machine", instance.name, instance.labels.get(DIGEST_LABEL, ""))
        if instance.status not in ALIVE or fingerprint(instance) != bake.fingerprint:
            report(f"{bake.image}: deleting {which} of an interrupted run")
            compute.delete_builder()
            instance = None
    if instance is None:
        report(f"{bake.image}: creating {which}, a {bake.machine_type} in {bake.zone}")
        compute.create_builder(builder_instance(bake))
    else:
        report(f"{bake.image}: continuing with {which} of an interrupted run")


def _require_own(compute: Compute, kind: str, name: str, digest: str) -> None:
    """Raise GoogleCloudError if the stack did not create the resource of this name."""
    if digest != compute.bake.digest:
        raise cloud_error(
            f"{compute.bake.project} has {kind} called {name}, which this stack did not make "
            f"(label {DIGEST_LABEL}: {digest or 'none'}, not {compute.bake.digest})",
            "rename or delete it, or give the cluster another name",
        )


def _delete_leftovers(compute: Compute) -> None:
    """Delete the bake's machines, and its image if that is incomplete. Resources of others are left alone."""
    for machine in (compute, compute.with_bake(compute.bake.trial_bake())):
        instance = machine.builder()
        if instance is not None and instance.labels.get(DIGEST_LABEL) == compute.bake.digest:
            machine.delete_builder()
    image = compute.image()
    if image is not None and image.status != READY and image.labels.get(DIGEST_LABEL) == compute.bake.digest:
        compute.delete_image()


def _try_to_delete_leftovers(compute: Compute) -> str:
    """Delete leftovers. Return a message about those that could not be deleted; empty if there are none."""
    bake = compute.bake
    try:
        _delete_leftovers(compute)
    except GoogleCloudError as error:
        return (
            f"perhaps left over: {bake.builder} or {bake.trial_bake().builder} in {bake.zone}, because this failed as "
            f"well: {error}\n"
            f"  the next run removes it; where it runs, it deletes itself {bake.minutes + GRACE_MINUTES:g} minutes "
            f"after its start; manually: gcloud compute instances delete {bake.builder} --zone {bake.zone} "
            f"--project {bake.project}"
        )
    return ""
