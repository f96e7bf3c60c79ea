"""What breaks on a living cluster is named by `status`, costs no job that Slurm could keep, and is mended as told."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import pytest

from tests.e2e import faults
from tests.e2e.cluster import Cluster, eventually
from tests.e2e.faults import GO, becomes, job, recorded, starts, states, submit

pytestmark = pytest.mark.e2e

SLURMD = {"slurmd": 15, "message": 10}  # seconds: a node that is silent for fifteen is down
BOARD = "/opt/apps/adm/hpc/etc/slurm.conf"


@pytest.fixture(scope="module")
def frail(bring_up: Callable[..., Cluster]) -> Cluster:
    """A controller where people log in, and three nodes, that miss each other soon."""
    return bring_up(
        "frail",
        login={"on": "controller"},
        nodesets={"cpu": {"count": 3}},
        slurm={"timers": SLURMD},
    )


@pytest.fixture
def healed(frail: Cluster) -> Iterator[None]:
    """Whatever a test broke: it leaves a cluster without jobs, where every node waits for work."""
    yield
    _is_idle(frail)


@pytest.fixture(scope="class")
def well(frail: Cluster) -> Iterator[None]:
    """After all tests of a class `status` has no finding: each costs a second of a processor."""
    yield
    _is_well(frail)


def _is_idle(frail: Cluster) -> None:
    frail.inside(
        "controller", f"squeue --noheader --format=%A | xargs --no-run-if-empty scancel; rm -f {faults.KILLED}"
    )
    eventually(lambda: faults.all_idle(frail), what="every node's return")


def _is_well(frail: Cluster) -> None:
    _is_idle(frail)
    eventually(lambda: faults.findings(frail) == {}, what="a status without findings")


@pytest.mark.usefixtures("well", "healed")
class TestDaemons:
    def test_jobs_outlive_the_controllers_machine(self, frail: Cluster):
        jobs = [submit(frail), submit(frail, "--nodes=2", script=f'srun sh -c "{faults.WAITS}"')]
        starts(frail, *jobs)
        frail.cut_power("controller")
        assert "does not answer SSH" in faults.findings(frail)["machine-unreachable"]["controller"]
        frail.up()
        for number in jobs:
            assert (job(frail, number), job(frail, number, "Restarts")) == ("RUNNING", "0")
        frail.inside("controller", f"touch {GO}")
        eventually(lambda: recorded(frail, jobs) == ["COMPLETED"] * 2, what="both jobs' end")

    def test_a_crashed_controller_comes_back_by_itself_and_status_says_what_may_be_missing(self, frail: Cluster):
        frail.inside("controller", f"rm -f {GO}")
        running = submit(frail, "-w frail-cpu-0")
        starts(frail, running)
        faults.crash(frail, "controller")
        eventually(lambda: faults.answers(frail), what="an answer to sbatch")
        assert (job(frail, running), job(frail, running, "Restarts")) == ("RUNNING", "0")
        shown: dict[str, dict[str, str]] = {}
        eventually(lambda: shown.update(faults.findings(frail)) or "slurmctld-killed" in shown, what="the finding")
        assert "acknowledged in the last seconds" in shown["slurmctld-killed"]["controller"]
        frail.inside("controller", f"touch {GO}")
        eventually(lambda: recorded(frail, [running]) == ["COMPLETED"], what="the job's end")

    def test_static_nodes_are_repaired(self, frail: Cluster):
        before = frail.copy()
        frail.edit(lambda c: c["slurm"].update(reconcile={"static": True}))
        frail.up()
        self.rebooted_for_a_lost_gpu(frail, "cpu-2")
        frail.revert(before)
        frail.up()

    def rebooted_for_a_lost_gpu(self, frail: Cluster, node: str) -> None:
        """As a health check leaves a node that finds one, which these machines do not have; the loop reboots it."""
        name = f"{frail.name}-{node}"
        record = {"node": name, "time": time.time(), "passes": 0, "repair": ["gpu-lost"], "checks": {}}
        where = f"/opt/apps/adm/hpc/health/{name}.json"

        def boot() -> str:
            with suppress(RuntimeError):  # it is off just then
                return frail.inside(node, "systemctl show --property=UserspaceTimestampMonotonic --value", check=False)
            return ""

        first = boot()
        reason = "hpc-health: gpu-lost: GPU 0 is lost"
        frail.inside("controller", f"mkdir -p $(dirname {where}); echo '{json.dumps(record)}' >{where}")
        frail.inside("controller", f"scontrol update NodeName={name} State=DRAIN Reason='{reason}'")
        journal = f"cat {faults.JOURNAL} 2>/dev/null; true"
        eventually(lambda: '"sick-reboot"' in frail.inside("controller", journal), what="the reboot")
        eventually(lambda: boot() not in ("", first), what="the machine")
        frail.inside("controller", f"rm {where}")
        eventually(lambda: states(frail)[node] == "drain", what="the node's return")
        frail.command("nodes", "resume", node)

    def test_killed_daemons_come_back_by_themselves_and_cost_no_job(self, frail: Cluster):
        frail.inside("controller", f"rm -f {GO} /tmp/*.said")
        batch = submit(frail, "-w frail-cpu-1")
        running, waiting = f"-w frail-cpu-0 sh -c '{faults.WAITS}; echo went on'", "-N3 --exclusive echo came"
        listed = "squeue --noheader --format=%T"
        for name, what, before in (("running", running, []), ("waiting", waiting, ["PENDING"])):
            # Quiet: without a word about a node that is not free yet. Errors are printed all the same.
            start = f'nohup sh -c "srun --quiet {what}; echo code \\$?" > /tmp/{name}.said 2>&1 </dev/null &'
            frail.inside("controller", f"cd /tmp; {start}")
            # One after the other: what waits for all nodes would keep the other one waiting.
            begun = [*before, "RUNNING", "RUNNING"]
            eventually(lambda b=begun: sorted(frail.inside("controller", listed).split()) == b, what=f"{name} job")
        starts(frail, batch)
        kill = "systemctl kill --kill-whom=main --signal=KILL"
        gone = "while kill -0 $was 2>/dev/null; do sleep 0.1; done"
        frail.inside("controller", f"was=$(pidof slurmctld); {kill} slurmctld slurmdbd mariadb munge; {gone}")
        for node in ("cpu-0", "cpu-1"):
            frail.inside(node, f"{kill} slurmd munge; umount --lazy /opt/apps")
        for machine, units in {
            "controller": "slurmctld slurmdbd mariadb munge",
            "cpu-0": "slurmd munge",
            "cpu-1": "slurmd munge",
        }.items():
            active = f"systemctl is-active {units}; true"
            eventually(lambda m=machine, a=active: {*frail.inside(m, a).split()} == {"active"}, what=units)
        eventually(
            lambda: frail.inside("cpu-0", "mountpoint -q /opt/apps && echo yes; true") == "yes", what="/opt/apps"
        )
        frail.inside("controller", f"touch {GO}")
        for name in ("running", "waiting"):
            ended = f"cat /tmp/{name}.said"
            eventually(lambda said=ended: "code" in frail.inside("controller", said), what=f"the end of {name}")
        assert frail.inside("controller", "cat /tmp/running.said").splitlines() == ["went on", "code 0"]
        said = frail.inside("controller", "cat /tmp/waiting.said").splitlines()
        assert (said.count("came"), said[-1]) == (3, "code 0")
        eventually(lambda: recorded(frail, [batch]) == ["COMPLETED"], what="the job's record")

    @pytest.mark.parametrize("daemon", ["slurmdbd", "mariadb"])
    def test_no_job_is_lost_while_there_is_no_accounting(self, frail: Cluster, daemon: str):
        frail.inside("controller", f"systemctl stop {daemon}")
        try:
            good = [submit(frail, script="true") for _ in range(2)]
            bad = submit(frail, script="exit 3")
            becomes(frail, bad, "FAILED")
            eventually(lambda: set(faults.findings(frail)) == {f"{daemon}-down"}, what="the one finding")
            # What it has not handed over is part of what slurmctld writes down when it is stopped.
            frail.inside("controller", "systemctl restart slurmctld")
        finally:
            frail.inside("controller", f"systemctl start {daemon}")
        wanted = ["COMPLETED", "COMPLETED", "FAILED"]
        eventually(lambda: recorded(frail, [*good, bad]) == wanted, what="all three jobs' records")


# Every process starts others until it is refused; then it only stays, as what is tried is the limit and not the host's
# cores. Were nothing to refuse it, it would end by itself: at 4,000 processes, and after two minutes.
BOMB = """
import mmap, os, struct, time
end, count, refused = time.time() + 120, mmap.mmap(-1, 8), False
while time.time() < end and not os.path.exists('/home/alice/stop'):
    (now,) = struct.unpack('q', count[:8])
    try:
        if not refused and now < 4000 and os.fork() == 0:
            count[:8] = struct.pack('q', struct.unpack('q', count[:8])[0] + 1)
    except OSError:
        refused = True
        open('/home/alice/refused', 'w').close()
    time.sleep(1 if refused else 0.2)
"""


@pytest.mark.usefixtures("healed")
def test_a_fork_bomb_takes_its_node_and_nothing_else(frail: Cluster):
    frail.inside(
        "controller", f"rm -f /home/alice/refused /home/alice/stop; cat >/home/alice/bomb.py <<'END'\n{BOMB}END"
    )
    words = "--parsable --chdir=/tmp --output=/dev/null --no-requeue -w frail-cpu-0"
    number = frail.run("sbatch", *words.split(), "--wrap", "python3 /home/alice/bomb.py", user="alice")
    refused = "ls /home/alice/refused 2>/dev/null; true"
    try:
        eventually(lambda: frail.inside("controller", refused) != "", what="the end of what a machine may run")
        _others_answer(frail)
    finally:
        frail.inside("controller", f"touch /home/alice/stop; scancel {number}")


def _others_answer(frail: Cluster) -> None:
    assert frail.run("srun", "-w", "frail-cpu-1", "hostname", user="alice") == "frail-cpu-1"
    assert "frail-cpu-0" in frail.inside("controller", "sinfo --noheader --Node")
    assert "machine-unreachable" not in faults.findings(frail)


@dataclass
class Struck:
    """What was seen of three nodes, each of which was struck by something else."""

    gone: str
    """A job on the node that lost its power."""
    lost: str
    """One on the node that was cut off, which may not be run again."""
    ends: tuple[str, str]
    """What became of the two."""
    down: dict[str, dict[str, str]]
    """What status said when slurmctld had noticed."""
    booted: dict[str, dict[str, str]]
    """What it said when the machines had been started again, with a new slurm.conf at the controller."""
    unmounted: str
    """Whether slurmd ran on a node without its file systems."""


@pytest.fixture(scope="class")
def struck(frail: Cluster) -> Iterator[Struck]:
    """cpu-0 loses its power, cpu-1 its controller and so a change of slurm.conf, cpu-2 power and file systems."""
    gone, lost = submit(frail, "-w frail-cpu-0"), submit(frail, "-w frail-cpu-1", "--no-requeue")
    starts(frail, gone, lost)
    faults.hide_mounts(frail, "cpu-2", hide=True)
    frail.cut_power("cpu-0")
    frail.cut_power("cpu-2")
    faults.cut(frail, "cpu-1")
    try:
        eventually(lambda: set(states(frail).values()) == {"down*"}, what="every node's being down")
        becomes(frail, lost, "NODE_FAIL")
        becomes(frail, gone, "PENDING")
        ends, down = (job(frail, gone), job(frail, lost)), faults.findings(frail)
        frail.edit(lambda c: c["partitions"]["cpu"].update(max_time="02:00:00"))
        with ThreadPoolExecutor() as pool:
            up = pool.submit(frail.up)
            try:
                changed = f"grep -c MaxTime=02:00:00 {BOARD}; true"
                eventually(lambda: frail.inside("controller", changed) == "1", what="the new slurm.conf")
                booted: dict[str, dict[str, str]] = {}

                def named() -> bool:
                    booted.update(faults.findings(frail))
                    return "cpu-2" in booted["mount-missing"] and "cpu-1" in booted["old-config"]

                eventually(named, what="the findings")
                unmounted = frail.inside("cpu-2", "systemctl is-active slurmd; true")
            finally:
                faults.mend(frail, "cpu-1")
                faults.hide_mounts(frail, "cpu-2", hide=False)
            up.result()
    finally:
        faults.mend(frail, "cpu-1")
    yield Struck(gone, lost, ends, down, booted, unmounted)
    _is_well(frail)


class TestMachines:
    def test_a_dead_machine_is_distinguished_from_one_that_is_cut_off(self, struck: Struck):
        for node in ("cpu-0", "cpu-2"):
            assert "does not answer SSH" in struck.down["node-down"][node]
        assert "cpu-1" not in struck.down["node-down"]
        assert "cannot reach the controller" in struck.down["network-cut"]["cpu-1"]

    def test_their_jobs_wait_again_or_end_as_they_were_submitted(self, struck: Struck):
        assert struck.ends == ("PENDING", "NODE_FAIL")

    def test_a_missing_mount_is_named_and_keeps_jobs_away_until_it_is_there(self, struck: Struck):
        assert "/opt/apps is not mounted" in struck.booted["mount-missing"]["cpu-2"]
        assert struck.unmounted == "inactive"

    def test_a_missed_change_is_named_and_made_good(self, frail: Cluster, struck: Struck):
        assert "slurm.conf differs" in struck.booted["old-config"]["cpu-1"]
        same = f"cmp {BOARD} /run/slurm/conf/slurm.conf && echo same; true"
        for node in faults.NODES:
            eventually(lambda n=node: frail.inside(n, same) == "same", what=f"{node}'s new slurm.conf")

    def test_all_take_jobs_again_without_a_hand(self, frail: Cluster, struck: Struck):
        eventually(lambda: faults.all_idle(frail), what="nodes that no ghost of a job holds")
        assert faults.ask_for(frail) == list(faults.NODES)
        faults.elsewhere(frail, struck.gone, "cpu-2")
        becomes(frail, struck.gone, "RUNNING")
        assert job(frail, struck.gone, "Restarts") == "1"


@dataclass
class Ailing:
    """What was seen of three nodes whose machines run, while something on each was wrong."""

    found: dict[str, dict[str, str]]
    """What status said."""
    job: str
    """A job that was sent to the full disk."""
    waited: str
    """What had become of it."""
    refused: str
    """How often slurmd said why it believed nobody."""


@pytest.fixture(scope="class")
def ailing(frail: Cluster) -> Iterator[Ailing]:
    """cpu-0 has a wrong clock, cpu-1 another MUNGE key, and the disk below slurmd's spool on cpu-2 is full."""
    with faults.full_spool(frail, "cpu-2") as filler, faults.wrong_clock(frail, "cpu-0", "-15m"):
        frail.inside("cpu-1", "head -c 128 /dev/urandom > /etc/munge/munge.key; systemctl restart munge")
        number = submit(frail, "-w frail-cpu-2", script="true")
        wanted = {"cpu-0": "down*", "cpu-1": "down*", "cpu-2": "drain"}
        eventually(lambda: states(frail) == wanted, what="the loss of all three nodes")
        found: dict[str, dict[str, str]] = {}

        def named() -> bool:
            found.clear()
            found.update(faults.findings(frail))
            return found.keys() >= {"clock-skew", "munge-key", "disk-full", "node-drained"}

        eventually(named, what="the findings")
        waited = job(frail, number)
        refused = frail.inside("cpu-0", "grep -c 'Rewound credential' /var/log/slurm/slurmd.log; true")
        # What status advises; the key that the stack gave the machine is still there.
        frail.inside("cpu-1", "systemctl restart hpc-node")
        frail.inside("cpu-2", f"rm {filler}")
        frail.command("nodes", "resume", "cpu-2")
    yield Ailing(found, number, waited, refused)
    _is_well(frail)


class TestNodes:
    def test_a_wrong_clock_is_named(self, ailing: Ailing):
        assert "behind the controller's. Every credential between the two" in ailing.found["clock-skew"]["cpu-0"]
        assert int(ailing.refused) > 0

    def test_another_key_is_named(self, ailing: Ailing):
        assert "another MUNGE key" in ailing.found["munge-key"]["cpu-1"]

    def test_a_full_disk_is_named_drains_its_node_and_lets_the_job_wait(self, ailing: Ailing):
        assert "/var/spool/slurmd is full" in ailing.found["disk-full"]["cpu-2"]
        assert "SlurmdSpoolDir is full" in ailing.found["node-drained"]["cpu-2"]
        assert ailing.waited == "PENDING"

    def test_nothing_else_is_named(self, ailing: Ailing):
        assert set(ailing.found) == {"clock-skew", "munge-key", "disk-full", "node-drained"}

    def test_all_take_jobs_again(self, frail: Cluster, ailing: Ailing):
        eventually(lambda: faults.all_idle(frail), what="all nodes' return")
        assert faults.ask_for(frail) == list(faults.NODES)
        faults.elsewhere(frail, ailing.job, "cpu-0")
        becomes(frail, ailing.job, "COMPLETED")
