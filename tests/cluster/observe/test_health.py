"""Every fault is named with its machine and what to type; a healthy cluster has none."""

from collections.abc import Callable
from typing import Any

import pytest

from cluster.observe.health.daemons import last_words
from cluster.observe.health.findings import findings
from cluster.observe.nodes import Node
from cluster.observe.observation import ClusterObservation, MachineObservation
from tests.cluster.observe.observations import NOW, facts, healthy, only, silence, state, stop, without


def test_a_stopped_daemon_has_the_time_of_its_stop(seen: ClusterObservation):
    silence(seen)
    stop(seen, "controller", "slurmctld")
    assert only(seen).since == NOW - 60


def test_more_held_jobs_than_are_named_are_counted(seen: ClusterObservation):
    hold(*({"id": str(number), "reason": "JobHeldAdmin"} for number in range(7)))(seen)
    assert only(seen).what.startswith("7 jobs are held")
    assert only(seen).what.endswith(", 2 more")


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
        MachineObservation(name=one.name, roles=one.roles, reached=False, late=True, why=why)
        if one.name[3:] in names
        else one
        for one in seen.machines
    ]
    return ClusterObservation(stack=seen.stack, machines=tuple(machines))


def part(machine: str, *path: str, **values: Any) -> Callable[[ClusterObservation], None]:
    """A change of a part of a machine's document."""

    def change(seen: ClusterObservation) -> None:
        found = facts(seen, machine)
        for key in path:
            found = found.setdefault(key, {})
        found.update(values)

    return change


def hold(*jobs: dict[str, str]) -> Callable[[ClusterObservation], None]:
    return part("controller", "slurm", "jobs", held=[{"user": "bob", "state": "PENDING", **job} for job in jobs])


def reconciles(**values: Any) -> Callable[[ClusterObservation], None]:
    """The reconcile loop's own status."""
    calm = {"mode": "act", "why": "", "brakes": [], "cooling": {}, "alerts": [], "jobs": {}, "actions": []}
    return part("controller", reconcile={**calm, **values})


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


DISK = {"size": 1 << 30, "used": 1 << 20, "free": 0, "device": 7, "inodes": 0, "inodes_free": 0}
RETRIED = {"state": "activating", "sub": "auto-restart", "restarts": 9, "journal": ["boot: failed"]}
NO_STATE = {"error": "/opt/apps/adm/hpc is empty"}
Change = Callable[[ClusterObservation], ClusterObservation | None]
FAULTS: dict[str, tuple[tuple[Change, ...], str]] = {
    "a controller that does not answer": (
        (lambda seen: without(seen, "controller"),),
        "machine-unreachable | controller | controller machine does not answer SSH (no answer | ./hpc up hc",
    ),
    "a login machine that does not answer": (
        (lambda seen: without(seen, "login-0"),),
        "machine-unreachable | login-0 | login machine does not answer | ./hpc up hc",
    ),
    "no set-up": ((bare,), "setup-missing | cpu-1 | no such file | ./hpc drift hc --mend"),
    "a set-up of an earlier version": (
        (lambda seen: bare(seen, old=True),),
        "setup-missing | cpu-1 | no such file | ./hpc up hc",
    ),
    "a damaged cluster state": (
        (part("controller", "cluster_state", damaged="is empty"),),
        "cluster-state-damaged | controller | is damaged: is empty | ./hpc drift hc --mend",
    ),
    "a set-up that failed": (
        (part("cpu-1", "cluster_state", "report", state="failed", message="`mount /home` failed"),),
        "setup-failed | cpu-1 | `mount /home` failed | journalctl -u hpc-node",
    ),
    "a set-up that failed and could not report it": (
        (part("cpu-1", cluster_state=NO_STATE), part("cpu-1", "daemons", "hpc-node", **RETRIED)),
        "setup-failed | cpu-1 | boot: failed | journalctl -u hpc-node",
    ),
    "slurmctld that failed": (
        (
            silence,
            stopped("controller", "slurmctld", state="failed", journal=["fatal: Can not recover last_conf_lite"]),
        ),
        "slurmctld-down | controller | has failed: fatal: Can not recover | controller -- systemctl start slurmctld",
    ),
    "slurmctld that hangs": (
        (silence,),
        "slurmctld-down | controller | runs, but does not answer | controller -- systemctl restart slurmctld",
    ),
    "munged that does not run": (
        (stopped("cpu-0", "munge"), part("cpu-0", "munge", works=False, why="no socket")),
        "munge-down | cpu-0 | munged does not run | ./hpc ssh hc hc-cpu-0 -- systemctl restart munge",
    ),
    "a clock that is late": ((part("cpu-1", time=NOW - 900),), "clock-skew | cpu-1 | 899 s behind | timedatectl"),
    "a clock that is ahead": ((part("cpu-1", time=NOW + 40),), "clock-skew | cpu-1 | 39 s ahead of | timedatectl"),
    "a clock that ends authentication": (
        (part("cpu-1", time=NOW + 310),),
        "clock-skew | cpu-1 | Every credential | timedatectl",
    ),
    "a clock of munged's alone": ((part("cpu-0", "munge", ahead=-900),), "clock-skew | cpu-0 | behind | timedatectl"),
    "another MUNGE key": (
        (part("cpu-1", "munge", key="0123456789ab"),),
        "munge-key | cpu-1 | another MUNGE key | systemctl restart hpc-node",
    ),
    "a full spool": (
        (part("cpu-0", "disks", "/var/spool/slurmd", **DISK),),
        "disk-full | cpu-0 | /var/spool/slurmd is full: 100% of its space used | du -xh",
    ),
    "no inodes": (
        (part("cpu-0", "disks", "/", inodes=1000, inodes_free=5),),
        "disk-full | cpu-0 | of its inodes used, 5 are left | du -x --inodes",
    ),
    "a mount that is missing": (
        (part("cpu-0", "disks", **{"/opt/apps": {"mounted": False, "shared": True}}),),
        "mount-missing | cpu-0 | /opt/apps is not mounted | mount /opt/apps",
    ),
    "a mount that hangs": (
        (part("cpu-0", "disks", **{"/opt/apps": {"error": "no answer within 4 s"}}),),
        "mount-missing | cpu-0 | /opt/apps does not answer | timeout 5 ls /opt/apps",
    ),
    "a slurmd with other files": (
        (part("cpu-1", "files", "cache", **{"slurm.conf": "0" * 16}),),
        "old-config | cpu-1 | slurm.conf differs | ./hpc drift hc",
    ),
    "an older config version": (
        (part("cpu-1", "cluster_state", "report", digest="older"),),
        "old-config | cpu-1 | it reported config version older | ./hpc drift hc",
    ),
    "a node in an upgrade": (
        (part("cpu-1", "versions", slurm="21.08.8"),),
        "slurm-older | cpu-1 | runs Slurm 21.08, the controller 22.05 | ./hpc up hc",
    ),
    "a dead node": (
        (lambda seen: without(seen, "cpu-1"),),
        "node-down | cpu-1 | it has not noticed yet | ./hpc up hc",
    ),
    "slurmd that does not run": (
        (stopped("cpu-0", "slurmd"),),
        "node-down | cpu-0 | slurmd does not run there | ./hpc ssh hc hc-cpu-0 -- systemctl start slurmd",
    ),
    "a node that slurmctld sets down": (
        (said("cpu-0", "DOWN", "gres/gpu count too low"),),
        "node-down | cpu-0 | gres/gpu count too low (said by slurm) | ./hpc nodes hc resume hc-cpu-0",
    ),
    "a node that slurmctld does not reach": (
        (said("cpu-0", "IDLE*"),),
        "network-cut | cpu-0 | slurmctld says that it does not respond | slurmd.log",
    ),
    "a failed prolog": (
        (said("cpu-1", "IDLE+DRAIN", "Prolog error"),),
        "node-drained | cpu-1 | A prolog failed there | ./hpc ssh hc hc-cpu-1 -- tail /var/log/slurm/prolog.log",
    ),
    "a node that slurmctld does not have": (
        (lambda seen: facts(seen, "controller")["slurm"]["nodes"].__delitem__("hc-cpu-1"),),
        "node-down | cpu-1 | does not know it | ./hpc drift hc",
    ),
    "an elastic node that could not be started": (
        (strange("gpu-9", "DOWN+CLOUD+POWERED_DOWN", "hpc: no capacity in us-central1-a until 11:40"),),
        "node-unstarted | gpu-9 | has no machine, and takes no jobs (down~): hpc: no capacity | resume hc-gpu-9",
    ),
    "an elastic node that is down": (
        (strange("gpu-9", "DOWN*+CLOUD", "Not responding"),),
        "node-down | gpu-9 | is an elastic node, and slurmctld says down*: Not responding | nodes hc resume hc-gpu-9",
    ),
    "a held job": (
        (hold({"id": "17", "user": "alice", "reason": "launch failed requeued held"}),),
        "jobs-held | controller | 1 job is held, and it starts only when released: 17 of alice (launch | release 17",
    ),
    "a brake of the reconcile loop": (
        (reconciles(brakes=[{"brake": "paused", "text": "a file is there", "todo": "hpc-reconcile unpause"}]),),
        "reconcile-brake | controller | is held by paused: a file is there | controller -- hpc-reconcile unpause",
    ),
    "a reconcile loop that only advises": (
        (reconciles(brakes=[{"brake": "mode: advise", "text": "nothing is done", "todo": "set it"}]),),
        "reconcile-brake | controller | mode: advise | ./hpc up hc",
    ),
    "capacity that is used up": (
        (reconciles(cooling={"gpu/spot": "hpc: no capacity for gpu as spot until 12:10"}),),
        "no-capacity | controller | no capacity for gpu as spot until 12:10 | controller -- hpc-reconcile lift",
    ),
    "a list of instances that is partial": (
        (reconciles(why="the list of instances is partial"),),
        "reconcile-blind | controller | deletes nothing | ./hpc logs hc reconcile",
    ),
    "a node that needs a person": (
        (reconciles(alerts=["c-gpu-0: sick-person"]),),
        "reconcile-alert | controller | needs a person: c-gpu-0 | ./hpc logs hc reconcile",
    ),
    "a repaired node without a partner": (
        (reconciles(waits={"hc-gpu-0": 0.0}),),
        "repair-waits | gpu-0 | is repaired, and waits for an idle node | ./hpc nodes hc resume hc-gpu-0",
    ),
    "a report that is late": (
        (lambda seen: late(seen, "cpu-1"),),
        "machine-late | cpu-1 | gave no report | ./hpc status hc --timeout 60",
    ),
}


@pytest.mark.parametrize(
    "states",
    [
        "IDLE+CLOUD+POWERED_DOWN",
        "IDLE+CLOUD+POWERING_DOWN+NOT_RESPONDING",
        "ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP",
        "MIXED+CLOUD",
    ],
)
def test_elastic_nodes_that_are_off_boot_or_run_are_nothing_to_look_at(seen: ClusterObservation, states: str):
    strange("gpu-9", states)(seen)
    assert findings(seen) == []


def test_nodes_without_capacity_are_one_finding(seen: ClusterObservation):
    why = "hpc: no capacity for gpu as spot until 12:10"
    reconciles(cooling={"gpu/spot": why})(seen)
    for number in range(3):
        strange(f"gpu-{number}", "DOWN+CLOUD+POWERED_DOWN", why)(seen)
    assert only(seen).id == "no-capacity"


def test_a_reconcile_loop_that_waits_for_a_young_slurmctld_is_nothing_to_look_at(seen: ClusterObservation):
    reconciles(why="slurmctld has run for 12 s")(seen)
    assert findings(seen) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_finding_with_what_to_type(seen: ClusterObservation, fault: str):
    changes, words = FAULTS[fault]
    for change in changes:
        seen = change(seen) or seen
    found = only(seen)
    id_, where, what, todo = words.split(" | ")
    assert (found.id, found.where) == (id_, (f"hc-{where}",))
    assert (what in found.what, todo in found.todo) == (True, True), found


class TestMachines:
    def test_a_failure_of_another_boot_is_history(self, seen: ClusterObservation):
        facts(seen, "cpu-1")["cluster_state"]["report"].update(state="failed", message="x", boot="another")
        assert findings(seen) == []

    def test_a_cut_network_is_no_dead_machine(self, seen: ClusterObservation):
        way = {"host": "hc-controller", "port": 6817, "reached": False, "why": "timed out"}
        facts(seen, "cpu-1")["controller"] = way
        state(seen, "cpu-1", State="DOWN*+NOT_RESPONDING", Reason="Not responding [slurm@2026-11-21T06:20:00]")
        found = only(seen)
        assert (found.id, found.where) == ("network-cut", ("hc-cpu-1",))
        assert "answers SSH from here, but cannot reach the controller (hc-controller:6817" in found.what

    def test_nobody_is_cut_off_from_a_slurmctld_that_is_down(self, seen: ClusterObservation):
        silence(seen)
        for name in ("login-0", "cpu-0", "cpu-1"):
            facts(seen, name)["controller"].update(reached=False, why="refused")
        assert only(seen).id == "slurmctld-down"


class TestDaemons:
    @pytest.mark.parametrize("unit", ["slurmdbd", "mariadb"])
    def test_the_accounting_is_down_and_waiting_records_are_counted(self, seen: ClusterObservation, unit: str):
        stop(seen, "controller", unit)
        facts(seen, "controller")["slurm"]["statistics"] = {"waiting": 17}
        facts(seen, "controller")["slurm"]["database"] = {"up": False, "said": "nothing listens on port 6819"}
        found = only(seen)
        assert found.id == f"{unit}-down"
        assert "17 records of jobs wait in slurmctld" in found.what

    def test_one_that_ends_again_and_again(self, seen: ClusterObservation):
        unit = facts(seen, "controller")["daemons"]["slurmdbd"]
        unit.update(restarts=4, started=NOW - 5, journal=["slurmdbd.service: Main process exited, code=killed"])
        found = only(seen)
        assert found.id == "daemon-restarting"
        assert "slurmdbd ends again and again: systemd restarted it 4 times" in found.what
        unit.update(state="activating", sub="auto-restart")
        assert only(seen).id == "slurmdbd-down", "one finding"
        assert "started 4 times" in only(seen).what
        unit.update(state="active", sub="running")
        unit.update(started=NOW - 86400)
        assert findings(seen) == [], "what it did yesterday is history"


class TestTrust:
    @pytest.mark.parametrize(("what", "id_"), [({"ahead": 900}, "clock-skew"), ({"key": "0123456789ab"}, "munge-key")])
    def test_a_node_that_can_not_authenticate_has_no_second_finding(
        self, seen: ClusterObservation, what: dict[str, Any], id_: str
    ):
        facts(seen, "cpu-0")["munge"].update(what)
        state(seen, "cpu-0", State="DOWN*+NOT_RESPONDING", Reason="Not responding [slurm@2026-11-21T06:20:00]")
        assert only(seen).id == id_

    def test_a_small_difference_of_clocks_silences_nobody(self, seen: ClusterObservation):
        facts(seen, "cpu-0")["munge"]["ahead"] = 20
        state(seen, "cpu-0", State="DOWN*+NOT_RESPONDING", Reason="Not responding [slurm@2026-11-21T06:20:00]")
        assert [found.id for found in findings(seen)] == ["clock-skew", "network-cut"]

    def test_a_slow_answer_is_no_wrong_clock(self, seen: ClusterObservation):
        slow = seen.machines[-1]
        late = MachineObservation(
            name=slow.name, roles=slow.roles, reached=True, facts={**slow.facts, "time": NOW + 7},
            asked=NOW - 0.5, answered=NOW + 8,
        )  # fmt: skip
        assert findings(ClusterObservation(stack="hc", machines=(*seen.machines[:-1], late))) == []


class TestDisks:
    def test_a_root_that_fills_up_is_one_finding(self, seen: ClusterObservation):
        for disk in facts(seen, "controller")["disks"].values():
            if not disk.get("shared"):
                disk.update(used=91 << 30, free=9 << 30)
        assert "/ is nearly full: 91%" in only(seen).what

    def test_a_shared_one_is_one_finding_for_all(self, seen: ClusterObservation):
        for one in seen.machines:
            one.part("disks")["/home"].update(used=99 << 30, free=1 << 30, device=9)
        found = only(seen)
        assert "the shared file system /home is full" in found.what
        assert len(found.where) == 4


def test_parts_that_nobody_could_read_are_not_judged(seen: ClusterObservation):
    for one in seen.machines:
        for name in ("munge", "daemons", "cluster_state", "files", "disks"):
            facts(seen, one.name[3:])[name] = {"error": "no answer within 4 s"}
    assert findings(seen) == []


def test_the_end_of_a_journal_is_what_went_wrong():
    journal = [
        "Started slurmd.service - Slurm node daemon.", "slurmd: error: Unable to bind listen port (6818)",
        "slurmd.service: Failed with result 'exit-code'.", "Stopped slurmd.service - Slurm node daemon.",
    ]  # fmt: skip
    assert last_words(journal) == "slurmd: error: Unable to bind listen port (6818)"
    assert last_words(["Stopped slurmd.service - Slurm node daemon."]) == ""


class TestImages:
    def observed(self, **image: Any) -> ClusterObservation:
        seen = healthy()
        for name in ("cpu-0", "cpu-1"):
            facts(seen, name)["image"] = {"recipe": "2026-11", "made": NOW, "baked": 1, **image}
        return seen

    def test_packages_of_long_ago_are_a_finding_whenever_the_image_was_made(self):
        # NOW is the 21st of November 2026.
        found = only(self.observed(snapshot="20260901T000000Z"))
        assert (found.id, found.where) == ("image-old", ("hc-cpu-0", "hc-cpu-1"))
        assert found.what.startswith("its packages are of 2026-09-01, 81 days ago")
        assert "image.snapshot" in found.note

    def test_packages_of_60_days_are_not(self):
        assert findings(self.observed(snapshot="20260922T120000Z")) == []

    def test_an_image_of_before_is_known_by_when_it_was_made(self):
        assert only(self.observed(made=NOW - 61 * 86400)).id == "image-old"

    def test_an_old_kernel_that_is_held_is_a_finding_on_any_image(self):
        found = only(self.observed(kernel="2026-07-01", snapshot="20261101T000000Z"))
        assert (found.id, found.where) == ("kernel-old", ("hc-cpu-0", "hc-cpu-1"))
        assert found.what.startswith("its kernel is of 2026-07-01, 143 days ago")
        assert "image.recipe" in found.note
        assert findings(self.observed(kernel="2026-11-20")) == []

    def test_machines_that_update_themselves_have_no_finding(self):
        assert findings(self.observed(snapshot="20250101T000000Z", baked=0)) == []

    def test_a_machine_of_no_image_has_no_age(self, seen: ClusterObservation):
        facts(seen, "cpu-0")["image"] = {}
        assert findings(seen) == []


def test_all_are_late():
    found = only(late(healthy(), "controller", "login-0", "cpu-0", "cpu-1"))
    assert found.id == "host-busy"
    assert "this host is busy" in found.what


def test_no_silence_of_a_daemon_counts_on_a_machine_that_is_busy_itself(seen: ClusterObservation):
    silence(seen)
    facts(seen, "cpu-0")["munge"].update(works=False, why="`unmunge` did not end within 6 s")
    assert {one.id for one in findings(seen)} == {"slurmctld-down", "munge-down"}
    for name in ("controller", "cpu-0"):
        facts(seen, name)["boot"] = {"error": "no answer within 12 s"}
    found = only(seen)
    assert (found.id, found.where) == ("machine-late", ("hc-controller", "hc-cpu-0"))


def test_keys_are_not_compared_without_the_controllers():
    seen = healthy(5)
    facts(seen, "cpu-1")["munge"]["key"] = "0123456789ab"
    assert only(seen).id == "munge-key"
    assert only(late(seen, "controller")).id == "machine-late"


class TestNodes:
    def test_one_that_is_joining_and_one_whose_set_up_failed(self, seen: ClusterObservation):
        stop(seen, "cpu-0", "slurmd")
        facts(seen, "cpu-0")["daemons"]["hpc-node"].update(state="activating", sub="start", since=NOW - 9)
        assert only(seen).what.startswith("is joining the cluster")
        facts(seen, "cpu-0")["cluster_state"]["report"].update(state="failed", message="no mount")
        assert only(seen).id == "setup-failed", "slurmd starts after it: one cause, one finding"

    def test_a_drained_one_with_reason_person_and_time(self, seen: ClusterObservation):
        state(seen, "cpu-0", State="IDLE+DRAIN", Reason="disk errors, see ticket=7 [alice@2026-11-21T06:20:00]")
        found = only(seen)
        assert (found.id, found.where, found.since) == ("node-drained", ("hc-cpu-0",), 1795242000.0)
        assert "drained by alice" in found.what
        assert "disk errors, see ticket=7" in found.what

    def test_one_that_the_cloud_takes_back_needs_no_resume(self, seen: ClusterObservation):
        reason = "hpc: the cloud takes the machine back"
        state(seen, "cpu-0", State="IDLE+DRAIN", Reason=f"{reason} [root@2026-11-21T06:20:00]")
        found = only(seen)
        assert (found.id, found.what) == ("node-drained", "takes no new jobs: the cloud takes the machine back")
        assert "resumed by itself" in found.note

    def test_many_with_the_same_fault_are_one_finding(self):
        seen = healthy(64)
        for n in range(40):
            state(seen, f"cpu-{n}", State="IDLE+DRAIN", Reason="maintenance [root@2026-11-21T06:20:00]")
        assert only(seen).where == tuple(f"hc-cpu-{n}" for n in range(40))

    @pytest.mark.parametrize(
        ("raw", "word", "down"),
        [("IDLE", "idle", False), ("DOWN*", "down*", True), ("IDLE+CLOUD+POWERED_DOWN", None, False),
         ("MIXED+DRAIN", "draining", False)],
    )  # fmt: skip
    def test_states(self, raw: str, word: str | None, down: bool):
        said = Node.of("n", {"State": raw})
        assert said.down is down
        assert word in (None, said.word)


class TestMissingJobs:
    @pytest.mark.parametrize(
        ("there", "seconds", "job_id", "lost"),
        [
            ({"hc-cpu-0": [], "hc-cpu-1": []}, "2:00", "7_2", True),
            ({"hc-cpu-0": ["8"], "hc-cpu-1": []}, "1-00:00:00", "7_2", True),
            ({"hc-cpu-0": [], "hc-cpu-1": ["17"]}, "2:00", "7_2", False),
            ({"hc-cpu-0": []}, "2:00", "7_2", False),
            ({"hc-cpu-0": [], "hc-cpu-1": []}, "0:59", "7_2", False),
            ({"hc-cpu-0": [], "hc-cpu-1": []}, "2:00", "16+1", False),
        ],
    )
    def test_a_running_job_without_a_process_on_any_node(
        self, seen: ClusterObservation, there: dict[str, list[str]], seconds: str, job_id: str, *, lost: bool
    ):
        for name, jobs in there.items():
            facts(seen, name.removeprefix("hc-"))["jobs"] = jobs
        row = {"id": job_id, "number": "17", "state": "RUNNING", "seconds": seconds, "nodes": "hc-cpu-[0-1]"}
        facts(seen, "controller")["slurm"]["jobs"]["first"] = [row]
        if not lost:
            assert findings(seen) == []
            return
        assert (only(seen).id, only(seen).where) == ("jobs-missing", ("hc-controller",))
        assert only(seen).what.startswith("1 running job without a process on any node: 7_2. ")


def test_jobs_that_a_killed_slurmctld_lost(seen: ClusterObservation):
    facts(seen, "controller")["lost"] = [
        {"time": 5, "job": 7, "user": "alice", "again": 9},
        {"time": 6, "job": 8, "why": "a job of srun or salloc"},
        *({"time": 7, "job": number, "user": "bob", "again": number} for number in range(10, 16)),
    ]
    lost, again = findings(seen)
    assert (lost.id, lost.what) == (
        "jobs-lost",
        "slurmctld was killed and lost 1 job: 8. Not submitted again: a job of srun or salloc",
    )
    assert (again.id, again.since) == ("jobs-submitted-again", 5)
    assert "7 jobs: 7 of alice, 10 of bob, " in again.what
    assert again.what.endswith(", .... Submitted again as 9, 10, 11, 12, 13, ...")


def test_jobs_that_ended_without_a_record(seen: ClusterObservation):
    facts(seen, "controller")["records"] = {"runaway": ["5"], "unrecorded": [f"{n}" for n in range(6)]}
    runaway, unrecorded = findings(seen)
    assert (runaway.id, runaway.what) == (
        "jobs-runaway", "1 job still running in the accounting, and slurmctld does not know it: 5",
    )  # fmt: skip
    assert unrecorded.id == "jobs-unrecorded"
    assert unrecorded.what.endswith("does not have them: 0, 1, 2, 3, 4, ...")
    assert unrecorded.todo == f"./hpc accounting rebuild {seen.stack}"
    facts(seen, "controller")["slurm"]["statistics"]["waiting"] = 3
    assert findings(seen) == [], "they may be on their way"
