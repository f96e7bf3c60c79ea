"""Machines on Google Cloud: accounts, scheduling options, dependencies, and changes that recreate them."""

import json
import re
from functools import cache
from typing import Any

import pulumi
import pytest

from tests.clouds import A3, EXASCALER, google
from tests.components.graphs import IMAGE, google_machines, graph
from tests.contract.recorded import record
from tests.harness import FLEX, Recording, Registered, deploy

INSTANCE, NODE = "gcp:compute/instance:Instance", "gcp:compute/instanceFromTemplate:InstanceFromTemplate"
TEMPLATE, DISK = "gcp:compute/instanceTemplate:InstanceTemplate", "gcp:compute/disk:Disk"
REGIONAL = "gcp:compute/regionDisk:RegionDisk"
POLICY, ADDRESS = "gcp:compute/resourcePolicy:ResourcePolicy", "gcp:compute/address:Address"
NOBLE = {"base": "ubuntu-2404"}
C2 = {"machine_type": "c2-standard-8", "count": 1}
T4 = {"machine_type": "n1-standard-1", "count": 2, "gpus": {"type": "t4", "count": 2}, "disk": {"size_gb": 80}}
CLOSE = {"placement": {"max_distance": 2}}
TIGHT = "projects/my-project/regions/us-central1/resourcePolicies/tight"
CLASSIC: dict[str, Any] = {
    "image": NOBLE,
    "controller": {
        "machine_type": "e2-standard-4",
        "disk": {"type": "pd-balanced", "size_gb": 120},
        "capacity": {"spot": {}},
    },
    "network": {"admin_cidrs": ["203.0.113.0/24"]},
    "login": {"on": "controller", "public": True},
    "nodesets": {"cpu": {"on": "controller"}, "gpu": T4},
}


def made(**changes: Any) -> Recording:
    """Return what a cluster's machines register; `path` is their image, `key` a key of their metadata."""
    return _made(json.dumps(changes))


@cache
def _made(given: str) -> Recording:
    """Once for all tests: none of them changes what it looks at."""
    changes: dict[str, Any] = json.loads(given)
    options = {key: changes.pop(key) for key in ("preview", "unknown") if key in changes}
    image = changes.pop("path", IMAGE)
    key = changes.pop("key", "orders")
    config = google(**changes)

    def program() -> None:
        found = google_machines(
            config, lambda spec, identity: {key: pulumi.Output.json_dumps(identity.versions(spec))}, image
        )
        pulumi.export("machines", {machine.spec.name: machine.summary for machine in found.machines})
        pulumi.export("ids", {machine.spec.name: [machine.instance_id, machine.boot_id] for machine in found.machines})
        pulumi.export("public", found.public)
        pulumi.export("order", [machine.spec.name for machine in found.machines])

    return deploy(program, **options)


def inputs(recording: Recording) -> dict[str, tuple[str, Any]]:
    """Type and inputs of each resource, by URN."""
    return {resource.urn: (resource.type, resource.inputs) for resource in recording.resources}


def template(**nodeset: Any) -> dict[str, Any]:
    """Inputs of the template of a nodeset."""
    # T4 machines install their driver themselves.
    (one,) = made(nodesets={"gpu": nodeset}, **({"image": NOBLE} if "gpus" in nodeset else {})).all(TEMPLATE)
    return one.inputs


class TestStateDisk:
    def test_a_swap_of_zones_keeps_the_state_disk_and_recreates_every_machine(self):
        def moved(zone: str, other: str) -> Recording:
            disk = {"machine_type": "n2-standard-8", "state_disk": {"replica_zone": other}}
            return made(controller=disk, zone=zone)

        before, after = moved("us-central1-a", "us-central1-b"), moved("us-central1-b", "us-central1-a")
        (disk,) = before.all(REGIONAL)
        assert disk.inputs["replicaZones"] == ["us-central1-a", "us-central1-b"]
        assert not before.all(DISK)
        assert inputs(before)[disk.urn] == inputs(after)[disk.urn]
        zones = [{each.inputs["zone"] for each in found.all(INSTANCE) + found.all(NODE)} for found in (before, after)]
        assert zones == [{"us-central1-a"}, {"us-central1-b"}]
        (attached,) = after.one("cloud-controller").inputs["attachedDisks"]
        assert attached["forceAttach"]

    def test_recreating_the_controller_does_not_affect_the_state_disk(self):
        before = made()
        after = made(
            path="projects/my-project/global/images/newer",
            key="other-orders",
            controller={"machine_type": "c2-standard-4", "disk": {"size_gb": 300}, "capacity": {"spot": {}}},
        )
        (old,), (new,) = before.all(DISK), after.all(DISK)
        assert (old.urn, old.inputs) == (new.urn, new.inputs)
        assert before.one("cloud-controller").inputs != after.one("cloud-controller").inputs


class TestMachines:
    def test_a_changed_machine_type_is_another_start_of_the_same_machine(self):
        before = made().outputs["ids"]["cloud-controller"]
        after = made(controller={"machine_type": "c2-standard-4"}).outputs["ids"]["cloud-controller"]
        assert before[0] == after[0]
        assert before[1] != after[1]

    def test_host_keys_are_pinned_for_machines_that_the_program_logs_in_to(self):
        values = {name: row["host_key"] for name, row in made().outputs["machines"].items()}
        assert values["cloud-controller"].startswith("ssh-ed25519 ")
        assert values["cloud-login-0"].startswith("ssh-ed25519 ")
        assert values["cloud-cpu-0"] == ""

    def test_machines_run_as_their_role_and_wait_for_its_grants(self):
        recording = made()
        grants = [resource for resource in recording.resources if resource.type.endswith(("IAMMember", "IamMember"))]
        by_role: dict[str, Registered] = {
            "ctl": recording.one("cloud-controller"),
            "login": recording.one("cloud-login-0"),
            "node": recording.one("cloud-cpu-0"),
        }
        for role, machine in by_role.items():
            member = f"serviceAccount:cloud-{role}@my-project.iam.gserviceaccount.com"
            own = [grant for grant in grants if grant.inputs["member"] == member]
            assert own
            assert [resource.name for resource in own if not recording.waits_for(machine, resource)] == []
        (account,) = (recording.one("cloud-controller").inputs["serviceAccount"]["email"],)
        assert account == "cloud-ctl@my-project.iam.gserviceaccount.com"
        (nodes,) = recording.all(TEMPLATE)
        assert nodes.inputs["serviceAccount"] == {
            "email": "cloud-node@my-project.iam.gserviceaccount.com",
            "scopes": ["https://www.googleapis.com/auth/cloud-platform"],
        }

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
    def test_secure_boot_is_on_without_unsigned_modules(self, changes: dict[str, Any], signed: bool):
        recording = made(**changes)
        for resource in [*recording.all(INSTANCE), *recording.all(TEMPLATE)]:
            assert resource.inputs["shieldedInstanceConfig"] == {
                "enableSecureBoot": signed,
                "enableVtpm": True,
                "enableIntegrityMonitoring": True,
            }


def aliases(one: Registered) -> set[str]:
    """Types that it was of."""
    return {alias.spec.type or alias.urn.split("::")[2].rpartition("$")[2] for alias in one.request.aliases} | {
        urn.split("::")[2].rpartition("$")[2] for urn in one.request.aliasURNs
    }


class TestCapacity:
    """What each way of asking comes to in the provider's own inputs."""

    WAYS = ({"on_demand": {}}, {"on_demand": CLOSE}, {"spot": {}}, {"reservation": "mine"},
            {"reservation": "projects/other-project/reservations/theirs"},
            {"reservation": "mine/reservationBlocks/b-1"},
            {"reservation": "projects/other-project/reservations/r/reservationBlocks/b-1/reservationSubBlocks/s-2"},
            {"reservation": {"name": "r", "placement_policy": "tight"}},
            {"reservation": {"name": "r", "placement_policy": TIGHT}}, {"calendar": "my-week"},
            {"flex": {"max_run": "1-00:00:00"}})  # fmt: skip

    def test_scheduling_options_of_each_capacity(self, reviewed):
        """Machines with GPUs, and those in a placement, can't move to another host. Reservations of A3 Ultra and A4 are
        all future ones, with which machines end."""
        disk = {"type": "hyperdisk-balanced", "size_gb": 200}
        newer = [{"machine_type": f"{family}-8g", "count": 1, "disk": disk} for family in ("a3-ultragpu", "a4-highgpu")]
        cases = [(kind, way) for kind in (A3, C2) for way in self.WAYS]
        cases += [(kind, {"reservation": "mine"}) for kind in newer]
        keys = ("scheduling", "reservationAffinity", "resourcePolicies")
        shown = {}
        for kind, way in cases:
            if kind is not C2 or not {"calendar", "flex"} & way.keys():
                asked = template(**kind, capacity=way)
                text = json.dumps({key: asked[key] for key in keys if key in asked}, indent=1, sort_keys=True)
                shown[f"{kind['machine_type']} by {json.dumps(way)}"] = text
        reviewed("gcp/capacity", shown)

    def test_flex_start_nodes_are_dynamic_resources(self):
        nodeset = {**A3, "count": 2, "capacity": {"flex": {}}}
        recording = made(nodesets={"gpu": nodeset})
        (template_,), nodes = recording.all(TEMPLATE), recording.all(FLEX)
        assert recording.all(NODE) == []
        assert {node.inputs["name"] for node in nodes} == {"cloud-gpu-0", "cloud-gpu-1"}
        for node in nodes:
            assert (node.inputs["project"], node.inputs["zone"]) == ("my-project", "us-central1-a")
            assert node.inputs["cluster"] == node.inputs["labels"]["hpc-cluster"] == "cloud"
            assert node.inputs["template"] == f"templates/{template_.inputs['machineType']}"
            assert node.request.deleteBeforeReplace
            # In the state before Google is asked, and gone only after the node is.
            request, queue = recording.one(f"{node.name}-request"), recording.one("cloud-gpu-queue")
            assert recording.waits_for(node, queue)
            assert recording.waits_for(queue, request)
            assert recording.waits_for(request, template_)
        assert recording.outputs["machines"]["cloud-gpu-1"]["address"] == "ip-of-cloud-gpu-1"
        assert recording.outputs["ids"]["cloud-gpu-1"] == ["instance-cloud-gpu-1"] * 2

    def test_a_node_with_other_capacity_is_an_alias_of_the_old_one(self):
        """Two resources of one name would be two machines of one name: the new one comes first."""
        flex, plain = ({**A3, "count": 1, "capacity": way} for way in ({"flex": {}}, {"on_demand": {}}))
        (one,), (other,) = made(nodesets={"gpu": flex}).all(FLEX), made(nodesets={"gpu": plain}).all(NODE)
        assert aliases(one) == {NODE}
        assert aliases(other) == {FLEX}

    def test_a_placement_is_a_policy_of_the_nodeset(self):
        recording = made(nodesets={"gpu": {**C2, "capacity": {"on_demand": CLOSE}}})
        (policy,) = recording.all(POLICY)
        assert policy.inputs == {
            "region": "us-central1",
            "groupPlacementPolicy": {"collocation": "COLLOCATED", "maxDistance": 2},
        }
        assert made(nodesets={"gpu": C2}).all(POLICY) == []
        own = {**A3, "capacity": {"reservation": {"name": "r", "placement_policy": "tight"}}}
        assert made(nodesets={"gpu": own}).all(POLICY) == []


class TestNetwork:
    def test_rdma_nics_come_after_those_of_the_host(self):
        nics = record("a4", "made").recording.one("a4h-a4-template").inputs["networkInterfaces"]
        names = ["system", "second", *(f"gpu-{index}" for index in range(8))]
        assert [nic["subnetwork"] for nic in nics] == [f"a4h-network-{name}-subnet-id" for name in names]
        assert [nic["nicType"] for nic in nics] == ["GVNIC"] * 2 + ["MRDMA"] * 8

    def test_public_login_machines_have_lasting_addresses(self):
        admins = {"admin_cidrs": ["203.0.113.7/32"]}
        recording = made(login={"count": 2, "public": True}, network=admins)
        assert set(recording.outputs["public"]) == {"cloud-login-0", "cloud-login-1"}
        values = {
            resource.name: resource.inputs["networkInterfaces"][0].get("accessConfigs")
            for resource in recording.all(INSTANCE)
        }
        assert not values["cloud-controller"]
        assert values["cloud-login-0"] == [{"natIp": recording.outputs["public"]["cloud-login-0"]}]
        kept = recording.one("cloud-login-0-public")
        assert (kept.inputs["addressType"], kept.inputs["networkTier"]) == ("EXTERNAL", "PREMIUM")


class TestChanges:
    def test_metadata_of_nodes_changes_without_their_template(self):
        before, after = inputs(made()), inputs(made(key="new-orders"))
        changed = {urn for urn in before if before[urn] != after[urn]}
        assert {before[urn][0] for urn in changed} == {INSTANCE, NODE}
        for urn in changed:
            kept = [{**run[urn][1], "metadata": None} for run in (before, after)]
            assert kept[0] == kept[1]

    def test_type_disk_and_image_of_nodes_change_their_template(self):
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

    def test_machines_with_names_are_deleted_before_they_are_replaced(self):
        recording = made()
        for resource in [*recording.all(INSTANCE), *recording.all(NODE)]:
            assert resource.inputs["name"] == resource.name
            assert resource.request.deleteBeforeReplace
        for resource in recording.all(TEMPLATE):
            assert not resource.request.deleteBeforeReplace


@pytest.mark.parametrize("options", [{"preview": True}, {"unknown": True}], ids=["previewed", "unknown"])
@pytest.mark.parametrize("shape", [{"nodesets": {"gpu": A3}}, CLASSIC], ids=["a3mega", "classic"])
def test_a_preview_creates_the_same_resources(shape: dict[str, Any], options: dict[str, bool]):
    assert {resource.urn for resource in made(**shape, **options).resources} == {
        resource.urn for resource in made(**shape).resources
    }


SHAPES: dict[str, dict[str, Any]] = {
    "a3mega": {"nodesets": {"gpu": {**A3, "capacity": {"reservation": "my-reservation"}}}},
    "classic": CLASSIC,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_graph_is_the_reviewed_one(shape, golden):
    # Networks have their own, and the set-up is long.
    text = graph(
        made(**SHAPES[shape]), lambda one: bool(re.search("Machines|Identity", one.urn)) and "Object" not in one.type
    )
    golden(f"gcp/machines-{shape}.txt", text)
