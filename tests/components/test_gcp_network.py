"""Networks: created only where they are needed, separate, and with the fewest open ports."""

from typing import Any

import pulumi
import pytest

from components.gcp.deploy import Services
from components.gcp.network import GoogleNetwork
from tests.clouds import A3, EXASCALER, MANAGED, google, settings
from tests.components.graphs import graph
from tests.harness import Recording, deploy

FIREWALL, ADDRESS = "gcp:compute/firewall:Firewall", "gcp:compute/address:Address"
EXISTING = {"cidr": "172.16.0.0/20", "existing": {"network": "shared-vpc", "subnetwork": "hpc"}}
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "gpu": {"nodesets": {"gpu": A3}},
    "rdma": {"nodesets": {"gpu": {"machine_type": "a3-ultragpu-8g", "count": 2}}},
    "admin": {"network": {"admin_cidrs": ["203.0.113.7/32"]}, "login": {"public": True}},
    "managed": {"storage": {"lustre": MANAGED}},
    "filestore": {"storage": {"filestore": {"tier": "BASIC_SSD", "size_gb": 2560}}},
    "existing": {"network": EXISTING, "nodesets": {"gpu": A3}},
}


def made(unknown: bool = False, **changes: Any) -> Recording:
    config = google(**changes)

    def program() -> None:
        network = GoogleNetwork("cloud-network", config)
        pulumi.export("system", network.system)
        pulumi.export("system_network", network.system_network)
        pulumi.export("addresses", dict(network.addresses))

    return deploy(program, unknown=unknown)


class TestSystem:
    def test_without_nat_there_is_no_router(self):
        recording = made(network={"nat": False}, image={"name": "made-before"})
        assert recording.all("gcp:compute/router:Router") == []
        assert {resource.inputs["addressType"] for resource in recording.all(ADDRESS)} == {"INTERNAL"}

    def test_fixed_addresses_are_reserved(self):
        recording = made(storage={"lustre": EXASCALER}, login={"count": 2})
        reserved = {
            resource.inputs["name"]: resource.inputs["address"]
            for resource in recording.all(ADDRESS)
            if "address" in resource.inputs
        }
        assert reserved == {
            "cloud-controller-address": "172.16.0.2",
            "cloud-login-0-address": "172.16.8.1",
            "cloud-login-1-address": "172.16.8.2",
            "cloud-mgs0-address": "172.16.9.1",
            "cloud-mds0-address": "172.16.9.2",
            **{f"cloud-oss{index}-address": f"172.16.10.{index + 1}" for index in range(3)},
        }
        assert recording.outputs["addresses"]["cloud-mgs0"] == "172.16.9.1"

    def test_only_networks_of_the_stack_file_can_connect_to_prometheus(self):
        rule = made(monitoring={"web": {"cidrs": ["10.0.0.0/8"]}}).one("cloud-network-fw-prometheus").inputs
        assert (rule["sourceRanges"], rule["targetTags"]) == (["10.0.0.0/8"], ["cloud-controller"])
        assert rule["allows"] == [{"protocol": "tcp", "ports": ["9090"]}]
        own = made(monitoring={"web": {"cidrs": ["10.0.0.0/8"]}, "machine": {}}).one("cloud-network-fw-prometheus")
        assert own.inputs["targetTags"] == ["cloud-monitoring"]
        for wanted in ({}, {"web": {}}):
            assert "cloud-network-fw-prometheus" not in {
                resource.name for resource in made(monitoring=wanted).resources
            }


class TestServices:
    def test_only_used_services_are_enabled_and_none_is_disabled(self):
        found = {}
        for shape in ("plain", "managed"):
            config = google(**SHAPES[shape])
            recording = deploy(lambda config=config: Services("cloud-services", config))
            enabled = recording.all("gcp:projects/service:Service")
            assert all(service.inputs["disableOnDestroy"] is False for service in enabled)
            found[shape] = {service.inputs["service"] for service in enabled}
        assert found["managed"] - found["plain"] == {"lustre.googleapis.com", "servicenetworking.googleapis.com"}


class TestExisting:
    def test_an_existing_network_is_named_without_a_lookup(self):
        outputs = made(network=EXISTING, unknown=True).outputs
        assert outputs["system_network"] == "projects/my-project/global/networks/shared-vpc"
        assert outputs["system"] == "projects/my-project/regions/us-central1/subnetworks/hpc"

    def test_a_shared_network_is_in_its_own_project(self):
        shared = {"network": "projects/host-project/global/networks/net", "subnetwork": "hpc"}
        recording = made(network={"cidr": "10.9.0.0/20", "existing": shared})
        assert recording.outputs["system"] == "projects/host-project/regions/us-central1/subnetworks/hpc"
        # A rule belongs to its network's project; an address to whoever uses it.
        assert {resource.inputs["project"] for resource in recording.all(FIREWALL)} == {"host-project"}
        assert all("project" not in resource.inputs for resource in recording.all(ADDRESS))

    def test_firewall_rules_of_lustre_are_in_the_networks_project(self):
        shared = {"network": "projects/host-project/global/networks/net", "subnetwork": "hpc"}
        given = settings(network={"cidr": "10.9.0.0/20", "existing": shared}, storage={"lustre": EXASCALER})
        rules = deploy(given).all(FIREWALL)
        assert {"cloud-lnet", "cloud-repo"} <= {rule.inputs["name"] for rule in rules}
        assert {rule.inputs["project"] for rule in rules} == {"host-project"}


@pytest.mark.parametrize("shape", SHAPES)
def test_all_of_it_was_reviewed(shape, golden):
    golden(f"gcp/network-{shape}.txt", graph(made(**SHAPES[shape])))
