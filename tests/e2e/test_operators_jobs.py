"""Jobs that operators start on every node: NCCL's test of pairs, one of which is slow, and the warm-up.

A program that prints a log stands for nccl-tests, another for enroot: one node downloads, Slurm sends to the others.
"""

import json
import shlex
import signal
from collections.abc import Callable

import pytest

from tests.e2e.cluster import PATIENCE, ROOT, Cluster, eventually

pytestmark = pytest.mark.e2e

STAND_IN = (ROOT / "tests" / "lab" / "slurm" / "slow_nodes_perf.sh").read_text()
PAIRS = ("nccl", "run", "ring", "--pairs", "--binaries", "/home/alice")
ENROOT = """#!/bin/sh
echo "$(hostname) $4" >>/opt/apps/imports
head -c 5000000 /dev/urandom >"$3"
"""
IMAGE = "/var/lib/hpc/images/alpine+3.sqsh"
NODES = tuple(f"ring-gpu-{number}" for number in range(4))


@pytest.fixture(scope="module")
def ring(bring_up: Callable[..., Cluster]) -> Cluster:
    """Four nodes with stand-in GPUs, the last of which is slow."""
    cluster = bring_up(
        "ring",
        login={"on": "controller"},
        nodesets={"gpu": {"count": 4, "machine_type": "local-2c-2gpu"}},
        partitions={"gpu": {"nodesets": ["gpu"], "default": True}},
    )
    text = shlex.quote(STAND_IN)
    cluster.run(
        "sh", "-c", f"printf %s {text} >~/all_gather_perf; chmod 755 ~/all_gather_perf; echo ring-gpu-3 >~/slow"
    )
    return cluster


@pytest.fixture(scope="module")
def warm(ring: Cluster) -> Cluster:
    """The same nodes, with a stand-in for enroot."""
    for node in NODES:
        ring.inside(node, f"cat >/usr/local/bin/enroot <<'END'\n{ENROOT}END\nchmod 755 /usr/local/bin/enroot")
    return ring


def test_the_slow_node_is_named_after_two_rounds(ring: Cluster):
    done = ring.call(*PAIRS, "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["result"], found["rounds"]) == (1, "fail", 2), done.stderr
    assert (found["slow"], found["unknown"]) == (["ring-gpu-3"], [])
    assert found["sound"] == ["ring-gpu-0", "ring-gpu-1", "ring-gpu-2"]
    slow = {tuple(pair["nodes"]): round(pair["busbw"], 1) for pair in found["pairs"] if pair["slow"]}
    assert set(slow.values()) == {45.9}
    assert [set(nodes) & {"ring-gpu-3"} for nodes in slow] == [{"ring-gpu-3"}] * 2
    assert "round 1: 2 of 2 runs ended" in done.stderr
    # Jobs of a round ran side by side, each on its two nodes.
    jobs = [pair["job"] for pair in found["pairs"]]
    rows = lambda: ring.run("sacct", "-nXP", "-j", ",".join(jobs), "-o", "JobID,NNodes,State").splitlines()  # noqa: E731
    ended = {f"{job}|2|COMPLETED" for job in jobs}
    eventually(lambda: {*rows()} == ended, what="their records")


def test_a_node_that_is_out_of_service_is_left_out_and_sound_ones_pass(ring: Cluster):
    ring.call("nodes", "ring", "drain", "ring-gpu-3", "--reason", "nccl")
    done = ring.call(*PAIRS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ring-gpu-3 is left out: drained." in done.stderr
    assert "\nResult: pass, 3 of 3 nodes are sound, after 2 rounds\n" in done.stdout
    ring.call("nodes", "ring", "resume", "ring-gpu-3")


def test_ctrl_c_cancels_its_jobs(ring: Cluster):
    ring.run("touch", "hold")
    process = ring.start(*PAIRS)
    try:
        running = ("squeue", "--noheader", "--states=R", "--format=%i")
        eventually(lambda: len(ring.run(*running).split()) == 2, what="the jobs of a round")
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        ring.run("rm", "hold")
    assert process.returncode == 130, said
    assert said.endswith(" were cancelled.\nInterrupted.\n")
    eventually(lambda: ring.run("squeue", "--noheader") == "", what="the end of the jobs")


def images(cluster: Cluster) -> list[str]:
    """Checksum, mode and owner of the image on each node; nothing else may be left in the folder."""
    line = f"sha256sum {IMAGE}; stat -c %a:%U {IMAGE}; ls -A -I .lock {IMAGE.rpartition('/')[0]}"
    return [cluster.inside(node, line) for node in NODES]


def test_up_writes_the_environment_of_jobs(warm: Cluster):
    printed = warm.run("stat", "-c", "%U:%a", "/opt/apps/hpc/env.sh", user="alice")
    assert printed == "root:755"
    job = "#!/bin/bash\n. /opt/apps/hpc/env.sh || exit\necho $SLURM_DISTRIBUTION >out\n"
    text = f"cat >job.sh <<'END'\n{job}END\nsbatch --wait job.sh; cat out"
    assert warm.run("sh", "-c", text, user="alice").splitlines()[-1] == "block:block"


def test_an_image_is_downloaded_once_and_sent_to_the_other_nodes(warm: Cluster):
    done = warm.call("warm-up", "ring", "--image", "alpine:3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "to 3 nodes\n" in done.stdout
    assert "warm-up: 4 of 4 nodes are warm\n" in done.stdout
    assert warm.inside(NODES[0], "wc -l </opt/apps/imports") == "1"
    assert len(set(images(warm))) == 1
    assert "644:root" in images(warm)[0]
    assert images(warm)[0].splitlines()[2:] == ["alpine+3.sqsh"]


def test_a_node_that_lost_it_gets_it_from_another(warm: Cluster):
    before = images(warm)[0].splitlines()[0]
    warm.inside(NODES[0], f"rm {IMAGE}")
    done = warm.call("warm-up", "ring", "--image", "alpine:3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sending images from ring-gpu-1 to 1 nodes\n" in done.stdout
    assert images(warm)[0].splitlines()[0] == before
    assert warm.inside(NODES[0], "wc -l </opt/apps/imports") == "1"
