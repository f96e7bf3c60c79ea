"""Every fault is named with its machine and what to type; a healthy cluster has none."""

from collections.abc import Callable
from typing import Any

from cluster.observe.observation import ClusterObservation, MachineObservation
from scripts.node.judge.document import last_words
from tests.cluster.observe.observations import (
    NOW,
    Change,
    facts,
    findings,
    healthy,
    only,
    part,
    silence,
    state,
    stop,
    without,
)


def test_a_healthy_cluster_has_no_findings():
    assert findings(healthy()) == []
    assert findings(healthy(64)) == []


def bare(seen: ClusterObservation, *, old: bool = False) -> ClusterObservation:
    """The same, where the last node has no set-up, or one of an earlier version."""
    node = MachineObservation(name="hc-cpu-1", roles=("node",), reached=True, why="no such file", old=old)
    return ClusterObservation(stack="hc", machines=(*seen.machines[:-1], node))


def late(seen: ClusterObservation, *names: str) -> ClusterObservation:
    """The same, where machines are there and send no report in time."""
    why = "no answer within 24 s, although SSH let us in"
    machines = [
        MachineObservation(name=observed.name, roles=observed.roles, reached=False, late=True, why=why)
        if observed.name[3:] in names
        else observed
        for observed in seen.machines
    ]
    return ClusterObservation(stack=seen.stack, machines=tuple(machines))


def hold(*jobs: dict[str, str]) -> Callable[[ClusterObservation], ClusterObservation | None]:
    return part("controller", "slurm", "jobs", held=[{"user": "bob", "state": "PENDING", **job} for job in jobs])


def reconciles(**values: Any) -> Callable[[ClusterObservation], ClusterObservation | None]:
    """The reconcile loop's own status."""
    calm = {"mode": "act", "why": "", "brakes": [], "cooling": {}, "alerts": [], "jobs": {}, "actions": []}
    return part("controller", reconcile={**calm, **values})


def fires(**values: str) -> Callable[[ClusterObservation], None]:
    """An alert fires for ten minutes."""
    alert = {"where": "", "severity": "warning", "actor": "administrator", "summary": "", "findings": ""}

    def change(seen: ClusterObservation) -> None:
        rows = facts(seen, "controller").setdefault("alerts", [])
        rows.append({**alert, "todo": "./hpc status hc", "since": "2026-11-21T06:17:50.123456789Z", **values})

    return change


def stopped(machine: str, unit: str, **more: Any) -> Callable[[ClusterObservation], None]:
    return lambda seen: stop(seen, machine, unit, **more)


def strange(node: str, states: str, reason: str = "") -> Callable[[ClusterObservation], None]:
    """A node of slurmctld's that is no machine of the stack."""

    def change(seen: ClusterObservation) -> None:
        row = {"State": states, **({"Reason": f"{reason} [slurm@2026-11-21T06:00:00]"} if reason else {})}
        facts(seen, "controller")["slurm"]["nodes"][f"hc-{node}"] = row

    return change


def said(node: str, row: str, reason: str = "") -> Callable[[ClusterObservation], None]:
    words = {"State": row} | ({"Reason": f"{reason} [slurm@2026-11-21T06:20:00]"} if reason else {})
    return lambda seen: state(seen, node, **words)


def slow(seen: ClusterObservation) -> ClusterObservation:
    observed = seen.machines[-1]
    found: Any = {**observed.facts, "time": NOW + 7}
    answer = MachineObservation(
        name=observed.name, roles=observed.roles, reached=True, facts=found, asked=NOW - 0.5, answered=NOW + 8
    )
    return ClusterObservation(stack="hc", machines=(*seen.machines[:-1], answer))


def filling(seen: ClusterObservation) -> None:
    for disk in facts(seen, "controller")["disks"].values():
        if not disk.get("shared"):
            disk.update(used=96 << 30, free=4 << 30)


def image(**values: Any) -> tuple[Change, ...]:
    """The image of both nodes; NOW is the 21st of November 2026."""
    return tuple(part(name, image={"recipe": "2026-11", "made": NOW, "baked": 1, **values}) for name in EVERY[2:])


def running(there: dict[str, list[str]], seconds: str = "2:00", job: str = "7_2") -> tuple[Change, ...]:
    """A running job on both nodes, of which these have processes of jobs."""
    row = {"id": job, "number": "17", "state": "RUNNING", "seconds": seconds, "nodes": "hc-cpu-[0-1]"}
    return (part("controller", "slurm", "jobs", first=[row]), *(part(name, jobs=ids) for name, ids in there.items()))


EVERY = ("controller", "login-0", "cpu-0", "cpu-1")
ENDED = {"restarts": 4, "started": NOW - 5, "journal": ["slurmdbd.service: Main process exited, code=killed"]}
BUSY_MUNGE = part("cpu-0", "munge", works=False, why="`unmunge` did not end within 6 s")
DISK = {"size": 1 << 30, "used": 1 << 20, "free": 0, "device": 7, "inodes": 0, "inodes_free": 0}
RETRIED = {"state": "activating", "sub": "auto-restart", "restarts": 9, "journal": ["boot: failed"]}
NO_STATE = {"error": "/opt/apps/adm/hpc is empty"}
NO_CAPACITY = "hpc: no capacity for gpu as spot until 12:10"
NO_ANSWER = said("cpu-0", "DOWN*+NOT_RESPONDING", "Not responding")


def spends(**values: Any) -> Change:
    """A budget of 20,000 of which 9,000 are spent since the 10th."""
    found = {"month": "2026-11", "budget": 20_000.0, "currency": "USD", "spent": 9_000.0, "since": 1_794_268_800,
             "hour": 64.5, "least": 12_000.0, "used": False, "refuses": False, "unpriced": [], **values}  # fmt: skip
    return part("controller", budget=found)


FAULTS: dict[str, tuple[Change, ...]] = {
    "a controller that does not answer": (lambda seen: without(seen, "controller"),),
    "a login machine that does not answer": (lambda seen: without(seen, "login-0"),),
    "no set-up": (bare,),
    "a set-up of an earlier version": (lambda seen: bare(seen, old=True),),
    "a damaged cluster state": (part("controller", "cluster_state", damaged="is empty"),),
    "a set-up that failed": (part("cpu-1", "cluster_state", "report", state="failed", message="`mount /home` failed"),),
    "a set-up that failed and could not report it": (
        part("cpu-1", cluster_state=NO_STATE),
        part("cpu-1", "daemons", "hpc-node", **RETRIED),
    ),
    "slurmctld that failed": (
        silence,
        stopped("controller", "slurmctld", state="failed", journal=["fatal: Can not recover last_conf_lite"]),
    ),
    "slurmctld that hangs": (silence,),
    "munged that does not run": (stopped("cpu-0", "munge"), part("cpu-0", "munge", works=False, why="no socket")),
    "a clock that is late": (part("cpu-1", time=NOW - 900),),
    "a clock that is ahead": (part("cpu-1", time=NOW + 40),),
    "a clock that ends authentication": (part("cpu-1", time=NOW + 310),),
    "a clock of munged's alone": (part("cpu-0", "munge", ahead=-900),),
    "another MUNGE key": (part("cpu-1", "munge", key="0123456789ab"),),
    "a full spool": (part("cpu-0", "disks", "/var/spool/slurmd", **DISK),),
    "no inodes": (part("cpu-0", "disks", "/", inodes=1000, inodes_free=5),),
    "a mount that is missing": (part("cpu-0", "disks", **{"/opt/apps": {"mounted": False, "shared": True}}),),
    "a mount that hangs": (part("cpu-0", "disks", **{"/opt/apps": {"error": "no answer within 4 s"}}),),
    "a slurmd with other files": (part("cpu-1", "files", "cache", **{"slurm.conf": "0" * 16}),),
    "an older config version": (part("cpu-1", "cluster_state", "report", digest="older"),),
    "a node in an upgrade": (part("cpu-1", "versions", slurm="21.08.8"),),
    "software below its floor": (
        part("cpu-1", "software", versions={"slurm": "25.11.7-1", "apptainer": "1.4.5", "nvidia": "570.133.20"}),
    ),
    "daemons whose programs an update replaced": (
        part("cpu-1", "software", versions={}, replaced=["munged", "slurmd"]),
    ),
    "a dead node": (lambda seen: without(seen, "cpu-1"),),
    "slurmd that does not run": (stopped("cpu-0", "slurmd"),),
    "a node that slurmctld sets down": (said("cpu-0", "DOWN", "gres/gpu count too low"),),
    "a node that slurmctld does not reach": (said("cpu-0", "IDLE*"),),
    "a failed prolog": (said("cpu-1", "IDLE+DRAIN", "Prolog error"),),
    "a node that slurmctld does not have": (
        lambda seen: facts(seen, "controller")["slurm"]["nodes"].__delitem__("hc-cpu-1"),
    ),
    "an elastic node that could not be started": (
        strange("gpu-9", "DOWN+CLOUD+POWERED_DOWN", "hpc: no capacity in us-central1-a until 11:40"),
    ),
    "an elastic node that is down": (strange("gpu-9", "DOWN*+CLOUD", "Not responding"),),
    "a held job": (hold({"id": "17", "user": "alice", "reason": "launch failed requeued held"}),),
    "hours of accounts and users that are nearly used up": (
        part("controller", "accounting", hours=[
            {"account": "research", "user": "", "resource": "gres/gpu", "limit": 400.0, "used": 388.0, "reserved": 8.0},
            {"account": "research", "user": "alice", "resource": "cpu", "limit": 2e4, "used": 16e3, "reserved": 0},
            {"account": "teaching", "user": "", "resource": "cpu", "limit": 100.0, "used": 79.9, "reserved": 20.0},
            {"account": "closed", "user": "", "resource": "cpu", "limit": 0.0, "used": 0.0, "reserved": 0.0},
        ]),
    ),
    "a budget that the rate of spending would exceed": (spends(expected=24_000.0),),
    "a budget that is used": (
        spends(spent=19_000.0, least=20_500.0, expected=24_000.0, used=True, refuses=True, unpriced=["lustre-500"]),
        strange("gpu-9", "DOWN+CLOUD+POWERED_DOWN", "hpc: its machine is refused: the budget of 20,000 USD is used"),
    ),
    "a budget that suffices": (spends(expected=20_000.0),),
    "a brake of the reconcile loop": (
        reconciles(brakes=[{"brake": "paused", "text": "a file is there", "todo": "hpc-reconcile unpause"}]),
    ),
    "a reconcile loop that only advises": (
        reconciles(brakes=[{"brake": "mode: advise", "text": "nothing is done", "todo": "set it"}]),
    ),
    "capacity that is used up": (reconciles(cooling={"gpu/spot": "hpc: no capacity for gpu as spot until 12:10"}),),
    "a list of instances that is partial": (reconciles(why="the list of instances is partial"),),
    "a node that needs a person": (
        reconciles(
            alerts=[
                {
                    "rule": "sick-person",
                    "node": "c-gpu-0",
                    "what": "c-gpu-0: sick-person",
                    "todo": "./hpc logs STACK reconcile",
                }
            ]
        ),
    ),
    "a repaired node without a partner": (reconciles(waits={"hc-gpu-0": 0.0}),),
    "alerts that fire: of a machine, of the cluster, of a user's job": (
        fires(name="MachineFlapping", where="hc-login-0", actor="cloud support", summary="has booted 3 times"),
        fires(name="BackupOld", summary="There is no backup", todo="./hpc accounting backup hc"),
        fires(name="GpusIdle", actor="user", summary="8 GPUs of job 17 of bob have done nothing"),
    ),
    "alerts of faults that are found without Prometheus too": (
        said("cpu-0", "DOWN", "gres/gpu count too low"),
        fires(name="NodeDown", where="hc-cpu-0", findings="node-down network-cut", severity="critical"),
        fires(name="NodeDown", where="hc-cpu-1", findings="node-down network-cut", severity="critical"),
    ),
    "a refused topology.conf": (part("controller", topology="slurmctld refuses it:\nno such node dev-cpu-9"),),
    "a report that is late": (lambda seen: late(seen, "cpu-1"),),
    "a slurmctld that was stopped, a minute ago": (silence, stopped("controller", "slurmctld")),
    "seven held jobs": (hold(*({"id": str(number), "reason": "JobHeldAdmin"} for number in range(7))),),
    "a failure of another boot": (
        part("cpu-1", "cluster_state", "report", state="failed", message="x", boot="another"),
    ),
    "a reconcile loop that waits for a young slurmctld": (reconciles(why="slurmctld has run for 12 s"),),
    "nodes without capacity": (
        reconciles(cooling={"gpu/spot": NO_CAPACITY}),
        *(strange(f"gpu-{number}", "DOWN+CLOUD+POWERED_DOWN", NO_CAPACITY) for number in range(3)),
    ),
    **{
        f"an elastic node that is {states}": (strange("gpu-9", states),)
        for states in (
            "IDLE+CLOUD+POWERED_DOWN",
            "IDLE+CLOUD+POWERING_DOWN+NOT_RESPONDING",
            "ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP",
            "MIXED+CLOUD",
        )
    },
    "a cut network": (
        part("cpu-1", controller={"host": "hc-controller", "port": 6817, "reached": False, "why": "timed out"}),
        said("cpu-1", "DOWN*+NOT_RESPONDING", "Not responding"),
    ),
    "nobody cut off from a slurmctld that is down": (
        silence,
        *(part(name, "controller", reached=False, why="refused") for name in ("login-0", "cpu-0", "cpu-1")),
    ),
    **{
        f"an accounting without {unit}, for which records wait": (
            stopped("controller", unit),
            part("controller", "slurm", statistics={"waiting": 17}),
            part("controller", "slurm", database={"up": False, "said": "nothing listens on port 6819"}),
        )
        for unit in ("slurmdbd", "mariadb")
    },
    "a clock for which a node can't authenticate": (part("cpu-0", "munge", ahead=900), NO_ANSWER),
    "a key for which a node can't authenticate": (part("cpu-0", "munge", key="0123456789ab"), NO_ANSWER),
    "a clock that is late by little": (part("cpu-0", "munge", ahead=20), NO_ANSWER),
    "a drain with reason, person and time": (
        lambda seen: state(seen, "cpu-0", State="IDLE+DRAIN", Reason="disk, see t=7 [alice@2026-11-21T06:20:00]"),
    ),
    "a machine that the cloud takes back": (said("cpu-0", "IDLE+DRAIN", "hpc: the cloud takes the machine back"),),
    "a node that is joining": (
        stopped("cpu-0", "slurmd"),
        part("cpu-0", "daemons", "hpc-node", state="activating", sub="start", since=NOW - 9),
    ),
    "a node whose set-up failed: slurmd starts after it": (
        stopped("cpu-0", "slurmd"),
        part("cpu-0", "cluster_state", "report", state="failed", message="no mount"),
    ),
    "a slurmctld that was killed": (part("controller", killed=NOW - 3600),),
    "one that was killed two days ago": (part("controller", killed=NOW - 2 * 86400),),
    "parts that nobody could read": tuple(
        part(machine, **{name: {"error": "no answer within 4 s"}})
        for machine in ("controller", "login-0", "cpu-0", "cpu-1")
        for name in ("munge", "daemons", "cluster_state", "files", "disks")
    ),
    "a machine of no image": (part("cpu-0", image={}),),
    "a daemon that ends again and again": (part("controller", "daemons", "slurmdbd", **ENDED),),
    "one that is started again now": (
        part("controller", "daemons", "slurmdbd", **ENDED, state="activating", sub="auto-restart"),
    ),
    "one that ended again and again yesterday": (
        part("controller", "daemons", "slurmdbd", **{**ENDED, "started": NOW - 86400}),
    ),
    "a slow answer, which is no wrong clock": (slow,),
    "a root that fills up": (filling,),
    "a shared file system that is full": (
        *(part(name, "disks", "/home", used=99 << 30, free=1 << 30, device=9) for name in EVERY),
    ),
    "packages of long ago": image(snapshot="20260901T000000Z"),
    "packages of 60 days": image(snapshot="20260922T120000Z"),
    "an image without the day of its packages": image(made=NOW - 61 * 86400),
    "an old kernel that is held": image(kernel="2026-07-01", snapshot="20261101T000000Z"),
    "a kernel that is held": image(kernel="2026-11-20"),
    "old packages of machines that update themselves": image(snapshot="20250101T000000Z", baked=0),
    "machines that are all late": (lambda seen: late(seen, *EVERY),),
    "silent daemons": (silence, BUSY_MUNGE),
    "silent daemons of machines that are busy": (
        silence, BUSY_MUNGE, *(part(name, boot={"error": "no answer within 12 s"}) for name in ("controller", "cpu-0")),
    ),
    "a MUNGE key that can't be compared with the controller's": (
        part("cpu-1", "munge", key="0123456789ab"), lambda seen: late(seen, "controller"),
    ),
    "a job without a process": running({"cpu-0": [], "cpu-1": []}),
    "a job beside another": running({"cpu-0": ["8"], "cpu-1": []}, seconds="1-00:00:00"),
    "a job with a process on one node": running({"cpu-0": [], "cpu-1": ["17"]}),
    "a job of which one node reports nothing": running({"cpu-0": []}),
    "a job that has just begun": running({"cpu-0": [], "cpu-1": []}, seconds="0:59"),
    "a part of a heterogeneous job": running({"cpu-0": [], "cpu-1": []}, job="16+1"),
}  # fmt: skip


def seen_with(*changes: Change) -> str:
    """Return the findings of a cluster with these changes: id, place, time, text, note and what to do."""
    seen = healthy()
    for change in changes:
        seen = change(seen) or seen
    lines: list[str] = []
    for finding in findings(seen):
        since = f" since {finding.since - NOW:+.0f} s" if finding.since else ""
        lines.append(f"{finding.severity} {finding.id} {','.join(finding.where)}{since}: {finding.what}")
        lines += [f"  {key}: {text}" for key, text in (("note", finding.note), ("to do", finding.todo)) if text]
    return "\n".join(lines)


def test_findings_of_faults(reviewed):
    reviewed("health/machines", {fault: seen_with(*changes) for fault, changes in FAULTS.items()})


def test_the_last_errors_of_a_journal_are_quoted():
    journal = [
        "Started slurmd.service - Slurm node daemon.", "slurmd: error: Unable to bind listen port (6818)",
        "slurmd.service: Failed with result 'exit-code'.", "Stopped slurmd.service - Slurm node daemon.",
    ]  # fmt: skip
    assert last_words(journal) == "slurmd: error: Unable to bind listen port (6818)"
    assert last_words(["Stopped slurmd.service - Slurm node daemon."]) == ""


def test_many_nodes_with_the_same_fault_are_one_finding():
    seen = healthy(64)
    for n in range(40):
        state(seen, f"cpu-{n}", State="IDLE+DRAIN", Reason="maintenance [root@2026-11-21T06:20:00]")
    assert only(seen).where == tuple(f"hc-cpu-{n}" for n in range(40))
    assert only(seen).todo == "./hpc nodes hc resume 'hc-cpu-[0-39]'"


def test_a_command_for_one_machine_names_the_first_and_advice_for_all_of_them_all():
    seen = healthy(64)
    for n in range(3):
        state(seen, f"cpu-{n}", State="IDLE+DRAIN", Reason="Prolog error [root@2026-11-21T06:20:00]")
    assert only(seen).todo.startswith("./hpc ssh hc hc-cpu-0 -- tail ")
    assert only(seen).note == "When that is mended: ./hpc nodes hc resume 'hc-cpu-[0-2]'"
