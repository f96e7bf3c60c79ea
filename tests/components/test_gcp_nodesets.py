"""Nodes: how Google is asked for them, which networks they are in, and what a change makes anew."""

from typing import Any

import pytest

from tests.clouds import A3, EXASCALER
from tests.components.clouds_machines import C2, CLASSIC, INSTANCE, NODE, POLICY, TEMPLATE, inputs, made, template
from tests.harness import FLEX, Registered, deploy


def aliases(one: Registered) -> set[str]:
    """Types that it was of."""
    return {alias.spec.type or alias.urn.split("::")[2].rpartition("$")[2] for alias in one.request.aliases} | {
        urn.split("::")[2].rpartition("$")[2] for urn in one.request.aliasURNs
    }


class TestCapacity:
    """What each way of asking comes to in the provider's own inputs."""

    @pytest.mark.parametrize(
        ("capacity", "scheduling"),
        [
            (
                {"on_demand": {}},
                {"provisioningModel": "STANDARD", "preemptible": False, "automaticRestart": True},
            ),
            (
                {"spot": {}},
                {
                    "provisioningModel": "SPOT",
                    "preemptible": True,
                    "automaticRestart": False,
                    "instanceTerminationAction": "STOP",
                },
            ),
            (
                {"reservation": "mine"},
                {"provisioningModel": "STANDARD", "preemptible": False, "automaticRestart": True},
            ),
            (
                {"flex": {"max_run": "1-00:00:00"}},
                {
                    "provisioningModel": "FLEX_START",
                    "preemptible": False,
                    "automaticRestart": False,
                    "instanceTerminationAction": "DELETE",
                    "maxRunDuration": {"seconds": 86400},
                },
            ),
            (
                {"calendar": "my-week"},
                {
                    "provisioningModel": "RESERVATION_BOUND",
                    "preemptible": False,
                    "automaticRestart": True,
                    "instanceTerminationAction": "DELETE",
                },
            ),
        ],
        ids=lambda value: next(iter(value)),
    )
    def test_nodes_are_asked_for_so(self, capacity: dict[str, Any], scheduling: dict[str, Any]):
        # Machines with GPUs can't move to another host.
        assert template(**A3, capacity=capacity)["scheduling"] == {**scheduling, "onHostMaintenance": "TERMINATE"}

    def test_machines_without_gpus_move_to_another_host_instead_of_ending(self):
        assert template(**C2)["scheduling"]["onHostMaintenance"] == "MIGRATE"
        assert template(**C2, capacity={"spot": {}})["scheduling"]["onHostMaintenance"] == "TERMINATE"

    @pytest.mark.parametrize(
        ("capacity", "named"),
        [
            ({"reservation": "mine"}, "mine"),
            (
                {"reservation": "projects/other-project/reservations/theirs"},
                "projects/other-project/reservations/theirs",
            ),
            ({"calendar": "my-week"}, "my-week"),
        ],
    )
    def test_a_reservation_is_taken_by_its_name(self, capacity: dict[str, Any], named: str):
        assert template(**A3, capacity=capacity)["reservationAffinity"] == {
            "type": "SPECIFIC_RESERVATION",
            "specificReservation": {"key": "compute.googleapis.com/reservation-name", "values": [named]},
        }

    def test_flex_start_takes_no_reservation_and_the_others_say_nothing(self):
        assert template(**A3, capacity={"flex": {}})["reservationAffinity"] == {"type": "NO_RESERVATION"}
        assert "reservationAffinity" not in template(**A3)
        assert "reservationAffinity" not in template(**A3, capacity={"spot": {}})

    def test_flex_start_is_asked_for_by_a_resource_that_waits(self):
        nodeset = {**A3, "count": 2, "capacity": {"flex": {}}}
        recording = made(nodesets={"gpu": nodeset})
        (template_,), nodes = recording.all(TEMPLATE), recording.all(FLEX)
        assert recording.all(NODE) == []
        assert {one.inputs["name"] for one in nodes} == {"cloud-gpu-0", "cloud-gpu-1"}
        for one in nodes:
            assert (one.inputs["project"], one.inputs["zone"]) == ("my-project", "us-central1-a")
            assert one.inputs["cluster"] == one.inputs["labels"]["hpc-cluster"] == "cloud"
            assert one.inputs["template"] == f"templates/{template_.inputs['machineType']}"
            assert one.request.deleteBeforeReplace
            # In the state before Google is asked, and gone only after the node is.
            request, queue = recording.one(f"{one.name}-request"), recording.one("cloud-gpu-queue")
            assert recording.waits_for(one, queue)
            assert recording.waits_for(queue, request)
            assert recording.waits_for(request, template_)
        assert recording.outputs["machines"]["cloud-gpu-1"]["address"] == "ip-of-cloud-gpu-1"
        assert recording.outputs["ids"]["cloud-gpu-1"] == ["instance-cloud-gpu-1"] * 2

    def test_a_node_that_is_asked_for_in_another_way_is_known_as_the_same(self):
        """Two resources of one name would be two machines of one name: the new one comes first."""
        flex, plain = ({**A3, "count": 1, "capacity": way} for way in ({"flex": {}}, {"on_demand": {}}))
        (one,), (other,) = made(nodesets={"gpu": flex}).all(FLEX), made(nodesets={"gpu": plain}).all(NODE)
        assert aliases(one) == {NODE}
        assert aliases(other) == {FLEX}

    def test_a_placement_is_a_policy_of_the_nodeset_where_it_is_asked_for(self):
        close = {**C2, "capacity": {"on_demand": {"placement": {"max_distance": 2}}}}
        recording = made(nodesets={"gpu": close})
        (policy,) = recording.all(POLICY)
        assert policy.inputs == {
            "region": "us-central1",
            "groupPlacementPolicy": {"collocation": "COLLOCATED", "maxDistance": 2},
        }
        (one,) = recording.all(TEMPLATE)
        assert one.inputs["resourcePolicies"] == "policies/placement"
        assert one.inputs["scheduling"]["onHostMaintenance"] == "TERMINATE"
        plain = made(nodesets={"gpu": C2})
        assert plain.all(POLICY) == []
        assert "resourcePolicies" not in plain.all(TEMPLATE)[0].inputs

    @pytest.mark.parametrize(
        ("policy", "path"),
        [
            ("tight", "projects/my-project/regions/us-central1/resourcePolicies/tight"),
            ("projects/my-project/regions/us-central1/resourcePolicies/tight",) * 2,
        ],
    )
    def test_a_reservations_own_policy_is_named_and_none_is_made(self, policy: str, path: str):
        recording = made(
            nodesets={"gpu": {**A3, "capacity": {"reservation": {"name": "r", "placement_policy": policy}}}}
        )
        (one,) = recording.all(TEMPLATE)
        assert recording.all(POLICY) == []
        assert one.inputs["resourcePolicies"] == path
        assert one.inputs["reservationAffinity"]["specificReservation"]["values"] == ["r"]
        assert "resourcePolicies" not in template(**A3, capacity={"reservation": {"name": "r"}})

    def test_controller_and_login_machines_can_be_spot(self):
        recording = made(controller={"capacity": {"spot": {}}})
        told = {one.name: one.inputs["scheduling"] for one in recording.all(INSTANCE)}
        assert told["cloud-controller"]["provisioningModel"] == "SPOT"
        assert told["cloud-controller"]["instanceTerminationAction"] == "STOP"
        assert told["cloud-login-0"]["provisioningModel"] == "STANDARD"
        assert told["cloud-login-0"]["onHostMaintenance"] == "MIGRATE"


class TestNetwork:
    def test_nine_nics_stand_in_order(self):
        recording = made(nodesets={"gpu": A3}, storage={"lustre": EXASCALER})
        (one,) = recording.all(TEMPLATE)
        nics = one.inputs["networkInterfaces"]
        assert [nic["subnetwork"] for nic in nics] == [
            "cloud-network-system-subnet-id",
            *(f"cloud-network-gpu-{index}-subnet-id" for index in range(8)),
        ]
        assert {nic["nicType"] for nic in nics} == {"GVNIC"}

    def test_rdma_nics_come_after_those_of_the_host(self):
        nics = deploy("a4").one("a4h-a4-template").inputs["networkInterfaces"]
        names = ["system", "second", *(f"gpu-{index}" for index in range(8))]
        assert [one["subnetwork"] for one in nics] == [f"a4h-network-{name}-subnet-id" for name in names]
        assert [one["nicType"] for one in nics] == ["GVNIC"] * 2 + ["MRDMA"] * 8

    def test_a_nodeset_without_gpu_nics_has_one_beside_one_that_has_nine(self):
        recording = made(nodesets={"gpu": A3, "cpu": C2})
        nics = {one.name: len(one.inputs["networkInterfaces"]) for one in recording.all(TEMPLATE)}
        assert nics == {"cloud-gpu-template": 9, "cloud-cpu-template": 1}

    def test_nobody_has_a_public_address_unless_login_machines_are_to(self):
        recording = made(nodesets={"gpu": A3})
        for one in [*recording.all(INSTANCE), *recording.all(TEMPLATE)]:
            assert [nic.get("accessConfigs") or [] for nic in one.inputs["networkInterfaces"]] == [
                [] for _ in one.inputs["networkInterfaces"]
            ]
        assert recording.outputs["public"] == {}

    def test_login_machines_that_are_to_have_one_that_stays(self):
        admins = {"admin_cidrs": ["203.0.113.7/32"]}
        recording = made(login={"count": 2, "public": True}, network=admins)
        assert set(recording.outputs["public"]) == {"cloud-login-0", "cloud-login-1"}
        told = {one.name: one.inputs["networkInterfaces"][0].get("accessConfigs") for one in recording.all(INSTANCE)}
        assert not told["cloud-controller"]
        assert told["cloud-login-0"] == [{"natIp": recording.outputs["public"]["cloud-login-0"]}]
        kept = recording.one("cloud-login-0-public")
        assert (kept.inputs["addressType"], kept.inputs["networkTier"]) == ("EXTERNAL", "PREMIUM")

    def test_a_controller_that_people_log_in_to_has_it_itself(self):
        recording = made(**CLASSIC)
        assert set(recording.outputs["public"]) == {"cloud-controller"}
        (controller,) = recording.all(INSTANCE)
        assert controller.inputs["tags"] == ["cloud", "cloud-login"]

    def test_fixed_addresses_are_the_plans(self):
        told = {one.name: one.inputs["networkInterfaces"][0]["networkIp"] for one in made().all(INSTANCE)}
        assert told == {"cloud-controller": "172.16.0.2", "cloud-login-0": "172.16.8.1"}
        assert made().outputs["machines"]["cloud-cpu-1"]["address"] == "ip-of-cloud-cpu-1"

    def test_firewall_rules_know_everybody_by_a_tag(self):
        recording = made()
        assert recording.one("cloud-controller").inputs["tags"] == ["cloud"]
        assert recording.one("cloud-login-0").inputs["tags"] == ["cloud", "cloud-login"]
        assert recording.all(TEMPLATE)[0].inputs["tags"] == ["cloud"]


class TestChanges:
    def test_two_nodes_more_are_two_instances_and_nothing_else_anew(self):
        few, many = (inputs(made(nodesets={"gpu": {**A3, "count": count}})) for count in (2, 4))
        assert {urn: many[urn] for urn in few} == few
        assert sorted(many[urn][1]["name"] for urn in many.keys() - few.keys()) == ["cloud-gpu-2", "cloud-gpu-3"]

    def test_what_nodes_are_told_changes_without_their_template(self):
        before, after = inputs(made()), inputs(made(told="new-orders"))
        changed = {urn for urn in before if before[urn] != after[urn]}
        assert {before[urn][0] for urn in changed} == {INSTANCE, NODE}
        for urn in changed:
            kept = [{**one[urn][1], "metadata": None} for one in (before, after)]
            assert kept[0] == kept[1]

    def test_what_nodes_are_changes_their_template(self):
        before = inputs(made())
        for changes in (
            {"path": "projects/my-project/global/images/newer"},
            {"nodesets": {"cpu": {"count": 2, "disk": {"size_gb": 300}}}},
            {"nodesets": {"cpu": {"count": 2, "capacity": {"spot": {}}}}},
        ):
            after = inputs(made(**changes))
            changed = {before[urn][0] for urn in before if before[urn] != after[urn]}
            assert TEMPLATE in changed
            assert NODE not in changed, "an instance follows its template, and has nothing of its own that could differ"

    def test_templates_and_policies_are_named_anew_each_time(self):
        close = {**C2, "capacity": {"on_demand": {"placement": {}}}}
        recording = made(nodesets={"gpu": close})
        for one in [*recording.all(TEMPLATE), *recording.all(POLICY)]:
            assert not {"name", "namePrefix"} & one.inputs.keys()

    def test_who_has_a_name_of_its_own_goes_before_its_successor_comes(self):
        recording = made()
        for one in [*recording.all(INSTANCE), *recording.all(NODE)]:
            assert one.inputs["name"] == one.name
            assert one.request.deleteBeforeReplace
        for one in recording.all(TEMPLATE):
            assert not one.request.deleteBeforeReplace

    def test_machines_that_were_stopped_are_to_run(self):
        recording = made()
        assert {one.inputs["desiredStatus"] for one in [*recording.all(INSTANCE), *recording.all(NODE)]} == {"RUNNING"}
        assert {one.inputs["allowStoppingForUpdate"] for one in recording.all(INSTANCE)} == {True}
