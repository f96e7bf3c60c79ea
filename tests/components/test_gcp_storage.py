"""Shared file systems: as their makers want them started, protected where data is, mounted where they lie."""

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pulumi
import pytest

from cluster.config import ClusterConfig
from cluster.gcp.exascaler import PERMISSIONS, loci_version, servers, startup_script
from cluster.roster import machines
from components.gcp.filestore import share_name
from components.gcp.network import Network, NetworkArgs
from components.gcp.storage import Storage, StorageArgs
from tests.clouds import A3, EXASCALER, MANAGED, google
from tests.components.graphs import graph, hold
from tests.harness import Recording, Registered, deploy

INSTANCE, DISK = "gcp:compute/instance:Instance", "gcp:compute/disk:Disk"
LUSTRE, FILESTORE = "gcp:lustre/instance:Instance", "gcp:filestore/instance:Instance"
ACCESS = "gcp:storage/bucketIAMMember:BucketIAMMember"
ACCOUNTS = {role: f"{role}@my-project.iam.gserviceaccount.com" for role in ("controller", "login", "node")}
GUIDE = {**EXASCALER, "oss": {"count": 3, "ost": {"type": "pd-ssd", "size_gb": 3500}}}
SMALL: dict[str, Any] = {
    **EXASCALER,
    "image": "projects/ddn-public/global/images/family/exascaler-cloud-6-2-rocky-linux-8",
    "mgs": {"machine_type": "n2-standard-2"},
    "mds": {"machine_type": "n2-standard-2", "mdt": {"type": "pd-ssd", "size_gb": 256}},
    "oss": {"machine_type": "n2-standard-2", "count": 1, "ost": {"type": "pd-standard", "size_gb": 512}},
}
"""DDN's own defaults."""
BASIC = {"tier": "BASIC_SSD", "size_gb": 2560}
STORAGES: dict[str, dict[str, Any]] = {
    "guide": {"lustre": GUIDE},
    "small": {"lustre": SMALL},
    "managed": {"lustre": {**MANAGED, "mount": "/home"}},
    "filestore": {"filestore": {"tier": "REGIONAL"}},
    "basic": {"filestore": BASIC},
    "buckets": {
        "buckets": [
            {"name": "my-datasets", "mount": "/gcs", "read_only": True},
            {"name": "my-results", "mount": "/results"},
        ]
    },
}


def make(config: ClusterConfig) -> None:
    network = Network("cloud-network", NetworkArgs(config=config))
    storage = Storage("cloud-storage", StorageArgs(config=config, network=network, accounts=ACCOUNTS))
    pulumi.export("facts", storage.facts)
    pulumi.export("mounts", {one.name: storage.mounts(one) for one in machines(config)})
    pulumi.export("ready", len(storage.ready))


@cache
def made(kind: str, *, unknown: bool = False, protected: bool = True, existing: bool = False) -> Recording:
    network = {"network": {"existing": {"network": "net", "subnetwork": "sub"}}} if existing else {}
    config = google(storage=STORAGES[kind], deletion_protection=protected, **network)
    return deploy(lambda: make(config), unknown=unknown)


def own(recording: Recording) -> Recording:
    """Without the networks, which have files of their own."""
    kept = [one for one in recording.resources if not one.name.startswith("cloud-network-")]
    addresses = [one for one in recording.resources if one not in kept]
    assert addresses
    return Recording(resources=kept, outputs=recording.outputs)


def server(recording: Recording, name: str) -> Registered:
    (found,) = [one for one in recording.all(INSTANCE) if one.inputs["name"] == name]
    return found


class TestExascaler:
    def test_every_server_is_there_with_its_disks_and_address(self):
        recording = made("guide")
        wanted = {"cloud-mgs0", "cloud-mds0", "cloud-oss0", "cloud-oss1", "cloud-oss2"}
        assert {one.inputs["name"] for one in recording.all(INSTANCE)} == wanted
        mgs = server(recording, "cloud-mgs0").inputs
        assert [one["deviceName"] for one in mgs["attachedDisks"]] == ["cloud-mgs0-mgt0-disk", "cloud-mgs0-mnt0-disk"]
        assert mgs["networkInterfaces"][0]["networkIp"] == "172.16.9.1"
        assert "accessConfigs" not in mgs["networkInterfaces"][0]
        assert mgs["bootDisk"]["autoDelete"] is False
        assert len(recording.all(DISK)) == 5 + 2 + 1 + 3

    def test_labels_are_those_by_which_it_finds_its_parts(self):
        recording = made("guide")
        (disk,) = [one for one in recording.all(DISK) if one.inputs["name"] == "cloud-oss2-ost0-disk"]
        wanted = {
            "deployment": "cloud",
            "name": "cloud-oss2-ost0-disk",
            "lustre_target_host": "cloud-oss2",
            "lustre_target_role": "ost",
            "lustre_target_index": "2",
        }
        assert wanted.items() <= disk.inputs["labels"].items()
        assert {"lustre_type": "ost", "lustre_index": "2"}.items() <= server(recording, "cloud-oss2").inputs[
            "labels"
        ].items()
        assert server(recording, "cloud-mgs0").inputs["tags"] == ["cloud", "cloud-http-server"]
        assert server(recording, "cloud-oss2").inputs["tags"] == ["cloud"]

    def test_targets_of_one_role_are_numbered_through(self):
        oss = {"count": 2, "ost": {"type": "pd-ssd", "size_gb": 900, "count": 3}}
        config = google(storage={"lustre": {**EXASCALER, "oss": oss}})
        disks = [disk for one in servers(config) if one.kind == "oss" for disk in one.disks]
        assert [disk.index for disk in disks] == list(range(6))
        assert [disk.name for disk in disks][3:5] == ["cloud-oss1-ost0-disk", "cloud-oss1-ost1-disk"]

    def test_servers_start_after_those_they_register_with(self):
        recording = made("guide")
        mgs, mds = server(recording, "cloud-mgs0"), server(recording, "cloud-mds0")
        assert recording.waits_for(mds, mgs)
        for index in range(3):
            assert recording.waits_for(server(recording, f"cloud-oss{index}"), mds)
        assert not recording.waits_for(server(recording, "cloud-oss1"), server(recording, "cloud-oss0"))
        for table in recording.all("gcp:runtimeconfig/config:Config"):
            assert recording.waits_for(mgs, table)
        (grant,) = recording.all("gcp:projects/iAMMember:IAMMember")
        assert recording.waits_for(mgs, grant)

    def test_its_tables_are_those_its_file_names(self):
        recording = made("guide")
        names = {one.inputs["name"] for one in recording.all("gcp:runtimeconfig/config:Config")}
        assert names == {"cloud-fs-config", "cloud-startup-config"}
        script = server(recording, "cloud-oss0").inputs["metadata"]["startup-script"]
        assert "FilesystemTable: cloud-fs-config\nStartupTable: cloud-startup-config\n" in script
        assert recording.all("gcp:deploymentmanager/deployment:Deployment") == []

    def test_servers_may_do_what_they_must_and_no_more(self):
        recording = made("guide")
        (role,) = recording.all("gcp:projects/iAMCustomRole:IAMCustomRole")
        assert role.inputs["permissions"] == list(PERMISSIONS)
        assert role.inputs["roleId"] == "cloud_lustre"
        (grant,) = recording.all("gcp:projects/iAMMember:IAMMember")
        assert grant.inputs["role"] == "projects/my-project/roles/cloud_lustre"
        email = server(recording, "cloud-mgs0").inputs["serviceAccount"]["email"]
        assert grant.inputs["member"] == f"serviceAccount:{email}"

    def test_lustre_and_packages_are_reached_from_the_cluster_alone(self):
        rules = {one.inputs["name"]: one.inputs for one in made("guide").all("gcp:compute/firewall:Firewall")}
        lnet, packages = rules["cloud-lnet"], rules["cloud-repo"]
        assert (lnet["sourceRanges"], lnet["targetTags"]) == (["172.16.0.0/20"], ["cloud"])
        assert lnet["allows"] == [{"protocol": "tcp", "ports": ["988"]}]
        assert (packages["sourceRanges"], packages["targetTags"]) == (["172.16.0.0/20"], ["cloud-http-server"])
        assert packages["allows"] == [{"protocol": "tcp", "ports": ["80"]}]

    def test_a_familys_next_image_replaces_no_server(self):
        for disk in made("guide").all(DISK):
            boot = disk.inputs["name"].endswith("-boot-disk")
            assert list(disk.request.ignoreChanges) == (["image"] if boot else [])

    def test_provisioned_figures_reach_the_disks(self):
        ost = {"type": "hyperdisk-throughput", "size_gb": 6000, "mbps": 500}
        config = google(storage={"lustre": {**EXASCALER, "oss": {"machine_type": "n2-standard-32", "ost": ost}}})
        recording = deploy(lambda: make(config))
        (disk,) = [one for one in recording.all(DISK) if one.inputs["name"] == "cloud-oss0-ost0-disk"]
        assert disk.inputs["provisionedThroughput"] == 500
        assert "provisionedIops" not in disk.inputs

    @pytest.mark.parametrize("kind", ["guide", "small"])
    def test_what_servers_are_told_was_reviewed(self, kind, update_golden, tmp_path):
        config = google(storage=STORAGES[kind])
        assert config.storage.lustre
        text = startup_script(config, config.storage.lustre)
        hold(f"exascaler-{kind}.sh", text, update=update_golden)
        script = tmp_path / "startup.sh"
        script.write_text(text)
        lint = Path(sys.executable).parent / "shellcheck"
        run = subprocess.run([lint, script], capture_output=True, text=True, timeout=60, check=False)
        assert run.stdout == ""

    def test_the_script_writes_the_file_and_starts_the_images_program(self, tmp_path):
        """Run here, with the file in another place and a program in loci's place: twice, as at a second boot."""
        config = google(storage=STORAGES["guide"])
        assert config.storage.lustre
        (tmp_path / "loci").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/called\n')
        (tmp_path / "loci").chmod(0o755)
        text = startup_script(config, config.storage.lustre).replace("/etc/", f"{tmp_path}/")
        for _ in range(2):
            subprocess.run(["sh", "-c", text], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, timeout=30, check=True)
        assert (tmp_path / "called").read_text() == "init\ninit\n"
        rows = dict(row.split(": ") for row in (tmp_path / "loci.conf").read_text().splitlines()[1:])
        assert (rows["OssCount"], rows["OstSize"], rows["MgsType"]) == ("3", "3500", "n2-standard-32")
        assert [one.name for one in tmp_path.iterdir() if one.name.endswith(".new")] == []

    @pytest.mark.parametrize(
        ("image", "version"),
        [
            ("projects/ddn-public/global/images/family/exascaler-cloud-6-2-rocky-linux-8", "2.1.0"),
            ("projects/ddn-public/global/images/family/exascaler-cloud-6-3-rocky-linux-8-optimized-gcp", "2.2.1"),
            ("our-own-copy", "2.2.1"),
        ],
    )
    def test_the_version_is_the_images(self, image, version):
        assert loci_version(image) == version


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
    address = recording.one("cloud-network-controller-address")
    disks_and_more = [one for one in own(recording).resources if one.custom]
    # What Google runs waits for the peering, which is of the network as well.
    first = [address, *recording.all("gcp:servicenetworking/connection:Connection")]
    assert disks_and_more
    assert all(any(recording.waits_for(one, earlier) for earlier in first) for one in disks_and_more)


@pytest.mark.parametrize("kind", STORAGES)
def test_all_of_it_was_reviewed(kind, update_golden):
    hold(f"storage-{kind}.json", graph(own(made(kind))), update=update_golden)


def test_gpu_nodes_and_lustre_go_together():
    config = google(storage={"lustre": GUIDE, "buckets": STORAGES["buckets"]["buckets"]}, nodesets={"gpu": A3})
    recording = deploy(lambda: make(config))
    targets = [one["target"] for one in recording.outputs["mounts"]["cloud-gpu-0"]]
    assert targets == ["/gcs", "/home", "/lustre", "/results", "/opt/apps"]
