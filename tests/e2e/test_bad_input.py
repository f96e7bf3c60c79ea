"""What is wrong around a cluster, for real: said in words that end with what to do, and nothing is lost by it."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from components.local.host import network
from tests.e2e.cluster import ROOT, Cluster, eventually

pytestmark = pytest.mark.e2e

SMALL = {
    "login": {"on": "controller"},
    "nodesets": {"cpu": {"count": 1}},
    "partitions": {"cpu": {"nodesets": ["cpu"], "default": True}},
    "users": [{"name": "alice", "uid": 2001}],
}


@pytest.fixture(scope="module")
def well(clusters):
    """A small cluster that is to stay well, whatever is tried."""
    cluster = clusters("well", **SMALL)
    cluster.up()
    yield cluster
    cluster.hpc("destroy", check=False)


@pytest.fixture
def refused(clusters):
    """A cluster whose `up` is refused; removed at the end all the same."""
    cluster = clusters("refused", **SMALL)
    yield cluster
    assert cluster.hpc("destroy").returncode == 0
    assert not [line for line in network.leftovers(cluster.root) if "refused" in line]


def test_ctrl_c_ends_with_130_and_words_and_the_next_up_completes(well: Cluster):
    well.edit(lambda c: c["nodesets"]["cpu"].update(count=2))
    with subprocess.Popen(
        [str(ROOT / "hpc"), "up", well.name, "--config-file", str(well.file)],
        env=well.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as running:  # fmt: skip
        machine = well.root / "stacks" / well.name / "machines" / f"{well.name}-cpu-1"
        eventually(machine.exists, seconds=60, what="the second node's making")
        os.kill(running.pid, signal.SIGINT)
        said, _ = running.communicate(timeout=300)
    assert running.returncode == 130, said
    assert "Stopping: what has begun is finished, nothing new is begun." in said
    assert f"What was done is kept: ./hpc up {well.name} goes on from here." in said
    assert "Traceback" not in said
    well.up()
    assert len(well.run("srun", "-N2", "hostname").splitlines()) == 2
    assert "Nothing to do" in well.up()


def test_a_machine_that_does_not_answer_is_given_up_with_its_console_and_comes_back(well: Cluster):
    well.ssh("controller", "systemctl stop ssh.service ssh.socket 2>/dev/null; true")
    well.edit(lambda c: c["partitions"]["cpu"].update(max_time="02:00:00"))
    failed = well.hpc("up", check=False, timeout=200)
    said = failed.stdout + failed.stderr
    assert failed.returncode == 1
    assert re.search(r"\b10\.\d+\.\d+\.\d+: no SSH connection after \d+ attempts?: .*Connection refused", said)
    assert f"Machine {well.name}-controller runs, but does not answer SSH; the last lines of its console:" in said
    assert "ssh.service" in said, "the end of the console"
    hint = re.search(r"its disk as it is: kill -KILL (\d+); \./hpc up well", said)
    assert hint, said
    os.kill(int(hint[1]), signal.SIGKILL)
    well.up()
    assert "02:00:00" in well.run("scontrol", "show", "partition", "cpu")
    assert well.run("srun", "hostname")


def test_addresses_that_are_in_use_are_refused_with_their_holder(well: Cluster, refused: Cluster):
    taken = well.config["network"]["cidr"]
    free = refused.copy()
    refused.edit(lambda c: c["network"].update(cidr=taken))
    failed = refused.hpc("up", check=False)
    said = failed.stdout + failed.stderr
    assert failed.returncode == 1
    assert f"network.cidr: {taken} is in use on this host by the local cluster well ({taken}, made by hpc/well)" in said
    assert "choose another private range, e.g. network: {cidr: " in said
    assert well.run("srun", "hostname"), "the other cluster goes on"
    refused.config = free
    refused.edit(lambda _: None)
    assert refused.preview()["ok"]


def test_a_disk_too_small_for_the_image_is_refused_and_left_as_it_was(refused: Cluster, tmp_path: Path):
    # The mount is in a namespace that ends with the command, however that ends.
    script = """
        mount -t tmpfs -o size=64m hpc-test "$1" && shift
        "$@"; echo "exit code $?"; ls -A "$HPC_LOCAL_IMAGES"
    """
    up = [str(ROOT / "hpc"), "up", refused.name, "--config-file", str(refused.file)]
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", str(tmp_path), *up],
        env=refused.env | {"HPC_LOCAL_IMAGES": str(tmp_path)},
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert re.search(
        rf"base image: {tmp_path} has 6\d MB free and making it needs \d+ MB: free some space", done.stdout
    )
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stdout.splitlines()[-2:] == ["exit code 1", ".build.lock"]
