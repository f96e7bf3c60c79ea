"""The quickcheck on a real cluster: all of it passes; then nodes are broken, each in another way, and named."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.cluster import PATIENCE, ROOT, Cluster, eventually

pytestmark = pytest.mark.e2e

PAGE = ROOT / "docs/guides/quickcheck.md"
PATIENT = ("--seconds", str(int(PATIENCE)))
NODES = [*(f"lab-cpu-{n}" for n in range(8)), "lab-gpu-0"]


def check(cluster: Cluster, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = cluster.call("check", "jobs", cluster.name, "--json", *PATIENT, *arguments)
    return done.returncode, json.loads(done.stdout)


def failed(report: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {
        (result["node"], result["check"]): result["text"] for result in report["results"] if result["status"] != "pass"
    }


def recorded(report: dict[str, Any]) -> list[str]:
    return sorted(result["node"] for result in report["results"] if result["check"] == "accounting")


def test_all_nodes_pass_for_two_at_once(lab: Cluster):
    # The machines' limit, not the cluster's: systemd-nspawn has no keyrings for containers in it.
    keyless = (
        r'mkdir -p ~/.config/containers; printf "[containers]\nkeyring=false\n" >~/.config/containers/containers.conf'
    )
    lab.run("sh", "-c", keyless, user="bob")
    # One may find the CPUs of a node in use by the other's job.
    with ThreadPoolExecutor() as pool:
        alices = pool.submit(check, lab, "--suite", "hello", "--as", "alice", "--wait")
        # A container on each node takes more than all else of it.
        bobs = check(lab, "--as", "bob", "--nodes", "cpu-[0-2],gpu-0", "--wait")
    for code, report in (alices.result(), bobs):
        assert {key: text for key, text in failed(report).items() if key != ("", "nccl")} == {}
        assert report["not_checked"] == []
        assert (code, report["passed"]) == (0, True)
    of_alice, of_bob = (
        {result["check"]: result["text"] for result in report["results"]} for _, report in (alices.result(), bobs)
    )
    assert recorded(alices.result()[1]) == NODES
    assert of_alice["together"] == "16 tasks on 8 nodes"
    assert recorded(bobs[1]) == [*NODES[:3], NODES[-1]]
    assert of_bob["accounting"] == "account teaching, QOS normal"
    assert of_bob["together"] == "6 tasks on 3 nodes"
    assert of_bob["gpus"] == "2 GPUs by device files"
    assert of_bob["nccl"] == "GPUs of a rehearsal are device files, which compute nothing"
    assert of_bob["mail"] == "in /var/mail/bob"
    assert {result["text"] for result in bobs[1]["results"] if result["check"] == "container"} <= {
        "apptainer",
        "podman",
    }
    left = lab.run("sh", "-c", "ls -d /home/*/.hpc-check-* 2>/dev/null | wc -l", user="root")
    assert left == "0"


@pytest.fixture
def broken(lab: Cluster) -> Iterator[str]:
    """A node without its home, one without a GPU, one that is down and one that is busy; the number of its job."""
    job = lab.job("sleep infinity", "-w", "lab-cpu-3", "--exclusive", user="bob")
    lab.inside("cpu-1", "umount /home")
    lab.inside("gpu-0", "rm /dev/nvidia1")
    lab.inside("cpu-2", "systemctl stop slurmd")
    # With ReturnToService=2 a reply that slurmctld reads later brings the node back: it does so every two seconds, also
    # after the end of the agent that got it (agent.c, _agent_nodes_update).
    agents = "sdiag | awk '/^Agent count/ { print $3 }'"
    down = (
        "scontrol update nodename=lab-cpu-2 state=down reason='slurmd stopped'; sleep 5; scontrol show node lab-cpu-2"
    )

    def stays_down() -> bool:
        shown = lab.inside("controller", down)
        # The base state comes first, whatever flags the node has.
        assert "State=DOWN" in shown, shown
        return True

    try:
        eventually(lambda: lab.inside("controller", agents) == "0", what="the end of what slurmctld sends to nodes")
        eventually(stays_down, what="a node that stays down")
        yield job
    finally:
        lab.run("scancel", job, user="bob")
        lab.inside("gpu-0", "mknod -m 666 /dev/nvidia1 c 60 1")
        lab.inside("cpu-1", "systemctl restart hpc-node && findmnt /home")
        lab.inside("cpu-2", "systemctl start slurmd")
        lab.command("nodes", "resume", "cpu-2")
        states = "sinfo -h -N -o %T | sort -u"
        eventually(lambda: lab.run("sh", "-c", states, user="root") == "idle", what="all nodes idle")


def test_what_is_broken_is_found_and_named(lab: Cluster, broken: str):
    done = lab.call("check", "jobs", "lab", "--suite", "hello", "--as", "alice", *PATIENT)
    assert done.returncode == 1
    told = re.sub(r"in [0-9.]+ s, as", "in 7.2 s, as", done.stdout)
    told = re.sub(rf"job {broken}\b", "job 52", told)
    told = re.sub(r"\.hpc-check-[0-9a-f]{8}", ".hpc-check-3f9a01c7", told)
    printed = PAGE.read_text().partition("$ ./hpc check jobs lab --suite hello\n")[2].partition("\n```")[0]
    assert told.strip().splitlines() == printed.splitlines()


def test_ctrl_c_cancels_what_was_submitted(lab: Cluster):
    job = lab.submit("sleep infinity", "-w", "lab-cpu-5", "--exclusive", user="bob")
    mine = ["squeue", "--noheader", "--user=alice", "--format=%j"]
    process = subprocess.Popen(
        [str(ROOT / "hpc"), "check", "jobs", "lab", "--suite", "hello", "--as", "alice", "--wait"],
        env=lab.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        eventually(lambda: "hpc-check" in lab.run(*mine, user="alice"), what="a job that waits")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        lab.run("scancel", job, user="bob")
    assert process.returncode == 130, out + err
    eventually(lambda: lab.run(*mine, user="alice") == "", what="the end of its jobs")
