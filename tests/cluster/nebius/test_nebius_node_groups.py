"""Node groups: as many nodes as asked for and not one more, with what runs there attached."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.platforms.nebius.node_groups import NodeGroup, node_groups, shape, split_nodes
from tests.cluster.nebius.clusters import FABRIC, gpus, nebius, settings


def groups(**changes: object) -> dict[str, NodeGroup]:
    config = nebius(**changes)
    return {node_group.name: node_group for node_group in node_groups(config, settings(config))}


@given(st.integers(1, 2000), st.integers(1, 100))
def test_groups_have_all_nodes_and_the_last_one_the_rest(nodes: int, most: int) -> None:
    found = split_nodes(nodes, most)
    assert sum(found) == nodes
    assert set(found[:-1]) <= {most}
    assert 1 <= found[-1] <= most


def test_101_nodes_are_two_groups() -> None:
    found = groups(**gpus(count=101))
    counts = {group.name: group.count for group in found.values() if group.role == "worker"}
    assert counts == {"worker-worker-0": 100, "worker-worker-1": 1}


CASES: dict[str, dict[str, Any]] = {
    "nodes without GPUs": {},
    "nodes with GPUs": gpus(),
    "a file system more": {
        "nebius": {"filesystems": {"submounts": {"data": {"mount": "/data", "spec": {"size_gib": 10}}}}}
    },
    "on demand": gpus(capacity={"on_demand": {}}),
    "spot": gpus(capacity={"spot": {}}),
    "a capacity block": gpus(capacity={"reservation": "capacityblockgroup-e00abc"}),
    # Soperator replaces nodes; where it may not, nobody does.
    "nodes that are not replaced": {"nebius": {"health": {"replace_nodes": False}}},
}


def shown(group: NodeGroup) -> list[str]:
    return [f"{group.name}", *(f"  {name}: {value}" for name, value in vars(group).items() if value and name != "name")]


def test_they_are_as_reviewed(reviewed) -> None:
    """Services first, as they are everywhere; then what is another group in each case."""
    plain = groups()
    texts = {"services": [line for item in plain.values() for line in shown(item) if item.role != "worker"]}
    for case, changes in CASES.items():
        found = groups(**changes).values()
        texts[case] = [
            line for item in found for line in shown(item) if item.role == "worker" or item != plain[item.name]
        ]
    reviewed("nebius/node-groups", {case: "\n".join(lines) for case, lines in texts.items()})


class TestWorkers:
    @pytest.mark.parametrize(("count", "percent", "nodes"), [(1, 50, 1), (2, 50, 1), (10, 50, 5), (3, 1, 1)])
    def test_an_update_never_stands_still(self, count: int, percent: int, nodes: int) -> None:
        """No surge needs no quota, and then at least one node must be allowed to be away."""
        workers = {"worker": {"max_unavailable_percent": percent}}
        found = groups(nodesets={"worker": {"count": count}}, nebius={"workers": workers})
        assert found["worker-worker-0"].unavailable == nodes


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
            {"filesystems": {"submounts": {"data": {"mount": "/data", "spec": {"size_gib": 10}}}}},
            {"workers": {"worker": {**FABRIC, "image_disk": {"size_gib": 93}}}},
            {"workers": {"worker": {"infiniband": {"fabric": "fabric-4"}}}},
        ],
    )
    def test_it_follows_what_they_are_made_of(self, section: dict[str, object]) -> None:
        assert self.of(**gpus()) != self.of(**gpus(nebius=section))

    def test_it_does_not_follow_services(self) -> None:
        assert self.of() == self.of(nebius={"health": {"replace_nodes": False}}, login={"count": 3})
