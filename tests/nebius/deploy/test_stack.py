"""A whole stack: up, changes, failures, refresh, kill -9, destroy; with a real Kubernetes API and real Helm."""

import json
import signal
from contextlib import closing

import pytest

from components.nebius.api import client
from lab.kubernetes.apiserver import ApiServer
from lab.nebius_api.faults import Fault
from lab.soperator import CONTROLLERS
from tests.nebius.deploy.site import Site, listed
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

ALICE = {"name": "alice", "uid": 2001}
LAB = "soperator"
POWER_API = "slurm.nebius.ai/v1alpha1"


@pytest.fixture(scope="module")
def lasting(tmp_path_factory, programs):
    """A site for tests that follow each other: each takes the stack as the one before left it."""
    parent = tmp_path_factory.mktemp("lasting")
    folder = parent / "site"
    folder.mkdir()
    with (
        ApiServer(parent / "k", programs, controllers=CONTROLLERS, bound=True).running() as access,
        Site(folder, access, programs) as found,
    ):
        yield found


def slurm(site):
    return json.loads(site.slurm.read_text())


def spec(site, kind, name):
    return next(row["spec"] for row in site.api.store.of(kind) if row["metadata"]["name"] == name)


def powered(site):
    """The nodes of the elastic nodeset that are up."""
    return sorted(site.kube.get(POWER_API, "NodeSetPowerState", "gpu", LAB)["spec"].get("activeNodes", ()))


def power(site, numbers):
    """Power nodes up and down, as Soperator's programs do for Slurm."""
    metadata = {"name": "gpu", "namespace": LAB}
    kind = {"apiVersion": POWER_API, "kind": "NodeSetPowerState"}
    site.kube.apply({**kind, "metadata": metadata, "spec": {"nodeSetRef": "gpu", "activeNodes": numbers}})


def within(available, login=30):
    """Seconds of the waits."""
    return {"timeouts": {"available": available, "login": login}}


def killed(site, kind, begun):
    """A run that is killed once it has begun something: kills at every call are in tests/nebius/api and kube."""
    child = site.start(kind)
    wait_for(lambda: child.exitcode is not None or begun())
    child.kill()
    child.join()
    assert child.exitcode == -signal.SIGKILL


def test_after_a_kill_each_wait_says_what_is_missing_and_the_next_up_goes_on(lasting):
    site = lasting
    site.write(nebius=within(30))
    quota = Fault(kind="NodeGroup", verb="create", mode="refuse", what="quota_failure", name="worker*", count=None)
    site.api.faults.append(quota)
    killed(site, "up", lambda: [*site.api.store.of("NodeGroup")])
    site.run("up", ok=False)
    assert "compute.instance.gpu.h100" in site.failure()
    site.api.faults.clear()

    site.behaviour.unavailable = "back-off restarting failed container"
    site.run("up", ok=False)
    assert (
        "SlurmCluster soperator did not come within 30 s (nebius.timeouts.available): phase Not available"
        in site.failure()
    )
    assert "ControllersAvailable=False" in site.failure()
    assert "controller-0: " in site.failure()
    assert "CrashLoopBackOff" in site.failure()

    site.behaviour.unavailable = ""
    site.write()
    site.run("up")
    names = [name for name in site.owned() if not name.startswith("Disk")]
    assert len(names) == len(set(names)), names


def test_manually_deleted_objects_are_recreated(lasting):
    site = lasting
    group = next(row for row in site.api.store.of("NodeGroup") if row["metadata"]["name"] == "login")
    with site.api.lock:
        del site.api.store.objects[group["metadata"]["id"]]
    site.kube.delete(site.kube.get("slurm.nebius.ai/v1alpha1", "NodeSet", "gpu", LAB))
    site.run("refresh")
    changed = site.run("up")
    assert changed["soperator-nodes-login"] == "create"


def test_changes(lasting):
    site = lasting
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
    assert [user["name"] for user in slurm(site)["people"]["users"]] == ["alice", "bob"]

    # Metrics, which go again below. One node more, then two fewer: those that leave are drained first, and deleted from
    # Slurm when they are gone.
    gpu = {"machine_type": "gpu-h100-sxm/8gpu-128vcpu-1600gb"}
    site.write(users=[ALICE], monitoring={}, nodesets={"gpu": {"count": 3, **gpu}})
    changed = site.run("up")
    assert changed["soperator-charts-victoria-metrics-k8s-stack"] == "create"
    assert changed["soperator-charts-dashboard-soperator-overview"] == "create"
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

    # Another driver: nodes are drained, recreated by their group, and resumed. And the nodeset becomes elastic.
    site.api.place.images = {"gpu-h100-sxm": ("cuda13.0", "cuda14.0")}
    driver = {"gpu": {"drivers_preset": "cuda14.0"}}
    site.write(users=[ALICE], nodesets={"gpu": {"count": {"min": 1, "max": 4}, **gpu}}, nebius=driver)
    changed = site.run("up")
    assert changed["soperator-nodes-worker-gpu-0"] == "update"
    assert changed["soperator-drain"] == "update"
    assert "resumed gpu-0" in site.logs()
    group = spec(site, "NodeGroup", "worker-gpu-0")
    assert "fixed_node_count" not in group
    assert [int(group["autoscaling"][key]) for key in ("min_node_count", "max_node_count")] == [1, 4]
    assert (powered(site), slurm(site)["known"]) == ([0], ["gpu-0"])

    # One more static node, while Slurm has powered up one that the nodeset has no more.
    power(site, [0, 3])
    site.write(users=[ALICE], nodesets={"gpu": {"count": {"min": 2, "max": 3}, **gpu}}, nebius=driver)
    changed = site.run("up")
    assert "replace" not in changed.values()
    assert powered(site) == [0, 1]
    assert "gpu-1" in slurm(site)["known"]
    assert {name: row["pod"] for name, row in site.outputs()["elastic"].items()} == {"gpu-2": "gpu-2"}


def test_protected_data_stays_when_the_stack_goes_also_after_a_kill(lasting):
    """Of disks that volumes have left, those of the cluster's namespace go."""
    site = lasting
    site.write(**{**site.given, "deletion_protection": True})
    site.run("up")
    for name, namespace in (("pvc-1", LAB), ("pvc-2", "other")):
        labels = {"kubernetes.io/created-for/pvc/namespace": namespace}
        with site.api.lock:
            site.api.store.add("Disk", {"parent_id": "project-e00test", "name": name, "labels": labels}, {}, "READY")
    there = len(listed(site.kube, "apps/v1", "Deployment"))
    killed(site, "destroy", lambda: len(listed(site.kube, "apps/v1", "Deployment")) < there)
    site.run("destroy")
    kept = [name for name in site.owned() if not name.startswith(("Filesystem", "Bucket"))]
    assert kept == ["Disk pvc-2"]
    assert len([name for name in site.owned() if name.startswith("Filesystem")]) == 3
    for row in site.api.store.of("Filesystem"):
        assert f"kept: Filesystem {row['metadata']['name']} ({row['metadata']['id']}, " in site.logs()
    assert "`existing: computefilesystem-" in site.logs()
    assert site.in_cluster() == []
    assert site.run("destroy") == {}


def test_a_chart_that_does_not_exist_stops_before_anything_is_created(kube, tmp_path):
    site = Site(tmp_path, kube.access, kube.paths)
    with site.api, closing(client):
        site.write(nebius={"soperator": {"version": "4.1.7", "charts": str(site.folder)}})
        site.run("up", ok=False)
        assert "there is no chart in the folder" in site.failure()
        assert site.owned() == []
        site.run("destroy")
