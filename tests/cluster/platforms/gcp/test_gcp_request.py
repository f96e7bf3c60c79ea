"""The lines at the end of a preview: what a stack asks for, with nothing left out that costs money."""

import json
from collections import Counter

import pytest

from cluster.platforms.gcp.request import describe_request, disks, machine_requests, networks
from tests.clouds import MANAGED, google, settings
from tests.cluster import stacks
from tests.contract.recorded import record
from tests.harness import FLEX, deploy

GCP = [name for name in stacks.STACKS if stacks.config(name).platform == "gcp"]
INSTANCES = ("gcp:compute/instance:Instance", "gcp:compute/instanceFromTemplate:InstanceFromTemplate", FLEX)


@pytest.mark.parametrize("stack", GCP)
def test_the_preview_counts_all_machines(stack):
    made = [resource for resource in record(stack, "made").recording.resources if resource.type in INSTANCES]
    assert sum(machine_request.count for machine_request in machine_requests(stacks.config(stack))) == len(made)


@pytest.mark.parametrize("stack", GCP)
def test_the_preview_counts_all_disks(stack):
    recording = record(stack, "made").recording
    found: dict[str, int] = {}
    templates = {
        resource.name.removesuffix("-template"): resource
        for resource in recording.resources
        if "Template:Ins" in resource.type
    }
    for resource in recording.resources:
        if resource.type == "gcp:compute/disk:Disk":
            # EXAScaler's servers boot from disks of their image's size.
            found[resource.inputs["type"]] = found.get(resource.inputs["type"], 0) + resource.inputs.get("size", 0)
        if resource.type == "gcp:compute/regionDisk:RegionDisk":
            found[resource.inputs["type"]] = found.get(resource.inputs["type"], 0) + 2 * resource.inputs["size"]
        boot = (
            (resource.inputs.get("bootDisk") or {}).get("initializeParams")
            if "instance:Instance" in resource.type
            else None
        )
        if boot:
            found[boot["type"]] = found.get(boot["type"], 0) + boot["size"]
        if "FromTemplate" in resource.type or resource.type == FLEX:
            (disk,) = templates[resource.parent.rpartition("::")[2]].inputs["disks"]
            found[disk["diskType"]] = found.get(disk["diskType"], 0) + disk["diskSizeGb"]
    assert {kind: size for kind, size in disks(stacks.config(stack)).items() if kind != "local SSD"} == found


@pytest.mark.parametrize("stack", [*GCP, "public"])
def test_the_preview_counts_networks_and_addresses(stack):
    changes = {"login": {"count": 2, "public": True}, "network": {"admin_cidrs": ["192.0.2.0/24"]}}
    config = google(**changes) if stack == "public" else stacks.config(stack)
    made = deploy(settings(**changes)) if stack == "public" else record(stack, "made").recording
    kinds: Counter[str] = Counter()
    for resource in made.resources:
        kind = resource.inputs.get("addressType", "") if resource.type == "gcp:compute/address:Address" else ""
        kinds[resource.type.removeprefix("gcp:compute/") + kind] += 1
    told = ["network:Network", "subnetwork:Subnetwork", "address:AddressINTERNAL", "address:AddressEXTERNAL"]
    assert list(networks(config).values()) == [kinds[kind] for kind in (*told, "routerNat:RouterNat")]


def test_the_preview_does_not_count_existing_networks():
    found = networks(google(network={"existing": {"network": "n", "subnetwork": "s"}}))
    assert found == {**dict.fromkeys(found, 0), "internal addresses": 2}


BLOCK = "projects/other-project/reservations/r/reservationBlocks/b"
HOST_NETWORK = "projects/host-project/global/networks/n"


def test_lines_have_figures_and_capacity(reviewed):
    section = {"machine_type": "c2-standard-8", "capacity": {"reservation": {"name": "r", "placement_policy": "tight"}}}
    clusters = {
        "a3mega": stacks.config("a3mega"), "classic": stacks.config("classic"),
        "a reservation's policy": google(nodesets={"cpu": section}),
        "a block, in another project's network": google(
            nodesets={"cpu": {**section, "capacity": {"reservation": BLOCK}}},
            network={"existing": {"network": HOST_NETWORK, "subnetwork": "s"}, "services_cidr": "10.90.0.0/20"},
            storage={"lustre": MANAGED},
        ),
    }  # fmt: skip
    reviewed("gcp/request", {case: "\n".join(describe_request(cluster)) for case, cluster in clusters.items()})


@pytest.mark.parametrize("given", ["mine", {"name": "mine"}, {"name": "mine", "placement_policy": "tight"}])
def test_a_reservation_is_shown_in_its_shortest_form(given):
    """A stack's output `config` is compared with the next stack file's: a name alone stays one."""
    section = {"machine_type": "c2-standard-8", "count": 1, "capacity": {"reservation": given}}
    before = google(nodesets={"cpu": section})
    shown = json.loads(before.model_dump_json(exclude_unset=True))["nodesets"]["cpu"]["capacity"]["reservation"]
    assert shown == (given if "placement_policy" in given else "mine")
    assert google(nodesets={"cpu": {**section, "capacity": {"reservation": shown}}}) == before
