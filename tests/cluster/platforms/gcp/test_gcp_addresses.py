"""The address plan: addresses are unique, and stay when the cluster grows."""

import ipaddress
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.findings import ConfigError
from cluster.platforms.gcp.address_plan import Plan, plan, room, shortages, table
from tests.clouds import A3, EXASCALER, MANAGED, google, unchecked
from tests.cluster import stacks

PREFIXES = st.integers(min_value=12, max_value=26)
FEW = st.integers(min_value=1, max_value=40)


def system(prefix: int) -> str:
    return f"10.64.0.0/{prefix}"


def made(*, prefix: int = 20, logins: int = 1, oss: int = 3, mds: int = 1, nodes: int = 2) -> Plan | None:
    """The plan of such a cluster; None where it does not fit."""
    config = unchecked(
        network={"cidr": system(prefix)},
        login={"count": logins},
        monitoring={"machine": {}},
        nodesets={"cpu": {"count": nodes}},
        storage={"lustre": {**EXASCALER, "oss": {"count": oss}, "mds": {"count": min(mds, 32)}}},
    )
    return None if shortages(config) else plan(config)


class TestAddresses:
    @given(prefix=PREFIXES, logins=FEW, oss=FEW, mds=FEW)
    def test_addresses_are_unique_and_inside_their_ranges(self, prefix, logins, oss, mds):
        found = made(prefix=prefix, logins=logins, oss=oss, mds=mds)
        if found is None:
            return
        network = ipaddress.IPv4Network(system(prefix))
        everybody = [ipaddress.IPv4Address(address) for address in found.of.values()]
        assert len(set(everybody)) == len(everybody) == 2 + logins + 1 + min(mds, 32) + oss
        kept = {network[0], network[1], network[-2], network[-1]}
        assert all(address in network and address not in kept for address in everybody)

    @given(prefix=PREFIXES, before=st.tuples(FEW, FEW, FEW), more=st.tuples(FEW, FEW, FEW))
    def test_a_larger_cluster_changes_no_address(self, prefix, before, more):
        small = made(prefix=prefix, logins=before[0], oss=before[1], mds=before[2])
        large = made(
            prefix=prefix, logins=before[0] + more[0], oss=before[1] + more[1], mds=before[2] + more[2], nodes=9
        )
        if small and large:
            assert {name: large.of[name] for name in small.of} == dict(small.of)

    @given(prefix=PREFIXES)
    def test_only_the_controller_has_a_fixed_address_in_the_range_of_nodes(self, prefix):
        found = made(prefix=prefix, oss=1)
        assert found
        first, last = map(ipaddress.IPv4Address, found.dynamic.split(" - "))
        among = {name for name, address in found.of.items() if first <= ipaddress.IPv4Address(address) <= last}
        assert among == set()
        assert int(last) - int(first) + 1 >= ipaddress.IPv4Network(system(prefix)).num_addresses // 2 - 3

    def test_the_controller_has_the_first_usable_address(self):
        found = made()
        assert found
        assert found.of["cloud-controller"] == "10.64.0.2"

    def test_google_chooses_addresses_in_an_existing_network(self):
        config = google(network={"existing": {"network": "net", "subnetwork": "sub"}})
        assert plan(config).of == {}
        assert shortages(config) == []

    def test_a_shortage_is_reported_with_both_figures(self):
        tight = unchecked(network={"cidr": "10.64.0.0/26"}, login={"count": 4}, nodesets={"cpu": {"count": 29}})
        assert shortages(tight) == ["4 login machines, for 3 addresses", "29 nodes, for 28 addresses"]
        assert all(have <= fits for have, fits in room(google()).values())


class TestRanges:
    @given(prefix=st.integers(min_value=8, max_value=21))
    def test_gpu_networks_are_eight_equal_parts_side_by_side(self, prefix):
        found = plan(google(network={"gpu_cidr": f"10.0.0.0/{prefix}", "cidr": "172.16.0.0/20"}, nodesets={"gpu": A3}))
        parts = [ipaddress.IPv4Network(cidr) for cidr in found.gpu]
        assert len(parts) == 8
        assert not any(a.overlaps(b) for a, b in combinations(parts, 2))
        assert list(ipaddress.collapse_addresses(parts)) == [ipaddress.IPv4Network(f"10.0.0.0/{prefix}")]

    def test_default_gpu_networks_have_the_size_of_the_guide(self):
        found = plan(google(nodesets={"cpu": {}, "gpu": A3}))
        assert found.gpu == tuple(f"10.0.{16 * index}.0/20" for index in range(8))

    def test_without_gpu_nics_there_are_no_gpu_networks(self):
        t4 = {"machine_type": "n1-standard-4", "gpus": {"type": "t4", "count": 1}}
        assert plan(google(nodesets={"gpu": t4})).gpu == ()

    def test_googles_services_get_a_range_only_when_they_are_used(self):
        assert plan(google()).managed is None
        assert plan(google(storage={"lustre": EXASCALER})).managed is None
        assert plan(google(storage={"lustre": MANAGED})).managed == "10.128.0.0/21"
        assert plan(google(storage={"filestore": {"tier": "ZONAL"}})).managed == "10.128.0.0/21"

    def test_half_of_the_services_range_is_enough_for_managed_lustre(self):
        found = plan(google(network={"services_cidr": "10.90.0.0/22"}, storage={"lustre": MANAGED}))
        assert found.managed == "10.90.0.0/23"
        with pytest.raises(ConfigError, match="services_cidr"):
            google(network={"services_cidr": "10.90.0.0/23"}, storage={"lustre": MANAGED})

    def test_a_basic_filestore_does_not_overlap_the_peered_range(self):
        both = plan(google(storage={"lustre": MANAGED, "filestore": {"tier": "BASIC_SSD", "size_gb": 2560}}))
        assert both.filestore == "10.128.15.248/29"
        assert both.managed
        assert not ipaddress.IPv4Network(both.managed).overlaps(ipaddress.IPv4Network(both.filestore))


def test_the_table_shows_every_range_and_fixed_address():
    found = plan(stacks.config("a3mega"))
    lines = table(found, builder=True).splitlines()
    assert lines[0] == "system network  172.16.0.0/20"
    assert "  fixed         172.16.10.1                a3mega-oss0" in lines
    assert "GPU network 7   10.0.112.0/20              NIC 8 of each GPU node" in lines
    assert len(lines) == 1 + 1 + len(found.of) + 1 + 8
