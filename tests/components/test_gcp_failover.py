"""A controller in two zones on Google Cloud: its disks, its machine, and the machine that brings it back."""

import json
import re
from functools import cache
from typing import Any

import pulumi
import pytest

from cluster.config import ClusterConfig
from cluster.platforms.gcp.permissions import failover_condition, failover_permissions, roles
from components.gcp.access import Access
from components.gcp.bake_design import TEMPLATE_KEY
from tests.clouds import google
from tests.components.graphs import google_machines, graph
from tests.harness import Recording, deploy

CONTROLLER, INSTANCE = "pulumi-python:dynamic/gcp:Controller", "gcp:compute/instance:Instance"
DISK, REGIONAL = "gcp:compute/disk:Disk", "gcp:compute/regionDisk:RegionDisk"
ZONES = ["us-central1-a", "us-central1-b"]
FAILOVER = {"machine_type": "n2-standard-8", "failover": True, "failover_zone": ZONES[1]}


def config(**changes: Any) -> ClusterConfig:
    controller = {**FAILOVER, **changes.pop("controller", {})}
    return google(controller=controller, **changes)


@cache
def made(key: str = "orders", mode: str = "act") -> Recording:
    of = config(controller={"failover_mode": mode})

    def program() -> None:
        found = google_machines(of, lambda spec, _: {key: spec.roles[0]})
        controller = found.machines[0]
        access = Access(of).machine_access(
            controller.spec,
            address=controller.address,
            public=None,
            instance_id=controller.instance_id,
            name=controller.spec.name,
            zone=controller.zone,
            host_key="",
        )
        pulumi.export("via", access.via() if access.via else None)
        pulumi.export("ids", [controller.instance_id, controller.boot_id])

    return deploy(program)


def watch(recording: Recording) -> dict[str, Any]:
    """Return the settings of the watch machine."""
    return json.loads(recording.one("cloud-watch").inputs["metadata"]["hpc-watch"])


class TestMachines:
    def test_both_disks_are_regional_and_kept(self, reviewed):
        """Another image is another disk beside it, so that has no name."""
        text = graph(made(), lambda one: one.type in (REGIONAL, DISK, CONTROLLER))
        body = json.loads(made().all(CONTROLLER)[0].inputs["body"])
        reviewed("gcp/failover", {"resources": text.rstrip(), "disks": json.dumps(body["disks"], indent=1)})

    def test_the_zone_is_no_input(self):
        (one,) = made().all(CONTROLLER)
        assert one.inputs["zones"] == ZONES
        assert "zone" not in {key for key, value in one.inputs.items() if value is not None}
        assert made().outputs["via"]["iap"]["zone"] == ZONES[0]
        assert made().outputs["ids"][0] == "4242", "the root file system's id, which a move does not change"

    def test_the_watch_creates_what_the_stack_creates_but_takes_the_disks_by_force(self):
        (one,), settings = made().all(CONTROLLER), watch(made())
        body = settings["body"]
        assert all(disk["forceAttach"] for disk in body["disks"])
        own = json.loads(one.inputs["body"])
        assert {key: body[key] for key in own} == own
        metadata = {row["key"]: row["value"] for row in body["metadata"]["items"]}
        assert metadata.pop(TEMPLATE_KEY)
        assert metadata == {"orders": "controller"}
        assert body["labels"] == one.inputs["labels"]
        assert body["machineType"] == "zones/{zone}/machineTypes/n2-standard-8"
        assert (settings["zones"], settings["address"], settings["mode"]) == (
            ZONES,
            body["networkInterfaces"][0]["networkIP"],
            "act",
        )

    def test_new_metadata_updates_the_watch_and_recreates_nothing(self):
        before, after = made(), made("others")
        assert watch(before)["body"] != watch(after)["body"]
        assert before.all(CONTROLLER)[0].inputs["body"] == after.all(CONTROLLER)[0].inputs["body"]
        keys = {key for key in before.one("cloud-watch").inputs if key != "metadata"}
        assert all(before.one("cloud-watch").inputs[key] == after.one("cloud-watch").inputs[key] for key in keys)

    def test_failover_mode_changes_only_the_watchs_metadata(self):
        assert watch(made(mode="advise"))["mode"] == "advise"
        assert made().all(CONTROLLER)[0].inputs == made(mode="advise").all(CONTROLLER)[0].inputs

    def test_the_watch_is_in_the_other_zone_and_has_no_logins(self):
        recording = made()
        one = recording.one("cloud-watch")
        assert one.inputs["zone"] == ZONES[1]
        assert one.inputs["metadata"]["block-project-ssh-keys"] == "TRUE"
        assert "ssh-keys" not in one.inputs["metadata"]
        assert "accessConfigs" not in one.inputs["networkInterfaces"][0]
        assert one.inputs["metadata"]["startup-script"].count("def answer(") == 1
        compile(one.inputs["metadata"]["startup-script"], "failover.py", "exec")
        # Google's limit of one value; {} of 512 KB in all.
        assert all(len(value) < 256 * 1024 for value in one.inputs["metadata"].values())

    def test_the_watch_is_deleted_first_and_disks_after_the_machine(self):
        recording = made()
        (controller,) = recording.all(CONTROLLER)
        assert recording.waits_for(recording.one("cloud-watch"), controller)
        for disk in recording.all(REGIONAL):
            assert recording.waits_for(controller, disk)

    def test_without_failover_there_are_no_such_resources(self):
        assert roles(google()) == roles(google(controller={"machine_type": "n2-standard-8"}))
        assert "roles/iam.roleAdmin" not in roles(google())
        assert "roles/iam.roleAdmin" in roles(config())


class TestRights:
    def test_the_watch_reads_no_secret_and_no_file(self):
        recording = made()
        email = "serviceAccount:cloud-watch@my-project.iam.gserviceaccount.com"
        held = [resource for resource in recording.resources if resource.inputs.get("member") == email]
        kinds = {member.type.rpartition(":")[2] for member in held}
        assert kinds == {"IAMMember"}
        on_accounts = [member.inputs["serviceAccountId"] for member in held if "serviceAccountId" in member.inputs]
        assert len(on_accounts) == 1
        assert "cloud-ctl@" in on_accounts[0]
        custom = [member for member in held if "condition" in member.inputs]
        assert [member.inputs["condition"]["expression"] for member in custom] == [failover_condition(config())]
        (role,) = [resource for resource in recording.resources if resource.type.endswith("IAMCustomRole")]
        assert role.inputs["permissions"] == failover_permissions(config())

    @pytest.mark.parametrize(
        ("kind", "name", "allowed"),
        [
            ("Instance", "projects/p/zones/us-central1-b/instances/cloud-controller", True),
            ("Instance", "projects/p/zones/us-central1-b/instances/cloud-controller-2", False),
            ("Instance", "projects/p/zones/us-central1-a/instances/cloud-cpu-0", False),
            ("Disk", "projects/p/regions/us-central1/disks/cloud-controller-state", True),
            ("Disk", "projects/p/regions/us-central1/disks/cloud-controller-boot-0a1b2c3", True),
            ("Disk", "projects/p/zones/us-central1-a/disks/cloud-login-0", False),
            ("Subnetwork", "projects/p/regions/us-central1/subnetworks/cloud", True),
        ],
    )
    def test_the_condition_names_the_controller_and_its_disks(self, kind: str, name: str, allowed: bool):
        text = failover_condition(config())
        for key, folder in (("Instance", "instances"), ("Disk", "disks")):
            value = name.partition(f"/{folder}/")[2]
            text = text.replace(f"resource.name.extract('/{folder}/{{name}}')", repr(value))
            text = text.replace(f"resource.type == 'compute.googleapis.com/{key}'", str(kind == key))
            text = text.replace(f"resource.type != 'compute.googleapis.com/{key}'", str(kind != key))
        text = re.sub(r"\bstartsWith\b", "startswith", text).replace("&&", "and").replace("||", "or")
        assert eval(text) is allowed  # noqa: S307 - made of the line above

    def test_a_public_address_requires_two_more_permissions(self):
        public = config(login={"on": "controller", "public": True}, network={"admin_cidrs": ["203.0.113.0/24"]})
        more = set(failover_permissions(public)) - set(failover_permissions(config()))
        assert more == {"compute.addresses.use", "compute.subnetworks.useExternalIp"}


def test_a_rehearsal_has_it_and_no_zone():
    from cluster.platforms.local.rehearsal import rehearsed, stood_in  # noqa: PLC0415

    assert rehearsed(config())["controller"] == {"failover": True, "machine_type": "n2-standard-8"}
    assert rehearsed(google())["controller"] == {"machine_type": "c2-standard-8"}
    assert any(line.startswith("failover:") for line in stood_in(config()))


def test_the_preview_counts_both_copies_and_the_watch():
    from cluster.platforms.gcp.request import describe_request, disks  # noqa: PLC0415

    plain = google(controller={"machine_type": "n2-standard-8"})
    more = {kind: disks(config()).get(kind, 0) - size for kind, size in disks(plain).items()}
    assert more["pd-ssd"] == 300
    assert disks(config())["pd-standard"] == 10
    assert any("watches the controller" in line for line in describe_request(config()))
