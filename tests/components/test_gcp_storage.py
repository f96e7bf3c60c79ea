"""Shared file systems: created as the stack file asks, protected where they hold data, and mounted."""

import json
import subprocess
from functools import cache
from typing import Any

import pulumi
import pytest

from cluster.config import ClusterConfig
from cluster.platforms.gcp.filesystems.exascaler import Exascaler, loci_version, startup_script
from cluster.platforms.gcp.filesystems.lustre import ExistingLustreKind
from cluster.platforms.gcp.filesystems.registry import lustre_client
from cluster.platforms.gcp.permissions import services
from cluster.roster import machines
from components.gcp.filesystems import GoogleStorage, share_name
from components.gcp.network import GoogleNetwork
from tests import programs
from tests.clouds import EXASCALER, MANAGED, google
from tests.cluster.shell import shellcheck
from tests.components.graphs import graph
from tests.harness import Recording, deploy

INSTANCE, DISK = "gcp:compute/instance:Instance", "gcp:compute/disk:Disk"
LUSTRE, FILESTORE = "gcp:lustre/instance:Instance", "gcp:filestore/instance:Instance"
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
    network = GoogleNetwork("cloud-network", config)
    storage = GoogleStorage("cloud-storage", config, network, ACCOUNTS)
    pulumi.export("facts", storage.facts)
    pulumi.export("mounts", {spec.name: storage.mounts(spec) for spec in machines(config)})


@cache
def made(kind: str, *, unknown: bool = False, existing: bool = False) -> Recording:
    network = {"network": {"existing": {"network": "net", "subnetwork": "sub"}}} if existing else {}
    config = google(storage=STORAGES[kind], **network)
    return deploy(lambda: make(config), unknown=unknown)


class TestManaged:
    def test_an_existing_networks_peering_is_used(self):
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
        assert [resource for kind in (LUSTRE, FILESTORE, INSTANCE, DISK) for resource in recording.all(kind)] == []
        for mounted in recording.outputs["mounts"].values():
            found = {mount["target"]: (mount["fs_type"], mount["source"]) for mount in mounted}
            assert found["/home"] == ("lustre", "10.128.0.3@tcp:/lustre")
            assert found["/data"] == ("nfs", "10.128.4.2:/shared")

    def test_machines_wait_for_an_existing_lustre_and_have_its_client(self):
        assert lustre_client(self.CONFIG) == "managed"
        assert "10.128.0.3 300" in ExistingLustreKind(self.CONFIG).probe("10.128.0.3")
        assert not {"lustre.googleapis.com", "file.googleapis.com"} & set(services(self.CONFIG))


@pytest.mark.parametrize("mount", ["/home", "/shared", "/data/files", "/files"])
def test_the_share_of_filestore_is_not_named_like_its_mount_point(mount):
    assert share_name(mount) != mount.rpartition("/")[2]


class TestMounts:
    @pytest.mark.parametrize("kind", STORAGES)
    def test_file_systems_preview_with_unknown_outputs(self, kind):
        recording = made(kind, unknown=True)
        assert {len(found) for found in recording.outputs["mounts"].values()} != {0}


def test_outputs_have_source_capacity_and_bandwidth(reviewed):
    found = {kind: made(kind).outputs for kind in STORAGES}
    found["guide, in a network that was there"] = made("guide", existing=True).outputs
    found["of others"] = deploy(lambda: make(TestExisting.CONFIG)).outputs
    shown = {}
    for kind, outputs in found.items():
        mounts = {name: outputs["mounts"][f"cloud-{name}"] for name in ("controller", "login-0", "cpu-0")}
        shown[kind] = json.dumps({"facts": outputs["facts"], "mounts": mounts}, indent=1, sort_keys=True)
    reviewed("gcp/facts", shown)


def test_one_more_server_changes_no_other():
    config = google(storage={"lustre": {**GUIDE, "oss": {**GUIDE["oss"], "count": 4}}})
    before = {resource.name: resource.inputs for resource in made("guide").resources if resource.custom}
    after = {resource.name: resource.inputs for resource in deploy(lambda: make(config)).resources if resource.custom}
    assert set(before) < set(after)
    changed = {name for name in before if before[name] != after[name]}
    servers = {f"cloud-storage-lustre-{server}-server" for server in ("mgs0", "mds0", "oss0", "oss1", "oss2")}
    assert changed == servers, "the metadata of each changes in place"
    for name in servers:
        rest = [{k: v for k, v in inputs.items() if k != "metadata"} for inputs in (before[name], after[name])]
        assert rest[0] == rest[1]


@pytest.mark.parametrize("kind", STORAGES)
def test_all_of_it_was_reviewed(kind, golden):
    # Networks have files of their own.
    text = graph(made(kind), lambda one: not one.name.startswith("cloud-network-"))
    golden(f"gcp/storage-{kind}.txt", text)


class TestExascaler:
    def test_targets_of_one_role_are_numbered_through(self):
        oss = {"count": 2, "ost": {"type": "pd-ssd", "size_gb": 900, "count": 3}}
        config = google(storage={"lustre": {**EXASCALER, "oss": oss}})
        disks = [disk for server in Exascaler(config).servers() if server.kind == "oss" for disk in server.disks]
        assert [disk.index for disk in disks] == list(range(6))
        assert [disk.name for disk in disks][3:5] == ["cloud-oss1-ost0-disk", "cloud-oss1-ost1-disk"]

    def test_provisioned_figures_reach_the_disks(self):
        ost = {"type": "hyperdisk-throughput", "size_gb": 6000, "mbps": 500}
        config = google(storage={"lustre": {**EXASCALER, "oss": {"machine_type": "n2-standard-32", "ost": ost}}})
        recording = deploy(lambda: make(config))
        (disk,) = [resource for resource in recording.all(DISK) if resource.inputs["name"] == "cloud-oss0-ost0-disk"]
        assert disk.inputs["provisionedThroughput"] == 500
        assert "provisionedIops" not in disk.inputs

    @pytest.mark.parametrize("kind", ["guide", "small"])
    def test_the_servers_startup_script_was_reviewed(self, kind, golden, tmp_path):
        config = google(storage=STORAGES[kind])
        text = startup_script(Exascaler(config))
        golden(f"gcp/exascaler-{kind}.sh", text)
        script = tmp_path / "startup.sh"
        script.write_text(text)
        assert shellcheck(script) == ""

    def test_the_script_writes_the_file_and_starts_the_images_program(self, tmp_path):
        """Run here, with the file in another place and a program in loci's place: twice, as at a second boot."""
        config = google(storage=STORAGES["guide"])
        programs.write(tmp_path / "loci", f'echo "$@" >>{tmp_path}/called')
        text = startup_script(Exascaler(config)).replace("/etc/", f"{tmp_path}/")
        for _ in range(2):
            subprocess.run(["sh", "-c", text], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, timeout=120, check=True)
        assert (tmp_path / "called").read_text() == "init\ninit\n"
        rows = dict(row.split(": ") for row in (tmp_path / "loci.conf").read_text().splitlines()[1:])
        assert (rows["OssCount"], rows["OstSize"], rows["MgsType"]) == ("3", "3500", "n2-standard-32")
        assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".new")] == []

    @pytest.mark.parametrize(
        ("image", "version"),
        [
            ("projects/ddn-public/global/images/family/exascaler-cloud-6-2-rocky-linux-8", "2.1.0"),
            ("projects/ddn-public/global/images/family/exascaler-cloud-6-3-rocky-linux-8-optimized-gcp", "2.2.1"),
            ("our-own-copy", "2.2.1"),
        ],
    )
    def test_the_version_of_loci_is_the_images(self, image, version):
        assert loci_version(image) == version
