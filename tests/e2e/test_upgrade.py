"""Slurm goes to another release under running and queued jobs, and loses none; what can't be converted is put back."""

import json
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from tempfile import TemporaryFile
from typing import IO

import pytest

from components.local.host.images import ensure_image
from components.local.host.paths import HostError, images_root
from tests.e2e.cluster import BASE, Cluster, eventually
from tests.e2e.faults import GO

pytestmark = pytest.mark.e2e

OLD, NEW = "24.11", "26.05"
WAITS = f"until [ -e {GO} ]; do sleep 1; done"
FIRST, LAST = f"{GO}-first", f"{GO}-last"
QUEUED = 20
SLURM = {"mpi_default": "pmi2", "timers": {"slurmd": 12}}
USAGE = "/var/spool/slurmctld/assoc_usage*"


@pytest.fixture(scope="module")
def aged(bring_up: Callable[..., Cluster]) -> Cluster:
    """A cluster of the older release, with a job on each node, and more that wait for them. Its controller is away for
    longer than its SlurmdTimeout."""
    try:
        ensure_image(BASE, images_root(), print, (), NEW)
    except HostError as error:
        pytest.skip(f"a Debian that is not out yet moves: {error}")
    cluster = bring_up("aged", nodesets={"cpu": {"count": 2}}, slurm={**SLURM, "version": OLD})
    for node in range(2):
        cluster.job(WAITS, "--exclusive", f"--nodelist=aged-cpu-{node}", user="alice")
    cluster.submit("true", f"--array=1-{QUEUED}", user="alice")
    return cluster


def releases(cluster: Cluster) -> set[str]:
    """The releases that nodes run."""
    said = cluster.inside("controller", "scontrol --oneliner show node")
    return set(re.findall(r" Version=(\d+\.\d+)", said))


def jobs(cluster: Cluster) -> list[str]:
    """Number, state and restarts of every job in the queue."""
    form = "--Format=JobID,ArrayTaskID,StateCompact,RestartCnt"
    return sorted(cluster.inside("controller", f"squeue --noheader --array {form}").splitlines())


def to(cluster: Cluster, release: str) -> None:
    cluster.edit(lambda c: c["slurm"].update(version=release))


def test_a_state_that_slurmctld_refuses_is_put_back_and_the_old_release_goes_on(aged: Cluster):
    before = jobs(aged)
    # Without it slurmctld of NEW does not start, and OLD does.
    aged.inside("controller", "systemctl stop slurmctld; rm -f " + USAGE)
    to(aged, NEW)
    preview = aged.preview()
    (change,) = preview["effects"]["fields"]
    assert change["reason"].startswith(f"Slurm goes from {OLD} to {NEW}, which Slurm allows, in three steps")
    machines = [step for step in preview["steps"] if step["type"].endswith(":Machine")]
    assert [step["name"] for step in machines if step["op"] != "same"] == ["aged-controller"]
    failed = aged.hpc("up", check=False)
    assert failed.returncode == 1
    said = failed.stdout + failed.stderr
    for words in (
        "converted the accounting database",
        f"are again as Slurm {OLD} left them",
        f"runs Slurm {OLD} again",
    ):
        assert words in said
    assert jobs(aged) == before
    assert releases(aged) == {OLD}
    assert "RUNNING" in aged.inside("controller", "sacct --allusers --noheader --format=state")


def test_no_job_is_lost_on_the_way(aged: Cluster):
    before = jobs(aged)
    to(aged, NEW)
    with ThreadPoolExecutor() as pool:
        up = pool.submit(aged.hpc, "up")
        try:
            eventually(lambda: up.done() or _waits(aged), what="the wait for a node's jobs")
            assert not up.done(), up.exception()
            assert jobs(aged) == before, "slurmctld took over what ran and waited"
            assert aged.inside("controller", "ls /run/hpc/leave").split() == ["aged-cpu-0", "aged-cpu-1"]
            assert releases(aged) == {OLD}
        finally:
            aged.inside("cpu-0", f"touch {GO}")
        printed = up.result().stdout
    assert [printed.index(f"step {number} of 3: ") for number in (1, 2, 3)]
    assert "waits for its turn" in printed
    assert releases(aged) == {NEW}
    eventually(lambda: jobs(aged) == [], what="the queue's end")
    fields = "sacct --allusers --allocations --noheader --parsable2 --format=state,restarts,jobname"
    eventually(lambda: _ended(aged, fields), what="every job's record")
    assert "CgroupJobIdPaths" in aged.inside("controller", "cat /etc/slurm/cgroup.conf")
    assert {*aged.outputs()["releases"].values()} == {NEW}
    assert "Nothing to do" in aged.up()


def test_another_image_takes_the_same_steps_and_goes_on_after_a_kill(aged: Cluster):
    """The preview says what happens. Both nodes are busy, and the one whose job may end first is drained; but the other
    one's job ends before, and its node passes. The job of the node that comes last runs on until then."""
    job = aged.job(WAITS.replace(GO, LAST), "--nodelist=aged-cpu-0", "--time=60", user="alice")
    aged.job(WAITS.replace(GO, FIRST), "--nodelist=aged-cpu-1", "--time=120", user="alice")
    old = _keys(aged)
    aged.edit(lambda c: c["image"].update(presents_as="ubuntu-2204"))
    preview = aged.preview()
    (change,) = preview["effects"]["fields"]
    assert "in three steps: the controller first" in change["reason"]
    machines = [step for step in preview["steps"] if step["type"].endswith(":Machine")]
    assert [step["name"] for step in machines if step["op"] != "same"] == ["aged-controller"]
    with TemporaryFile("w+") as said:
        up = aged.start("up", "aged", "--config-file", str(aged.file), out=said.fileno())
        try:
            eventually(lambda: up.poll() is not None or "DRAIN" in _node(aged, "aged-cpu-0"), what="a busy node's turn")
            waits = "aged-cpu-1 waits for its turn: aged-cpu-0 waits for its jobs"
            eventually(lambda: up.poll() is not None or waits in _said(said), what="the wait of the other")
            aged.inside("cpu-0", f"touch {FIRST}")
            eventually(
                lambda: up.poll() is not None or _keys(aged)["aged-cpu-1"] != old["aged-cpu-1"], what="the idle node"
            )
            assert up.poll() is None, _said(said)
            eventually(lambda: _takes_jobs(aged, "aged-cpu-1"), what="its return, while the other is busy")
        finally:
            up.kill()
            up.wait()
    assert aged.state(job) == "RUNNING"
    with ThreadPoolExecutor() as pool:
        later = pool.submit(aged.hpc, "up")
        eventually(lambda: later.done() or "DRAIN" in _node(aged, "aged-cpu-0"), what="the busy node's turn")
        assert aged.state(job) == "RUNNING"
        aged.inside("cpu-1", f"touch {LAST}")
        later.result()
    for name in aged.outputs()["machines"]:
        assert "Ubuntu" in aged.inside(name.removeprefix("aged-"), "cat /etc/os-release")
    assert "|0|" in aged.inside("controller", f"sacct -n -P -X -j {job} --format=state,restarts,jobname")
    assert "Nothing to do" in aged.up()


def _said(file: IO[str]) -> str:
    """What a process has printed so far; it goes on writing at the end."""
    return os.pread(file.fileno(), 1 << 20, 0).decode(errors="replace")


def _keys(cluster: Cluster) -> dict[str, str]:
    """What each node has reported, by its name: the host key of its machine."""
    said = cluster.inside("login-0", "cd /opt/apps/adm/hpc/nodes; grep -H . aged-cpu-*.json")
    return {row.partition(".json:")[0]: json.loads(row.partition(":")[2])["host_key"] for row in said.splitlines()}


def _node(cluster: Cluster, name: str) -> str:
    return cluster.inside("controller", f"scontrol --oneliner show node {name}", check=False)


def _takes_jobs(cluster: Cluster, name: str) -> bool:
    """Whether the node is in service again."""
    return " State=IDLE " in _node(cluster, name)


def _waits(cluster: Cluster) -> bool:
    """Whether one of both nodes is drained by a controller of the new release, as commands of the old one print it."""
    said = cluster.inside("login-0", "scontrol show config; sinfo --noheader --Node --format=%E", check=False)
    return f"= {NEW}." in said and said.count("hpc: its machine is recreated") == 1


def _ended(cluster: Cluster, command: str) -> bool:
    rows = [row for row in cluster.inside("controller", command).splitlines() if row.endswith("|wrap")]
    return rows == ["COMPLETED|0|wrap"] * (2 + QUEUED)
