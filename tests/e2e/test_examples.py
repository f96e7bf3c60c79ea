"""What users run: the examples of job scripts and the user guide, on a real cluster."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.e2e import transcripts
from tests.e2e.cluster import Cluster, eventually
from tests.waiting import wait_for

pytestmark = pytest.mark.e2e

EXAMPLES = "/opt/apps/hpc/examples"
EVERY = 20
"""Steps from one checkpoint to the next."""
# PyTorch of Debian is built without libuv, and torchrun does not ask USE_LIBUV for its own stores.
WITHOUT_LIBUV = """\
import functools, sys
import torch.distributed as dist
dist.TCPStore = sys.modules["torch.distributed.rendezvous"].TCPStore = functools.partial(dist.TCPStore, use_libuv=False)
"""
SUBMIT = f"""
mkdir -p ~/jobs ~/without-libuv && cd ~/jobs && cat >~/without-libuv/sitecustomize.py <<'END'
{WITHOUT_LIBUV}END
STEPS=200 EVERY={EVERY} PAUSE=0.1 sbatch --parsable {EXAMPLES}/requeue.sh
PYTHONPATH=$HOME/without-libuv sbatch --parsable {EXAMPLES}/torchrun.sh
cat >ranks.py <<'END'
import os
print("rank", *(os.environ[name] for name in ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "MASTER_ADDR")))
END
PROGRAM=$PWD/ranks.py sbatch --parsable {EXAMPLES}/full-node.sh
sbatch --parsable {EXAMPLES}/single-gpu.sh
cat >wait.py <<'END'
import time
print("waiting", flush=True)
time.sleep(6000)
END
cat >fail.py <<'END'
import sys
from pathlib import Path
folder = Path(sys.argv[sys.argv.index("--checkpoints") + 1])
folder.mkdir(exist_ok=True)
(folder / "checkpoint.pt").touch()
sys.exit(1)
END
PROGRAM=$PWD/wait.py sbatch --parsable --nodes=1 {EXAMPLES}/requeue.sh
PROGRAM=$PWD/fail.py sbatch --parsable --nodes=1 {EXAMPLES}/requeue.sh
PROGRAM=$PWD/none.py sbatch --parsable --nodes=1 {EXAMPLES}/requeue.sh
"""


@dataclass
class Submitted:
    """Ids of jobs that run side by side."""

    requeue: str
    torchrun: str
    full_node: str
    single_gpu: str
    waits: str
    fails: str
    never_begins: str


@pytest.fixture(scope="module")
def alice(lab: Cluster) -> Iterator[transcripts.Shell]:
    """A shell that asks about jobs: a command of ./hpc each time would cost more than the jobs."""
    shell = transcripts.Shell(lab, "alice")
    yield shell
    shell.close()


@pytest.fixture(scope="module")
def submitted(lab: Cluster, alice: transcripts.Shell) -> Submitted:
    lab.command("examples")
    return Submitted(*alice.ask(SUBMIT).split())


@pytest.fixture(scope="module")
def alive(lab: Cluster) -> Iterator[None]:
    """Nodes that a test switched off are there again for the others."""
    yield
    lab.up()


def state(alice: transcripts.Shell, job: str) -> str:
    """A job's state: PENDING, RUNNING; empty when it has left the queue."""
    said = alice.ask(f"squeue --noheader --format=%T --jobs={job} 2>&1").strip()
    return "" if "Invalid job id" in said else said


def output(alice: transcripts.Shell, name: str, job: str) -> str:
    """What a job has printed so far."""
    return alice.ask(f"cat ~/jobs/{name}-{job}.out 2>/dev/null")


def ended(alice: transcripts.Shell, name: str, job: str) -> str:
    """What a job printed, once it has ended."""
    eventually(lambda: not state(alice, job), what=f"the end of {name}")
    return output(alice, name, job)


def losses(printed: str) -> dict[int, float]:
    """Loss by step."""
    return {
        int(step): float(loss) for step, loss in re.findall(r"^step ([0-9]+) loss ([0-9.]+)$", printed, re.MULTILINE)
    }


def checkpoints(printed: str) -> list[int]:
    return [int(step) for step in re.findall(r"^checkpoint at step ([0-9]+)$", printed, re.MULTILINE)]


def starts(printed: str) -> list[tuple[int, str]]:
    """Of each run the step that it starts at, and its nodes."""
    return [
        (int(step), nodes)
        for step, nodes in re.findall(r"^start at step ([0-9]+) of .* on (.*), gloo$", printed, re.MULTILINE)
    ]


@pytest.mark.usefixtures("alive")
def test_training_goes_on_from_its_checkpoint_when_a_node_is_lost(
    lab: Cluster, alice: transcripts.Shell, submitted: Submitted, update_golden: bool
):
    job = submitted.requeue
    # Often: the job ends a few seconds later.
    wait_for(lambda: len(checkpoints(output(alice, "requeue", job))) >= 2, "the second checkpoint", pace=0.3)
    (_, nodes) = starts(output(alice, "requeue", job))[0]
    lost = nodes.split()[1]
    lab.cut_power(lost.removeprefix("lab-"))
    # What an operator does who does not wait for SlurmdTimeout.
    lab.run("scontrol", "update", f"nodename={lost}", "state=down", "reason=power", user="root")
    eventually(lambda: state(alice, job) == "PENDING", what="the job back in the queue")
    first = output(alice, "requeue", job)
    alice.ask(f"scontrol update jobid={job} starttime=now")
    printed = ended(alice, "requeue", job)

    second = printed.removeprefix(first)
    before, after = losses(first), losses(second[second.index("start at step") :])
    ((zero, _), (resumed, others)) = starts(printed)
    assert zero == 0
    assert resumed == checkpoints(first)[-1] >= 2 * EVERY
    assert lost not in others.split()
    assert min(after) == resumed + 1
    assert max(after) == 200
    # Steps that the first run had done since its checkpoint are done again, and come out the same.
    again = {step: after[step] for step in before if step > resumed}
    assert all(abs(before[step] - loss) < 1e-4 for step, loss in again.items()), (before, again)
    # The loss goes on where it was: near what it was at the checkpoint, and far from where it began.
    near = sum(before[step] for step in range(resumed - 4, resumed + 1)) / 5
    assert abs(after[resumed + 1] - near) < 0.3 * before[1]
    assert after[200] < before[1] / 2
    assert printed.endswith("checkpoint at step 200\ndone: 200 steps\n")
    told = "".join(f"{line}\n" for line in printed.splitlines() if re.match(r"(run [0-9]|start at step|done:)", line))
    if update_golden:
        transcripts.replace("requeue", [told])
    (written,) = transcripts.blocks("requeue")
    assert transcripts.alike(told) == transcripts.alike(written), "pytest --update-golden writes the page"


def test_a_job_puts_itself_back_near_its_time_limit_and_after_a_failure(alice: transcripts.Shell, submitted: Submitted):
    eventually(lambda: "waiting" in output(alice, "requeue", submitted.waits), what="the program")
    alice.ask(f"scancel --batch --signal=USR1 {submitted.waits}")  # as Slurm does two minutes before the limit
    for job, why in ((submitted.waits, "the time limit is near"), (submitted.fails, "the program failed")):
        eventually(lambda job=job: state(alice, job) == "PENDING", what=f"{why}: the job in the queue")
        assert f"{why}: back into the queue" in output(alice, "requeue", job)
    names = f"scontrol show hostnames $(squeue --noheader --jobs={submitted.fails} --format=%x)"
    (_, node) = output(alice, "requeue", submitted.fails).splitlines()[0].rsplit(" ", 1)
    what = "the node that failed excluded from the next run"
    eventually(lambda: node in alice.ask(names).split(), what=what)
    alice.ask(f"scancel {submitted.waits} {submitted.fails}")
    # Without a checkpoint another run would end as this one.
    assert "back into the queue" not in ended(alice, "requeue", submitted.never_begins)


def test_torchrun_trains_on_two_nodes(alice: transcripts.Shell, submitted: Submitted):
    printed = ended(alice, "torchrun", submitted.torchrun)
    assert "2 processes on " in printed
    assert "\ndone: 200 steps\n" in printed
    found = losses(printed)
    assert found[200] < found[1] / 2


def test_a_full_node_has_a_process_for_each_gpu(alice: transcripts.Shell, submitted: Submitted):
    """Of a program that prints what PyTorch reads at its start; the guide's job on two nodes and requeue.sh train."""
    printed = ended(alice, "full-node", submitted.full_node)
    assert sorted(printed.splitlines()) == [f"rank {rank} 2 {rank} lab-gpu-0" for rank in (0, 1)]


def test_one_gpu_is_one_of_the_nodes(alice: transcripts.Shell, submitted: Submitted):
    assert ended(alice, "single-gpu", submitted.single_gpu).startswith("GPU 0 of lab-gpu-0")


def test_the_user_guide_shows_what_a_cluster_prints(lab: Cluster, update_golden: bool):
    """PyTorch on two nodes, MPI by PMIx, an array and others are run by it."""
    found = list(transcripts.played(lab, "alice", update=update_golden))
    if update_golden:
        rest = iter([here for _, here in found])
        texts = [
            transcripts.text([next(rest) for _ in transcripts.entries(block)]) for block in transcripts.blocks("alice")
        ]
        transcripts.replace("alice", texts)
    for there, here in found if not update_golden else ():
        assert transcripts.alike(here.printed) == transcripts.alike(there.printed), (
            f"docs/guides/user-guide.md: `{here.command}` prints something else; --update-golden writes it"
        )
    printed = {here.command: here.printed for _, here in found}
    (pi,) = (text for command, text in printed.items() if command.startswith("cat mpi-"))
    assert "pi is 3.14159265" in pi
    (trained,) = (text for command, text in printed.items() if "pytorch-" in command)
    assert "2 processes on lab-cpu-" in trained
    assert "done: 200 steps" in trained


def test_again_there_is_nothing_to_change_and_scripts_of_an_earlier_version_go(lab: Cluster, submitted: Submitted):
    assert submitted
    assert "nothing to change" in lab.command("examples")
    lab.inside("controller", f"cd {EXAMPLES}; echo old >old.sh; echo mine >mine.sh; sha256sum old.sh >>.written")
    assert "1 removed" in lab.command("examples")
    there = lab.run("ls", EXAMPLES).split()
    assert "old.sh" not in there
    assert "mine.sh" in there
    assert lab.run("sh", "-c", f"touch {EXAMPLES}/x 2>&1 || true", user="alice").endswith("Permission denied")
