"""Slurm goes to another release under running and queued jobs, and loses none; what can't be converted is put back."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from components.local.host.images import ensure_image
from components.local.host.paths import HostError, images_root
from tests.e2e.cluster import BASE, Cluster, eventually
from tests.e2e.faults import GO

pytestmark = pytest.mark.e2e

OLD, NEW = "24.11", "26.05"
WAITS = f"until [ -e {GO} ]; do sleep 1; done"
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


def _waits(cluster: Cluster) -> bool:
    """Whether one of both nodes is drained by a controller of the new release, as commands of the old one print it."""
    said = cluster.inside("login-0", "scontrol show config; sinfo --noheader --Node --format=%E", check=False)
    return f"= {NEW}." in said and said.count("hpc: its machine is recreated") == 1


def _ended(cluster: Cluster, command: str) -> bool:
    rows = [row for row in cluster.inside("controller", command).splitlines() if row.endswith("|wrap")]
    return rows == ["COMPLETED|0|wrap"] * (2 + QUEUED)
