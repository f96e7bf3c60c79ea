"""What one edit of a cluster changes in its releases, and nothing else."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from cluster.platforms.nebius.releases import CloudFacts
from tests.cluster.nebius.clusters import BACKED_UP, KEY, config, described, groups, releases_of
from tests.cluster.samples import CLUSTERS, edited, edits_of

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
        "facts": CloudFacts(stack="nebius", root_keys=BACKED_UP.root_keys, backups=BACKED_UP.backups),
    },
    "keys of the facts": {
        "facts": CloudFacts(
            stack="nebius", root_keys=[*BACKED_UP.root_keys, f"{KEY} b"], allocation="x", backups=BACKED_UP.backups
        )
    },
    "three login nodes, also in the check that counts them": {"login": {"count": 3}},
    "a node more": {"nodesets": {"worker": {**H100, "count": 3}}},
    "spot nodes: the node group's own": {"nodesets": {"worker": {**H100, "capacity": {"spot": {}}}}},
    "another fabric: the node group's own": {"nebius": {"workers": {"worker": {"infiniband": {"fabric": "fabric-4"}}}}},
    "drivers of CUDA 12": {"nebius": {"gpu": {"drivers_preset": "cuda12.8"}}},
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


def test_blocks_of_an_nvlink_domain_reach_the_chart():
    given = {"slurmConfig": {"topologyPlugin": "topology/block"}, "topology": {"blockSize": 18}}
    every = releases_of(described(nebius={"values": {"slurm-cluster": given}}))
    assert every["slurm-cluster"].values["topology"] == {"blockSize": 18}
    checks = every["soperator-activechecks"].values["checks"]
    assert checks.get("wait-for-topology", {}).get("runAfterCreation", True)


class TestRegistry:
    @pytest.mark.parametrize("version", ["4.1.4", "4.1.7"])
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


OF_OTHERS = """
filesystems.accounting.spec filesystems.controller_spool.spec filesystems.jail.existing
filesystems.jail.spec.size_gib filesystems.submounts.*.existing filesystems.submounts.*.spec.block_kib
filesystems.submounts.*.spec.size_gib kubernetes.allowed_cidrs
kubernetes.etcd_size login.root_keys prefix project region subnet tenant
timeouts.available token_command workers.*.infiniband.existing workers.*.infiniband.fabric
""".split()
"""Fields of the section `nebius` that only other resources have."""


def test_every_field_changes_a_release_or_a_node_group_unless_other_resources_have_it():
    def made(cluster):
        return releases_of(cluster), groups(config(cluster))

    before = made(CLUSTERS["nebius"])
    edits = [edit for edit in edits_of("nebius") if edit.pattern.startswith("nebius.")]
    changing = {edit.pattern for edit in edits if made(edited(CLUSTERS["nebius"], edit.changes)) != before}
    same = {edit.pattern for edit in edits} - changing
    assert sorted(pattern.removeprefix("nebius.") for pattern in same) == OF_OTHERS
