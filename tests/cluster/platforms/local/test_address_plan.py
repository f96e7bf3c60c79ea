"""Addresses are fixed: what is added later moves nobody, and nobody has another's."""

import ipaddress

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.platforms.local.address_plan import plan
from cluster.roster import machines
from tests.cluster.stacks import cluster, config

COUNTS = st.lists(st.integers(1, 130), min_size=1, max_size=7)


def with_counts(counts, *, logins=1, cidr="10.64.0.0/16"):
    names = [f"set{position}" for position in range(len(counts))]
    return cluster(
        network={"cidr": cidr},
        login={"count": logins},
        monitoring={"machine": {}},
        nodesets={name: {"count": count} for name, count in zip(names, counts, strict=True)},
        partitions={"all-nodes": {"nodesets": names, "default": True}},
    )


def test_addresses_in_the_default_network():
    found = plan(config("example-smallest"))
    assert (found.gateway, found.prefix) == ("10.77.0.1", 20)
    assert found.of == {"tiny-controller": "10.77.0.2", "tiny-login-0": "10.77.0.3", "tiny-cpu-0": "10.77.2.1"}


@settings(max_examples=20)
@given(COUNTS, st.integers(0, 20), st.sampled_from(["10.64.0.0/16", "10.0.0.0/12", "192.168.0.0/16"]))
def test_every_machine_has_a_unique_host_address(counts, logins, cidr):
    cluster = with_counts(counts, logins=logins, cidr=cidr)
    found = plan(cluster)
    network = ipaddress.IPv4Network(cidr)
    taken = [ipaddress.IPv4Address(item) for item in (found.gateway, *found.of.values())]
    assert set(found.of) == {machine.name for machine in machines(cluster)}
    assert len(set(taken)) == len(taken)
    assert all(item in network and item not in (network.network_address, network.broadcast_address) for item in taken)


@settings(max_examples=20)
@given(COUNTS.filter(lambda counts: len(counts) < 7), st.data())
def test_added_machines_change_no_other_address(counts, data):
    before = plan(with_counts(counts)).of
    grown = [count + data.draw(st.integers(0, 20)) for count in counts] + [data.draw(st.integers(1, 20))]
    after = plan(with_counts(grown, logins=3)).of
    assert before.items() <= after.items()


def test_addresses_of_one_nodeset_change_no_other():
    free = plan(with_counts([2, 2, 2])).of
    named = plan(
        cluster(
            network={"cidr": "10.64.0.0/16"},
            monitoring={"machine": {}},
            nodesets={"set0": {"count": 2}, "set1": {"count": 2, "addresses": "10.64.250.0/24"}, "set2": {"count": 2}},
            partitions={"all-nodes": {"nodesets": ["set0"], "default": True}},
        ),
    ).of
    assert named["dev-set1-1"] == "10.64.250.2"
    assert {name: named[name] for name in named if "set1" not in name} == {
        name: free[name] for name in free if "set1" not in name
    }


def test_a_role_on_the_controller_has_the_controllers_address():
    found = plan(cluster(login={"on": "controller"}, nodesets={"cpu": {"on": "controller"}}))
    assert found.of == {"dev-controller": "10.77.0.2"}
