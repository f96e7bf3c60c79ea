"""Machines: who they are to Google Cloud, and what outlives what."""

import json
import re
from typing import Any

import pytest

from cluster.roster import machines
from components.gcp.machines.boot import STATE_DEVICE
from tests.clouds import A3, EXASCALER, google
from tests.components.clouds_machines import (
    C2,
    CLASSIC,
    DISK,
    INSTANCE,
    NOBLE,
    NODE,
    T4,
    TEMPLATE,
    made,
    template,
)
from tests.components.graphs import graph, hold
from tests.harness import FAKE_SECRETS, Registered


class TestStateDisk:
    def test_it_outlives_the_controller(self):
        recording = made()
        (disk,), controller = recording.all(DISK), recording.one("cloud-controller")
        assert recording.waits_for(controller, disk)
        assert not recording.waits_for(disk, controller)
        assert disk.request.protect
        assert not controller.request.protect
        assert controller.inputs["attachedDisks"] == [{"deviceName": STATE_DEVICE, "source": f"{disk.name}-id"}]

    def test_nothing_that_makes_the_controller_anew_reaches_it(self):
        before = made()
        after = made(
            path="projects/my-project/global/images/newer",
            told="other-orders",
            controller={"machine_type": "c2-standard-4", "disk": {"size_gb": 300}, "capacity": {"spot": {}}},
        )
        (old,), (new,) = before.all(DISK), after.all(DISK)
        assert (old.urn, old.inputs) == (new.urn, new.inputs)
        assert before.one("cloud-controller").inputs != after.one("cloud-controller").inputs

    def test_it_can_be_given_up(self):
        (disk,) = made(deletion_protection=False).all(DISK)
        assert not disk.request.protect


class TestMachines:
    def test_they_are_the_rosters_in_its_order(self):
        config = google(nodesets={"gpu": A3, "cpu": C2}, login={"count": 2})
        recording = made(nodesets={"gpu": A3, "cpu": C2}, login={"count": 2})
        assert recording.outputs["order"] == [one.name for one in machines(config)]
        kinds = {one.name: one.inputs["machineType"] for one in recording.all(INSTANCE)}
        assert kinds == {
            "cloud-controller": "c2-standard-8",
            "cloud-login-0": "c2-standard-4",
            "cloud-login-1": "c2-standard-4",
        }

    def test_they_are_known_by_what_google_gave_them(self):
        ids = made().outputs["ids"]
        assert ids["cloud-cpu-0"] == ["instance-cloud-cpu-0", "instance-cloud-cpu-0"]
        assert ids["cloud-controller"][0] == "instance-cloud-controller"

    def test_a_changed_machine_type_is_another_start_of_the_same_machine(self):
        before = made().outputs["ids"]["cloud-controller"]
        after = made(controller={"machine_type": "c2-standard-4"}).outputs["ids"]["cloud-controller"]
        assert before[0] == after[0]
        assert before[1] != after[1]

    def test_host_keys_are_pinned_where_the_program_logs_in_and_unknown_elsewhere(self):
        told = {name: row["host_key"] for name, row in made().outputs["machines"].items()}
        assert told["cloud-controller"].startswith("ssh-ed25519 ")
        assert told["cloud-login-0"].startswith("ssh-ed25519 ")
        assert told["cloud-cpu-0"] == ""

    def test_each_runs_as_its_role_and_waits_until_that_may_do_its_part(self):
        recording = made()
        grants = [one for one in recording.resources if one.type.endswith(("IAMMember", "IamMember"))]
        by_role: dict[str, Registered] = {
            "ctl": recording.one("cloud-controller"),
            "login": recording.one("cloud-login-0"),
            "node": recording.one("cloud-cpu-0"),
        }
        for role, machine in by_role.items():
            member = f"serviceAccount:cloud-{role}@my-project.iam.gserviceaccount.com"
            own = [one for one in grants if one.inputs["member"] == member]
            assert own
            assert [one.name for one in own if not recording.waits_for(machine, one)] == []
        (account,) = (recording.one("cloud-controller").inputs["serviceAccount"]["email"],)
        assert account == "cloud-ctl@my-project.iam.gserviceaccount.com"
        (nodes,) = recording.all(TEMPLATE)
        assert nodes.inputs["serviceAccount"] == {
            "email": "cloud-node@my-project.iam.gserviceaccount.com",
            "scopes": ["https://www.googleapis.com/auth/cloud-platform"],
        }

    def test_gpus_are_attached_and_those_that_come_with_a_machine_are_not_listed(self):
        assert template(**T4)["guestAccelerators"] == [{"type": "nvidia-tesla-t4", "count": 2}]
        bare = template(**A3)
        assert "guestAccelerators" not in bare
        assert len(bare["disks"]) == 1, "local SSDs come with the machine"

    def test_disks_are_as_the_file_says(self):
        (disk,) = template(**T4)["disks"]
        assert (disk["diskType"], disk["diskSizeGb"], disk["boot"], disk["autoDelete"]) == ("pd-ssd", 80, True, True)
        controller = made(**CLASSIC).one("cloud-controller").inputs["bootDisk"]
        assert controller["initializeParams"]["size"] == 120
        assert controller["initializeParams"]["type"] == "pd-balanced"

    @pytest.mark.parametrize(
        ("changes", "signed"),
        [
            ({"image": NOBLE}, True),
            ({}, False),
            ({"image": {"base": "ubuntu-2204", "name": "ours-0123456789ab"}}, False),
            ({"image": {"base": "ubuntu-2204", "bake": False}, "storage": {"lustre": EXASCALER}}, False),
        ],
        ids=["plain", "baked", "existing", "lustre"],
    )
    def test_secure_boot_is_on_where_no_unsigned_module_is(self, changes: dict[str, Any], signed: bool):
        recording = made(**changes)
        for one in [*recording.all(INSTANCE), *recording.all(TEMPLATE)]:
            assert one.inputs["shieldedInstanceConfig"] == {
                "enableSecureBoot": signed,
                "enableVtpm": True,
                "enableIntegrityMonitoring": True,
            }

    def test_secure_boot_is_off_on_a_machine_with_gpus(self):
        recording = made(**CLASSIC)
        assert recording.all(TEMPLATE)[0].inputs["shieldedInstanceConfig"]["enableSecureBoot"] is False
        assert recording.one("cloud-controller").inputs["shieldedInstanceConfig"]["enableSecureBoot"] is True


def test_nothing_secret_is_in_what_google_shows_of_a_machine():
    recording = made(nodesets={"gpu": A3})
    for one in [*recording.all(INSTANCE), *recording.all(NODE), *recording.all(TEMPLATE)]:
        assert [secret for secret in FAKE_SECRETS if secret in json.dumps(one.inputs)] == []
        assert not one.secret("metadata")


@pytest.mark.parametrize("options", [{"preview": True}, {"unknown": True}], ids=["previewed", "unknown"])
@pytest.mark.parametrize("shape", [{"nodesets": {"gpu": A3}}, CLASSIC], ids=["a3mega", "classic"])
def test_the_same_is_made_whatever_is_known(shape: dict[str, Any], options: dict[str, bool]):
    assert {one.urn for one in made(**shape, **options).resources} == {one.urn for one in made(**shape).resources}


SHAPES: dict[str, dict[str, Any]] = {
    "a3mega": {"nodesets": {"gpu": {**A3, "capacity": {"reservation": "my-reservation"}}}},
    "classic": CLASSIC,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_graph_is_the_reviewed_one(shape: str, update_golden: bool):
    # Networks have their own, and the set-up is long.
    text = graph(
        made(**SHAPES[shape]), lambda one: bool(re.search("Machines|Identity", one.urn)) and "Object" not in one.type
    )
    hold(f"machines-{shape}.txt", text, update=update_golden)
