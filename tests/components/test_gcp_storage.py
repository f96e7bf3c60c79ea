"""Shared file systems: made where the stack file says, protected where data is, mounted where they lie."""

import pytest

from cluster.platforms.gcp.filesystems.lustre import ExistingLustre
from cluster.platforms.gcp.filesystems.registry import lustre_client
from cluster.platforms.gcp.permissions import services
from components.gcp.storage.filesystems import share_name
from tests.clouds import A3, google
from tests.components.filesystems import (
    ACCESS,
    ACCOUNTS,
    DISK,
    FILESTORE,
    GUIDE,
    INSTANCE,
    LUSTRE,
    STORAGES,
    made,
    make,
    own,
)
from tests.components.graphs import graph, hold
from tests.harness import deploy


class TestManaged:
    def test_it_is_in_the_peered_network(self):
        recording = made("managed")
        (instance,) = recording.all(LUSTRE)
        (connection,) = recording.all("gcp:servicenetworking/connection:Connection")
        assert recording.waits_for(instance, connection)
        assert (instance.inputs["capacityGib"], instance.inputs["perUnitStorageThroughput"]) == ("36000", "500")
        assert (instance.inputs["location"], instance.inputs["filesystem"]) == ("us-central1-a", "exacloud")
        assert recording.all(INSTANCE) == []

    def test_in_a_network_that_was_there_it_uses_the_peering_of_that(self):
        recording = made("managed", existing=True)
        (instance,) = recording.all(LUSTRE)
        assert instance.inputs["network"] == "projects/my-project/global/networks/net"
        assert recording.all("gcp:servicenetworking/connection:Connection") == []


class TestExisting:
    """File systems of others: mounted by every machine, and neither created nor deleted."""

    CONFIG = google(
        storage={
            "lustre": {"kind": "managed", "existing": "10.128.0.3", "fsname": "lustre", "mount": "/home"},
            "nfs": [{"server": "10.128.4.2", "path": "/shared", "mount": "/data"}],
        }
    )

    def test_nothing_is_created_and_every_machine_mounts_them(self):
        recording = deploy(lambda: make(self.CONFIG))
        assert [one for kind in (LUSTRE, FILESTORE, INSTANCE, DISK) for one in recording.all(kind)] == []
        for mounted in recording.outputs["mounts"].values():
            found = {one["target"]: (one["fs_type"], one["source"]) for one in mounted}
            assert found["/home"] == ("lustre", "10.128.0.3@tcp:/lustre")
            assert found["/data"] == ("nfs", "10.128.4.2:/shared")

    def test_outputs_say_where_they_are(self):
        facts = deploy(lambda: make(self.CONFIG)).outputs["facts"]
        assert (facts["lustre"]["source"], facts["lustre"]["server_ip"]) == ("10.128.0.3@tcp:/lustre", "10.128.0.3")
        assert facts["nfs"] == [{"mount": "/data", "source": "10.128.4.2:/shared"}]

    def test_machines_need_the_client_and_wait_for_it_as_for_their_own(self):
        assert lustre_client(self.CONFIG) == "managed"
        assert "10.128.0.3 300" in ExistingLustre(self.CONFIG).probe("10.128.0.3")
        assert not {"lustre.googleapis.com", "file.googleapis.com"} & set(services(self.CONFIG))


class TestFilestore:
    def test_each_tier_is_where_and_how_it_can_be(self):
        (regional,), (basic,) = made("filestore").all(FILESTORE), made("basic").all(FILESTORE)
        assert regional.inputs["location"] == "us-central1"
        assert regional.inputs["networks"][0]["connectMode"] == "PRIVATE_SERVICE_ACCESS"
        assert "reservedIpRange" not in regional.inputs["networks"][0]
        assert basic.inputs["location"] == "us-central1-a"
        assert basic.inputs["networks"][0]["connectMode"] == "DIRECT_PEERING"
        assert basic.inputs["networks"][0]["reservedIpRange"] == "10.128.15.248/29"

    @pytest.mark.parametrize("mount", ["/home", "/shared", "/data/files", "/files"])
    def test_the_share_is_not_called_as_it_is_mounted(self, mount):
        assert share_name(mount) != mount.rpartition("/")[2]


class TestBuckets:
    def test_none_is_made_and_each_role_gets_the_least(self):
        recording = made("buckets")
        assert recording.all("gcp:storage/bucket:Bucket") == []
        given = {(one.inputs["bucket"], one.inputs["member"]): one.inputs["role"] for one in recording.all(ACCESS)}
        assert given == {
            (bucket, f"serviceAccount:{email}"): f"roles/storage.{role}"
            for bucket, role in (("my-datasets", "objectViewer"), ("my-results", "objectUser"))
            for email in ACCOUNTS.values()
        }


class TestMounts:
    @pytest.mark.parametrize(
        ("kind", "target", "source"),
        [
            ("guide", "/lustre", "172.16.9.1@tcp:/exacloud"),
            ("managed", "/home", "10.128.0.2@tcp:/exacloud"),
            ("filestore", "/home", "10.128.0.2:/shared"),
            ("buckets", "/gcs", "my-datasets"),
        ],
    )
    def test_machines_are_told_where_from(self, kind, target, source):
        for name, found in made(kind).outputs["mounts"].items():
            at = {one["target"]: one for one in found}
            assert at[target]["source"] == source, name
            assert set(at[target]) == {"source", "target", "fs_type", "options"}

    def test_in_a_network_that_was_there_the_address_is_the_one_that_google_chose(self):
        found = made("guide", existing=True).outputs["mounts"]["cloud-cpu-0"]
        assert [one["source"] for one in found if one["target"] == "/lustre"] == ["192.0.2.9@tcp:/exacloud"]

    @pytest.mark.parametrize("kind", STORAGES)
    def test_they_preview_with_everything_unknown(self, kind):
        recording = made(kind, unknown=True)
        assert {len(found) for found in recording.outputs["mounts"].values()} != {0}


class TestFacts:
    def test_people_see_where_it_is_how_large_and_how_fast(self):
        facts = made("guide").outputs["facts"]["lustre"]
        assert facts["server_ip"] == "172.16.9.1"
        assert facts["source"] == "172.16.9.1@tcp:/exacloud"
        assert facts["capacity_gib"] == 10500
        assert facts["bandwidth_mbps"]["read"] > 1000
        assert facts["servers"]["cloud-oss2"] == "172.16.10.3"
        managed = made("managed").outputs["facts"]["lustre"]
        assert (managed["capacity_gib"], managed["bandwidth_mbps"]) == (36000, {"read": 17578, "write": 17578})


class TestProtection:
    DATA = (DISK, LUSTRE, FILESTORE)

    @pytest.mark.parametrize("protected", [True, False])
    @pytest.mark.parametrize("kind", STORAGES)
    def test_data_is_kept_where_the_stack_says_so_and_nothing_else(self, kind, protected):
        recording = made(kind, protected=protected)
        data = {one.name for one in recording.resources if one.type in self.DATA}
        assert data or kind == "buckets"
        assert {one.name for one in recording.resources if one.request.protect} == (data if protected else set())

    def test_one_server_more_touches_no_other(self):
        config = google(storage={"lustre": {**GUIDE, "oss": {**GUIDE["oss"], "count": 4}}})
        before = {one.name: one.inputs for one in made("guide").resources if one.custom}
        after = {one.name: one.inputs for one in deploy(lambda: make(config)).resources if one.custom}
        assert set(before) < set(after)
        changed = {name for name in before if before[name] != after[name]}
        told = {f"cloud-storage-lustre-{one}-server" for one in ("mgs0", "mds0", "oss0", "oss1", "oss2")}
        assert changed == told, "each is told of the new one in its metadata, which changes in place"
        for name in told:
            rest = [{k: v for k, v in one.items() if k != "metadata"} for one in (before[name], after[name])]
            assert rest[0] == rest[1]


@pytest.mark.parametrize("kind", [kind for kind in STORAGES if kind != "buckets"])
def test_nothing_is_made_before_the_network(kind):
    recording = made(kind)
    subnetwork = recording.one("cloud-network-system-subnet")
    disks_and_more = [one for one in own(recording).resources if one.custom]
    # What Google runs waits for the peering, which is of the network as well.
    first = [subnetwork, *recording.all("gcp:servicenetworking/connection:Connection")]
    assert disks_and_more
    assert all(any(recording.waits_for(one, earlier) for earlier in first) for one in disks_and_more)


@pytest.mark.parametrize("kind", STORAGES)
def test_all_of_it_was_reviewed(kind, update_golden):
    # Networks have files of their own.
    text = graph(made(kind), lambda one: not one.name.startswith("cloud-network-"))
    hold(f"storage-{kind}.txt", text, update=update_golden)


def test_gpu_nodes_and_lustre_go_together():
    config = google(storage={"lustre": GUIDE, "buckets": STORAGES["buckets"]["buckets"]}, nodesets={"gpu": A3})
    recording = deploy(lambda: make(config))
    targets = [one["target"] for one in recording.outputs["mounts"]["cloud-gpu-0"]]
    assert targets == ["/gcs", "/home", "/lustre", "/results", "/opt/apps"]
