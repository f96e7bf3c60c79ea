"""Faults as they happen to machines, how each is taken back, and what Slurm says meanwhile."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from components.local.host.machine import bare, running
from components.local.host.process import Process
from tests.e2e.cluster import PATIENCE, Cluster, eventually

NODES = ("cpu-0", "cpu-1", "cpu-2")
GO = "/home/alice/go"
"""Jobs that wait end when this file is there."""
WAITS = f"while [ ! -e {GO} ]; do sleep 1; done"
STATE = "/var/spool/slurmctld/job_state.old"
"""The state before the last one: a power cut may come while slurmctld writes a new one, and it takes this then."""

# Under faketime munged alone reads another clock: a credential's time is the only one that machines ever compare.
_CLOCK = """
mkdir -p /run/systemd/system/munge.service.d
{{ echo '[Service]'; echo "Environment=LD_PRELOAD=$(ls /usr/lib/*/faketime/libfaketimeMT.so.1) FAKETIME={by}"; }} > \
    /run/systemd/system/munge.service.d/clock.conf
systemctl daemon-reload; systemctl restart munge
"""
KILLED = "/var/lib/hpc/controller/slurmctld-killed"
"""When slurmctld was killed, for `status`."""
JOURNAL = "/var/lib/hpc/controller/reconcile/journal.jsonl"
"""What the reconcile loop did."""
_CLOCK_BACK = "rm -f /run/systemd/system/munge.service.d/clock.conf; systemctl daemon-reload; systemctl restart munge"


def crash(cluster: Cluster, machine: str) -> None:
    """Kill a machine's first process, as a kernel that panics does; nobody is asked to start it again."""
    process = running(bare(cluster.root, cluster.name, f"{cluster.name}-{machine}").paths)
    assert process
    first = Process.of(process.children()[0])
    assert first
    assert first.end(signal.SIGKILL, wait=PATIENCE)


def answers(cluster: Cluster) -> bool:
    """Whether a user can submit a job; the controller may not run yet."""
    try:
        return cluster.inside(
            "controller", "cd /tmp; runuser -u alice -- sbatch --test-only --wrap true && echo yes"
        ).endswith("yes")
    except (RuntimeError, IndexError):
        return False


def states(cluster: Cluster) -> dict[str, str]:
    """Every node's state in sinfo's short words: idle, down*, drain."""
    lines = cluster.inside("controller", "sinfo --noheader --Node --format='%N %t'").splitlines()
    return {name.removeprefix(f"{cluster.name}-"): state for name, state in map(str.split, lines)}


def all_idle(cluster: Cluster) -> bool:
    """Whether every node waits for jobs."""
    return states(cluster) == dict.fromkeys(NODES, "idle")


def submit(cluster: Cluster, *options: str, script: str = WAITS) -> str:
    """The number of a new job of a script."""
    words = " ".join(["--parsable", "--chdir=/tmp", "--output=/dev/null", "--time=30", *options])
    return cluster.inside("controller", f"rm -f {GO}; sbatch {words} --wrap '{script}'")


def job(cluster: Cluster, number: str, field: str = "JobState") -> str:
    """A field of what slurmctld knows of a job."""
    said = cluster.inside("controller", f"scontrol --oneliner show job {number}")
    return dict(word.split("=", 1) for word in said.split() if "=" in word)[field]


def becomes(cluster: Cluster, number: str, state: str) -> None:
    """Wait until a job is in a state. Otherwise the error has what slurmctld and the reconcile loop logged."""

    def now() -> str:
        return f"{job(cluster, number)} {job(cluster, number, 'Reason')}"

    try:
        eventually(lambda: now().split()[0] == state, what=f"job {number}'s being {state}")
    except AssertionError as late:
        log = cluster.inside(
            "controller", f"grep -w JobId={number} /var/log/slurm/slurmctld.log; tail -n 40 {JOURNAL}; true"
        )
        raise AssertionError(f"{late}: it is {now()}\n{log}") from None


def starts(cluster: Cluster, *numbers: str) -> None:
    """Wait until jobs run, and until slurmctld has written that down."""
    for number in numbers:
        becomes(cluster, number, "RUNNING")
    saved(cluster, numbers[0])


def saved(cluster: Cluster, number: str) -> None:
    """Wait until slurmctld has written down its jobs: it does within five seconds of a change of one, of this one."""
    stir = f"scontrol update job={number} comment=x"
    cluster.inside("controller", f"touch /tmp/now; until [ {STATE} -nt /tmp/now ]; do {stir}; sleep 0.5; done")


def elsewhere(cluster: Cluster, number: str, node: str) -> None:
    """Have a job that was queued again run at once, on another node: its own would refuse it for two minutes."""
    change = f"job={number} reqnodelist={cluster.name}-{node} starttime=now"
    # Another job makes slurmctld look at its queue, which it does every minute by itself.
    cluster.inside("controller", f"scontrol release {number}; scontrol update {change}; srun --quiet true")


def findings(cluster: Cluster) -> dict[str, dict[str, str]]:
    """What status finds, but for how often daemons had to be started in the last minutes."""
    return {id_: told for id_, told in cluster.findings().items() if id_ != "daemon-restarting"}


def recorded(cluster: Cluster, numbers: list[str]) -> list[str]:
    """What the accounting says of jobs, a state each, in their order; fewer while some are missing."""
    listed = cluster.inside("controller", f"sacct -X -n -P -o jobid,state -j {','.join(numbers)} 2>/dev/null || true")
    found = dict(line.split("|") for line in listed.splitlines())
    return [found[number] for number in numbers if number in found]


def ask_for(cluster: Cluster, nodes: int = 3) -> list[str]:
    """The nodes that a step on so many of them has run on."""
    said = cluster.run("srun", f"-N{nodes}", "hostname").split()
    return sorted(name.removeprefix(f"{cluster.name}-") for name in said)


@contextmanager
def wrong_clock(cluster: Cluster, node: str, by: str) -> Iterator[None]:
    """A node's clock is off, as munged reads it."""
    cluster.inside(node, _CLOCK.format(by=by))
    try:
        yield
    finally:
        cluster.inside(node, _CLOCK_BACK)


@contextmanager
def full_spool(cluster: Cluster, node: str) -> Iterator[str]:
    """The disk below slurmd's spool is full: a small one, mounted there. Gives the file that fills it."""
    spool = "/var/spool/slurmd"
    cluster.inside(node, f"systemctl stop slurmd; mount -t tmpfs -o size=1m spool {spool}; systemctl start slurmd")
    try:
        eventually(lambda: states(cluster)[node] == "idle", what="slurmd on a small disk")
        cluster.inside(node, f"dd if=/dev/zero of={spool}/filler bs=4k 2>/dev/null; true")
        yield f"{spool}/filler"
    finally:
        cluster.inside(node, f"systemctl stop slurmd; umount {spool}; systemctl start slurmd")


def cut(cluster: Cluster, node: str) -> None:
    """Nothing goes from the node to the controller any more, nor an answer; the host still reaches both."""
    cluster.inside(node, f"ip route replace blackhole {_controller(cluster)}/32")


def mend(cluster: Cluster, node: str) -> None:
    """Take a cut back; nothing happens where there is none."""
    cluster.inside(node, f"ip route del blackhole {_controller(cluster)}/32 2>/dev/null; true")


def hide_mounts(cluster: Cluster, node: str, *, hide: bool) -> None:
    """Have the node find no server of its shared file systems at its next boot."""
    there, away = "/usr/sbin/mount.lustre", "/usr/sbin/mount.lustre.away"
    source, target = (there, away) if hide else (away, there)
    cluster.inside(node, f"[ ! -e {source} ] || mv {source} {target}; sync")


def _controller(cluster: Cluster) -> str:
    return cluster.outputs()["machines"][f"{cluster.name}-controller"]["address"]
