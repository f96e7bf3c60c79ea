"""What killed runs left on Nebius, and no state knows of, goes with the stack; what is not the stack's stays."""

import pytest

from components.nebius.api import client
from components.nebius.teardown import LeftoversProvider
from lab.nebius_api.server import NebiusServer

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
        "existing": {}, "endpoint": api.endpoint, **given,
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("components.nebius.teardown.report", reported.append)
        LeftoversProvider().delete("x", props)


def left(api):
    """Names of what there is, but for what every project and tenant has from the start."""
    usual = ("Group", "Network", "Subnet")
    return sorted(
        row["metadata"]["name"]
        for row in api.store.objects.values()
        if row["state"] != "DELETING" and (row["kind"] not in usual or row["metadata"].get("labels"))
    )


def test_all_of_this_state_and_nothing_else(api):
    cluster = add(api, "Cluster", "lab", state="RUNNING")
    add(api, "NodeGroup", "system", parent=cluster, state="RUNNING")
    add(api, "Group", "lab-backups", state="ACTIVE")
    add(api, "Filesystem", "lab-jail")
    add(api, "Filesystem", "others-jail", owner="fedcba9876543210")
    add(api, "Filesystem", "nobodys", owner="")
    reported = []
    remove(api, reported)
    assert left(api) == ["nobodys", "others-jail"]
    order = [line.split()[1] for line in reported]
    assert order.index("NodeGroup") < order.index("Cluster"), "a cluster with nodes can't be deleted"
    again = []
    remove(api, again)
    assert again == [], "a second time, nothing is to be done"


def test_protected_data_stays_and_is_listed(api):
    id_ = add(api, "Filesystem", "lab-jail", size_gibibytes="2048")
    reported = []
    remove(api, reported, keep=True, existing={"jail-submount-data": "computefilesystem-e1"})
    assert left(api) == ["lab-jail"]
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
    assert left(api) == ["another", "pvc-1"]
    assert "kept: disk pvc-1" in reported[0]
