"""Every field of the section `nebius` does something: it changes a release or a node group, or is read where named."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.nebius.clusters import FABRIC, config, described, groups, releases_of

ROOT = Path(__file__).parents[3]
DISK = {"size_gib": 93}
SUBMOUNT = {"spec": {"size_gib": 100}, "mount": "/data"}


def worker(**settings: Any) -> dict[str, Any]:
    return {"workers": {"worker": {**FABRIC, **settings}}}


def local(**settings: Any) -> dict[str, Any]:
    return worker(local_disks={"scratch": {**DISK, "mount": "/scratch", **settings}})


CHANGED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "soperator.version": ({}, {"soperator": {"version": "4.1.6"}}),
    "soperator.charts": ({}, {"soperator": {"charts": "oci://registry.example.com/x"}}),
    "filesystems.submounts.*.mount": (
        {"filesystems": {"submounts": {"data": SUBMOUNT}}},
        {"filesystems": {"submounts": {"data": {**SUBMOUNT, "mount": "/other"}}}},
    ),
    "system.machine_type": (
        {"system": {"machine_type": "cpu-d3/8vcpu-32gb"}, "kind": "large"},
        {"system": {"machine_type": "cpu-d3/64vcpu-256gb"}, "kind": "large"},
    ),
    "accounting.machine_type": ({}, {"accounting": {"machine_type": "cpu-d3/16vcpu-64gb"}}),
    "accounting.disk_gib": ({}, {"accounting": {"disk_gib": 256}}),
    "workers.*.local_disks.*.size_gib": (local(), local(size_gib=186)),
    "workers.*.local_disks.*.type": (local(), local(type="network-ssd")),
    "workers.*.local_disks.*.filesystem": (local(), local(filesystem="xfs")),
    "workers.*.local_disks.*.mount": (local(), local(mount="/fast")),
    "workers.*.image_disk.size_gib": (worker(image_disk=DISK), worker(image_disk={"size_gib": 186})),
    "workers.*.image_disk.type": (worker(image_disk=DISK), worker(image_disk={**DISK, "type": "network-ssd"})),
    "workers.*.image_disk.filesystem": (
        worker(image_disk=DISK), worker(image_disk={**DISK, "filesystem": "xfs"}),
    ),
    "login.service": ({}, {"login": {"service": "NodePort"}}),
    "login.exposure": ({}, {"login": {"exposure": "internal"}}),
    "gpu.driver": ({}, {"gpu": {"driver": "operator"}}),
    "health.scope": ({}, {"health": {"scope": "skip_all"}}),
    "health.replace_nodes": ({}, {"health": {"replace_nodes": False}}),
    "backups.schedule": ({}, {"backups": {"schedule": "0 3 * * *"}}),
    "backups.keep_daily": ({}, {"backups": {"keep_daily": 9}}),
    "values": ({}, {"values": {"kruise": {"manager": {"replicas": 3}}}}),
    "system.disk_gib": ({}, {"system": {"disk_gib": 300}}),
    "system.min_nodes": ({}, {"system": {"min_nodes": 4}}),
    "system.max_nodes": ({}, {"system": {"max_nodes": 12}}),
    "workers.*.nodes_per_group": ({}, worker(nodes_per_group=1)),
    "workers.*.max_unavailable_percent": (
        {"kind": "many", **worker(max_unavailable_percent=50)},
        {"kind": "many", **worker(max_unavailable_percent=10)},
    ),
    "gpu.drivers_preset": ({}, {"gpu": {"drivers_preset": "cuda14.0"}}),
}  # fmt: skip
"""The section `nebius` before and after the field is changed."""


def _cluster(settings: dict[str, Any]) -> dict[str, Any]:
    given = dict(settings)
    kind = given.pop("kind", "")
    given = {"workers": {}, **given} if kind == "large" else given
    sizes = {"large": ("cpu-d3/16vcpu-64gb", 600), "many": ("gpu-h100-sxm/8gpu-128vcpu-1600gb", 40)}
    if kind in sizes:
        machine_type, count = sizes[kind]
        return described("4.1.7", given, nodesets={"worker": {"machine_type": machine_type, "count": count}})
    return described("4.1.7", given)


@pytest.mark.parametrize("field", CHANGED)
def test_a_field_changes_a_release_or_a_node_group(field):
    before, after = (
        (releases_of(_cluster(one)), groups(config(_cluster(one)))) for one in map(deepcopy, CHANGED[field])
    )
    assert before != after
