"""Facts of Nebius's API that the stand-in answers by: kinds of objects, platforms with their presets, versions.

They are Nebius's, read in its own definitions, and not this program's tables, which the stand-in is to contradict where
they are wrong. Sources: nebius/api at 5101002 (kinds, and fields that are marked IMMUTABLE); nebius-solutions-library,
soperator/modules/available_resources (platform.tf at c1e21829, preset.tf) and installations/example (driver_presets.tf
at 9a187732); ListControlPlaneVersions of 2026-09-23 (deprecated, end of life).
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ObjectKind:
    """A kind of objects: its service is NAMEService, its message NAMESpec."""

    name: str
    module: str
    """Package below `nebius.api.nebius`."""
    items: str = "items"
    """The field of a list that has the objects."""
    parent: str = ""
    """The kind of its parent, where that is no project or tenant."""
    identity: tuple[str, ...] = ()
    """Fields of the spec that are unique in the parent, in place of a name."""
    immutable: tuple[str, ...] = ()
    """Fields of the spec that no update may change."""

    def sdk_class(self, name: str) -> Any:
        """Return a message or a client of its package."""
        return getattr(importlib.import_module(f"nebius.api.nebius.{self.module}"), name)


_KIND_ROWS = (
    ObjectKind(name="Network", module="vpc.v1"),
    # The definitions mark no field. A subnet can't be moved all the same.
    ObjectKind(name="Subnet", module="vpc.v1", immutable=("network_id",)),
    ObjectKind(
        name="Allocation",
        module="vpc.v1",
        immutable=(
            "ipv4_private.cidr",
            "ipv4_private.pool_id",
            "ipv4_private.subnet_id",
            "ipv4_public.cidr",
            "ipv4_public.pool_id",
            "ipv4_public.subnet_id",
        ),
    ),
    ObjectKind(name="Filesystem", module="compute.v1", immutable=("block_size_bytes", "type")),
    ObjectKind(name="GpuCluster", module="compute.v1", immutable=("infiniband_fabric",)),
    ObjectKind(
        name="Disk",
        module="compute.v1",
        immutable=(
            "block_size_bytes",
            "disk_encryption",
            "source_image_family",
            "source_image_id",
            "source_snapshot_id",
            "type",
        ),
    ),
    ObjectKind(
        name="Cluster", module="mk8s.v1", immutable=("control_plane.subnet_id", "kube_network.service_cidrs")
    ),
    ObjectKind(
        name="NodeGroup", module="mk8s.v1", parent="Cluster", immutable=("template.nvlink.nvl_instance_group_id",)
    ),
    ObjectKind(name="ServiceAccount", module="iam.v1"),
    ObjectKind(name="Group", module="iam.v1"),
    ObjectKind(
        name="GroupMembership",
        module="iam.v1",
        items="memberships",
        parent="Group",
        identity=("member_id",),
        immutable=("member_id",),
    ),
    ObjectKind(
        name="AccessPermit",
        module="iam.v1",
        parent="Group",
        identity=("resource_id", "role"),
        immutable=("resource_id", "role"),
    ),
    ObjectKind(name="AccessKey", module="iam.v2", immutable=("account", "expires_at", "secret_delivery_mode")),
    ObjectKind(name="Bucket", module="storage.v1"),
)  # fmt: skip
OBJECT_KINDS: Mapping[str, ObjectKind] = {row.name: row for row in _KIND_ROWS}


def _cpu(*vcpus: int) -> tuple[str, ...]:
    return tuple(f"{count}vcpu-{4 * count}gb" for count in vcpus)


PRESETS: Mapping[str, tuple[str, ...]] = {
    "cpu-e2": _cpu(2, 4, 8, 16, 32, 48, 64, 80),
    "cpu-d3": _cpu(2, 4, 8, 16, 32, 48, 64, 96, 128, 160, 192, 224, 256),
    "gpu-h100-sxm": ("1gpu-16vcpu-200gb", "8gpu-128vcpu-1600gb"),
    "gpu-h200-sxm": ("1gpu-16vcpu-200gb", "8gpu-128vcpu-1600gb"),
    "gpu-b200-sxm": ("1gpu-20vcpu-224gb", "8gpu-160vcpu-1792gb"),
    "gpu-b200-sxm-a": ("1gpu-20vcpu-224gb", "8gpu-160vcpu-1792gb"),
    "gpu-b300-sxm": ("1gpu-24vcpu-346gb", "8gpu-192vcpu-2768gb"),
    "gpu-gb300": ("4gpu-112vcpu-800gb",),
    "gpu-l40s-a": ("1gpu-8vcpu-32gb", "1gpu-16vcpu-64gb", "1gpu-24vcpu-96gb", "1gpu-32vcpu-128gb", "1gpu-40vcpu-160gb"),
    "gpu-l40s-d": (
        "1gpu-16vcpu-96gb", "1gpu-32vcpu-192gb", "1gpu-48vcpu-288gb", "2gpu-64vcpu-384gb", "2gpu-96vcpu-576gb",
        "4gpu-128vcpu-768gb", "4gpu-192vcpu-1152gb",
    ),
    "gpu-rtx6000": ("1gpu-24vcpu-218gb", "8gpu-192vcpu-1744gb"),
    "gpu-rtx6000-a": ("1gpu-24vcpu-218gb", "8gpu-192vcpu-1744gb"),
}  # fmt: skip
"""Presets of each platform."""
CLUSTERABLE = frozenset(
    (platform, preset)
    for platform in ("gpu-h100-sxm", "gpu-h200-sxm", "gpu-b200-sxm", "gpu-b200-sxm-a", "gpu-b300-sxm", "gpu-gb300")
    for preset in PRESETS[platform]
    if not preset.startswith("1gpu-")
)
"""Platforms and presets whose nodes can join a GPU cluster (gpu_cluster_compatible)."""


@dataclass(frozen=True)
class Version:
    """A version of Kubernetes."""

    deprecated: bool = False
    """True if no cluster of it is created."""
    end_of_life: str = ""
    drivers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Presets of drivers of node images, by platform; where none is here, those of `DRIVERS`."""


_HOPPER = ("gpu-l40s-a", "gpu-l40s-d", "gpu-h100-sxm", "gpu-h200-sxm")
_ONLY_13 = dict.fromkeys(
    (*_HOPPER, "gpu-b200-sxm", "gpu-b200-sxm-a", "gpu-b300-sxm", "gpu-rtx6000", "gpu-rtx6000-a"), ("cuda13.0",)
)
DRIVERS = ("cuda12.8", "cuda13.0")
VERSIONS: Mapping[str, Version] = {
    "1.30": Version(drivers=dict.fromkeys((*_HOPPER, "gpu-b200-sxm"), ("cuda12",))),
    "1.31": Version(
        deprecated=True,
        end_of_life="2026-09-01",
        drivers={
            **dict.fromkeys(_HOPPER, ("cuda12", "cuda12.4", "cuda12.8")),
            "gpu-b200-sxm": ("cuda12", "cuda12.8"),
            "gpu-b200-sxm-a": ("cuda12.8",),
        },
    ),
    "1.32": Version(
        drivers={
            **_ONLY_13,
            **dict.fromkeys((*_HOPPER, "gpu-b200-sxm", "gpu-b200-sxm-a"), ("cuda12", "cuda12.8", "cuda13.0")),
        }
    ),
    "1.33": Version(drivers={**_ONLY_13, "gpu-b200-sxm-a": DRIVERS}),
    "1.34": Version(),
    "1.35": Version(drivers=_ONLY_13),
    "1.36": Version(drivers=_ONLY_13),
}
DEFAULT_VERSION = "1.35"
"""Version of a cluster or node group whose spec names none."""
