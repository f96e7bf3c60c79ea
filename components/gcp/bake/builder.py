"""What is asked for: the machine that installs, and the image of its disk."""

from __future__ import annotations

from google.cloud import compute_v1

from components.gcp.bake.design import DIGEST_LABEL, GRACE_MINUTES, Bake

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


def image_labels(bake: Bake) -> dict[str, str]:
    return {**bake.labels, DIGEST_LABEL: bake.digest}


def image(bake: Bake) -> compute_v1.Image:
    return compute_v1.Image(
        name=bake.image,
        description=bake.description,
        labels=image_labels(bake),
        source_disk=f"projects/{bake.project}/zones/{bake.zone}/disks/{bake.builder}",
        guest_os_features=[compute_v1.GuestOsFeature(type_=feature) for feature in ("GVNIC", "UEFI_COMPATIBLE")],
        storage_locations=[bake.storage_location] if bake.storage_location else [],
    )
