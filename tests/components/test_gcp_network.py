"""Networks: made where they are needed, apart from each other, and open to nobody who has no business there."""

from functools import cache
from typing import Any

import pulumi
import pytest
from pulumi_gcp import projects

from components.gcp.network import Network
from components.gcp.services import Services
from tests.clouds import A3, EXASCALER, MANAGED, google, settings
from tests.components.graphs import graph, hold
from tests.harness import Recording, deploy

NETWORK, SUBNET = "gcp:compute/network:Network", "gcp:compute/subnetwork:Subnetwork"
FIREWALL, ADDRESS = "gcp:compute/firewall:Firewall", "gcp:compute/address:Address"
CONNECTION = "gcp:servicenetworking/connection:Connection"
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
        network = Network("cloud-network", config)
        pulumi.export("system", network.system)
        pulumi.export("system_network", network.system_network)
        pulumi.export("gpu", [list(one) for one in network.gpu])
        pulumi.export("addresses", dict(network.addresses))
        pulumi.export("tags", [network.tag, network.login_tag])
        pulumi.export("services", network.services is not None)

    return deploy(program, unknown=unknown)


@cache
def shaped(shape: str, *, unknown: bool = False) -> Recording:
    return made(unknown=unknown, **SHAPES[shape])


class TestSystem:
    def test_the_network_is_the_guides(self):
        recording = shaped("plain")
        (network,), (subnet,) = recording.all(NETWORK), recording.all(SUBNET)
        assert (network.inputs["mtu"], network.inputs["routingMode"]) == (8244, "GLOBAL")
        assert network.inputs["autoCreateSubnetworks"] is False
        assert (subnet.inputs["ipCidrRange"], subnet.inputs["region"]) == ("172.16.0.0/20", "us-central1")
        assert subnet.inputs["privateIpGoogleAccess"] is True

    def test_machines_without_public_addresses_get_out_by_two_that_stay(self):
        recording = shaped("plain")
        public = [one for one in recording.all(ADDRESS) if one.inputs["addressType"] == "EXTERNAL"]
        assert {one.inputs["name"] for one in public} == {"cloud-nat-0", "cloud-nat-1"}
        (nat,) = recording.all("gcp:compute/routerNat:RouterNat")
        assert nat.inputs["natIpAllocateOption"] == "MANUAL_ONLY"
        assert nat.inputs["natIps"] == ["cloud-nat-0", "cloud-nat-1"]

    def test_no_nat_where_the_stack_wants_none(self):
        recording = made(network={"nat": False}, image={"name": "made-before"})
        assert recording.all("gcp:compute/router:Router") == []
        assert {one.inputs["addressType"] for one in recording.all(ADDRESS)} == {"INTERNAL"}

    def test_fixed_addresses_are_reserved(self):
        recording = made(storage={"lustre": EXASCALER}, login={"count": 2})
        reserved = {
            one.inputs["name"]: one.inputs["address"] for one in recording.all(ADDRESS) if "address" in one.inputs
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


class TestGpu:
    def test_networks_are_in_the_order_of_the_nics(self):
        recording = shaped("gpu")
        assert recording.outputs["gpu"] == [
            [f"cloud-network-gpu-{index}-id", f"cloud-network-gpu-{index}-subnet-id"] for index in range(8)
        ]
        for index in range(8):
            network = recording.one(f"cloud-network-gpu-{index}")
            assert (network.inputs["mtu"], network.inputs["routingMode"]) == (8896, "REGIONAL")
            subnet = recording.one(f"cloud-network-gpu-{index}-subnet")
            assert subnet.inputs["ipCidrRange"] == f"10.0.{16 * index}.0/20"
            rule = recording.one(f"cloud-network-gpu-{index}-fw")
            assert rule.inputs["sourceRanges"] == [f"10.0.{16 * index}.0/20"]
            assert rule.inputs["network"] == f"cloud-network-gpu-{index}-id"

    def test_rdma_has_one_network_with_the_zones_profile_and_eight_subnetworks(self):
        recording = shaped("rdma")
        assert {one.inputs["name"] for one in recording.all(NETWORK)} == {"cloud-system", "cloud-second", "cloud-gpu"}
        assert {one.inputs["mtu"] for one in recording.all(NETWORK)} == {8896}
        network = recording.one("cloud-network-gpu").inputs
        assert network["networkProfile"] == "projects/my-project/global/networkProfiles/us-central1-a-vpc-roce"
        assert recording.outputs["gpu"] == [
            ["cloud-network-gpu-id", f"cloud-network-gpu-{index}-subnet-id"] for index in range(8)
        ]
        # The profile takes no rules.
        assert {one.inputs["network"] for one in recording.all(FIREWALL)} == {
            "cloud-network-system-id",
            "cloud-network-second-id",
        }

    @pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape not in {"gpu", "rdma", "existing"}])
    def test_there_is_none_where_no_node_has_gpu_nics(self, shape):
        recording = shaped(shape)
        assert len(recording.all(NETWORK)) == 1
        assert recording.outputs["gpu"] == []


class TestFirewalls:
    @pytest.mark.parametrize("shape", SHAPES)
    def test_nothing_is_open_to_the_world(self, shape):
        rules = shaped(shape).all(FIREWALL)
        assert rules
        for rule in rules:
            assert rule.inputs["direction"] == "INGRESS"
            assert rule.inputs["sourceRanges"]
            assert not {"0.0.0.0/0", "::/0"} & set(rule.inputs["sourceRanges"])

    @pytest.mark.parametrize("shape", SHAPES)
    def test_only_people_named_reach_ssh_and_only_of_login_machines(self, shape):
        rules = {one.inputs["name"]: one.inputs for one in shaped(shape).all(FIREWALL)}
        assert rules["cloud-iap"]["sourceRanges"] == ["35.235.240.0/20"]
        assert rules["cloud-iap"]["allows"] == [{"protocol": "tcp", "ports": ["22"]}]
        assert ("cloud-admin" in rules) == (shape == "admin")
        if shape == "admin":
            assert rules["cloud-admin"]["targetTags"] == ["cloud-login"]
            assert rules["cloud-admin"]["sourceRanges"] == ["203.0.113.7/32"]
            assert rules["cloud-admin"]["allows"] == [{"protocol": "tcp", "ports": ["22"]}]

    def test_what_google_runs_may_call_back(self):
        lustre = {one.inputs["name"]: one.inputs for one in shaped("managed").all(FIREWALL)}
        assert lustre["cloud-services"]["sourceRanges"] == ["10.128.0.0/21"]
        assert lustre["cloud-services"]["allows"] == [{"protocol": "tcp", "ports": ["988"]}]
        nfs = {one.inputs["name"]: one.inputs for one in shaped("filestore").all(FIREWALL)}
        assert nfs["cloud-services"]["sourceRanges"] == ["10.128.15.248/29"]


class TestServices:
    def test_the_peering_is_there_only_where_something_needs_it(self):
        assert shaped("plain").all(CONNECTION) == []
        assert shaped("filestore").all(CONNECTION) == []
        recording = shaped("managed")
        (connection,) = recording.all(CONNECTION)
        assert connection.inputs["deletionPolicy"] == "REMOVE_PEERING"
        assert connection.inputs["updateOnCreationFail"] is True
        (reserved,) = recording.all("gcp:compute/globalAddress:GlobalAddress")
        assert (reserved.inputs["address"], reserved.inputs["prefixLength"]) == ("10.128.0.0", 21)
        assert reserved.inputs["purpose"] == "VPC_PEERING"

    def test_only_used_services_are_enabled_and_none_is_disabled(self):
        found = {}
        for shape in ("plain", "managed"):
            config = google(**SHAPES[shape])
            recording = deploy(lambda config=config: Services("cloud-services", config))
            enabled = recording.all("gcp:projects/service:Service")
            assert all(one.inputs["disableOnDestroy"] is False for one in enabled)
            found[shape] = {one.inputs["service"] for one in enabled}
        assert found["managed"] - found["plain"] == {"lustre.googleapis.com", "servicenetworking.googleapis.com"}

    def test_networks_wait_for_them(self):
        config = google(nodesets={"gpu": A3})

        def program() -> None:
            service = projects.Service("compute", service="compute.googleapis.com")
            Network("cloud-network", config, [service])

        recording = deploy(program)
        service = recording.one("compute")
        made_after = [one for one in recording.resources if one.custom and one is not service]
        assert made_after
        assert all(recording.waits_for(one, service) for one in made_after)


class TestExisting:
    def test_nothing_is_made_but_rules_for_our_own_machines_and_their_addresses(self):
        recording = made(network=EXISTING)
        kinds = {one.type for one in recording.resources if one.custom}
        assert kinds == {FIREWALL, ADDRESS, "pulumi-python:dynamic/gcp:Barrier"}
        tags = {one.inputs["name"]: one.inputs.get("targetTags") for one in recording.all(FIREWALL)}
        assert tags == {"cloud-internal": ["cloud"], "cloud-iap": ["cloud"]}
        assert all("address" not in one.inputs for one in recording.all(ADDRESS)), "others live there: Google chooses"

    def test_it_is_found_by_name_without_asking(self):
        outputs = made(network=EXISTING, unknown=True).outputs
        assert outputs["system_network"] == "projects/my-project/global/networks/shared-vpc"
        assert outputs["system"] == "projects/my-project/regions/us-central1/subnetworks/hpc"

    def test_another_projects_is_found_too(self):
        shared = {"network": "projects/host-project/global/networks/net", "subnetwork": "hpc"}
        recording = made(network={"cidr": "10.9.0.0/20", "existing": shared})
        assert recording.outputs["system"] == "projects/host-project/regions/us-central1/subnetworks/hpc"
        # A rule belongs to its network's project; an address to whoever uses it.
        assert {one.inputs["project"] for one in recording.all(FIREWALL)} == {"host-project"}
        assert all("project" not in one.inputs for one in recording.all(ADDRESS))

    def test_rules_of_lustre_are_made_in_the_networks_project_too(self):
        shared = {"network": "projects/host-project/global/networks/net", "subnetwork": "hpc"}
        given = settings(network={"cidr": "10.9.0.0/20", "existing": shared}, storage={"lustre": EXASCALER})
        rules = deploy(given).all(FIREWALL)
        assert {"cloud-lnet", "cloud-repo"} <= {one.inputs["name"] for one in rules}
        assert {one.inputs["project"] for one in rules} == {"host-project"}

    def test_the_gpus_networks_are_the_stacks_own(self):
        recording = shaped("existing")
        assert len(recording.all(NETWORK)) == 8
        assert len(recording.outputs["gpu"]) == 8


@pytest.mark.parametrize("shape", SHAPES)
def test_all_of_it_was_reviewed(shape, update_golden):
    hold(f"network-{shape}.txt", graph(shaped(shape)), update=update_golden)


@pytest.mark.parametrize("shape", SHAPES)
def test_it_previews_with_everything_unknown(shape):
    assert shaped(shape, unknown=True).resources
