"""Nebius's resources as a stack: up, changes, refresh and destroy, by the engine and in the SDK's own process."""

import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf import struct_pb2
from pulumi.dynamic.dynamic import serialize_provider
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from components.nebius.resource import NebiusProvider
from engine import events
from tests import programs
from tests.harness import ROOT, provider_process
from tests.lab.nebius_api.faults import Fault
from tests.lab.nebius_api.server import NebiusServer
from tests.nebius.api.project import OWNER, PROJECT_ID, Project, cluster_rows, few_rows, owned


def changed(rows: list[dict[str, Any]], name: str, **changes: Any) -> list[dict[str, Any]]:
    """The rows with another spec of one."""
    return [{**row, "spec": {**row["spec"], **changes}} if row["name"] == name else row for row in rows]


def calls(api: NebiusServer, *verbs: str) -> list[str]:
    """Kind and verb of the calls since this was last asked."""
    found = [call.method.split(".")[-1] for call in api.calls]
    api.calls.clear()
    return [text for text in found if text.split("/")[1] in verbs]


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    with NebiusServer(seconds=0.03) as server:
        yield Project(tmp_path_factory.mktemp("lasting"), server)


@pytest.fixture
def cluster(lasting: Project) -> Project:
    """A project that is up as its rows have it, whatever the test before has changed there."""
    lasting.up(cluster_rows())
    lasting.api.calls.clear()
    return lasting


def test_a_cluster_comes_stays_and_goes(api: NebiusServer, project: Project) -> None:
    rows = cluster_rows()
    project.write(rows, labels={"hpc-cluster": "c"})
    assert set(project.run("preview")) == {row["name"] for row in rows}
    assert not api.calls
    api.methods.seconds = lambda kind, _verb: 3.0 if kind == "NodeGroup" else 0.03
    project.run("up")
    assert len(owned(api)) == len(rows)
    assert all(len(ids) == 1 for ids in owned(api).values())
    created = [call for call in api.calls if call.method.endswith("/Create")]
    assert len({call.headers["x-idempotency-key"] for call in created}) == len(created) == len(rows)
    assert all(call.request["metadata"]["labels"] == {"hpc-cluster": "c", "hpc-owner": OWNER} for call in created)
    lines = [event.message for event in project.seen if isinstance(event, events.LogLine)]
    expected = r"create NodeGroup workers: create NodeGroup; [0-9]+%; [01] of 2 nodes ready"
    assert any(re.match(expected, line) for line in lines), lines
    status = {name: row["outputs"]["status"] for name, row in project.state().items()}
    assert status["k8s"]["state"] == "RUNNING"
    workers = status["workers"]
    assert (workers["state"], workers["ready_node_count"], workers["target_node_count"]) == ("RUNNING", "2", "2")
    assert project.state()["workers"]["type"] == "pulumi-python:dynamic/nebius:NodeGroup"
    api.calls.clear()
    assert project.run("up") == {}
    assert not api.calls
    project.run("destroy")
    assert owned(api) == {}
    assert project.state() == {}
    kept = [row["kind"] for row in api.store.objects.values() if row["state"] == "SCHEDULED_FOR_DELETION"]
    assert kept == ["Bucket"]


class TestSecrets:
    def test_the_secret_of_a_key_is_encrypted_and_nothing_else_has_it(
        self, api: NebiusServer, project: Project
    ) -> None:
        project.up([row for row in cluster_rows() if row["name"] in ("account", "key")])
        outputs = project.state()["key"]["outputs"]
        assert "ciphertext" in outputs["secret"]
        assert outputs["status"]["aws_access_key_id"].startswith("NAKI")
        assert "secret" not in outputs["status"]
        secret = next(project.api.methods.shown(row)["status"]["secret"] for row in api.store.of("AccessKey"))
        state = (project.root / "backend").rglob("*.json")
        assert all(secret not in file.read_text() for file in state)
        project.run("refresh")
        assert "ciphertext" in project.state()["key"]["outputs"]["secret"]


class TestChanges:
    def test_counts_and_labels_change_in_place(self, cluster: Project) -> None:
        rows = cluster_rows()
        assert cluster.up(changed(rows, "workers", fixed_node_count=3)) == {"workers": "update"}
        assert calls(cluster.api, "Create", "Update", "Delete") == ["NodeGroupService/Update"]
        (row,) = cluster.api.store.of("NodeGroup")
        assert row["spec"]["fixed_node_count"] == "3"
        assert row["spec"]["template"]["taints"][0]["key"] == "nvidia.com/gpu"
        assert row["spec"]["template"]["preemptible"] == {}
        assert int(cluster.state()["workers"]["outputs"]["status"]["ready_node_count"]) == 3

    def test_a_change_of_a_oneof_field_resets_the_other_one(self, cluster: Project) -> None:
        rows = cluster_rows()
        rows[6]["spec"].pop("fixed_node_count")
        rows[6]["spec"]["autoscaling"] = {"min_node_count": 1, "max_node_count": 4}
        assert cluster.up(rows) == {"workers": "update"}
        (row,) = cluster.api.store.of("NodeGroup")
        assert "fixed_node_count" not in row["spec"]
        assert row["spec"]["autoscaling"] == {"min_node_count": "1", "max_node_count": "4"}

    def test_fields_that_the_stack_no_longer_sets_are_reset(self, cluster: Project) -> None:
        rows = cluster_rows()
        template = {
            name: item for name, item in rows[6]["spec"]["template"].items() if name not in ("taints", "preemptible")
        }
        assert cluster.up(changed(rows, "workers", template=template)) == {"workers": "update"}
        (row,) = cluster.api.store.of("NodeGroup")
        assert "taints" not in row["spec"]["template"]
        assert "preemptible" not in row["spec"]["template"]
        assert row["spec"]["template"]["filesystems"]

    def test_fields_that_the_api_filled_in_are_kept(self, cluster: Project) -> None:
        rows = cluster_rows()
        (row,) = cluster.api.store.of("NodeGroup")
        row["spec"]["template"]["os"] = "ubuntu24.04"
        row["spec"]["template"]["network_interfaces"][0]["public_ip_address"] = {}
        cluster.run("refresh")
        assert cluster.run("preview") == {}
        cluster.up(changed(rows, "workers", fixed_node_count=1))
        (row,) = cluster.api.store.of("NodeGroup")
        assert row["spec"]["template"]["os"] == "ubuntu24.04"
        assert row["spec"]["template"]["network_interfaces"][0]["public_ip_address"] == {}

    def test_a_name_changes_in_place(self, api: NebiusServer, project: Project) -> None:
        rows = few_rows()
        project.up(rows)
        assert project.up([{**row, "resource_name": f"{row['name']}-2"} for row in rows]) == {
            row["name"]: "update" for row in rows
        }
        assert set(owned(api)) == {"Network network-2", "Subnet subnet-2", "Allocation address-2"}

    def test_an_immutable_field_replaces_and_the_old_one_goes_first(self, api: NebiusServer, project: Project) -> None:
        rows = [row for row in cluster_rows() if row["name"] == "fabric"]
        project.up(rows)
        before = owned(api)["GpuCluster fabric"]
        api.calls.clear()
        assert project.up(changed(rows, "fabric", infiniband_fabric="fabric-4")) == {"fabric": "replace"}
        assert calls(api, "Create", "Update", "Delete") == ["GpuClusterService/Delete", "GpuClusterService/Create"]
        assert owned(api)["GpuCluster fabric"] != before

    def test_a_replaced_cluster_takes_its_node_groups_along(self, cluster: Project) -> None:
        rows = cluster_rows()
        plane = {**rows[5]["spec"]["control_plane"], "subnet_id": {"$": "subnet-2"}}
        more = [*rows[:2], {**rows[1], "name": "subnet-2"}, *rows[2:]]
        planned = cluster.up(changed(more, "k8s", control_plane=plane))
        assert planned["k8s"] == planned["workers"] == "replace"
        assert planned["subnet-2"] == "create"
        assert all(len(ids) == 1 for ids in owned(cluster.api).values())
        (row,) = cluster.api.store.of("NodeGroup")
        assert row["metadata"]["parent_id"] == owned(cluster.api)["Cluster k8s"][0]

    def test_order_of_lists_and_notation_make_no_difference(self, cluster: Project) -> None:
        rows = cluster_rows()
        template = rows[6]["spec"]["template"]
        template["taints"].append({"key": "other", "value": "x", "effect": "NO_EXECUTE"})
        cluster.up(rows)
        again = json.loads(json.dumps(rows))
        again[6]["spec"]["template"]["taints"].reverse()
        again[6]["spec"]["template"]["boot_disk"]["size_gibibytes"] = "512"
        again[3]["spec"]["forbid_deletion"] = False
        cluster.write(again)
        assert cluster.run("preview") == {}


class TestDrift:
    def test_deleted_objects_are_recreated_after_a_refresh(self, cluster: Project) -> None:
        rows = cluster_rows()
        (group,), (address,) = cluster.api.store.of("NodeGroup"), cluster.api.store.of("Allocation")
        for row in (group, address):
            del cluster.api.store.objects[row["metadata"]["id"]]
        cluster.run("refresh")
        assert not {"workers", "address"} & cluster.state().keys()
        # The same inputs again, so the same idempotency keys: the API answers with operations that have ended.
        assert cluster.run("up") == {"workers": "create", "address": "create"}
        assert all(len(ids) == 1 for ids in owned(cluster.api).values())
        assert len(owned(cluster.api)) == len(rows)

    def test_a_manual_change_is_seen_and_undone(self, cluster: Project) -> None:
        (row,) = cluster.api.store.of("NodeGroup")
        row["spec"]["fixed_node_count"] = "7"
        row["metadata"]["labels"]["team"] = "x"
        cluster.run("refresh")
        assert cluster.run("up") == {"workers": "update"}
        (row,) = cluster.api.store.of("NodeGroup")
        assert row["spec"]["fixed_node_count"] == "2"
        assert row["metadata"]["labels"] == {"hpc-owner": OWNER, "team": "x"}

    def test_a_lost_owner_label_is_set_again(self, cluster: Project) -> None:
        (row,) = (item for item in cluster.api.store.of("Network") if item["metadata"]["name"] == "network")
        row["metadata"]["labels"] = {}
        cluster.run("refresh")
        assert cluster.run("up") == {"network": "update"}
        assert row["metadata"]["labels"] == {"hpc-owner": OWNER}

    def test_missing_objects_are_no_error_of_a_destroy(self, cluster: Project) -> None:
        cluster.api.store.objects.clear()
        cluster.run("destroy")
        assert cluster.state() == {}

    def test_an_update_of_a_missing_object_names_the_command_to_run(self, api: NebiusServer, project: Project) -> None:
        rows = few_rows()
        project.up(rows)
        api.store.objects.pop(owned(api)["Subnet subnet"][0])
        project.write(changed(rows, "subnet", ipv4_private_pools={"use_network_pools": True}))
        project.run("up", ok=False)
        assert "run `./hpc refresh STACK`, then `up`" in project.text()


class TestCost:
    def test_the_pickled_provider_is_small(self) -> None:
        assert len(serialize_provider(NebiusProvider())) < 100

    def test_a_preview_imports_no_client(self, project: Project) -> None:
        project.write(cluster_rows())
        program = (
            f"import sys; from pathlib import Path; from engine import Workspace; root = Path({str(project.root)!r});"
            "work = Workspace(root, backend=f'file://{root}/backend', passphrase=lambda: 'x');"
            "print(work.stack('test').preview(lambda event: None).ok, 'nebius' in sys.modules)"
        )
        paths = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
        ran = programs.run([sys.executable, "-c", program], env=paths)
        assert ran.stdout.strip() == "True False", ran.stderr


URN = "urn:pulumi:a::b::c::d"


@pytest.fixture
def host(api: NebiusServer) -> Iterator[provider_pb2_grpc.ResourceProviderStub]:
    with provider_process() as stub:
        yield stub


def properties(api: NebiusServer, **changes: Any) -> struct_pb2.Struct:
    inputs = struct_pb2.Struct()
    given = {
        "kind": "Filesystem", "name": "jail", "resource_name": "jail", "parent_id": PROJECT_ID, "owner": OWNER,
        "spec": {"type": "NETWORK_SSD", "size_gibibytes": 2048}, "labels": {}, "pace": 0.02,
        "__provider": serialize_provider(NebiusProvider()),
    }  # fmt: skip
    inputs.update({**given, **changes})
    return inputs


def test_the_provider_creates_compares_updates_reads_and_deletes(
    api: NebiusServer, host: provider_pb2_grpc.ResourceProviderStub
) -> None:
    made = host.Create(provider_pb2.CreateRequest(urn=URN, properties=properties(api)))
    assert owned(api) == {"Filesystem jail": [made.id]}
    assert made.properties["status"]["state"] == "READY"
    news = properties(api, spec={"type": "NETWORK_SSD", "size_gibibytes": 4096})
    told = host.Diff(provider_pb2.DiffRequest(urn=URN, id=made.id, olds=made.properties, news=news))
    assert told.changes == provider_pb2.DiffResponse.DIFF_SOME
    assert list(told.replaces) == []
    other = properties(api, spec={"type": "NETWORK_SSD_IO_M3", "size_gibibytes": 2048})
    told = host.Diff(provider_pb2.DiffRequest(urn=URN, id=made.id, olds=made.properties, news=other))
    assert list(told.replaces) == ["spec"]
    assert told.deleteBeforeReplace
    changed = host.Update(provider_pb2.UpdateRequest(urn=URN, id=made.id, olds=made.properties, news=news))
    assert api.store.objects[made.id]["spec"]["size_gibibytes"] == "4096"
    read = host.Read(provider_pb2.ReadRequest(urn=URN, id=made.id, properties=changed.properties))
    assert read.id == made.id
    assert read.properties["spec"]["size_gibibytes"] == 4096
    host.Delete(provider_pb2.DeleteRequest(urn=URN, id=made.id, properties=read.properties))
    assert owned(api) == {}
    assert host.Read(provider_pb2.ReadRequest(urn=URN, id=made.id, properties=read.properties)).id == ""


def test_a_failure_comes_without_a_traceback(api: NebiusServer, host: provider_pb2_grpc.ResourceProviderStub) -> None:
    api.faults.append(Fault(verb="create", what="quota_failure"))
    with pytest.raises(grpc.RpcError) as raised:
        host.Create(provider_pb2.CreateRequest(urn=URN, properties=properties(api)))
    told = str(getattr(raised.value, "details", str)())
    assert "quota compute.instance.gpu.h100: limit 8, asked 16" in told
    assert "Traceback" not in told
