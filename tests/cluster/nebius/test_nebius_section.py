"""Every field of the section `nebius` does something: it changes a release or a node group, or is read where named."""

import re
from pathlib import Path
from typing import Any

import pytest

from cluster.config.fields import is_section, member_section, patterns
from cluster.platforms.nebius.section import Nebius
from tests.cluster.nebius.clusters import FABRIC, config, described, groups, made

ROOT = Path(__file__).parents[3]
DISK = {"size_gib": 93}
SUBMOUNT = {"spec": {"size_gib": 100}, "mount": "/data"}


def worker(**settings: Any) -> dict[str, Any]:
    return {"workers": {"worker": {**FABRIC, **settings}}}


def local(**settings: Any) -> dict[str, Any]:
    return worker(local_disks={"scratch": {**DISK, "mount": "/scratch", **settings}})


RELEASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "soperator.version": ("4.1.7", {}, {"soperator": {"version": "4.1.6"}}),
    "soperator.charts": ("4.1.7", {}, {"soperator": {"charts": "oci://registry.example.com/x"}}),
    "filesystems.submounts.*.mount": (
        "4.1.7",
        {"filesystems": {"submounts": {"data": SUBMOUNT}}},
        {"filesystems": {"submounts": {"data": {**SUBMOUNT, "mount": "/other"}}}},
    ),
    "system.machine_type": (
        "4.1.7",
        {"system": {"machine_type": "cpu-d3/8vcpu-32gb"}, "kind": "large"},
        {"system": {"machine_type": "cpu-d3/64vcpu-256gb"}, "kind": "large"},
    ),
    "accounting.machine_type": ("4.1.7", {}, {"accounting": {"machine_type": "cpu-d3/16vcpu-64gb"}}),
    "accounting.disk_gib": ("4.1.7", {}, {"accounting": {"disk_gib": 256}}),
    "workers.*.local_disks.*.size_gib": ("4.1.7", local(), local(size_gib=186)),
    "workers.*.local_disks.*.type": ("4.1.7", local(), local(type="network-ssd")),
    "workers.*.local_disks.*.filesystem": ("4.1.7", local(), local(filesystem="xfs")),
    "workers.*.local_disks.*.mount": ("4.1.7", local(), local(mount="/fast")),
    "workers.*.image_disk.size_gib": ("4.1.7", worker(image_disk=DISK), worker(image_disk={"size_gib": 186})),
    "workers.*.image_disk.type": ("4.1.7", worker(image_disk=DISK), worker(image_disk={**DISK, "type": "network-ssd"})),
    "workers.*.image_disk.filesystem": (
        "4.1.7", worker(image_disk=DISK), worker(image_disk={**DISK, "filesystem": "xfs"}),
    ),
    "login.service": ("4.1.7", {}, {"login": {"service": "NodePort"}}),
    "login.exposure": ("4.1.7", {}, {"login": {"exposure": "internal"}}),
    "gpu.driver": ("4.1.7", {}, {"gpu": {"driver": "operator"}}),
    "health.scope": ("4.1.7", {}, {"health": {"scope": "skip_all"}}),
    "health.replace_nodes": ("4.1.7", {}, {"health": {"replace_nodes": False}}),
    "backups.schedule": ("4.1.7", {}, {"backups": {"schedule": "0 3 * * *"}}),
    "backups.keep_daily": ("4.1.7", {}, {"backups": {"keep_daily": 9}}),
    "values": ("4.1.7", {}, {"values": {"kruise": {"manager": {"replicas": 3}}}}),
}  # fmt: skip
"""Version, and the section `nebius` before and after the field is changed."""

NODE_GROUPS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "system.disk_gib": ({}, {"system": {"disk_gib": 300}}),
    "system.min_nodes": ({}, {"system": {"min_nodes": 4}}),
    "system.max_nodes": ({}, {"system": {"max_nodes": 12}}),
    "workers.*.nodes_per_group": ({}, worker(nodes_per_group=1)),
    "workers.*.max_unavailable_percent": (
        {"kind": "many", **worker(max_unavailable_percent=50)},
        {"kind": "many", **worker(max_unavailable_percent=10)},
    ),
    "gpu.drivers_preset": ({}, {"gpu": {"drivers_preset": "cuda14.0"}}),
}

_FILESYSTEMS = "components/nebius/storage.py"
READ: dict[str, str] = {
    "tenant": "components/nebius/infrastructure.py",
    "project": "components/nebius/resource.py",
    "region": "components/nebius/environment.py",
    "subnet": "components/nebius/network.py",
    "kubernetes.version": "components/nebius/infrastructure.py",
    "kubernetes.etcd_size": "components/nebius/infrastructure.py",
    **{
        f"filesystems.{name}.{key}": _FILESYSTEMS
        for name in ("jail", "controller_spool", "accounting", "submounts.*")
        for key in ("spec.size_gib", "spec.block_kib", "existing")
    },
    "filesystems.jail.overwrite_existing": "cluster/platforms/nebius/checks.py",
    "workers.*.infiniband.fabric": "components/nebius/node_groups.py",
    "workers.*.infiniband.existing": "components/nebius/node_groups.py",
    "login.root_keys": "components/nebius/deploy.py",
    "gpu.driver_version": "components/nebius/node_groups.py",
    "backups.enabled": "cluster/platforms/nebius/section.py",
    "timeouts.available": "components/nebius/infrastructure.py",
    "timeouts.login": "components/nebius/deploy.py",
    "endpoint": "components/nebius/resource.py",
    "token_command": "components/nebius/infrastructure.py",
}
"""The module that reads a field that neither a release nor a node group has."""


def _cluster(version: str, settings: dict[str, Any]) -> dict[str, Any]:
    given = dict(settings)
    kind = given.pop("kind", "")
    if kind == "large":
        nodesets = {"worker": {"machine_type": "cpu-d3/16vcpu-64gb", "count": 600}}
        return described(version, {"workers": {}, **given}, nodesets=nodesets)
    if kind == "many":
        return described(
            version, given, nodesets={"worker": {"machine_type": "gpu-h100-sxm/8gpu-128vcpu-1600gb", "count": 40}}
        )
    return described(version, given)


@pytest.mark.parametrize("field", RELEASES)
def test_a_field_of_the_charts_changes_a_release(field):
    version, before, after = RELEASES[field]
    assert made(_cluster(version, before)) != made(_cluster(version, after))


@pytest.mark.parametrize("field", NODE_GROUPS)
def test_a_field_of_node_groups_changes_one(field):
    before, after = NODE_GROUPS[field]
    assert groups(config(_cluster("4.1.7", before))) != groups(config(_cluster("4.1.7", after)))


@pytest.mark.parametrize("field", READ)
def test_other_fields_are_read_where_it_says(field):
    text = (ROOT / READ[field]).read_text()
    assert re.search(rf"\.{field.rpartition('.')[2]}\b", text)


def test_every_field_is_one_of_these():
    values = {
        pattern
        for pattern, info in patterns(Nebius)
        if not is_section(info.annotation) and member_section(info) is None
    }
    assert values == {*RELEASES, *NODE_GROUPS, *READ}
