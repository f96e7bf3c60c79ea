"""A whole stack: up, changes, refresh, destroy; with the API, a real Kubernetes API and real Helm."""

import json

import pytest

pytestmark = pytest.mark.slow

ALICE = {"name": "alice", "uid": 2001}
LAB = "soperator"


def slurm(site):
    return json.loads(site.slurm.read_text())


def spec(site, kind, name):
    return next(row["spec"] for row in site.api.store.of(kind) if row["metadata"]["name"] == name)


def test_up_changes_and_destroy(site):
    site.write(users=[ALICE])
    site.run("up")
    outputs = site.outputs()
    assert outputs["login"] == "login-0"
    assert outputs["port"] == 22
    assert outputs["address"]
    assert outputs["kubernetes"]["server"] == site.access.server
    assert "token" not in outputs["kubernetes"]
    assert site.access.token not in json.dumps(site.stack().export_state())
    assert slurm(site)["people"]["users"][0]["name"] == "alice"
    assert site.run("preview") == {}, "a second up changes nothing"

    # Another user: one resource, on the running cluster.
    site.write(users=[ALICE, {"name": "bob", "uid": 2002}])
    assert site.run("up") == {"soperator-people": "update"}
    assert [one["name"] for one in slurm(site)["people"]["users"]] == ["alice", "bob"]

    # One node more, then two fewer: those that leave are drained first, and deleted from Slurm when they are gone.
    gpu = {"machine_type": "gpu-h100-sxm/8gpu-128vcpu-1600gb"}
    site.write(users=[ALICE], nodesets={"gpu": {"count": 3, **gpu}})
    changed = site.run("up")
    assert changed["soperator-nodes-worker-gpu-0"] == "update"
    assert changed["soperator-charts-nodesets"] == "update"
    assert "replace" not in changed.values()
    assert int(spec(site, "NodeGroup", "worker-gpu-0")["fixed_node_count"]) == 3
    assert slurm(site)["known"] == ["gpu-0", "gpu-1", "gpu-2"]
    site.write(users=[ALICE], nodesets={"gpu": {"count": 1, **gpu}})
    site.run("up")
    assert {"drained gpu-1 (hpc: leaves the cluster)", "drained gpu-2 (hpc: leaves the cluster)"} <= {
        *site.logs().splitlines()
    }
    assert slurm(site)["deleted"] == ["gpu-1", "gpu-2"]
    assert slurm(site)["known"] == ["gpu-0"]

    # Another driver: nodes are drained, recreated by their group, and resumed.
    site.api.place.images = {"gpu-h100-sxm": ("cuda13.0", "cuda14.0")}
    site.write(users=[ALICE], nodesets={"gpu": {"count": 1, **gpu}}, nebius={"gpu": {"drivers_preset": "cuda14.0"}})
    changed = site.run("up")
    assert changed["soperator-nodes-worker-gpu-0"] == "update"
    assert changed["soperator-drain"] == "update"
    assert "resumed gpu-0" in site.logs()

    site.run("destroy")
    assert site.owned() == []
    assert site.in_cluster() == []
    assert site.run("destroy") == {}


def test_what_is_deleted_behind_its_back_comes_again_and_protected_data_stays(site):
    """Of disks that volumes have left, those of the cluster's namespace go."""
    site.write(deletion_protection=True)
    site.run("up")
    group = next(row for row in site.api.store.of("NodeGroup") if row["metadata"]["name"] == "login")
    with site.api.lock:
        del site.api.store.objects[group["metadata"]["id"]]
    site.kube.delete(site.kube.get("slurm.nebius.ai/v1alpha1", "NodeSet", "gpu", LAB))
    site.run("refresh")
    changed = site.run("up")
    assert changed["soperator-nodes-login"] == "create"
    for name, namespace in (("pvc-1", LAB), ("pvc-2", "other")):
        labels = {"kubernetes.io/created-for/pvc/namespace": namespace}
        with site.api.lock:
            site.api.store.add("Disk", {"parent_id": "project-e00test", "name": name, "labels": labels}, {}, "READY")
    site.run("destroy")
    kept = [name for name in site.owned() if not name.startswith(("Filesystem", "Bucket"))]
    assert kept == ["Disk pvc-2"]
    assert len([name for name in site.owned() if name.startswith("Filesystem")]) == 3
    for row in site.api.store.of("Filesystem"):
        assert f"kept: Filesystem {row['metadata']['name']} ({row['metadata']['id']}, " in site.logs()
    assert "`existing: computefilesystem-" in site.logs()
