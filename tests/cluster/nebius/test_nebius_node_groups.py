"""Node groups: as many nodes as asked for and not one more, with what runs there attached."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.platforms.nebius.node_groups import NodeGroup, node_groups, shape, split
from tests.cluster.nebius.clusters import FABRIC, GB300, gpus, nebius, settings


def groups(**changes: object) -> dict[str, NodeGroup]:
    config = nebius(**changes)
    return {one.name: one for one in node_groups(config, settings(config))}


@given(st.integers(1, 2000), st.integers(1, 100))
def test_groups_have_all_nodes_and_the_last_one_the_rest(nodes: int, most: int) -> None:
    found = split(nodes, most)
    assert sum(found) == nodes
    assert set(found[:-1]) <= {most}
    assert 1 <= found[-1] <= most


def test_101_nodes_are_two_groups() -> None:
    found = groups(**gpus(count=101))
    counts = {group.name: group.count for group in found.values() if group.role == "worker"}
    assert counts == {"worker-worker-0": 100, "worker-worker-1": 1}


class TestServices:
    def test_there_is_one_group_for_each(self) -> None:
        found = groups()
        assert [*found] == ["system", "controller", "login", "accounting", "worker-worker-0"]
        assert found["system"].between == (3, 9)
        assert (found["controller"].count, found["accounting"].count) == (1, 1)

    def test_each_has_its_file_systems(self) -> None:
        data = {"data": {"mount": "/data", "spec": {"size_gib": 10}}}
        found = groups(nebius={"filesystems": {"submounts": data}})
        assert found["controller"].tags == ("controller-spool", "jail", "jail-submount-data")
        assert found["accounting"].tags == ("accounting", "jail", "jail-submount-data")
        for name in ("system", "login", "worker-worker-0"):
            assert found[name].tags == ("jail", "jail-submount-data")

    def test_only_their_own_pods_run_there(self) -> None:
        found = groups()
        assert found["system"].taints == {}
        for name in ("controller", "login", "accounting"):
            assert found[name].taints == {"slurm.nebius.ai/nodeset": name}
            assert found[name].labels["slurm.nebius.ai/nodeset"] == name


class TestWorkers:
    def test_gpus_are_a_label_and_a_taint(self) -> None:
        found = groups(**gpus())["worker-worker-0"]
        assert found.taints == {"nvidia.com/gpu": "8"}
        assert found.labels["nebius.com/gpu"] == "true"
        assert found.labels["slurm.nebius.ai/nodeset-name"] == "worker"
        assert (found.platform, found.preset) == ("gpu-h100-sxm", "8gpu-128vcpu-1600gb")
        assert (found.in_gpu_cluster, found.disk_gib, found.drivers_preset) == (True, 512, "cuda13.0")

    def test_nodes_without_gpus_have_neither_driver_nor_taint(self) -> None:
        found = groups()["worker-worker-0"]
        assert (found.taints, found.drivers_preset, found.in_gpu_cluster) == ({}, "", False)

    @pytest.mark.parametrize(
        ("capacity", "expected"),
        [
            (None, (False, "AUTO", None)),
            ({"on_demand": {}}, (False, "FORBID", None)),
            ({"spot": {}}, (True, "AUTO", None)),
            ({"reservation": "capacityblockgroup-e00abc"}, (False, "STRICT", "capacityblockgroup-e00abc")),
        ],
    )
    def test_capacity_is_asked_for_as_the_file_says(self, capacity: object, expected: tuple[object, ...]) -> None:
        found = groups(**(gpus(capacity=capacity) if capacity else gpus()))["worker-worker-0"]
        assert (found.preemptible, found.policy, found.reservation) == expected

    def test_soperator_and_not_kubernetes_replaces_nodes(self) -> None:
        repairs = {(condition, status): seconds for condition, status, seconds in groups()["worker-worker-0"].repairs}
        assert repairs[("HardwareIssuesSuspected", "TRUE")] == 1
        assert {seconds for condition, seconds in repairs.items() if condition[0] != "HardwareIssuesSuspected"} == {
            None
        }
        assert groups(nebius={"health": {"replace_nodes": False}})["worker-worker-0"].repairs == ()

    @pytest.mark.parametrize(("count", "percent", "nodes"), [(1, 50, 1), (2, 50, 1), (10, 50, 5), (3, 1, 1)])
    def test_an_update_never_stands_still(self, count: int, percent: int, nodes: int) -> None:
        """No surge needs no quota, and then at least one node must be allowed to be away."""
        workers = {"worker": {"max_unavailable_percent": percent}}
        found = groups(nodesets={"worker": {"count": count}}, nebius={"workers": workers})
        assert found["worker-worker-0"].unavailable == nodes


@pytest.mark.parametrize(
    ("kubernetes", "preset", "nodes", "service"),
    [
        ("1.31", "cuda12.8", "ubuntu24.04", "ubuntu24.04"),
        ("1.31", "cuda12.4", "ubuntu22.04", "ubuntu24.04"),
        ("1.30", "cuda12", "ubuntu22.04", "ubuntu22.04"),
        ("1.33", "cuda13.0", "ubuntu24.04", "ubuntu24.04"),
    ],
)
def test_nodes_have_the_system_that_goes_with_the_driver(
    kubernetes: str, preset: str, nodes: str, service: str
) -> None:
    found = groups(**gpus(nebius={"kubernetes": {"version": kubernetes}, "gpu": {"drivers_preset": preset}}))
    assert (found["worker-worker-0"].os, found["system"].os) == (nodes, service)


class TestShape:
    """Another shape recreates nodes: it follows what they are made of, and not how many there are."""

    def of(self, **changes: object) -> str:
        config = nebius(**changes)
        return shape(config, settings(config), "worker")

    def test_it_does_not_depend_on_the_number(self) -> None:
        assert self.of(**gpus(count=2)) == self.of(**gpus(count=150))

    @pytest.mark.parametrize(
        "section",
        [
            {"kubernetes": {"version": "1.32"}},
            {"soperator": {"version": "4.1.6"}},
            {"gpu": {"drivers_preset": "cuda14.0"}},
            {"gpu": {"driver": "operator"}},
            {"filesystems": {"submounts": {"data": {"mount": "/data", "spec": {"size_gib": 10}}}}},
            {"workers": {"worker": {**FABRIC, "image_disk": {"size_gib": 93}}}},
            {"workers": {"worker": {"infiniband": {"fabric": "fabric-4"}}}},
        ],
    )
    def test_it_follows_what_they_are_made_of(self, section: dict[str, object]) -> None:
        assert self.of(**gpus()) != self.of(**gpus(nebius=section))

    def test_it_does_not_follow_services(self) -> None:
        assert self.of() == self.of(nebius={"health": {"replace_nodes": False}}, login={"count": 3})


def test_arm_nodes_are_workers_like_others() -> None:
    found = groups(nodesets={"gpu": {"machine_type": GB300}}, nebius={"workers": {"gpu": FABRIC}})
    assert found["worker-gpu-0"].gpus == 4
