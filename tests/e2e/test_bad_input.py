"""What is wrong around a cluster, for real: said in words that end with what to do, and nothing is lost by it."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import PATIENCE, ROOT, Cluster, eventually

pytestmark = pytest.mark.e2e

SMALL = {"login": {"on": "controller"}, "nodesets": {"cpu": {"count": 1}}}


@pytest.fixture(scope="module")
def well(bring_up: Callable[..., Cluster]) -> Cluster:
    """A small cluster that is to stay well, whatever is tried."""
    return bring_up("well", **SMALL)


@pytest.fixture
def refused(clusters: Callable[..., Cluster], nothing_left: Callable[[str], list[str]]) -> Iterator[Cluster]:
    """A cluster whose `up` is refused; removed at the end all the same."""
    cluster = clusters("refused", **SMALL)
    yield cluster
    assert cluster.hpc("destroy").returncode == 0
    assert nothing_left("refused") == []


def test_ctrl_c_ends_with_130_and_words_and_the_next_up_completes(well: Cluster):
    well.edit(lambda c: c["nodesets"]["cpu"].update(count=2))
    with well.start("up", well.name, "--config-file", str(well.file)) as running:
        machine = well.root / "stacks" / well.name / "machines" / f"{well.name}-cpu-1"
        eventually(machine.exists, what="the second node's making")
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
    well.inside("controller", "systemctl stop ssh.service ssh.socket 2>/dev/null; true")
    well.edit(lambda c: c["partitions"]["cpu"].update(max_time="02:00:00"))
    failed = well.hpc("up", check=False, timeout=PATIENCE)
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


def test_destroy_leaves_nothing(well: Cluster, nothing_left: Callable[[str], list[str]]):
    assert nothing_left("well")
    well.hpc("destroy")
    assert nothing_left("well") == []
    assert well.hpc("destroy").returncode == 0
