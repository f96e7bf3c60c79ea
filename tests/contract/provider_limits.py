"""How long Google's provider waits by itself, in minutes, to create, update and delete: its own values.

Source: hashicorp/terraform-provider-google at e03b7622 (7.45.0), `Timeouts` in google/services/*/resource_*.go, of each
type that a stack registers. None: the type waits for nothing, or has no such operation. The outside check
`terraform-provider-google` reads them from a checkout.
"""

from collections.abc import Mapping

Limits = tuple[int | None, int | None, int | None]

PROVIDER: Mapping[str, tuple[str, Limits]] = {
    "gcp:billing/budget:Budget": ("billing/resource_billing_budget", (20, 20, 20)),
    "gcp:compute/address:Address": ("compute/resource_compute_address", (20, 20, 20)),
    "gcp:compute/disk:Disk": ("compute/resource_compute_disk", (20, 20, 20)),
    "gcp:compute/firewall:Firewall": ("compute/resource_compute_firewall", (20, 20, 20)),
    "gcp:compute/globalAddress:GlobalAddress": ("compute/resource_compute_global_address", (20, 20, 20)),
    "gcp:compute/instance:Instance": ("compute/resource_compute_instance", (20, 20, 20)),
    # Timeouts: ResourceComputeInstance().Timeouts
    "gcp:compute/instanceFromTemplate:InstanceFromTemplate": ("compute/resource_compute_instance", (20, 20, 20)),
    "gcp:compute/instanceTemplate:InstanceTemplate": ("compute/resource_compute_instance_template", (4, None, 4)),
    "gcp:compute/network:Network": ("compute/resource_compute_network", (20, 20, 20)),
    "gcp:compute/regionDisk:RegionDisk": ("compute/resource_compute_region_disk", (20, 20, 20)),
    "gcp:compute/resourcePolicy:ResourcePolicy": ("compute/resource_compute_resource_policy", (20, 20, 20)),
    "gcp:compute/router:Router": ("compute/resource_compute_router", (20, 20, 20)),
    "gcp:compute/routerNat:RouterNat": ("compute/resource_compute_router_nat", (20, 20, 20)),
    "gcp:compute/subnetwork:Subnetwork": ("compute/resource_compute_subnetwork", (20, 20, 20)),
    "gcp:filestore/instance:Instance": ("filestore/resource_filestore_instance", (14400, 120, 120)),
    "gcp:lustre/instance:Instance": ("lustre/resource_lustre_instance", (120, 60, 60)),
    "gcp:projects/iAMCustomRole:IAMCustomRole": (
        "resourcemanager/resource_google_project_iam_custom_role",
        (None, None, None),
    ),
    "gcp:projects/service:Service": ("resourcemanager/resource_google_project_service", (20, 20, 20)),
    # In google-beta alone, whose source was not read.
    "gcp:runtimeconfig/config:Config": ("", (None, None, None)),
    "gcp:secretmanager/secret:Secret": ("secretmanager/resource_secret_manager_secret", (20, 20, 20)),
    "gcp:secretmanager/secretVersion:SecretVersion": (
        "secretmanager/resource_secret_manager_secret_version",
        (20, 20, 20),
    ),
    "gcp:serviceaccount/account:Account": ("resourcemanager/resource_google_service_account", (5, None, None)),
    "gcp:servicenetworking/connection:Connection": (
        "servicenetworking/resource_service_networking_connection",
        (10, 10, 10),
    ),
    "gcp:storage/bucket:Bucket": ("storage/resource_storage_bucket", (10, 4, None)),
    "gcp:storage/bucketObject:BucketObject": ("storage/resource_storage_bucket_object", (4, 4, 4)),
}
"""The file without its ending (empty: not in that repository), and the limits, by type. Members of policies are one
request each, without a wait."""

BEFORE: Mapping[str, Limits] = {
    "gcp:filestore/instance:Instance": (20, 20, 20),
    "gcp:lustre/instance:Instance": (40, 20, 20),
}
"""Limits of older releases: of Filestore before 7.40.0 (commit 1624d08c), of Managed Lustre in 7.14.0."""
ENDLESS = 1440
"""A limit of the provider from which on it is none: nobody waits for days."""
TOOLKIT: Mapping[str, int] = {"gcp:filestore/instance:Instance": 60, "gcp:lustre/instance:Instance": 60}
"""Minutes for each operation in GoogleCloudPlatform/cluster-toolkit v1.95.0, modules/file-system: filestore from 10,240
GiB on, managed-lustre."""
