"""The roster has each machine once, with its roles, and a changed count adds or removes the last ones."""

from cluster.load import validate
from cluster.roster import elastic_machine, elastic_machines, elastic_names, machines, node_names, static_names
from tests.cluster.stacks import cluster, local


def test_machines_are_controller_login_then_nodes_in_order():
    found = machines(
        cluster(
            login={"count": 2},
            nodesets={"gpu": {"machine_type": "local-2c-2gpu"}, "cpu": {"count": 2}},
        ),
    )
    assert [(machine.name, machine.roles, machine.nodeset, machine.index) for machine in found] == [
        ("dev-controller", ("controller",), None, 0),
        ("dev-login-0", ("login",), None, 0),
        ("dev-login-1", ("login",), None, 1),
        ("dev-cpu-0", ("node",), "cpu", 0),
        ("dev-cpu-1", ("node",), "cpu", 1),
        ("dev-gpu-0", ("node",), "gpu", 0),
    ]
    assert [machine.gpu.count if machine.gpu else 0 for machine in found] == [0, 0, 0, 0, 0, 2]


def test_one_machine_can_have_every_role():
    (only,) = machines(cluster(login={"on": "controller"}, nodesets={"cpu": {"on": "controller"}}))
    assert (only.name, only.roles, only.nodeset) == ("dev-controller", ("controller", "login", "node"), "cpu")


def test_names_of_pods_have_no_cluster_in_front():
    found = machines(cluster(host_names="pods", login={"count": 1}, nodesets={"cpu": {"count": 2}}))
    assert [machine.name for machine in found] == ["controller-0", "login-0", "cpu-0", "cpu-1"]


def test_elastic_nodes_follow_static_ones_and_are_not_created_by_pulumi():
    fixed = cluster(nodesets={"cpu": {"count": 4, "machine_type": "local-2c-2gpu"}})
    section = {"count": {"min": 1, "max": 4}, "machine_type": "local-2c-2gpu"}
    some = validate(local(nodesets={"cpu": section}))
    assert node_names(some, "cpu") == node_names(fixed, "cpu")
    assert static_names(some, "cpu") == ("dev-cpu-0",)
    assert elastic_names(some, "cpu") == ("dev-cpu-1", "dev-cpu-2", "dev-cpu-3")
    assert machines(some) == machines(fixed)[:-3]
    assert elastic_machines(some) == machines(fixed)[-3:]
    assert elastic_machine(some, "cpu") == elastic_machines(some)[0]


def test_a_nodeset_with_a_fixed_count_has_no_elastic_nodes():
    every = cluster(nodesets={"cpu": {"count": 2}})
    assert (elastic_names(every, "cpu"), elastic_machine(every, "cpu"), elastic_machines(every)) == ((), None, ())
    assert static_names(every, "cpu") == node_names(every, "cpu")
