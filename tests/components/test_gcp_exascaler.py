"""EXAScaler is started as its maker's images expect it, and nothing of it is open or allowed that need not be."""

import subprocess
import sys
from pathlib import Path

import pytest

from cluster.platforms.gcp.filesystems.exascaler import PERMISSIONS, Exascaler, loci_version, startup_script
from tests.clouds import EXASCALER, google
from tests.components.filesystems import DISK, INSTANCE, STORAGES, made, make, server
from tests.components.graphs import hold
from tests.harness import deploy


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
        disks = [disk for one in Exascaler(config).servers() if one.kind == "oss" for disk in one.disks]
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
        text = startup_script(Exascaler(config))
        hold(f"exascaler-{kind}.sh", text, update=update_golden)
        script = tmp_path / "startup.sh"
        script.write_text(text)
        lint = Path(sys.executable).parent / "shellcheck"
        run = subprocess.run([lint, script], capture_output=True, text=True, timeout=60, check=False)
        assert run.stdout == ""

    def test_the_script_writes_the_file_and_starts_the_images_program(self, tmp_path):
        """Run here, with the file in another place and a program in loci's place: twice, as at a second boot."""
        config = google(storage=STORAGES["guide"])
        (tmp_path / "loci").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/called\n')
        (tmp_path / "loci").chmod(0o755)
        text = startup_script(Exascaler(config)).replace("/etc/", f"{tmp_path}/")
        for _ in range(2):
            subprocess.run(["sh", "-c", text], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, timeout=120, check=True)
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
