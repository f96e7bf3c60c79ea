"""Elastic nodes on real machines: they come with jobs and go when they are idle, and no job is lost to what happens to
clouds, machines and the programs in between."""

import json
import re
import shlex
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from components.local.compute_engine.errors import STOCK_OUT
from components.local.compute_engine.fault_day import FaultClient
from components.local.host.cloud import CloudPaths
from components.local.host.machine import bare, stop
from components.local.host.paths import StackPaths
from components.local.host.process import Process
from tests.e2e.alerts import AS_BEFORE, AT_ONCE, firing
from tests.e2e.cluster import PATIENCE, Cluster, eventually
from tests.e2e.faults import GO, JOURNAL, WAITS, becomes, job, saved, states

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def spare(bring_up: Callable[..., Cluster]) -> Cluster:
    """A controller where people log in, a static node, three elastic ones that go soon, and two of flex start."""
    return bring_up(
        "spare",
        login={"on": "controller"},
        nodesets={
            "cpu": {"count": {"min": 1, "max": 4}, "idle": "20s"},
            "late": {"count": {"min": 0, "max": 2}, "idle": "20s", "capacity": {"flex": {"max_run": "60"}}},
        },
        partitions={
            "main": {"nodesets": ["cpu"], "default": True},
            "late": {"nodesets": ["late"], "max_time": "45"},
        },
        # A job whose node was lost is eligible again once the credential of its first start has expired.
        slurm={"extra": {"AuthInfo": "cred_expire=5", "SuspendTimeout": 20}, "reconcile": {"maintain": True}},
        monitoring={"interval_seconds": 300},
    )


@pytest.fixture
def cloud(spare: Cluster) -> FaultClient:
    """The cloud, without faults."""
    client = FaultClient(spare.root, spare.name)
    client.set()
    return client


def paths(cluster: Cluster) -> CloudPaths:
    """The files of the cloud's process."""
    return CloudPaths(StackPaths(cluster.root, cluster.name).cloud)


def machines(cluster: Cluster) -> set[str]:
    """Nodes whose machines run."""
    return {name for name in ("cpu-0", "cpu-1", "cpu-2", "cpu-3", "late-0", "late-1") if cluster.runs(name)}


def submit(cluster: Cluster, *options: str, script: str = "true") -> str:
    """The number of a new job, of alice's."""
    return cluster.submit(script, "--time=30", *options, user="alice")


def only_static(cluster: Cluster) -> None:
    """Wait until there is the static node alone, and the others sleep."""

    def now() -> bool:
        states = cluster.inside("controller", "sinfo --noheader --Node --format='%N %T'").split()[1::2]
        return machines(cluster) == {"cpu-0"} and sorted(states) == ["idle", *["idle~"] * 5]

    eventually(now, what="the end of every elastic node")


def test_a_job_waits_for_capacity_gets_all_of_its_nodes_or_none_and_these_go_when_they_are_idle(
    spare: Cluster, cloud: FaultClient
):
    assert machines(spare) == {"cpu-0"}
    spare.inside("controller", AT_ONCE)
    cloud.set(capacity={"*": 2})
    waits = submit(spare, "--nodes=4", "--exclusive", script="srun hostname >> /home/alice/ran")
    eventually(lambda: bool(cloud.refused(STOCK_OUT["code"])), what="a refusal")
    # A refusal of three machines says nothing of one.
    becomes(spare, submit(spare, "--nodelist=spare-cpu-1"), "COMPLETED")
    becomes(spare, waits, "PENDING")
    said = spare.inside("controller", f"scontrol show job {waits}")
    assert re.search(r"no capacity for [23] machines of cpu", said), said
    assert "cpu-3" not in machines(spare)
    eventually(lambda: "no-capacity" in firing(spare), what="the alert")
    cloud.set()
    # What comes by itself ten minutes later.
    spare.inside("controller", "hpc-reconcile lift")
    eventually(lambda: "no-capacity" not in firing(spare), what="the end of the alert")
    spare.inside("controller", AS_BEFORE)
    becomes(spare, waits, "COMPLETED")
    assert sorted(spare.run("cat", "/home/alice/ran").split()) == [f"spare-cpu-{n}" for n in range(4)]
    # It did not wait for slurmctld's next check, which is every 30 s.
    began = f"prolog_running_decr: Configuration for JobId={waits} is complete"
    assert began in spare.inside("controller", "cat /var/log/slurm/slurmctld.log")
    only_static(spare)
    assert {row["name"] for row in cloud.instances()} == {"spare-cpu-0"}


def test_machines_of_flex_start_are_waited_for_together_and_no_job_runs_past_their_end(
    spare: Cluster, cloud: FaultClient
):
    cloud.set(queue_seconds=1e9)
    options = ("--partition=late", "--nodes=2", "--exclusive")
    number = submit(spare, *options)
    says = "waits for 2 machines of flex start"
    eventually(lambda: says in spare.inside("controller", f"scontrol show job {number}"), what="what it waits for")
    assert job(spare, number) in ("CONFIGURING", "RUNNING")
    (group,) = cloud.groups()
    assert "spare-late-[0-1]" in group["description"]
    spare.inside("controller", f"scancel {number}")
    eventually(lambda: not cloud.groups(), what="the end of the request")
    cloud.set()
    number = submit(spare, *options, script="srun hostname > /home/alice/late; " + WAITS)
    becomes(spare, number, "RUNNING")
    eventually(
        lambda: spare.inside("controller", "cat /home/alice/late; true").count("spare-late-") == 2, what="both nodes"
    )
    reserved = "scontrol --oneliner show reservation"
    eventually(lambda: spare.inside("controller", reserved).count("hpc-until-spare-late-") == 2, what="their ends")
    spare.run("touch", GO, user="alice")
    becomes(spare, number, "COMPLETED")


def test_the_host_of_an_idle_node_is_maintained_before_its_window_unless_a_brake_holds_it(
    spare: Cluster, cloud: FaultClient
):
    """The static node is drained meanwhile, its machine restarts, and it is resumed."""
    settings, lift = "/etc/hpc/reconcile.json", "hpc-reconcile lift"
    one = f"""sed -i.kept 's/"actions_per_hour": [0-9]*/"actions_per_hour": 1/' {settings}; systemctl restart"""
    spare.inside("controller", f"{one} hpc-reconcile; {lift}; {AT_ONCE}")
    cloud.maintain("spare-cpu-0", 7200)
    eventually(lambda: "reconcile-brake" in firing(spare), what="the alert")
    state = "scontrol --oneliner show node spare-cpu-0"
    assert "Reason=hpc: its host is maintained now" in spare.inside("controller", state)
    maintained = lambda: any(row["path"].endswith("/performMaintenance") for row in cloud.requests())  # noqa: E731
    assert not maintained()
    spare.inside("controller", "systemctl stop hpc-reconcile")
    eventually(lambda: "reconcile-blind" in firing(spare), what="the alert about a loop that does not run")
    spare.inside("controller", f"mv {settings}.kept {settings}; systemctl restart hpc-reconcile; {lift}")
    eventually(lambda: not {"reconcile-brake", "reconcile-blind"} & firing(spare), what="the end of the alerts")
    spare.inside("controller", AS_BEFORE)
    eventually(
        lambda: '"maintained"' in spare.inside("controller", f"cat {JOURNAL} || true"),
        what="the end of the maintenance",
    )
    becomes(spare, submit(spare, "--nodelist=spare-cpu-0"), "COMPLETED")
    assert maintained()


def test_what_slurm_asks_for_is_done_in_a_maintenance_reservation(spare: Cluster, cloud: FaultClient):
    only_static(spare)
    where = "Nodes=spare-cpu-3 StartTime=now Duration=60 Users=alice Flags=MAINT,IGNORE_JOBS"
    spare.inside("controller", f"scontrol create reservation ReservationName=m {where}")
    becomes(spare, submit(spare, "--reservation=m"), "COMPLETED")
    assert "MAINTENANCE" in spare.inside("controller", "scontrol show node spare-cpu-3")
    # For a minute after slurmctld's start nothing is deleted: the node is off before its machine is.
    asked = "scontrol update NodeName=spare-cpu-3 State=POWER_DOWN"
    spare.inside("controller", f"systemctl restart slurmctld; until {asked}; do sleep 1; done")
    eventually(lambda: machines(spare) == {"cpu-0"}, what="the end of its machine")
    assert '"rule": "suspend-late"' in spare.inside("controller", f"cat {JOURNAL}")
    spare.inside("controller", "scontrol delete ReservationName=m")


def test_machines_that_run_for_nodes_that_are_off_are_shown_with_the_command_that_helps(
    spare: Cluster, cloud: FaultClient
):
    """One of a drained node, which the command ends, and a static node's, which the command brings back."""
    only_static(spare)
    becomes(spare, submit(spare, "--nodelist=spare-cpu-3"), "COMPLETED")
    asked = "scontrol update NodeName=spare-cpu-[0,3] State=POWER_DOWN"
    spare.inside("controller", f"systemctl stop hpc-reconcile; {asked}")
    both = "scontrol --oneliner show node spare-cpu-[0,3]"
    eventually(lambda: spare.inside("controller", both).count("POWERED_DOWN") == 2, what="nodes that are off")
    drain = "scontrol update NodeName=spare-cpu-3 State=DRAIN Reason=mine"
    spare.inside("controller", f"{drain}; systemctl start hpc-reconcile")
    # The loop waits for half an hour before it says so of a machine that it has not made.
    age = "import json,sys; p=sys.argv[1]; d=json.load(open(p)); d['seen']['spare-cpu-0']['since'] -= 1800; "
    age += "d['awake'] -= 1800; json.dump(d, open(p, 'w'))"
    record = JOURNAL.replace("journal.jsonl", "record.json")
    seen = f"systemctl stop hpc-reconcile; python3 -c {shlex.quote(age)} {record}; systemctl start hpc-reconcile"
    eventually(lambda: "held-asleep" in spare.inside("controller", "hpc-reconcile status"), what="the drained node's")
    spare.inside("controller", seen)
    eventually(lambda: len(spare.findings().get("reconcile-alert", {})) == 2, what="both findings")
    status = json.loads(spare.inside("controller", "hpc-reconcile status"))["alerts"]
    assert {row["node"]: row["rule"] for row in status} == {"spare-cpu-0": "stray-asleep", "spare-cpu-3": "held-asleep"}
    for row in status:
        spare.inside("controller", row["todo"].partition(" -- ")[2])
    eventually(lambda: machines(spare) == {"cpu-0"}, what="the end of the drained node's machine")
    becomes(spare, submit(spare, "--nodelist=spare-cpu-0"), "COMPLETED")
    eventually(lambda: "reconcile-alert" not in spare.findings(), what="the end of the findings")


def test_a_sleeping_node_that_was_resumed_gets_jobs_after_a_reconfigure(spare: Cluster):
    """slurmctld takes it for one that does not respond, and by itself would never use it again."""
    only_static(spare)
    update = "scontrol update NodeName=spare-cpu-3"
    spare.inside("controller", f"{update} State=DOWN Reason=test && {update} State=RESUME && scontrol reconfigure")
    becomes(spare, submit(spare, "--nodelist=spare-cpu-3"), "COMPLETED")


def test_a_job_whose_machine_is_lost_runs_again(spare: Cluster, cloud: FaultClient):
    spare.run("rm", "-f", GO, user="alice")
    number = submit(spare, "--nodes=2", "--exclusive", script=WAITS)
    becomes(spare, number, "RUNNING")
    node = next(name for name in sorted(machines(spare)) if name != "cpu-0")
    stop(bare(spare.root, spare.name, f"{spare.name}-{node}"))
    eventually(lambda: job(spare, number, "Restarts") == "1", what="the job's return to the queue")
    becomes(spare, number, "RUNNING")
    spare.run("touch", GO, user="alice")
    becomes(spare, number, "COMPLETED")


def test_a_machine_that_booted_before_slurmctld_asked_for_it_again_joins(spare: Cluster, cloud: FaultClient):
    """slurmctld is killed before it has written down that a node boots, and is back when the machine has booted."""

    def asleep() -> list[str]:
        """Nodes that sleep, and whose machines are gone: until then the next one is not asked for."""
        there = {row["name"] for row in cloud.instances()}
        found = {f"spare-{node}": state for node, state in states(spare).items()}
        return [name for name, state in found.items() if "-cpu-" in name and state == "idle~" and name not in there]

    eventually(lambda: asleep() != [], what="the sleep of a node")
    name = asleep()[0]
    node, saved_states = name.removeprefix("spare-"), "/var/spool/slurmctld/node_state"
    state = f"scontrol --oneliner show node {name}"
    copy = f"cp -p {saved_states} /tmp/states"
    spare.inside("controller", f"systemctl stop slurmctld && {copy} && systemctl start slurmctld")
    # Its machine does not boot before slurmctld has saved the job.
    cloud.set(insert_seconds=20)
    number = submit(spare, f"--nodelist={name}")
    eventually(lambda: name in {row["name"] for row in cloud.instances()}, what="an instance")
    saved(spare, number)
    spare.inside("controller", "systemctl kill --signal=KILL slurmctld; systemctl stop slurmctld")
    spare.inside("controller", f"for old in '' .old; do cp -p /tmp/states {saved_states}$old; done")
    report = f"/opt/apps/adm/hpc/nodes/{name}.json"
    spare.inside("controller", f"until [ {report} -nt /tmp/states ]; do sleep 0.5; done")
    spare.inside(node, "systemctl stop slurmd")
    spare.inside("controller", f"systemctl start slurmctld; until {state} | grep -q POWERING_UP; do sleep 0.5; done")
    spare.inside(node, "systemctl start slurmd")
    becomes(spare, number, "COMPLETED")
    assert '"unheard"' in spare.inside("controller", f"cat {JOURNAL}")
    assert job(spare, number, "Restarts") == "0"


def test_no_process_in_between_is_needed_alive(spare: Cluster, cloud: FaultClient):
    """The loop, slurmctld and the cloud are killed while a job's machines boot."""
    cloud.set(insert_seconds=20)
    number = submit(spare, "--nodes=4", "--exclusive")
    eventually(lambda: any(row["status"] != "RUNNING" for row in cloud.instances()), what="instances")
    # A job that slurmctld has not written down yet would come back under another number.
    saved(spare, number)
    spare.inside("controller", "systemctl kill --signal=KILL hpc-reconcile slurmctld")
    process = Process.load(paths(spare).record)
    assert process
    assert process.end(signal.SIGKILL, wait=PATIENCE)
    spare.up()
    becomes(spare, number, "COMPLETED")


def test_up_again_has_nothing_to_do(spare: Cluster):
    assert "Nothing to do" in spare.up()


def test_destroy_leaves_nothing_of_a_cluster_with_elastic_nodes(
    spare: Cluster, cloud: FaultClient, nothing_left: Callable[[str], list[str]]
):
    """Also where the process that created the machines was killed."""
    number = submit(spare, "--nodes=2", "--exclusive", script="sleep infinity")
    becomes(spare, number, "RUNNING")
    process = Process.load(paths(spare).record)
    assert process
    assert process.end(signal.SIGKILL, wait=PATIENCE)
    assert len(machines(spare)) >= 2
    folder: Path = StackPaths(spare.root, spare.name).folder
    assert json.loads(paths(spare).state.read_text())
    spare.hpc("destroy", "--yes")
    assert not folder.exists()
    assert nothing_left(spare.name) == []
