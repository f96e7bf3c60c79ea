"""`nccl run --pairs` on four real nodes, one of which is slow: a program that prints a log stands for nccl-tests."""

import json
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.cluster import ROOT, Cluster, eventually

pytestmark = pytest.mark.e2e

STAND_IN = (ROOT / "lab" / "slurm" / "slow_nodes_perf.sh").read_text()
COMMAND = ("nccl", "run", "ring", "--pairs", "--binaries", "/home/alice")


@pytest.fixture(scope="module")
def ring(clusters: Callable[..., Cluster]) -> Iterator[Cluster]:
    """Four nodes with stand-in GPUs, the last of which is slow."""
    cluster = clusters(
        "ring",
        nodesets={"gpu": {"count": 4, "machine_type": "local-2c-2gpu"}},
        partitions={"gpu": {"nodesets": ["gpu"], "default": True}},
        users=[{"name": "alice", "uid": 2001}],
    )
    cluster.hpc("up")
    text = shlex.quote(STAND_IN)
    cluster.run(
        "sh", "-c", f"printf %s {text} >~/all_gather_perf; chmod 755 ~/all_gather_perf; echo ring-gpu-3 >~/slow"
    )
    yield cluster
    cluster.hpc("destroy", check=False)


def test_the_slow_node_is_named_after_two_rounds(ring: Cluster):
    done = ring.call(*COMMAND, "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["result"], found["rounds"]) == (1, "fail", 2), done.stderr
    assert (found["slow"], found["unknown"]) == (["ring-gpu-3"], [])
    assert found["sound"] == ["ring-gpu-0", "ring-gpu-1", "ring-gpu-2"]
    slow = {tuple(one["nodes"]): round(one["busbw"], 1) for one in found["pairs"] if one["slow"]}
    assert set(slow.values()) == {45.9}
    assert [set(pair) & {"ring-gpu-3"} for pair in slow] == [{"ring-gpu-3"}] * 2
    assert "round 1: 2 of 2 pairs ended" in done.stderr
    # Jobs of a round ran side by side, each on the nodes of its pair.
    jobs = [one["job"] for one in found["pairs"]]
    rows = ring.run("sacct", "-nXP", "-j", ",".join(jobs), "-o", "JobID,NNodes,State").splitlines()
    assert sorted(rows) == sorted(f"{job}|2|COMPLETED" for job in jobs)


def test_a_node_that_is_out_of_service_is_left_out_and_sound_ones_pass(ring: Cluster):
    ring.call("nodes", "ring", "drain", "ring-gpu-3", "--reason", "nccl")
    done = ring.call(*COMMAND)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ring-gpu-3 is left out: drained." in done.stderr
    assert "\nResult: pass, 3 of 3 nodes are sound, after 2 rounds\n" in done.stdout
    ring.call("nodes", "ring", "resume", "ring-gpu-3")


def test_ctrl_c_cancels_its_jobs(ring: Cluster):
    ring.run("touch", "hold")
    process = subprocess.Popen(
        [str(ROOT / "hpc"), *COMMAND], env=ring.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        running = ("squeue", "--noheader", "--states=R", "--format=%i")
        eventually(lambda: len(ring.run(*running).split()) == 2, seconds=60, what="the jobs of a round")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=180)
    finally:
        process.kill()
        ring.run("rm", "hold")
    assert process.returncode == 130, out + err
    assert err.endswith(" were cancelled.\nInterrupted.\n")
    eventually(lambda: ring.run("squeue", "--noheader") == "", seconds=60, what="the end of the jobs")
