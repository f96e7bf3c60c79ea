"""Elastic nodesets on Google Cloud: templates, permissions of the controller, and the order of deletion."""

import json
import re
from functools import cache
from typing import Any, ClassVar

import pulumi
import pytest

from cluster.config import ClusterConfig
from cluster.platforms.gcp.permissions import reconcile_condition, reconcile_permissions, repair_permissions
from cluster.roster import machines
from cluster.slurm.script_tree import tree
from components.platforms import deploy as deploy_on_platform
from tests.clouds import A3, unchecked
from tests.components.graphs import google_machines, graph
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
CLOSER = {"placement": {"max_distance": 3}}


def config(**nodesets: Any) -> ClusterConfig:
    return unchecked(nodesets=nodesets or {"cpu": {**CPU, "capacity": WAYS}})


def made(*, key: str = "orders", **nodesets: Any) -> Recording:
    """What a cluster's machines register; `key` is the key of their metadata."""
    return _made(key, json.dumps(nodesets))


@cache
def _made(key: str, nodesets: str) -> Recording:
    of = config(**json.loads(nodesets))

    def program() -> None:
        found = google_machines(of, lambda spec, _: {key: spec.roles[0]})
        pulumi.export("templates", found.templates)
        pulumi.export("order", [machine.spec.name for machine in found.machines])

    return deploy(program)


def templates(recording: Recording) -> dict[str, dict[str, Any]]:
    return {resource.name: resource.inputs for resource in recording.all(TEMPLATE)}


class TestTemplates:
    CASES: ClassVar[dict[str, dict[str, Any]]] = {
        "each way in its order, and static nodes": {},
        "two of a kind": {"cpu": {**CPU, "capacity": [{"reservation": "one"}, "spot", {"reservation": "two"}]}},
        **{
            f"flex start of {kind}": {
                "gpu": {
                    "machine_type": kind,
                    "count": {"min": 0, "max": 4},
                    "capacity": ["spot", {"flex": {"max_run": "60"}}],
                }
            }
            for kind in ("a3-megagpu-8g", "a3-ultragpu-8g")
        },
        "spot, deleted, and of static nodes stopped": {"cpu": {**CPU, "capacity": "spot"}},
        "nodes that are to be close": {
            "cpu": {**CPU, "capacity": [{"spot": CLOSE}, {"on_demand": CLOSE}, {"on_demand": CLOSER}]}
        },
    }

    def test_they_are_as_reviewed(self, reviewed):
        """Elastic ones have the metadata, and the labels by which their instances are deleted."""
        shown = {}
        for case, nodesets in self.CASES.items():
            recording = made(**nodesets)
            ways = {name: [row["way"] for row in rows] for name, rows in recording.outputs["templates"].items()}
            text = graph(recording, lambda one: one.type in (TEMPLATE, POLICY))
            shown[case] = f"ways: {ways}\n{text}".rstrip()
            assert recording.outputs["order"] == [machine.name for machine in machines(config(**nodesets))]
        reviewed("gcp/elastic", shown)

    def test_another_configuration_recreates_no_static_node(self):
        before, after = templates(made()), templates(made(key="others"))
        changed = {name for name in before if before[name] != after[name]}
        assert changed == set(before) - {"cloud-cpu-template"}


class TestOrder:
    def test_destroy_deletes_the_controller_then_its_instances_then_their_templates(self):
        """Deletion is the other way round: what waits for something is deleted before it."""
        recording = made()
        (instances,), controller = recording.all(INSTANCES), recording.one("cloud-controller")
        assert recording.waits_for(controller, instances)
        below = [resource for resource in recording.all(TEMPLATE) if resource.name != "cloud-cpu-template"]
        below += [
            resource
            for resource in recording.resources
            if re.search("network:Network|subnetwork:|firewall:", resource.type)
        ]
        below += [
            *recording.all(POLICY),
            *(resource for resource in recording.all(ACCOUNT) if resource.name.endswith("-node")),
        ]
        below += [
            resource
            for resource in recording.resources
            if "SecretIamMember" in resource.type and resource.name.endswith("-node")
        ]
        assert len(below) > 8
        assert [resource.name for resource in below if not recording.waits_for(instances, resource)] == []

    def test_the_state_disk_does_not_wait_for_them(self):
        recording = made()
        (instances,) = recording.all(INSTANCES)
        assert not recording.waits_for(recording.one("cloud-controller-state"), instances)

    def test_each_elastic_nodeset_has_its_own(self):
        recording = made(cpu=CPU, gpu={**A3, "count": {"min": 0, "max": 2}}, fixed={**CPU, "count": 2})
        place = {"project": "my-project", "zone": "us-central1-a", "cluster": "cloud", "endpoint": ""}
        found = [{key: resource.inputs[key] for key in (*place, "nodeset")} for resource in recording.all(INSTANCES)]
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
    def test_the_controller_may_create_only_instances_with_names_of_the_nodeset(self):
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

    def test_the_role_is_bound_once_for_each_elastic_nodeset(self):
        of: dict[str, Any] = {"cpu": CPU, "gpu": {**A3, "count": {"min": 0, "max": 2}}, "fixed": {**CPU, "count": 2}}
        recording = made(**of)
        (role,) = recording.all(ROLE)
        assert role.inputs["roleId"] == "cloud_reconcile_0123456789abcdef"
        assert role.inputs["permissions"] == reconcile_permissions(config(**of))
        bound = [member.inputs for member in recording.all(ON_PROJECT) if "condition" in member.inputs]
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

    def test_the_controller_is_created_after_its_grants(self):
        recording = made()
        controller = recording.one("cloud-controller")
        granted = [
            *recording.all(ON_ACCOUNT),
            *(resource for resource in recording.all(ON_PROJECT) if "condition" in resource.inputs),
        ]
        assert len(granted) == 2
        assert all(recording.waits_for(controller, resource) for resource in granted)

    def test_without_elastic_nodes_the_controller_has_no_such_role(self):
        recording = made(cpu={**CPU, "count": 2})
        assert [*recording.all(ROLE), *recording.all(ON_ACCOUNT), *recording.all(INSTANCES)] == []
        assert not [resource for resource in recording.all(ON_PROJECT) if "condition" in resource.inputs]
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
    def test_placements_require_one_more_permission(self, capacity: Any, placed: bool):
        found = reconcile_permissions(config(cpu={**CPU, "capacity": capacity}))
        assert ("compute.resourcePolicies.use" in found) is placed

    def test_flex_start_requires_permissions_on_groups(self):
        flex = reconcile_permissions(config(cpu={**CPU, "capacity": ["spot", "flex"]}))
        spot = reconcile_permissions(config(cpu={**CPU, "capacity": "spot"}))
        assert {permission.partition(".")[2] for permission in set(flex) - set(spot)} == {
            *(f"instanceGroupManagers.{verb}" for verb in ("create", "delete", "get", "list", "update", "use")),
            "instanceGroups.delete",
        }


class TestController:
    def whole(self, *, unknown: bool = False) -> Recording:
        of = config()
        return deploy(
            lambda: pulumi.export("place", deploy_on_platform(of, tree(of, ROOT)).outputs["place"]), unknown=unknown
        )

    def test_the_reconcile_loop_gets_the_templates_in_their_order(self):
        recording = self.whole()
        configured = recording.one("cloud-controller-configure")
        settings = json.loads(configured.inputs["stdin"])["reconcile"]
        assert settings["cloud"] == {
            "project": "my-project",
            "zone": "us-central1-a",
            "region": "us-central1",
            "cluster": "cloud",
            "endpoint": "",
            "token_file": "",
        }
        nodes = settings["nodesets"]["cpu"]
        assert (nodes["static"], nodes["nodes"]) == (["cloud-cpu-0"], ["cloud-cpu-1", "cloud-cpu-2", "cloud-cpu-3"])
        assert [row["way"] for row in nodes["templates"]] == ["reservation", "spot", "on_demand"]
        assert all(row["template"] for row in nodes["templates"])
        # A template is deleted once the controller has its successor.
        assert all(
            recording.waits_for(configured, resource)
            for resource in recording.all(TEMPLATE)
            if "template" not in resource.name
        )
        assert recording.outputs["place"]["elastic"]["templates"] == {"cpu": nodes["templates"]}

    def test_a_preview_creates_the_same_resources(self):
        assert {resource.urn for resource in self.whole(unknown=True).resources} == {
            resource.urn for resource in self.whole().resources
        }

    def test_static_nodesets_are_repaired_on_request_and_never_deleted(self):
        fixed = {**CPU, "count": 2, "capacity": {"reservation": "mine"}}
        of = unchecked(nodesets={"cpu": CPU, "fixed": fixed}, slurm={"reconcile": {"static": True}})
        recording = deploy(lambda: pulumi.export("place", deploy_on_platform(of, tree(of, ROOT)).outputs["place"]))
        settings = json.loads(recording.one("cloud-controller-configure").inputs["stdin"])["reconcile"]["nodesets"]
        assert set(settings) == {"cpu", "fixed"}
        row = settings["fixed"]
        assert (row["nodes"], row["static"], row["templates"]) == ([], ["cloud-fixed-0", "cloud-fixed-1"], [])
        role = next(resource for resource in recording.all(ROLE) if "repair" in resource.inputs["roleId"])
        assert role.inputs["permissions"] == repair_permissions(of)
        refused = ("create", "delete", "use", "setMetadata", "setServiceAccount")
        assert not [name for name in repair_permissions(of) if name.rpartition(".")[2] in refused]
        assert "compute.instances.reset" in repair_permissions(of)
        # No predefined role has this one, so a role has it only where it was asked for.
        maintained = unchecked(nodesets={"cpu": CPU}, slurm={"reconcile": {"static": True, "maintain": True}})
        for named in (reconcile_permissions, repair_permissions):
            assert {*named(maintained)} - {*named(of)} == {"compute.instances.performMaintenance"}
        bound = [member.inputs for member in recording.all(ON_PROJECT) if "repair" in member.inputs["role"]]
        assert [row["condition"]["expression"] for row in bound] == [reconcile_condition(of, "fixed")]
        # That of elastic nodes alone may have machines act as an account.
        assert len(recording.all(ON_ACCOUNT)) == 1

    def test_login_machines_have_no_settings_of_elastic_nodes(self):
        assert "reconcile" not in json.loads(self.whole().one("cloud-login-0-configure").inputs["stdin"])
