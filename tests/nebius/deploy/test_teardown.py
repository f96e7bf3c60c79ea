"""A destroy ends what would outlive the cluster, and deletes what killed runs left and no state has."""

import json
from typing import Any, cast

import pytest

from components.nebius import teardown
from components.nebius.api import client, objects
from components.nebius.kubectl import Kubectl, KubectlError
from components.nebius.teardown import NebiusLeftoversProvider
from tests.lab.nebius_api.server import NebiusServer
from tests.nebius.deploy.kubectl_stand_in import Cluster, row


def cluster() -> Cluster:
    """One with an operator, a load balancer, and a volume."""
    found = Cluster()
    found.objects["deployments"] = [row("soperator", status={"replicas": 1})]
    found.objects["services"] = [row("slurm-login-svc", spec={"type": "LoadBalancer"})]
    volume: dict[str, Any] = {
        "csi": {"driver": teardown.CSI_DRIVER},
        "claimRef": {"namespace": "slurm"},
        "persistentVolumeReclaimPolicy": "Delete",
    }
    found.objects["persistentvolumes"] = [row("pvc-1", spec=volume)]
    found.answers["version"] = lambda _: json.dumps({})
    return found


def run_steps(found: Cluster, stage: str) -> list[str]:
    """Return what was done, in its order."""
    teardown.TeardownSteps(kubectl=cast("Kubectl", found), pace=0.01, reach=0.05).run(stage)
    return [f"{words[0]} {words[1]}" for words in found.ran if words[0] in ("scale", "delete", "wait")]


def test_the_operator_ends_before_what_it_would_create_again() -> None:
    steps = ["scale deployment", "delete poddisruptionbudgets", "delete service"]
    assert run_steps(cluster(), "charts") == steps
    found = cluster()
    assert run_steps(found, "volumes") == [*steps, "delete persistentvolumeclaims", "wait --for=delete"]
    # kubectl waits for each until a deadline.
    limits = {words[0]: words[-1] for words in found.ran if words[0] in ("scale", "wait")}
    assert limits == {"scale": "--timeout=120s", "wait": "--timeout=120s"}
    assert ("delete", "service", "slurm-login-svc", "--ignore-not-found", "--timeout=300s") in found.ran


def test_active_checks_are_not_held_by_an_operator_that_has_ended() -> None:
    """Soperator takes its finalizer away; without it, the chart of the checks would never be uninstalled."""
    found = cluster()
    found.objects["activechecks"] = [row("held", metadata={"finalizers": ["slurm.nebius.ai/f"]}), row("free")]
    run_steps(found, "charts")
    first = [words[:3] for words in found.ran if words[0] in ("scale", "patch")]
    assert [words[0] for words in first] == ["scale", "patch"]
    assert first[1][2] == "held"


def test_steps_that_do_not_end_are_reported_and_do_not_stop_the_teardown(capfd: pytest.CaptureFixture[str]) -> None:
    found = cluster()

    def late(_words: Any) -> str:
        raise KubectlError("timed out waiting for the condition")

    found.answers["scale"] = found.answers["delete"] = found.answers["wait"] = late
    run_steps(found, "volumes")
    reported = "".join(capfd.readouterr())
    for what in ("Soperator's pods", "load balancers (look", "volumes (their disks"):
        assert what in reported
    assert reported.count("the destroy goes on: timed out") == 4


def test_an_api_server_that_does_not_answer_does_not_stop_the_teardown(capfd: pytest.CaptureFixture[str]) -> None:
    found = cluster()

    def refuse(_words: Any) -> str:
        raise KubectlError("connection refused")

    found.answers["version"] = refuse
    assert run_steps(found, "charts") == []
    assert "API server does not answer" in "".join(capfd.readouterr())


PROJECT, TENANT, OWNER = "project-e00test", "tenant-e00test", "0123456789abcdef"


@pytest.fixture
def api(monkeypatch):
    for name in ("NEBIUS_IAM_TOKEN", "NEBIUS_CREDENTIALS_FILE", "NEBIUS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with NebiusServer(seconds=0.01) as server:
        yield server
        client.close()


def add(api, kind, name, *, parent=PROJECT, owner=OWNER, state="READY", **spec):
    labels = {"hpc-owner": owner} if owner else {}
    with api.lock:
        return api.store.add(kind, {"parent_id": parent, "name": name, "labels": labels}, spec, state)["metadata"]["id"]


def remove(api, reported, **given):
    props = {
        "tenant": TENANT, "project": PROJECT, "cluster": "lab", "owner": OWNER, "namespaces": ["lab"], "keep": False,
        "existing": {}, **given,
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("components.nebius.teardown.report", reported.append)
        NebiusLeftoversProvider().delete("x", props)


def remaining(api):
    """Names of what there is, but for what every project and tenant has from the start."""
    usual = ("Group", "Network", "Subnet")
    return sorted(
        row["metadata"]["name"]
        for row in api.store.objects.values()
        if row["state"] != "DELETING" and (row["kind"] not in usual or row["metadata"].get("labels"))
    )


def test_only_objects_of_this_state_are_deleted(api):
    cluster = add(api, "Cluster", "lab", state="RUNNING")
    add(api, "NodeGroup", "system", parent=cluster, state="RUNNING")
    add(api, "Group", "lab-backups", state="ACTIVE")
    add(api, "Filesystem", "lab-jail")
    add(api, "Filesystem", "others-jail", owner="fedcba9876543210")
    add(api, "Filesystem", "nobodys", owner="")
    reported = []
    remove(api, reported)
    assert remaining(api) == ["nobodys", "others-jail"]
    order = [line.split()[1] for line in reported]
    assert order.index("NodeGroup") < order.index("Cluster"), "a cluster with nodes can't be deleted"
    again = []
    remove(api, again)
    assert again == [], "a second time, nothing is to be done"


def test_objects_of_several_pages_are_deleted(api, monkeypatch):
    """Each page begins where the one before it ended, so a list is read before the first of its objects is deleted."""
    monkeypatch.setattr(objects, "PAGE", 2)
    for number in range(5):
        add(api, "Filesystem", f"lab-{number}")
    remove(api, [])
    assert remaining(api) == []


def test_protected_data_stays_and_is_listed(api):
    id_ = add(api, "Filesystem", "lab-jail", size_gibibytes="2048")
    reported = []
    remove(api, reported, keep=True, existing={"jail-submount-data": "computefilesystem-e1"})
    assert remaining(api) == ["lab-jail"]
    assert reported[0].startswith(f"kept: Filesystem lab-jail ({id_}, 2048 GiB). To use it again: `existing: {id_}`")
    assert f"nebius compute filesystem delete --id {id_}" in reported[0]
    assert (
        reported[1] == "kept: file system computefilesystem-e1 of jail-submount-data, which was there before the stack"
    )


def test_disks_are_only_listed_beside_another_cluster(api):
    labels = {"kubernetes.io/created-for/pvc/namespace": "lab"}
    with api.lock:
        api.store.add("Disk", {"parent_id": PROJECT, "name": "pvc-1", "labels": labels}, {}, "READY")
    add(api, "Cluster", "another", owner="", state="RUNNING")
    reported = []
    remove(api, reported)
    assert remaining(api) == ["another", "pvc-1"]
    assert "kept: disk pvc-1" in reported[0]
