"""Elastic nodesets on Google Cloud: what instances are made of, who may create them, what is deleted before what."""

import json
import re
from functools import cache
from typing import Any

import pulumi
import pytest

from cluster.config import ClusterConfig
from cluster.platforms.gcp.permissions import reconcile_condition, reconcile_permissions, repair_permissions, roles
from cluster.roster import machines
from cluster.slurm.script_tree import tree
from components.deploy import deploy as deploy_on_platform
from components.gcp.machines.identity import Identity
from components.gcp.machines.machines import MachineArgs, Machines
from components.gcp.network import Network
from components.slurm.keys import ClusterKeys
from tests.clouds import A3, unchecked
from tests.harness import ROOT, Recording, deploy

TEMPLATE = "gcp:compute/instanceTemplate:InstanceTemplate"
NODE = "gcp:compute/instanceFromTemplate:InstanceFromTemplate"
POLICY = "gcp:compute/resourcePolicy:ResourcePolicy"
INSTANCES = "pulumi-python:dynamic/gcp:ElasticInstances"
ROLE, ON_PROJECT = "gcp:projects/iAMCustomRole:IAMCustomRole", "gcp:projects/iAMMember:IAMMember"
ON_ACCOUNT, ACCOUNT = "gcp:serviceaccount/iAMMember:IAMMember", "gcp:serviceaccount/account:Account"
CLOSE = {"placement": {"max_distance": 2}}
CPU = {"machine_type": "c2-standard-8", "count": {"min": 1, "max": 4}}
WAYS = [{"reservation": "mine"}, {"spot": CLOSE}, "on_demand"]
MARKS = {
    "hpc-cluster": "cloud",
    "hpc-part": "node",
    "hpc-nodeset": "cpu",
    "hpc-made-by": "reconcile",
    "managed-by": "hpc-reconcile",
}


def config(**nodesets: Any) -> ClusterConfig:
    return unchecked(nodesets=nodesets or {"cpu": {**CPU, "capacity": WAYS}})


def made(*, told: str = "orders", **nodesets: Any) -> Recording:
    """What a cluster's machines register; `told` is what is in their metadata."""
    return _made(told, json.dumps(nodesets))


@cache
def _made(told: str, nodesets: str) -> Recording:
    of = config(**json.loads(nodesets))

    def program() -> None:
        network = Network("cloud-network", of)
        identity = Identity("cloud-identity", of, ClusterKeys("cloud"))
        image = "projects/my-project/global/images/ours"
        args = MachineArgs(
            config=of, network=network, identity=identity, image=image, metadata=lambda spec: {told: spec.roles[0]}
        )
        found = Machines("cloud-machines", args)
        pulumi.export("templates", found.templates)
        pulumi.export("order", [one.spec.name for one in found.machines])

    return deploy(program)


def templates(recording: Recording) -> dict[str, dict[str, Any]]:
    return {one.name: one.inputs for one in recording.all(TEMPLATE)}


class TestTemplates:
    def test_one_for_each_way_in_its_order_and_one_of_the_static_nodes(self):
        recording = made()
        assert set(templates(recording)) == {
            *("cloud-cpu-template", "cloud-cpu-reservation", "cloud-cpu-spot", "cloud-cpu-on-demand")
        }
        assert [row["way"] for row in recording.outputs["templates"]["cpu"]] == ["reservation", "spot", "on_demand"]
        assert [one.name for one in recording.all(NODE)] == ["cloud-cpu-0"]
        assert recording.outputs["order"] == [one.name for one in machines(config())]

    def test_elastic_ones_have_the_metadata_and_the_labels_by_which_they_are_deleted(self):
        found = templates(made())
        static = found.pop("cloud-cpu-template")
        assert "metadata" not in static
        assert "hpc-made-by" not in static["labels"]
        for row in found.values():
            assert row["metadata"] == {"orders": "node"}
            assert row["labels"] == row["disks"][0]["labels"] == MARKS
            same = ("machineType", "networkInterfaces", "serviceAccount", "tags", "shieldedInstanceConfig")
            assert {key: row[key] for key in same} == {key: static[key] for key in same}

    def test_another_configuration_recreates_no_static_node(self):
        before, after = templates(made()), templates(made(told="others"))
        changed = {name for name in before if before[name] != after[name]}
        assert changed == set(before) - {"cloud-cpu-template"}

    def test_names_that_google_takes_are_made_of_theirs(self):
        for one in made().all(TEMPLATE):
            assert re.fullmatch("[a-z][-a-z0-9]*", one.name)

    def test_two_of_a_kind_have_names_of_their_own(self):
        ways = [{"reservation": "one"}, "spot", {"reservation": "two"}]
        recording = made(cpu={**CPU, "capacity": ways})
        found: dict[str, Any] = {name: row.get("reservationAffinity") for name, row in templates(recording).items()}
        assert found["cloud-cpu-reservation"]["specificReservation"]["values"] == ["one"]
        assert found["cloud-cpu-reservation-2"]["specificReservation"]["values"] == ["two"]
        assert [row["way"] for row in recording.outputs["templates"]["cpu"]] == ["reservation", "spot", "reservation-2"]

    def test_flex_start_has_its_time_and_keeps_machines_close_where_the_family_has_it(self):
        found = {}
        for name, kind in (("mega", "a3-megagpu-8g"), ("ultra", "a3-ultragpu-8g")):
            ways = ["spot", {"flex": {"max_run": "60"}}]
            nodesets: Any = {name: {"machine_type": kind, "count": {"min": 0, "max": 4}, "capacity": ways}}
            recording = made(**nodesets)
            found[name] = recording.outputs["templates"][name][1], recording.all(POLICY)
            (template,) = (row for key, row in templates(recording).items() if key.endswith("-flex"))
            assert template["scheduling"]["provisioningModel"] == "FLEX_START"
            assert template["scheduling"]["instanceTerminationAction"] == "DELETE"
            assert template["labels"]["hpc-made-by"] == "reconcile"
        (mega, none), (ultra, (policy,)) = found["mega"], found["ultra"]
        assert (mega["run_seconds"], "policy" in mega, none) == (3600, False, [])
        assert ultra["policy"] == "policies/placement"
        assert policy.inputs["workloadPolicy"] == {"type": "HIGH_THROUGHPUT", "maxTopologyDistance": "CLUSTER"}

    def test_a_preempted_one_is_deleted_and_a_static_one_is_stopped(self):
        found = templates(made(cpu={**CPU, "capacity": "spot"}))
        ends = {name: row["scheduling"]["instanceTerminationAction"] for name, row in found.items()}
        assert ends == {"cloud-cpu-template": "STOP", "cloud-cpu-spot": "DELETE"}

    def test_nodes_that_are_to_be_close_are_in_one_placement_static_or_not(self):
        ways = [{"spot": CLOSE}, {"on_demand": CLOSE}, {"on_demand": {"placement": {"max_distance": 3}}}]
        recording = made(cpu={**CPU, "capacity": ways})
        distances = {one.name: one.inputs["groupPlacementPolicy"]["maxDistance"] for one in recording.all(POLICY)}
        assert distances == {"cloud-cpu-placement": 2, "cloud-cpu-placement-3": 3}
        two, three = recording.one("cloud-cpu-placement"), recording.one("cloud-cpu-placement-3")
        for name, policy in (("template", two), ("spot", two), ("on-demand", two), ("on-demand-2", three)):
            assert recording.waits_for(recording.one(f"cloud-cpu-{name}"), policy)

    def test_a_nodeset_without_static_nodes(self):
        recording = made(cpu={**CPU, "count": {"min": 0, "max": 4}})
        assert set(templates(recording)) == {"cloud-cpu-on-demand"}
        assert recording.all(NODE) == []
        assert "cloud-node" in [one.inputs["accountId"] for one in recording.all(ACCOUNT)]


class TestOrder:
    def test_the_controller_goes_first_then_its_instances_then_what_they_are_made_of(self):
        """Deletion is the other way round: what waits for something is deleted before it."""
        recording = made()
        (instances,), controller = recording.all(INSTANCES), recording.one("cloud-controller")
        assert recording.waits_for(controller, instances)
        below = [one for one in recording.all(TEMPLATE) if one.name != "cloud-cpu-template"]
        below += [one for one in recording.resources if re.search("network:Network|subnetwork:|firewall:", one.type)]
        below += [*recording.all(POLICY), *(one for one in recording.all(ACCOUNT) if one.name.endswith("-node"))]
        below += [one for one in recording.resources if "SecretIamMember" in one.type and one.name.endswith("-node")]
        assert len(below) > 8
        assert [one.name for one in below if not recording.waits_for(instances, one)] == []

    def test_the_state_disk_does_not_wait_for_them(self):
        recording = made()
        (instances,) = recording.all(INSTANCES)
        assert not recording.waits_for(recording.one("cloud-controller-state"), instances)

    def test_each_elastic_nodeset_has_its_own(self):
        recording = made(cpu=CPU, gpu={**A3, "count": {"min": 0, "max": 2}}, fixed={**CPU, "count": 2})
        place = {"project": "my-project", "zone": "us-central1-a", "cluster": "cloud", "endpoint": ""}
        found = [{key: one.inputs[key] for key in (*place, "nodeset")} for one in recording.all(INSTANCES)]
        assert sorted(found, key=lambda one: one["nodeset"]) == [{**place, "nodeset": name} for name in ("cpu", "gpu")]
        assert set(recording.outputs["templates"]) == {"cpu", "gpu"}


def allows(expression: str, type_: str, name: str = "") -> bool:
    """What a condition says of a resource: CEL's operators and two methods, as Python has them."""
    python = (
        expression.replace("&&", "and").replace("||", "or").replace("!=", " != ").replace("startsWith", "startswith")
    )
    python = re.sub(r"resource\.name\.extract\('([^{]+)\{name\}'\)", r"(resource.name.partition('\1')[2])", python)
    resource = type("Resource", (), {"type": f"compute.googleapis.com/{type_}", "name": name})
    return bool(eval(python, {"resource": resource}))  # noqa: S307 - our own text


class TestRights:
    def test_the_controller_may_create_what_has_the_nodesets_names_and_nothing_else(self):
        at = "projects/my-project/zones/us-central1-a"
        expression = reconcile_condition(config(), "cpu")
        for name in ("cloud-cpu-1", "cloud-cpu-15"):
            assert allows(expression, "Instance", f"{at}/instances/{name}")
            assert allows(expression, "Disk", f"{at}/disks/{name}")
        for name in ("cloud-controller", "cloud-login-0", "cloud-gpu-0", "other-cpu-0", "my-cloud-cpu-0"):
            assert not allows(expression, "Instance", f"{at}/instances/{name}")
            assert not allows(expression, "Disk", f"{at}/disks/{name}")
        assert not allows(expression, "Disk", f"{at}/disks/cloud-controller-state")
        assert allows(
            expression, "InstanceTemplate", "projects/my-project/global/instanceTemplates/cloud-cpu-spot-1a2b"
        )
        assert allows(expression, "Project")

    def test_its_role_is_its_own_and_bound_for_each_elastic_nodeset(self):
        of: dict[str, Any] = {"cpu": CPU, "gpu": {**A3, "count": {"min": 0, "max": 2}}, "fixed": {**CPU, "count": 2}}
        recording = made(**of)
        (role,) = recording.all(ROLE)
        assert role.inputs["roleId"] == "cloud_reconcile_0123456789abcdef"
        assert role.inputs["permissions"] == reconcile_permissions(config(**of))
        bound = [one.inputs for one in recording.all(ON_PROJECT) if "condition" in one.inputs]
        member = "serviceAccount:cloud-ctl@my-project.iam.gserviceaccount.com"
        assert {(row["role"], row["member"]) for row in bound} == {
            ("projects/my-project/roles/cloud_reconcile_0123456789abcdef", member)
        }
        assert sorted(row["condition"]["expression"] for row in bound) == sorted(
            reconcile_condition(config(**of), name) for name in ("cpu", "gpu")
        )
        # To act as an account is not part of it: that would be on every account of the project.
        assert not [name for name in role.inputs["permissions"] if name.startswith("iam.")]
        (acting,) = recording.all(ON_ACCOUNT)
        assert (acting.inputs["member"], acting.inputs["role"]) == (member, "roles/iam.serviceAccountUser")
        assert acting.inputs["serviceAccountId"].endswith("/cloud-node@my-project.iam.gserviceaccount.com")

    def test_the_controller_starts_once_it_has_them(self):
        recording = made()
        controller = recording.one("cloud-controller")
        granted = [*recording.all(ON_ACCOUNT), *(one for one in recording.all(ON_PROJECT) if "condition" in one.inputs)]
        assert len(granted) == 2
        assert all(recording.waits_for(controller, one) for one in granted)

    def test_without_elastic_nodes_it_has_none_of_them(self):
        recording = made(cpu={**CPU, "count": 2})
        assert [*recording.all(ROLE), *recording.all(ON_ACCOUNT), *recording.all(INSTANCES)] == []
        assert not [one for one in recording.all(ON_PROJECT) if "condition" in one.inputs]
        assert recording.outputs["templates"] == {}

    @pytest.mark.parametrize(
        ("capacity", "placed"),
        [
            ("spot", False),
            ({"reservation": "mine"}, False),
            ({"reservation": {"name": "mine", "placement_policy": "close"}}, True),
            (["spot", {"on_demand": CLOSE}], True),
        ],
    )
    def test_placements_take_one_permission_more(self, capacity: Any, placed: bool):
        found = reconcile_permissions(config(cpu={**CPU, "capacity": capacity}))
        assert ("compute.resourcePolicies.use" in found) is placed

    def test_groups_are_for_those_who_wait_in_googles_queue(self):
        flex = reconcile_permissions(config(cpu={**CPU, "capacity": ["spot", "flex"]}))
        spot = reconcile_permissions(config(cpu={**CPU, "capacity": "spot"}))
        assert {one.partition(".")[2] for one in set(flex) - set(spot)} == {
            *(f"instanceGroupManagers.{verb}" for verb in ("create", "delete", "get", "list", "update", "use")),
            "instanceGroups.delete",
        }

    def test_who_runs_up_needs_the_role_that_makes_roles(self):
        assert "roles/iam.roleAdmin" in roles(config())
        assert "roles/iam.roleAdmin" not in roles(config(cpu={**CPU, "count": 2}))


class TestController:
    def whole(self, *, unknown: bool = False) -> Recording:
        of = config()
        return deploy(
            lambda: pulumi.export("place", deploy_on_platform(of, tree(of, ROOT)).outputs["place"]), unknown=unknown
        )

    def test_it_is_configured_with_the_templates_in_their_order(self):
        recording = self.whole()
        configured = recording.one("cloud-controller-configure")
        told = json.loads(configured.inputs["stdin"])["reconcile"]
        assert told["cloud"] == {
            "project": "my-project",
            "zone": "us-central1-a",
            "region": "us-central1",
            "cluster": "cloud",
            "endpoint": "",
            "token_file": "",
        }
        nodes = told["nodesets"]["cpu"]
        assert (nodes["static"], nodes["nodes"]) == (["cloud-cpu-0"], ["cloud-cpu-1", "cloud-cpu-2", "cloud-cpu-3"])
        assert [row["way"] for row in nodes["templates"]] == ["reservation", "spot", "on_demand"]
        assert all(row["template"] for row in nodes["templates"])
        # A template is deleted once the controller has its successor.
        assert all(
            recording.waits_for(configured, one) for one in recording.all(TEMPLATE) if "template" not in one.name
        )
        assert recording.outputs["place"]["elastic"]["templates"] == {"cpu": nodes["templates"]}

    def test_the_same_is_made_whatever_is_known(self):
        assert {one.urn for one in self.whole(unknown=True).resources} == {one.urn for one in self.whole().resources}

    def test_static_nodesets_are_repaired_where_the_stack_says_so_and_nothing_of_them_is_deleted(self):
        fixed = {**CPU, "count": 2, "capacity": {"reservation": "mine"}}
        of = unchecked(nodesets={"cpu": CPU, "fixed": fixed}, slurm={"reconcile": {"static": True}})
        recording = deploy(lambda: pulumi.export("place", deploy_on_platform(of, tree(of, ROOT)).outputs["place"]))
        told = json.loads(recording.one("cloud-controller-configure").inputs["stdin"])["reconcile"]["nodesets"]
        assert set(told) == {"cpu", "fixed"}
        row = told["fixed"]
        assert (row["nodes"], row["static"], row["templates"]) == ([], ["cloud-fixed-0", "cloud-fixed-1"], [])
        role = next(one for one in recording.all(ROLE) if "repair" in one.inputs["roleId"])
        assert role.inputs["permissions"] == repair_permissions()
        refused = ("create", "delete", "use", "setMetadata", "setServiceAccount")
        assert not [name for name in repair_permissions() if name.rpartition(".")[2] in refused]
        assert "compute.instances.reset" in repair_permissions()
        bound = [one.inputs for one in recording.all(ON_PROJECT) if "repair" in one.inputs["role"]]
        assert [row["condition"]["expression"] for row in bound] == [reconcile_condition(of, "fixed")]
        # That of elastic nodes alone may have machines act as an account.
        assert len(recording.all(ON_ACCOUNT)) == 1

    def test_login_machines_have_nothing_of_it(self):
        assert "reconcile" not in json.loads(self.whole().one("cloud-login-0-configure").inputs["stdin"])
