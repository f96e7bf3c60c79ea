"""Clusters on Google Cloud with each kind of shared file system, made over Pulumi's mocks."""

from functools import cache
from typing import Any

import pulumi

from cluster.config import ClusterConfig
from cluster.roster import machines
from components.gcp.network import Network
from components.gcp.storage.filesystems import Storage
from tests.clouds import EXASCALER, MANAGED, google
from tests.harness import Recording, Registered, deploy

INSTANCE, DISK = "gcp:compute/instance:Instance", "gcp:compute/disk:Disk"
LUSTRE, FILESTORE = "gcp:lustre/instance:Instance", "gcp:filestore/instance:Instance"
ACCESS = "gcp:storage/bucketIAMMember:BucketIAMMember"
ACCOUNTS = {role: f"{role}@my-project.iam.gserviceaccount.com" for role in ("controller", "login", "node")}
GUIDE = {**EXASCALER, "oss": {"count": 3, "ost": {"type": "pd-ssd", "size_gb": 3500}}}
SMALL: dict[str, Any] = {
    **EXASCALER,
    "image": "projects/ddn-public/global/images/family/exascaler-cloud-6-2-rocky-linux-8",
    "mgs": {"machine_type": "n2-standard-2"},
    "mds": {"machine_type": "n2-standard-2", "mdt": {"type": "pd-ssd", "size_gb": 256}},
    "oss": {"machine_type": "n2-standard-2", "count": 1, "ost": {"type": "pd-standard", "size_gb": 512}},
}
"""DDN's own defaults."""
BASIC = {"tier": "BASIC_SSD", "size_gb": 2560}
STORAGES: dict[str, dict[str, Any]] = {
    "guide": {"lustre": GUIDE},
    "small": {"lustre": SMALL},
    "managed": {"lustre": {**MANAGED, "mount": "/home"}},
    "filestore": {"filestore": {"tier": "REGIONAL"}},
    "basic": {"filestore": BASIC},
    "buckets": {
        "buckets": [
            {"name": "my-datasets", "mount": "/gcs", "read_only": True},
            {"name": "my-results", "mount": "/results"},
        ]
    },
}


def make(config: ClusterConfig) -> None:
    network = Network("cloud-network", config)
    storage = Storage("cloud-storage", config, network, ACCOUNTS)
    pulumi.export("facts", storage.facts)
    pulumi.export("mounts", {one.name: storage.mounts(one) for one in machines(config)})
    pulumi.export("ready", len(storage.ready))


@cache
def made(kind: str, *, unknown: bool = False, protected: bool = True, existing: bool = False) -> Recording:
    network = {"network": {"existing": {"network": "net", "subnetwork": "sub"}}} if existing else {}
    config = google(storage=STORAGES[kind], deletion_protection=protected, **network)
    return deploy(lambda: make(config), unknown=unknown)


def own(recording: Recording) -> Recording:
    """Without the networks, which have files of their own."""
    kept = [one for one in recording.resources if not one.name.startswith("cloud-network-")]
    addresses = [one for one in recording.resources if one not in kept]
    assert addresses
    return Recording(resources=kept, outputs=recording.outputs)


def server(recording: Recording, name: str) -> Registered:
    (found,) = [one for one in recording.all(INSTANCE) if one.inputs["name"] == name]
    return found
