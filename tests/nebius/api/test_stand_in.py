"""The stand-in for Nebius's API: it refuses what the API refuses, and keeps what it keeps."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from nebius.api.nebius.common.v1 import ResourceMetadata
from nebius.api.nebius.compute.v1 import UpdateFilesystemRequest

from components.nebius.api import client, lifecycle, objects
from components.nebius.api.client import NebiusError
from components.nebius.api.kinds import KINDS
from components.nebius.api.specs import spec_message
from tests.lab.nebius_api import methods
from tests.lab.nebius_api.facts import OBJECT_KINDS
from tests.lab.nebius_api.faults import RefusedError
from tests.lab.nebius_api.server import VARIABLE, NebiusServer
from tests.nebius.api.project import OWNER, PROJECT_ID, cluster_rows
from tests.waiting import wait_for

GROUP = next(row["spec"] for row in cluster_rows() if row["kind"] == "NodeGroup")


def with_template(**changes: Any) -> dict[str, Any]:
    template = {name: item for name, item in GROUP["template"].items() if name in ("resources", "boot_disk")}
    return {"fixed_node_count": 2, "template": {**template, **changes}}


REFUSED = {
    "NodeGroup": [
        ({**with_template(), "fixed_node_count": 101}, "at most 100 nodes, given 101"),
        (with_template(boot_disk={"size_gibibytes": 63}), "at least 64 GiB"),
        (with_template(resources={"platform": "gpu-x", "preset": "a"}), "there is no platform 'gpu-x'"),
        (with_template(resources={"platform": "cpu-d3", "preset": "9vcpu"}), "cpu-d3 has no preset '9vcpu'"),
        (with_template(max_pods=257), "8 to 256"),
        (
            {**with_template(), "strategy": {"max_surge": {"percent": 0}, "max_unavailable": {"count": 0}}},
            "max_surge and max_unavailable can't both be 0",
        ),
        ({**with_template(), "strategy": {"max_surge": {"percent": 101}}}, "0 to 100"),
        (
            with_template(
                gpu_cluster={"id": "computegpucluster-1"},
                resources={"platform": "gpu-h100-sxm", "preset": "1gpu-16vcpu-200gb"},
            ),
            "can't join a GPU cluster",
        ),
        (
            {"autoscaling": {"min_node_count": 3, "max_node_count": 2}, "template": with_template()["template"]},
            "min_node_count is more than max_node_count",
        ),
    ],
    "Cluster": [
        ({"control_plane": {"etcd_cluster_size": 2}}, "1 or 3"),
        ({"control_plane": {"version": "1.29"}}, "there is no version '1.29'"),
    ],
    "Filesystem": [
        ({"type": "NETWORK_SSD"}, "must be set"),
        ({"type": "NETWORK_SSD", "size_gibibytes": 1, "block_size_bytes": 5120}, "a power of two"),
    ],
    "Disk": [({"type": "NETWORK_SSD_IO_M3", "size_gibibytes": 100}, "a multiple of 93 GiB")],
}


@pytest.mark.parametrize(("kind", "spec", "message"), [(kind, *row) for kind, rows in REFUSED.items() for row in rows])
def test_specs_that_the_api_refuses(api: NebiusServer, kind: str, spec: dict[str, Any], message: str) -> None:
    api.methods.seed("GpuCluster", PROJECT_ID, "g", {}, "computegpucluster-1")
    assert spec_message(KINDS[kind], spec)
    with pytest.raises(RefusedError) as raised:
        methods.check_spec(api.store, OBJECT_KINDS[kind], spec)
    assert message in str(raised.value.detail)


def created(api: NebiusServer, kind: str, spec: Mapping[str, Any], name: str = "n1") -> lifecycle.ReturnedObject:
    return lifecycle.create(
        {
            "kind": kind, "name": name, "resource_name": name, "parent_id": PROJECT_ID, "owner": OWNER, "spec": spec,
            "pace": 0.01, "timeout_seconds": 60.0,
        }
    )  # fmt: skip


def desired(api: NebiusServer, kind: str, spec: Mapping[str, Any]) -> objects.Desired:
    return objects.Desired(kind=KINDS[kind], parent_id=PROJECT_ID, name="n1", spec=spec)


class TestRules:
    def test_references_must_exist(self, api: NebiusServer) -> None:
        with pytest.raises(NebiusError, match="there is no vpcsubnet-9"):
            created(api, "Cluster", {"control_plane": {"subnet_id": "vpcsubnet-9"}})

    def test_immutable_fields_are_refused(self, api: NebiusServer) -> None:
        found = created(api, "GpuCluster", {"infiniband_fabric": "fabric-3"})
        message = objects.get(KINDS["GpuCluster"], found.id)
        assert message
        spec = spec_message(KINDS["GpuCluster"], {"infiniband_fabric": "fabric-4"})
        with pytest.raises(NebiusError, match="infiniband_fabric: the field is immutable"):
            objects.start_update(KINDS["GpuCluster"], message.metadata, spec)

    def test_a_filesystem_only_grows(self, api: NebiusServer) -> None:
        found = created(api, "Filesystem", {"type": "NETWORK_SSD", "size_gibibytes": 10})
        message = objects.get(KINDS["Filesystem"], found.id)
        assert message
        message.spec.size_gibibytes = 9
        with pytest.raises(NebiusError, match="the size can only grow"):
            objects.start_update(KINDS["Filesystem"], message.metadata, message.spec)

    def test_one_operation_at_a_time(self, api: NebiusServer) -> None:
        api.methods.seconds = lambda _kind, _verb: 60
        operation = objects.start_create(desired(api, "Network", {}), "key")
        with pytest.raises(NebiusError, match=r"another operation on vpcnetwork-.* is under way: operation-"):
            objects.start_delete(KINDS["Network"], operation.resource_id)

    def test_an_old_version_of_an_object_is_refused(self, api: NebiusServer) -> None:
        found = created(api, "ServiceAccount", {"description": "a"})
        message = objects.get(KINDS["ServiceAccount"], found.id)
        assert message
        api.store.objects[found.id]["metadata"]["resource_version"] = "9"
        with pytest.raises(NebiusError, match="resource_version differs"):
            objects.start_update(KINDS["ServiceAccount"], message.metadata, message.spec)


class TestKeys:
    def test_a_key_creates_once(self, api: NebiusServer) -> None:
        first = objects.start_create(desired(api, "Network", {}), "key")
        assert objects.start_create(desired(api, "Network", {}), "key").id == first.id
        assert len(list(api.store.of("Network", PROJECT_ID))) == 2  # with the project's own

    def test_a_key_of_another_request_is_refused(self, api: NebiusServer) -> None:
        objects.start_create(desired(api, "Network", {}), "key")
        with pytest.raises(NebiusError, match="was used for another request"):
            objects.start_create(desired(api, "GpuCluster", {"infiniband_fabric": "fabric-3"}), "key")


class TestMasks:
    """What an update does to fields that it does not set: nothing, unless the mask names them."""

    def update(self, api: NebiusServer, id_: str, spec: dict[str, Any], mask: str) -> dict[str, Any]:
        request = UpdateFilesystemRequest(
            metadata=ResourceMetadata(id=id_, parent_id=PROJECT_ID),
            spec=spec_message(KINDS["Filesystem"], spec),
        )
        with grpc.insecure_channel(api.endpoint) as channel:
            call = channel.unary_unary(
                "/nebius.compute.v1.FilesystemService/Update",
                request_serializer=UpdateFilesystemRequest.SerializeToString,
                response_deserializer=bytes,
            )
            headers = (("authorization", "Bearer x"), *([("x-resetmask", mask)] if mask else []))
            call(request, metadata=headers)
        wait_for(lambda: not api.store.under_way(id_))
        return api.store.objects[id_]["spec"]

    def test_a_field_that_is_not_named_stays(self, api: NebiusServer) -> None:
        before = {"type": "NETWORK_SSD", "size_gibibytes": 10, "forbid_deletion": True}
        found = created(api, "Filesystem", before)
        spec = self.update(api, found.id, {"size_gibibytes": 11}, "")
        assert spec == {"type": "NETWORK_SSD", "size_gibibytes": "11", "forbid_deletion": True}
        spec = self.update(api, found.id, {"size_gibibytes": 12}, "spec.(forbid_deletion)")
        assert spec == {"type": "NETWORK_SSD", "size_gibibytes": "12"}


class TestCredentials:
    def test_a_call_without_a_token_is_refused(self, api: NebiusServer) -> None:
        with grpc.insecure_channel(api.endpoint) as channel:
            call = channel.unary_unary("/nebius.iam.v1.ProfileService/Get", response_deserializer=bytes)
            with pytest.raises(grpc.RpcError) as raised:
                call(b"")
        assert getattr(raised.value, "code", str)() == grpc.StatusCode.UNAUTHENTICATED

    def test_a_stand_in_is_never_sent_the_environment_s_token(
        self, api: NebiusServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("NEBIUS_IAM_TOKEN", "t0ken")
        client.sdk()
        assert {call.headers["authorization"] for call in api.calls} == {"Bearer stand-in"}
        assert all(call.headers["user-agent"].startswith("hpc/1.0 ") for call in api.calls)

    @pytest.fixture
    def nebius(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nebius's own API, also if a stand-in of another test is still there. No call gets as far as that."""
        monkeypatch.delenv(VARIABLE, raising=False)

    @pytest.mark.usefixtures("nebius")
    def test_no_credential_says_what_to_do(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        with pytest.raises(NebiusError, match=r"(?s)no credential for Nebius: .*to do: export NEBIUS_IAM_TOKEN="):
            client.sdk()

    @pytest.mark.usefixtures("nebius")
    def test_a_missing_credentials_file_is_named(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("NEBIUS_CREDENTIALS_FILE", str(tmp_path / "none.json"))
        with pytest.raises(NebiusError, match=r"none\.json"):
            client.sdk()

    def test_one_sdk_serves_the_process(self, api: NebiusServer) -> None:
        assert client.sdk() is client.sdk()
        assert len([call for call in api.calls if "ProfileService" in call.method]) == 1


def test_a_port_in_use_is_named(api: NebiusServer) -> None:
    with pytest.raises((OSError, RuntimeError), match=str(api.port)):
        NebiusServer(port=api.port)
