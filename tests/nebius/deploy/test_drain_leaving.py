"""Nodes and partitions that leave: what is closed, and whose jobs are waited for."""

from collections.abc import Sequence
from typing import Any

import pytest

from components.nebius.drain_leaving import DrainError, PartitionsProvider, close, leaving
from components.nebius.kubectl import LOGIN, KubectlError, Pod
from components.nebius.waits import LEAVES, RECREATED

THREE, ONE = {"count": 3, "shape": "a"}, {"count": 1, "shape": "a"}
ELASTIC = {"count": 8, "shape": "a", "static": 1}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(THREE, {"count": 5, "shape": "a"}, {}, id="nodes are added"),
        pytest.param(THREE, ONE, {1: LEAVES, 2: LEAVES}, id="the last ones leave"),
        pytest.param(ONE, None, {0: LEAVES}, id="a nodeset leaves"),
        pytest.param(THREE, {"count": 2, "shape": "b"}, {0: RECREATED, 1: RECREATED, 2: LEAVES}, id="all recreated"),
        pytest.param(ONE, {"count": 5, "shape": "b"}, {0: RECREATED}, id="one is recreated, others are added"),
        pytest.param(THREE, ELASTIC, {1: LEAVES, 2: LEAVES}, id="only static nodes keep their pods"),
        pytest.param(ELASTIC, {**ELASTIC, "static": 0}, {}, id="it was elastic before"),
        pytest.param(ELASTIC, {"count": 7, "shape": "a"}, {7: LEAVES}, id="it is no longer elastic"),
        pytest.param({"count": 2.0, "shape": "a"}, ONE, {1: LEAVES}, id="the state has numbers as floats"),
    ],
)
def test_nodes_that_leave_or_are_recreated(old: dict, new: dict | None, expected: dict[int, str]) -> None:
    cpu = {"cpu": ONE}
    found = leaving({"gpu": old, **cpu}, {"gpu": new, **cpu} if new else cpu)
    assert found == {f"gpu-{number}": reason for number, reason in expected.items()}


class Slurm:
    """Stands for kubectl, and for Slurm behind it."""

    def __init__(self, jobs: Sequence[str], *, running: bool = True, fails: int = 0) -> None:
        self.jobs, self.running, self.fails = list(jobs), running, fails
        self.closed: list[str] = []

    def items(self, kind: str) -> list[dict[str, Any]]:
        assert kind == "pods"
        return [{"metadata": {"name": "controller-0"}, "status": {"phase": "Running" if self.running else "Pending"}}]

    def execute(self, pod: Pod, *command: str, **_: object) -> str:
        assert pod is LOGIN
        if self.fails:
            self.fails -= 1
            raise KubectlError("kubectl exec: Unable to connect to the server")
        text = " ".join(command)
        if "show partition" in text:
            return "PartitionName=old AllowGroups=ALL\nPartitionName=main AllowGroups=ALL\n"
        if "State=DRAIN" in text:
            self.closed.append(text.split("PartitionName=")[1].split()[0])
            return ""
        assert "squeue" in text
        # One job ends each time that somebody looks.
        listed = "".join(f"{job}\n" for job in self.jobs)
        self.jobs = self.jobs[1:]
        return listed


def wait(slurm: Slurm, *names: str, seconds: float = 5) -> None:
    close(slurm, list(names), seconds=seconds, pace=0.01)  # pyrefly: ignore[bad-argument-type]


def test_a_partition_is_closed_before_its_jobs_are_waited_for() -> None:
    slurm = Slurm(["7 old", "8 old"])
    wait(slurm, "old")
    assert (slurm.closed, slurm.jobs) == (["old"], [])


def test_jobs_of_other_partitions_are_not_waited_for() -> None:
    slurm = Slurm(["7 main"] * 100)
    wait(slurm, "old")
    assert len(slurm.jobs) > 90


def test_a_job_that_waits_for_several_partitions_is_in_each() -> None:
    slurm = Slurm(["7 main,old", "7 main,old"])
    wait(slurm, "old")
    assert slurm.jobs == []


def test_a_partition_that_slurm_does_not_have_is_not_closed() -> None:
    slurm = Slurm([])
    wait(slurm, "never")
    assert slurm.closed == []


def test_a_cluster_without_running_slurm_has_no_jobs() -> None:
    slurm = Slurm(["7 old"] * 9, running=False)
    wait(slurm, "old")
    assert (slurm.closed, len(slurm.jobs)) == ([], 9)


def test_nothing_is_removed_while_slurm_does_not_answer() -> None:
    slurm = Slurm([], fails=3)
    wait(slurm, "old")
    assert (slurm.closed, slurm.fails) == (["old"], 0)


def test_the_error_lists_remaining_jobs_and_all_options() -> None:
    slurm = Slurm(["7 old"] * 10_000)
    with pytest.raises(DrainError) as caught:
        wait(slurm, "old", seconds=0.1)
    for text in ("old: jobs are still there", "7", "run `up` again", "scancel --partition", "State=UP"):
        assert text in str(caught.value)


def test_nothing_is_done_if_no_partition_leaves() -> None:
    props = {"access": {"context": "c"}, "partitions": ["main"], "seconds": 1, "pace": 1}
    more = {**props, "partitions": ["main", "more"]}
    provider = PartitionsProvider()
    assert provider.create(props).id == "c/partitions"
    assert provider.diff("c", props, more).changes
    assert not provider.diff("c", props, {**props, "seconds": 9}).changes
    assert provider.update("c", props, more).outs == more
