"""Elastic nodesets: the same two fields as elsewhere, by Soperator's ephemeral nodes and node groups that grow."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.edits import edits
from cluster.findings import Level
from cluster.impact.table import impact
from cluster.load import find_warnings
from cluster.platforms.nebius.node_groups import shape
from cluster.platforms.nebius.request import describe_request, request
from tests.cluster.nebius.clusters import given as given_
from tests.cluster.nebius.clusters import groups, nebius, releases_of, settings

BOTH = {"elastic": {"count": {"min": 2, "max": 16}, "idle": "20m"}, "fixed": {"count": 3}}
PARTITIONS = {"main": {"nodesets": ["elastic", "fixed"], "default": True}, "rest": {"nodesets": ["fixed"]}}


def releases(**nodesets: Any) -> dict[str, dict[str, Any]]:
    """Values of each release of a cluster of both nodesets, or of these."""
    partitions = {"main": {"nodesets": [*nodesets], "default": True}} if nodesets else PARTITIONS
    found = releases_of(given_(nodesets=nodesets or BOTH, partitions=partitions))
    return {name: dict(release.values) for name, release in found.items()}


@given(st.integers(0, 300), st.integers(1, 300), st.integers(1, 100))
def test_groups_have_static_nodes_at_least_and_all_at_most(static: int, more: int, size: int) -> None:
    cluster = nebius(
        nodesets={"worker": {"count": {"min": static, "max": static + more}}},
        nebius={"workers": {"worker": {"nodes_per_group": size}}},
    )
    found = [group for group in groups(cluster) if group.role == "worker"]
    bounds = [group.between or (group.count, group.count) for group in found]
    assert (sum(low for low, _ in bounds if low is not None), sum(group.most for group in found)) == (
        static, static + more,
    )  # fmt: skip
    assert all(group.between is None or group.between[0] < group.between[1] <= size for group in found)
    # A group whose number may change is one that no other number follows.
    assert [group.count is None for group in found] == sorted(group.count is None for group in found)


def test_only_the_number_of_an_elastic_nodesets_nodes_changes_with_its_count() -> None:
    counts = (4, {"min": 1, "max": 4}, {"min": 3, "max": 90})
    clusters = [nebius(nodesets={"worker": {"count": count}}) for count in counts]
    assert len({shape(cluster, settings(cluster), "worker") for cluster in clusters}) == 1


def test_soperator_powers_nodes_up_and_down() -> None:
    elastic, fixed = releases()["nodesets"]["nodesets"]
    assert {key: elastic[key] for key in ("replicas", "ephemeralNodes", "initialNumberEphemeralNodes")} == {
        "replicas": 16, "ephemeralNodes": True, "initialNumberEphemeralNodes": 2,
    }  # fmt: skip
    assert not {"ephemeralNodes", "initialNumberEphemeralNodes"} & fixed.keys()


def test_static_and_drained_nodes_are_never_powered_down() -> None:
    lines = releases()["slurm-cluster"]["customSlurmConfig"].splitlines()
    assert "SuspendExcNodes=elastic-[0-1],fixed-[0-2]" in lines
    assert "SuspendExcStates=DRAIN,MAINTENANCE,RESERVED" in lines
    assert "Suspend" not in releases(worker={"count": 2})["slurm-cluster"]["customSlurmConfig"]
    asleep = releases(worker={"count": {"min": 0, "max": 2}})["slurm-cluster"]["customSlurmConfig"]
    assert "SuspendExcNodes" not in asleep


def test_idle_times_are_those_of_partitions() -> None:
    rows = releases()["slurm-cluster"]["partitionConfiguration"]["partitions"]
    times = {row["name"]: "SuspendTime=1200" in row["config"].split() for row in rows}
    assert times == {"main": True, "rest": False, "hidden": False}


def test_the_check_that_needs_all_nodes_does_not_run_with_elastic_nodes() -> None:
    name = "ensure-healthy-nodes"
    assert releases()["soperator-activechecks"]["checks"][name] == {"runAfterCreation": False}
    assert name not in releases(worker={"count": 2})["soperator-activechecks"]["checks"]


def test_a_preview_shows_both_numbers_and_the_most_that_it_may_cost() -> None:
    cluster = nebius(nodesets=BOTH)
    (line,) = [line for line in describe_request(cluster) if "nodeset elastic" in line]
    assert line.startswith("2 to 16 x cpu-d3/16vcpu-64gb: nodeset elastic")
    assert line.endswith("at most 256 CPUs")
    _, quotas = "\n".join(describe_request(cluster)).split("quotas that must have room: ")
    # 3 system nodes, one of the controller, of login and of accounting each, 16 + 3 workers.
    assert "compute.instance.count 25," in quotas
    # `up` asks Nebius for room for the nodes that it creates.
    (row,) = [row for row in request(cluster, settings(cluster))["nodes"] if row["preset"] == "16vcpu-64gb"]
    assert row["count"] == 1 + 2 + 3


@pytest.mark.parametrize(("low", "asleep"), [(1, False), (0, True)])
def test_elastic_nodes_without_a_static_one_are_warned_of(low: int, asleep: bool) -> None:
    found = find_warnings(nebius(nodesets={"worker": {"count": {"min": low, "max": 4}}}))
    (late,) = [item for item in found if "pull request 2859" in item.what]
    assert late.level is Level.WARNING
    assert any(item.id == "nebius-elastic-asleep" and item.at[:2] == ("nodesets", "worker") for item in found) is asleep


def test_the_impact_of_becoming_elastic_names_the_nodes_that_leave() -> None:
    before, after = (
        nebius(nodesets={"worker": {"count": 4}}),
        nebius(nodesets={"worker": {"count": {"min": 1, "max": 8}}}),
    )
    (edit,) = [edit for edit in edits(before, after) if edit.path[-1] == "count"]
    assert "worker-[1-3] leaves" in str(impact(edit))
    (edit,) = edits(after, nebius(nodesets={"worker": {"count": {"min": 2, "max": 8}}}))
    assert "2 of worker-[0-7] are always up" in str(impact(edit))
