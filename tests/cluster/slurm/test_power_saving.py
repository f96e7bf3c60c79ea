"""Elastic nodes in slurm.conf: power saving is for them and not for static nodes, and as the release supports it."""

from typing import Any

import pytest
from slurm import conf_changes

from cluster.catalog import MACHINE_TYPES
from cluster.catalog.slurm_releases import VERSIONS
from cluster.config import ClusterConfig
from cluster.load import validate
from cluster.platforms.local.address_plan import plan
from cluster.slurm.files import render
from cluster.slurm.power_saving import BOOT_PART, boot_seconds, resume_timeout
from scripts.node.slurm import hostlist
from tests.clouds import google
from tests.cluster.catalog.test_slurm_releases import lines
from tests.cluster.stacks import local

NODESETS = {
    "cpu": {"count": 2},
    "gpu": {"count": {"min": 1, "max": 4}, "machine_type": "local-2c-2gpu", "idle": "5m"},
    "day": {"count": {"min": 0, "max": 2}},
}
PARTITIONS = {
    "cpu": {"nodesets": ["cpu"], "default": True},
    "gpu": {"nodesets": ["cpu", "gpu"]},
    "any": {"nodesets": ["gpu", "day"]},
}


def elastic(version: str = "24.11", **changes: Any) -> ClusterConfig:
    given = {"nodesets": NODESETS, "partitions": PARTITIONS, "image": {"base": "debian-13"}, **changes}
    found = validate(local(**given))
    return found.model_copy(update={"slurm": found.slurm.model_copy(update={"version": version})})


def conf(config: ClusterConfig, *, addresses: bool = True) -> list[dict[str, str]]:
    return lines(render(config, plan(config).of if addresses else None)["slurm.conf"])


def rows(found: list[dict[str, str]], first: str) -> dict[str, dict[str, str]]:
    return {row[first]: row for row in found if first in row}


def parameter(found: list[dict[str, str]], name: str) -> str | None:
    return next((row[name] for row in found if next(iter(row)) == name), None)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_release_has_only_its_own_words_of_power_saving(version: str) -> None:
    found = conf(elastic(version))
    words = f"{parameter(found, 'SlurmctldParameters')},{parameter(found, 'SchedulerParameters')}".split(",")
    assert ("enable_expedited_requeue" in words) == (version >= "25.11")
    assert ("requeue_on_resume_failure" in words) == (version >= "25.05")
    assert ("cloud_reg_addrs" in words) == (version < "23.11")
    assert parameter(found, "PrivateData") == ("cloud" if version < "23.11" else None)


@pytest.mark.parametrize("version", VERSIONS)
def test_drained_nodes_stay_drained_in_every_release(version: str) -> None:
    """idle_on_node_suspend removes DRAIN and DOWN from suspended nodes, so nodes with these are never suspended."""
    found = conf(elastic(version))
    words, states = parameter(found, "SlurmctldParameters") or "", parameter(found, "SuspendExcStates") or ""
    assert "idle_on_node_suspend" not in words or {"DRAIN", "DOWN"} <= set(states.split(","))


def test_elastic_nodes_have_state_cloud_and_static_ones_are_never_suspended() -> None:
    found = conf(elastic())
    assert {name: row["State"] for name, row in rows(found, "NodeName").items()} == {
        "dev-cpu-[0-1]": "UNKNOWN", "dev-gpu-0": "UNKNOWN", "dev-gpu-[1-3]": "CLOUD", "dev-day-[0-1]": "CLOUD",
    }  # fmt: skip
    assert rows(found, "NodeSet")["gpu"]["Nodes"] == "dev-gpu-[0-3]"
    kept = hostlist.expand(parameter(found, "SuspendExcNodes") or "")
    assert sorted(kept) == ["dev-cpu-0", "dev-cpu-1", "dev-gpu-0"]


def test_a_partition_has_the_longest_suspend_time_of_its_nodesets() -> None:
    found = rows(conf(elastic()), "PartitionName")
    assert {name: row.get("SuspendTime") for name, row in found.items()} == {"cpu": None, "gpu": "300", "any": "600"}
    assert parameter(conf(elastic()), "SuspendTime") == "INFINITE"


def test_names_resolve_or_have_addresses() -> None:
    assert "cloud_dns" in (parameter(conf(elastic(), addresses=False), "SlurmctldParameters") or "")
    written = conf(elastic())
    assert "cloud_dns" not in (parameter(written, "SlurmctldParameters") or "")
    assert all("NodeAddr" in row for row in rows(written, "NodeName").values())


def test_without_elastic_nodes_there_is_no_power_saving() -> None:
    found = conf(elastic(nodesets={"cpu": {"count": 2}}, partitions={"cpu": {"nodesets": ["cpu"], "default": True}}))
    names = {next(iter(row)) for row in found}
    assert names.isdisjoint({"SuspendProgram", "ResumeProgram", "SuspendTime", "SuspendExcNodes", "ReconfigFlags"})


BLUEPRINTS = {"a3-highgpu-8g": 900, "a3-megagpu-8g": 900, "a3-ultragpu-8g": 1200, "a4-highgpu-8g": 1200}
"""ResumeTimeout of Google's blueprints, from the request until the node has registered: cluster-toolkit v1.95.0,
examples/machine-learning/*/*-slurm-blueprint.yaml."""


@pytest.mark.parametrize(("machine", "seconds"), BLUEPRINTS.items())
def test_a_machine_has_as_long_to_join_as_in_googles_blueprint(machine: str, seconds: int) -> None:
    assert MACHINE_TYPES[machine].family.boot_seconds >= seconds


def test_a_machine_is_given_up_before_slurm_gives_its_node_up() -> None:
    assert (boot_seconds(elastic(), "gpu"), resume_timeout(elastic())) == (900, 1125)
    assert boot_seconds(elastic(slurm={"extra": {"resumetimeout": 60}}), "gpu") == 60 * BOOT_PART
    longer = PARTITIONS | {"any": PARTITIONS["any"] | {"conf": {"resumetimeout": 120}}}
    assert boot_seconds(elastic(partitions=longer), "gpu") == 120 * BOOT_PART
    queued = NODESETS | {"gpu": NODESETS["gpu"] | {"capacity": ["spot", "flex"]}}
    assert boot_seconds(elastic(nodesets=queued), "gpu") == 900, "from when its machine is created"


def test_the_slowest_family_is_slurms_limit_and_each_has_its_own() -> None:
    both = google(
        nodesets={
            "a4": {"machine_type": "a4-highgpu-8g", "count": {"min": 0, "max": 2}, "capacity": [{"reservation": "r"}]},
            "cpu": {"machine_type": "n2-standard-4", "count": {"min": 0, "max": 2}},
        },
        partitions={"both": {"nodesets": ["a4", "cpu"], "default": True}},
    )
    assert [boot_seconds(both, name) for name in both.nodesets] == [1200, 900]
    assert resume_timeout(both) == 1500


@pytest.mark.parametrize(("version", "waits"), [("24.11", "65533"), ("25.05", "INFINITE"), ("26.05", "INFINITE")])
def test_partitions_with_flex_start_have_a_long_resume_timeout(version: str, waits: str) -> None:
    queued = NODESETS | {"gpu": NODESETS["gpu"] | {"capacity": ["spot", "flex"]}}
    waiting = rows(conf(elastic(version, nodesets=queued)), "PartitionName")
    assert {name: row.get("ResumeTimeout") for name, row in waiting.items()} == {
        "cpu": None, "gpu": waits, "any": waits,
    }  # fmt: skip


def test_a_nodeset_that_becomes_elastic_restarts_only_slurmctld() -> None:
    fixed = elastic(nodesets=NODESETS | {"gpu": {"count": 4, "machine_type": "local-2c-2gpu"}})
    before, after = (render(cluster, plan(cluster).of) for cluster in (fixed, elastic()))
    assert conf_changes.slurmd_epoch(before) == conf_changes.slurmd_epoch(after)
    assert conf_changes.need(before, after) is conf_changes.Need.RESTART
