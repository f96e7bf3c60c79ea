"""What each edit does to running jobs on Nebius."""

from collections.abc import Callable
from typing import Any

import pytest

from cluster.config.impact_annotations import Effect
from cluster.impact.edits import edits
from cluster.impact.table import editable_patterns, find_rule, impact, possible_effects
from cluster.load import cluster_model, parse
from tests.cluster.nebius.clusters import H100, PLACE, given
from tests.cluster.samples import at, gone

Cluster = dict[str, Any]
SPEC = {"size_gib": 100}
KEY = "ssh-ed25519 " + "AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 43


def base() -> Cluster:
    """Two nodesets with GPUs and one without, submounts of both kinds, local disks: every optional section is there."""
    cluster = given(
        nodesets={
            "gpu": {"machine_type": H100, "count": 4, "capacity": {"spot": {}}},
            "small": {"machine_type": "gpu-h100-sxm/1gpu-16vcpu-200gb", "count": 1},
            "cpu": {"count": 2},
        },
        login={"count": 2},
        users=[{"name": "alice", "uid": 2001}],
    )
    cluster["nebius"] = {
        **PLACE,
        "filesystems": {
            "jail": {"spec": {"size_gib": 2048}},
            "controller_spool": {"spec": {"size_gib": 128}},
            "accounting": {"spec": {"size_gib": 512}},
            "submounts": {
                "data": {"mount": "/data", "spec": SPEC},
                "old": {"mount": "/old", "existing": "computefilesystem-e00old"},
            },
        },
        "workers": {
            "gpu": {
                "infiniband": {"fabric": "fabric-3"},
                "local_disks": {"scratch": {"mount": "/scratch", "size_gib": 93}},
                "image_disk": {"size_gib": 930},
            },
            "cpu": {},
        },
    }
    return cluster


N = "nebius"
DATA = (N, "filesystems", "submounts", "data")
Sample = tuple[str, Callable[[Cluster], Any], Effect, str]
NOTHING, RECONFIGURE, DRAIN, REPLACE, REFUSED = (
    Effect.NOTHING, Effect.RECONFIGURE, Effect.DRAIN, Effect.REPLACE, Effect.REFUSED,
)  # fmt: skip
SAMPLES: list[Sample] = [
    # Where it is.
    ("nebius.tenant", at(N, tenant="tenant-e00other"), REFUSED, "everything that the stack created"),
    ("nebius.project", at(N, project="project-e00other"), REFUSED, "everything that the stack created"),
    ("nebius.region", at(N, region="eu-north1"), NOTHING, ""),
    ("nebius.subnet", at(N, subnet="vpcsubnet-e00abc"), REFUSED, "everything that the stack created"),
    ("nebius.endpoint", at(N, endpoint="127.0.0.1:1"), REFUSED, "everything that the stack created"),
    # Versions.
    ("nebius.kubernetes.version", at(N, "kubernetes", version="1.36"), REPLACE, "every node is recreated"),
    ("nebius.kubernetes.version", at(N, "kubernetes", version="1.37"), REFUSED, "write 1.36 first"),
    ("nebius.kubernetes.version", at(N, kubernetes={"version": "1.30"}, gpu={"drivers_preset": "cuda12"}), REFUSED,
     "can't go back"),
    ("nebius.kubernetes.etcd_size", at(N, "kubernetes", etcd_size=1), NOTHING, "members of etcd"),
    ("nebius.soperator.version", at(N, "soperator", version="5.0.0"), REPLACE, "all pods are recreated"),
    ("nebius.soperator.version", at(N, "soperator", version="4.1.6"), REFUSED, "does not start on what"),
    ("nebius.soperator.charts", at(N, "soperator", charts="/charts"), NOTHING, "the same"),
    # File systems.
    ("nebius.filesystems.jail.spec.size_gib", at(N, "filesystems", "jail", "spec", size_gib=4096), NOTHING, "it grows"),
    ("nebius.filesystems.jail.spec.size_gib", at(N, "filesystems", "jail", "spec", size_gib=1024), REFUSED,
     "not shrink"),
    ("nebius.filesystems.submounts.*.spec.size_gib", at(*DATA, "spec", size_gib=50), REFUSED, "not shrink"),
    ("nebius.filesystems.submounts.*.spec.block_kib", at(*DATA, "spec", block_kib=32), REFUSED, "for ever"),
    ("nebius.filesystems.jail.existing",
     at(N, "filesystems", jail={"existing": "computefilesystem-e00x", "overwrite_existing": True}), REFUSED,
     "home folders"),
    ("nebius.filesystems.controller_spool.spec",
     at(N, "filesystems", controller_spool={"existing": "computefilesystem-e00x"}), REFUSED, "Slurm's state"),
    ("nebius.filesystems.accounting.spec",
     at(N, "filesystems", accounting={"existing": "computefilesystem-e00x"}), REFUSED, "job records"),
    ("nebius.filesystems.submounts.*.existing",
     at(N, "filesystems", "submounts", "old", existing="computefilesystem-e00x"), REFUSED, "put it back"),
    ("nebius.filesystems.submounts.*",
     at(N, "filesystems", "submounts", new={"mount": "/new", "spec": SPEC}), REPLACE,
     "cpu-[0-1],gpu-[0-3],small-0 is recreated: it takes no new jobs"),
    ("nebius.filesystems.submounts.*", gone(*DATA), REPLACE, "/data is gone from the jail"),
    ("nebius.filesystems.submounts.*", lambda c: (c.update(deletion_protection=False), gone(*DATA)(c)), REFUSED,
     "deleted with every file"),
    ("nebius.filesystems.submounts.*.mount", at(*DATA, mount="/elsewhere"), REPLACE, "with it at /elsewhere"),
    # Groups without Slurm nodes.
    ("nebius.system.machine_type", at(N, "system", machine_type="cpu-d3/16vcpu-64gb"), NOTHING, "operators"),
    ("nebius.system.disk_gib", at(N, "system", disk_gib=256), NOTHING, "operators"),
    ("nebius.system.min_nodes", at(N, "system", min_nodes=4), NOTHING, "operators"),
    ("nebius.system.max_nodes", at(N, "system", max_nodes=10), NOTHING, "operators"),
    ("nebius.accounting.machine_type", at(N, "accounting", machine_type="cpu-d3/16vcpu-64gb"), NOTHING, "slurmdbd"),
    ("nebius.accounting.disk_gib", at(N, "accounting", disk_gib=256), NOTHING, "slurmdbd"),
    ("controller.machine_type", at("controller", machine_type="cpu-d3/32vcpu-128gb"), REPLACE, "jobs run on"),
    ("controller.disk.size_gb", at("controller", "disk", size_gb=256), REPLACE, "jobs run on"),
    ("controller.disk.size_gb", at("controller", "disk", size_gb=128), NOTHING, "stay as they are"),
    ("login.machine_type", at("login", machine_type="cpu-d3/64vcpu-256gb"), REPLACE, "login-[0-1] is recreated"),
    ("login.disk.size_gb", at("login", "disk", size_gb=512), REPLACE, "login-[0-1] is recreated"),
    ("login.count", at("login", count=3), NOTHING, "left alone"),
    ("login.count", at("login", count=1), REPLACE, "login-1 is removed"),
    ("nebius.login.service", at(N, "login", service="NodePort"), REPLACE, "another address"),
    ("nebius.login.exposure", at(N, "login", exposure="internal"), REPLACE, "another address"),
    ("nebius.login.root_keys", at(N, "login", root_keys=[KEY]), NOTHING, "sessions stay"),
    # Nodesets.
    ("nodesets.*", at("nodesets", more={"count": 1}), RECONFIGURE, "its nodes join"),
    ("nodesets.*", gone("nodesets", "small"), DRAIN, "small-0 leaves"),
    ("nodesets.*.count", at("nodesets", "gpu", count=6), RECONFIGURE, "gpu-[4-5] joins"),
    ("nodesets.*.count", at("nodesets", "gpu", count=2), DRAIN, "gpu-[2-3] leaves"),
    ("nodesets.*.count", at("nodesets", "gpu", count={"min": 1, "max": 8}), DRAIN, "gpu-[1-3] leaves"),
    ("nodesets.*.count", at("nodesets", "gpu", count={"min": 4, "max": 8}), RECONFIGURE, "gpu-[4-7] joins"),
    ("nodesets.*.machine_type", at("nodesets", "cpu", machine_type="cpu-d3/32vcpu-128gb"), REPLACE,
     "cpu-[0-1] is recreated"),
    ("nodesets.*.disk.size_gb", at("nodesets", "gpu", disk={"size_gb": 1024}), REPLACE, "gpu-[0-3] is recreated"),
    ("nodesets.*.disk.size_gb", at("nodesets", "gpu", disk={"size_gb": 512}), NOTHING, "stay as they are"),
    ("nodesets.*.capacity", at("nodesets", "gpu", capacity={"on_demand": {}}), REPLACE, "gpu-[0-3] is recreated"),
    ("slurm.version", at(slurm={"version": "25.11"}), NOTHING, "decides"),
    # What nodesets have on Nebius.
    ("nebius.workers.*", at(N, "workers", small={}), NOTHING, "stay as they are"),
    ("nebius.workers.*", gone(N, "workers", "gpu"), REPLACE, "gpu-[0-3] is recreated"),
    ("nebius.workers.*.infiniband", gone(N, "workers", "gpu", "infiniband"), REPLACE, "gpu-[0-3] is recreated"),
    ("nebius.workers.*.infiniband.fabric", at(N, "workers", "gpu", "infiniband", fabric="fabric-4"), REPLACE,
     "gpu-[0-3] is recreated"),
    ("nebius.workers.*.infiniband.existing",
     at(N, "workers", "gpu", infiniband={"existing": "computegpucluster-e00x"}), REPLACE, "gpu-[0-3] is recreated"),
    ("nebius.workers.*.local_disks.*",
     at(N, "workers", "gpu", "local_disks", more={"mount": "/more", "size_gib": 93}), REPLACE, "gpu-[0-3]"),
    ("nebius.workers.*.local_disks.*.size_gib", at(N, "workers", "gpu", "local_disks", "scratch", size_gib=186),
     REPLACE, "gpu-[0-3]"),
    ("nebius.workers.*.local_disks.*.mount", at(N, "workers", "gpu", "local_disks", "scratch", mount="/s"), REPLACE,
     "gpu-[0-3]"),
    ("nebius.workers.*.local_disks.*.type", at(N, "workers", "gpu", "local_disks", "scratch", type="network-ssd"),
     REPLACE, "gpu-[0-3]"),
    ("nebius.workers.*.local_disks.*.filesystem", at(N, "workers", "gpu", "local_disks", "scratch", filesystem="xfs"),
     REPLACE, "gpu-[0-3]"),
    ("nebius.workers.*.image_disk", gone(N, "workers", "gpu", "image_disk"), REPLACE, "gpu-[0-3]"),
    ("nebius.workers.*.image_disk.size_gib", at(N, "workers", "gpu", "image_disk", size_gib=1860), REPLACE,
     "gpu-[0-3]"),
    ("nebius.workers.*.image_disk.type", at(N, "workers", "gpu", "image_disk", type="network-ssd"), REPLACE,
     "gpu-[0-3]"),
    ("nebius.workers.*.image_disk.filesystem", at(N, "workers", "gpu", "image_disk", filesystem="xfs"), REPLACE,
     "gpu-[0-3]"),
    ("nebius.workers.*.nodes_per_group", at(N, "workers", "gpu", nodes_per_group=50), NOTHING, "stay as they are"),
    ("nebius.workers.*.nodes_per_group", at(N, "workers", "gpu", nodes_per_group=2), REFUSED, "nodes would move"),
    ("nebius.workers.*.max_unavailable_percent", at(N, "workers", "gpu", max_unavailable_percent=10), NOTHING,
     "the next time"),
    ("nebius.gpu.driver", at(N, "gpu", driver="operator"), REPLACE, "gpu-[0-3],small-0 is recreated"),
    ("nebius.gpu.drivers_preset", at(N, "gpu", drivers_preset="cuda14.0"), REPLACE, "gpu-[0-3],small-0 is recreated"),
    # Everything else.
    ("nebius.health.replace_nodes", at(N, "health", replace_nodes=False), NOTHING, "jobs run on"),
    ("nebius.health.scope", at(N, "health", scope="essential"), NOTHING, "jobs run on"),
    ("nebius.backups.keep_daily", at(N, "backups", keep_daily=3), NOTHING, "next backup"),
    ("nebius.timeouts.available", at(N, "timeouts", available=60), NOTHING, "waits"),
    ("nebius.token_command", at(N, token_command=["other"]), NOTHING, "next command"),
    ("users.*", lambda c: c["users"].append({"name": "bob", "uid": 2002}), NOTHING, "created on every machine"),
    ("partitions.*", at("partitions", night={"nodesets": ["cpu"]}), RECONFIGURE, "sent there"),
    ("deletion_protection", at(deletion_protection=False), NOTHING, "destroy"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "change", "effect", "text"), SAMPLES, ids=lambda one: one if isinstance(one, str) else ""
)
def test_an_edit_does_what_the_preview_says(
    pattern: str, change: Callable[[Cluster], Any], effect: Effect, text: str
) -> None:
    cluster = base()
    before = parse({"hpc:cluster": base()})
    change(cluster)
    cluster["partitions"]["main"]["nodesets"] = [*cluster["nodesets"]]
    after = parse({"hpc:cluster": cluster})
    found = {edit.pattern: edit for edit in edits(before, after)}
    if not text:
        assert not found
        return
    assert pattern in found
    one = impact(found[pattern])
    assert one is not None
    assert (one.effect, text in one.reason) == (effect, True), one.reason
    assert effect in possible_effects(pattern, type(before))
    assert "{stack}" in one.command or effect is REFUSED


def test_every_field_of_the_section_has_an_impact() -> None:
    model = cluster_model()
    mine = {pattern for pattern in editable_patterns(model) if pattern.startswith("nebius")}
    assert len(mine) > 50
    assert {pattern for pattern in mine if find_rule(pattern, "nebius", model) is None} == set()


def test_a_grown_nodeset_may_need_another_group_and_recreates_none() -> None:
    old, new = (parse({"hpc:cluster": given(nodesets={"worker": {"count": count}})}) for count in (90, 250))
    (edit,) = edits(old, new)
    one = impact(edit)
    assert one is not None
    assert (one.effect, "worker-[90-249] joins" in one.reason) == (RECONFIGURE, True)
