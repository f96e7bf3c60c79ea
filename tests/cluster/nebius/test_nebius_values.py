"""What one edit of a cluster changes in its releases, and nothing else."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import pytest

from cluster.platforms.nebius.releases import Facts
from tests.cluster.nebius.clusters import BACKED_UP, FABRIC, KEY, config, described, groups, releases_of

_ABSENT = object()


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value by its dotted path; members of lists by their name or position."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from flat(item, f"{path}.{key}")
    elif isinstance(value, list) and value:
        for position, item in enumerate(value):
            name = item.get("name", position) if isinstance(item, Mapping) else position
            yield from flat(item, f"{path}[{name}]")
    else:
        yield path.removeprefix("."), value


def changes(before, after) -> dict[str, Any]:
    """Return what is new, by path; None for what is gone."""
    old = dict(flat({name: item.values for name, item in before.items()}))
    new = dict(flat({name: item.values for name, item in after.items()}))
    return {path: new.get(path) for path in [*old, *new] if old.get(path, _ABSENT) != new.get(path, _ABSENT)}


def edit(version="4.1.7", facts=BACKED_UP, **changed) -> dict[str, Any]:
    return changes(releases_of(described(version)), releases_of(described(version, **changed), facts))


H100 = {"machine_type": "gpu-h100-sxm/8gpu-128vcpu-1600gb", "count": 2}
EDITS: dict[str, dict[str, Any]] = {
    "login by a node port": {"nebius": {"login": {"service": "NodePort"}}},
    "login by an internal load balancer": {
        "nebius": {"login": {"exposure": "internal"}},
        "facts": Facts(root_keys=BACKED_UP.root_keys, backups=BACKED_UP.backups),
    },
    "keys of the facts": {
        "facts": Facts(root_keys=[*BACKED_UP.root_keys, f"{KEY} b"], allocation="x", backups=BACKED_UP.backups)
    },
    "three login nodes, also in the check that counts them": {"login": {"count": 3}},
    "a node more": {"nodesets": {"worker": {**H100, "count": 3}}},
    "spot nodes: the node group's own": {"nodesets": {"worker": {**H100, "capacity": {"spot": {}}}}},
    "another fabric: the node group's own": {"nebius": {"workers": {"worker": {"infiniband": {"fabric": "fabric-4"}}}}},
    "a driver of the GPU operator, waited for and not mounted": {"nebius": {"gpu": {"driver": "operator"}}},
    "features and node_conf": {"nodesets": {"worker": {**H100, "features": ["fast"], "node_conf": {"weight": 7}}}},
    "a disk of each node, mounted and checked": {
        "nebius": {
            "workers": {
                "worker": {"local_disks": {"scratch": {"size_gib": 93, "mount": "/scratch", "filesystem": "xfs"}}}
            }
        }
    },
    "a disk for images": {"nebius": {"workers": {"worker": {"image_disk": {"size_gib": 93}}}}},
    # Kubernetes refuses another size of a bound claim.
    "a grown file system": {"nebius": {"filesystems": {"jail": {"spec": {"size_gib": 4096}}}}},
    "an existing jail": {
        "nebius": {"filesystems": {"jail": {"existing": "computefilesystem-e00jail", "overwrite_existing": True}}}
    },
    "a submount, in login and worker pods": {
        "nebius": {"filesystems": {"submounts": {"data": {"spec": {"size_gib": 9}, "mount": "/data"}}}}
    },
    "nodes that are not replaced": {"nebius": {"health": {"replace_nodes": False}}},
}


def test_an_edit_changes_these_values_and_no_others(reviewed):
    found = {case: edit(**given) for case, given in EDITS.items()}
    reviewed(
        "nebius/edits",
        {case: "\n".join(f"{path}: {value!r}" for path, value in every.items()) for case, every in found.items()},
    )


@pytest.mark.parametrize(
    ("scope", "quick", "long", "jail"),
    [
        ("skip_all", False, False, False),
        ("testing", False, False, True),
        ("essential", False, False, True),
        ("prod_quick", True, False, True),
        ("prod_acceptance", True, True, True),
    ],
)
def test_a_scope_says_what_runs_when_the_cluster_comes_up(scope, quick, long, jail):
    checks = releases_of(described(nebius={"health": {"scope": scope}}))["soperator-activechecks"].values["checks"]
    assert checks["gpu-fryer"]["runAfterCreation"] is quick
    assert checks["dcgmi-diag-r3"]["runAfterCreation"] is long
    assert checks["manage-jail-state"]["runAfterCreation"] is jail


def test_a_cluster_can_do_without_names_of_switches():
    """Where slurmctld can't read them (known problem 9)."""
    plain, conf = releases_of(described()), {"topologyPlugin": "topology/default"}
    without = releases_of(described(nebius={"values": {"slurm-cluster": {"slurmConfig": conf}}}))
    waits = [
        every["soperator-activechecks"].values["checks"].get("wait-for-topology", {}).get("runAfterCreation", True)
        for every in (plain, without)
    ]
    assert waits == [True, False]
    assert conf.items() <= without["slurm-cluster"].values["slurmConfig"].items()


@pytest.mark.parametrize("version", ["4.1.7", "5.0.0"])
def test_blocks_of_an_nvlink_domain_reach_the_chart(version):
    given = {"slurmConfig": {"topologyPlugin": "topology/block"}, "topology": {"blockSize": 18}}
    every = releases_of(described(nebius={"values": {"slurm-cluster": given}, "soperator": {"version": version}}))
    assert every["slurm-cluster"].values["topology"] == {"blockSize": 18}
    checks = every["soperator-activechecks"].values["checks"]
    assert checks.get("wait-for-topology", {}).get("runAfterCreation", True)


class TestRegistry:
    @pytest.mark.parametrize("version", ["4.1.4", "4.1.7", "5.0.0"])
    def test_the_registry_of_charts_and_images_is_one_setting(self, version):
        mirror = "cr.nebius.cloud/soperator"
        every = releases_of(described(version, nebius={"soperator": {"charts": f"oci://{mirror}"}}))
        own = [release for release in every.values() if release.name.startswith(("soperator", "slurm-", "nodesets"))]
        assert {release.repo for release in own} == {f"oci://{mirror}"}
        texts = [str(value) for release in every.values() for _, value in flat(release.values)]
        assert [text for text in texts if f"{mirror}/" in text]
        assert not [text for text in texts if "cr.eu-north1" in text]

    def test_charts_of_a_folder_are_all_there(self):
        every = releases_of(described(nebius={"soperator": {"charts": "/srv/charts"}}))
        assert {release.repo for release in every.values()} == {"/srv/charts"}


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
"""Every field of the section `nebius` that changes a release or a node group: the section before and after."""


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
        (releases_of(_cluster(item)), groups(config(_cluster(item)))) for item in map(deepcopy, CHANGED[field])
    )
    assert before != after
