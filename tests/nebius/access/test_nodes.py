"""`nodes` and `usage` of a cluster of pods, and drain recovery: the commands that they run, through kubectl exec."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.operation import drain_recovery
from tests.nebius.access.cluster_objects import IDLE, World
from tests.nebius.access.conftest import OUTPUTS, Hpc, calls

Made = Callable[[str], Path]
DRAINED = {
    "worker-0": ("IDLE+DRAIN", "hpc: leaves the cluster"),
    "worker-1": ("IDLE+DRAIN", "[user_problem] boot_disk_full: 85% of node boot disk is used."),
    "worker-7": ("IDLE+DRAIN", "hpc: leaves the cluster"),
}


def updates_to(file: Path) -> str:
    """The part of a kubectl that appends each `scontrol update` to a file, and prints nothing."""
    return f'case "$*" in *"scontrol update"*) for line; do :; done; echo "$line" >>{file}; exit 0;; esac\n'


@pytest.mark.usefixtures("up")
def test_nodes_lists_slurmctlds_nodes(hpc: Hpc, kubectl: Made) -> None:
    world = World()
    world.nodes = {**IDLE, "worker-1": DRAINED["worker-1"]}
    log = kubectl(world.script())
    ended = hpc("nodes", "nebius", "--json")
    assert ended.code == 0, ended.err
    rows = {row["node"]: row for row in json.loads(ended.out)}
    assert (rows["worker-0"]["state"], rows["worker-1"]["state"]) == ("idle", "drained")
    assert rows["worker-1"]["reason"].startswith("[user_problem]")
    assert (rows["worker-0"]["actor"], rows["worker-1"]["actor"]) == (None, "user")
    assert [call[:2] for call in calls(log)] == [["exec", "controller-0"], ["get", "deployments.apps"]]
    lines = [line.split("  ") for line in hpc("nodes", "nebius").out.splitlines()]
    assert "WHO MUST ACT" in lines[0]
    assert "user" in lines[2]


@pytest.mark.usefixtures("up")
def test_a_drain_is_scontrols_in_the_controllers_container(hpc: Hpc, kubectl: Made, tmp_path: Path) -> None:
    updates = tmp_path / "updates"
    world = World()
    kubectl(updates_to(updates) + world.script())
    hpc("nodes", "nebius", "drain", "worker-0", "--reason", "a new cable")
    assert "scontrol update NodeName=worker-0 State=DRAIN 'Reason=a new cable'" in updates.read_text()


@pytest.mark.usefixtures("up")
def test_elastic_nodes_are_listed_as_sinfo_has_them_and_one_that_did_not_come_is_resumed(
    hpc: Hpc, kubectl: Made, tmp_path: Path
) -> None:
    updates = tmp_path / "updates"
    world = World()
    world.nodes = {**IDLE, "worker-2": ("IDLE+CLOUD+POWERED_DOWN", ""), "worker-3": ("DOWN+CLOUD+POWERED_DOWN", "late")}
    again = World()
    again.nodes = {**world.nodes, "worker-3": ("IDLE+CLOUD+POWERING_DOWN", "")}
    kubectl(f"{updates_to(updates)}if [ -e {updates} ]; then\n{again.script()}\nfi\n{world.script()}")
    rows = {row["node"]: row["state"] for row in json.loads(hpc("nodes", "nebius", "--json").out)}
    assert (rows["worker-2"], rows["worker-3"]) == ("idle~", "down~")
    assert hpc("nodes", "nebius", "resume", "worker-3").out == "worker-3: idle%\n"
    # Resumed, it would be lost to jobs after a reconfigure.
    assert "scontrol update NodeName=worker-3 State=POWER_DOWN" in updates.read_text()
    assert "RESUME" not in updates.read_text()


@pytest.mark.usefixtures("up")
def test_usage_asks_sacct_there(hpc: Hpc, kubectl: Made) -> None:
    log = kubectl("echo 'sacct: error: Slurm accounting storage is disabled' >&2; exit 2")
    ended = hpc("usage", "nebius")
    assert (ended.code, ended.err) == (
        1, "error: controller-0: sacct: error: Slurm accounting storage is disabled\n",
    )  # fmt: skip
    (words,) = calls(log)[:1]
    assert words[:6] == ["exec", "controller-0", "--namespace", "soperator", "--container", "slurmctld"]
    assert "sacct" in words[-1]


class TestRecovery:
    @pytest.fixture(autouse=True)
    def _of_this_test(self, root: Path) -> None:
        """State of its own."""

    def test_nodes_that_an_up_drained_and_that_stay_are_resumed(self, kubectl: Made, tmp_path: Path) -> None:
        updates = tmp_path / "updates"
        world = World()
        world.nodes = DRAINED
        kubectl(updates_to(updates) + world.script())
        drain_recovery.begin("nebius")
        drain_recovery.recover("nebius", OUTPUTS, quiet=True)
        # Neither what somebody else drained, nor what is no target any more.
        assert updates.read_text().count("NodeName=") == 1
        assert "NodeName=worker-0 State=RESUME" in updates.read_text()
        assert not drain_recovery.begin("nebius")

    def test_a_cluster_that_does_not_answer_is_asked_again_after_the_next_up(
        self, kubectl: Made, capfd: pytest.CaptureFixture[str]
    ) -> None:
        kubectl("echo 'The connection to the server 203.0.113.7 was refused' >&2; exit 1")
        drain_recovery.begin("nebius")
        drain_recovery.recover("nebius", OUTPUTS, quiet=True)
        assert "may still be half done: controller-0: does not answer: The connection" in capfd.readouterr().err
        assert drain_recovery.begin("nebius")
