"""Every fault is named with its machine and what to type; a healthy cluster has none."""

from typing import Any

import pytest

from cluster.observe.health.daemons import last_words
from cluster.observe.health.findings import findings
from cluster.observe.observation import ClusterObservation, MachineObservation
from tests.cluster.observe.observations import NOW, facts, healthy, only, silence, state, stop, without


def test_a_healthy_cluster_has_no_findings():
    assert findings(healthy()) == []
    assert findings(healthy(64)) == []


class TestMachines:
    def test_a_controller_that_does_not_answer_is_one_finding(self):
        found = only(without(healthy(), "controller"))
        assert (found.id, found.where) == ("machine-unreachable", ("hc-controller",))
        assert "controller machine does not answer SSH (no answer within 8 s)" in found.what
        assert found.todo == "./hpc up hc"

    def test_a_login_machine(self):
        found = only(without(healthy(), "login-0"))
        assert (found.id, found.where) == ("machine-unreachable", ("hc-login-0",))

    def test_one_without_a_set_up(self):
        seen = healthy()
        bare = MachineObservation(name="hc-cpu-1", roles=("node",), reached=True, why="no such file")
        seen = ClusterObservation(stack="hc", machines=(*seen.machines[:-1], bare))
        found = only(seen)
        assert (found.id, found.todo) == ("setup-missing", "./hpc drift hc --mend")

    def test_one_whose_set_up_is_of_an_earlier_version(self):
        seen = healthy()
        bare = MachineObservation(name="hc-cpu-1", roles=("node",), reached=True, why="of an earlier version", old=True)
        assert only(ClusterObservation(stack="hc", machines=(*seen.machines[:-1], bare))).todo == "./hpc up hc"

    @pytest.mark.parametrize("why", ["/opt/apps/adm/hpc is empty", "cluster.json is not what the controller wrote"])
    def test_a_damaged_board(self, why: str):
        seen = healthy()
        facts(seen, "controller")["cluster_state"]["damaged"] = why
        found = only(seen)
        assert (found.id, found.where, found.todo) == (
            "cluster-state-damaged",
            ("hc-controller",),
            "./hpc drift hc --mend",
        )

    def test_a_set_up_that_failed_tells_its_own_reason(self):
        seen = healthy()
        facts(seen, "cpu-1")["cluster_state"]["report"].update(state="failed", message="`mount /home` failed")
        found = only(seen)
        assert (found.id, found.where) == ("setup-failed", ("hc-cpu-1",))
        assert "`mount /home` failed" in found.what

    def test_a_failure_of_another_boot_is_history(self):
        seen = healthy()
        facts(seen, "cpu-1")["cluster_state"]["report"].update(state="failed", message="x", boot="another")
        assert findings(seen) == []

    def test_a_set_up_that_fails_where_no_board_is(self):
        seen = healthy()
        node = facts(seen, "cpu-1")
        node["cluster_state"] = {"error": "/opt/apps/adm/hpc is empty"}
        node["daemons"]["hpc-node"].update(state="activating", sub="auto-restart", restarts=9, journal=["boot: failed"])
        assert only(seen).id == "setup-failed"

    def test_a_cut_network_is_told_from_a_dead_machine(self):
        seen = healthy()
        way = {"host": "hc-controller", "port": 6817, "reached": False, "why": "timed out"}
        facts(seen, "cpu-1")["controller"] = way
        state(seen, "cpu-1", State="DOWN*+NOT_RESPONDING", Reason="Not responding [slurm@2026-11-21T06:20:00]")
        found = only(seen)
        assert (found.id, found.where) == ("network-cut", ("hc-cpu-1",))
        assert "answers SSH from here, but cannot reach the controller (hc-controller:6817" in found.what

    def test_nobody_is_cut_off_from_a_slurmctld_that_is_down(self):
        seen = healthy()
        silence(seen)
        for name in ("login-0", "cpu-0", "cpu-1"):
            facts(seen, name)["controller"].update(reached=False, why="refused")
        assert only(seen).id == "slurmctld-down"


class TestDaemons:
    def test_slurmctld_is_down(self):
        seen = healthy()
        silence(seen)
        stop(seen, "controller", "slurmctld", state="failed", journal=["fatal: Can not recover last_conf_lite"])
        found = only(seen)
        assert (found.id, found.since) == ("slurmctld-down", NOW - 60)
        assert "has failed: fatal: Can not recover" in found.what
        assert found.todo == "./hpc ssh hc controller -- systemctl start slurmctld"

    def test_slurmctld_hangs(self):
        seen = healthy()
        silence(seen)
        found = only(seen)
        assert found.id == "slurmctld-down"
        assert "runs, but does not answer" in found.what
        assert "restart slurmctld" in found.todo

    @pytest.mark.parametrize("unit", ["slurmdbd", "mariadb"])
    def test_the_accounting_is_down_and_how_much_waits_is_told(self, unit: str):
        seen = healthy()
        stop(seen, "controller", unit)
        facts(seen, "controller")["slurm"]["statistics"] = {"waiting": 17}
        facts(seen, "controller")["slurm"]["database"] = {"up": False, "said": "nothing listens on port 6819"}
        found = only(seen)
        assert found.id == f"{unit}-down"
        assert "17 records of jobs wait in slurmctld" in found.what

    def test_munged_is_down(self):
        seen = healthy()
        stop(seen, "cpu-0", "munge")
        facts(seen, "cpu-0")["munge"].update(works=False, why="no socket")
        found = only(seen)
        assert (found.id, found.where) == ("munge-down", ("hc-cpu-0",))
        assert found.todo == "./hpc ssh hc hc-cpu-0 -- systemctl restart munge"

    def test_one_that_ends_again_and_again(self):
        seen = healthy()
        unit = facts(seen, "controller")["daemons"]["slurmdbd"]
        unit.update(restarts=4, started=NOW - 5, journal=["slurmdbd.service: Main process exited, code=killed"])
        found = only(seen)
        assert found.id == "daemon-restarting"
        assert "slurmdbd ends again and again: systemd restarted it 4 times" in found.what
        unit.update(state="activating", sub="auto-restart")
        assert only(seen).id == "slurmdbd-down", "told once"
        assert "started 4 times" in only(seen).what
        unit.update(state="active", sub="running")
        unit.update(started=NOW - 86400)
        assert findings(seen) == [], "what it did yesterday is history"


class TestTrust:
    @pytest.mark.parametrize(
        ("seconds", "words"), [(-900, "899 s behind"), (40, "39 s ahead of"), (310, "Every credential")]
    )
    def test_a_wrong_clock(self, seconds: float, words: str):
        seen = healthy()
        facts(seen, "cpu-1")["time"] += seconds
        found = only(seen)
        assert (found.id, found.where) == ("clock-skew", ("hc-cpu-1",))
        assert words in found.what

    def test_a_wrong_clock_of_mungeds_alone(self):
        seen = healthy()
        facts(seen, "cpu-0")["munge"]["ahead"] = -900
        assert only(seen).id == "clock-skew"

    @pytest.mark.parametrize(("what", "id_"), [({"ahead": 900}, "clock-skew"), ({"key": "0123456789ab"}, "munge-key")])
    def test_who_is_not_believed_does_not_answer_slurmctld_for_that_reason(self, what: dict[str, Any], id_: str):
        seen = healthy()
        facts(seen, "cpu-0")["munge"].update(what)
        state(seen, "cpu-0", State="DOWN*+NOT_RESPONDING", Reason="Not responding [slurm@2026-11-21T06:20:00]")
        assert only(seen).id == id_

    def test_a_small_difference_of_clocks_silences_nobody(self):
        seen = healthy()
        facts(seen, "cpu-0")["munge"]["ahead"] = 20
        state(seen, "cpu-0", State="DOWN*+NOT_RESPONDING", Reason="Not responding [slurm@2026-11-21T06:20:00]")
        assert [found.id for found in findings(seen)] == ["clock-skew", "network-cut"]

    def test_a_slow_answer_is_no_wrong_clock(self):
        seen = healthy()
        slow = seen.machines[-1]
        late = MachineObservation(
            name=slow.name, roles=slow.roles, reached=True, facts={**slow.facts, "time": NOW + 7},
            asked=NOW - 0.5, answered=NOW + 8,
        )  # fmt: skip
        assert findings(ClusterObservation(stack="hc", machines=(*seen.machines[:-1], late))) == []

    def test_another_munge_key(self):
        seen = healthy()
        facts(seen, "cpu-1")["munge"]["key"] = "0123456789ab"
        found = only(seen)
        assert (found.id, found.where) == ("munge-key", ("hc-cpu-1",))
        assert "systemctl restart hpc-node" in found.todo


class TestDisks:
    def test_a_full_spool_is_named_by_its_path(self):
        seen = healthy()
        disks = facts(seen, "cpu-0")["disks"]
        disks["/var/spool/slurmd"] = {**disks["/"], "device": 7, "used": 1 << 20, "free": 0}
        found = only(seen)
        assert (found.id, found.where) == ("disk-full", ("hc-cpu-0",))
        assert "/var/spool/slurmd is full: 100% of its space used" in found.what

    def test_a_root_that_fills_up_is_told_once(self):
        seen = healthy()
        for disk in facts(seen, "controller")["disks"].values():
            if not disk.get("shared"):
                disk.update(used=91 << 30, free=9 << 30)
        assert "/ is nearly full: 91%" in only(seen).what

    def test_a_shared_one_is_one_finding_for_all(self):
        seen = healthy()
        for one in seen.machines:
            one.part("disks")["/home"].update(used=99 << 30, free=1 << 30, device=9)
        found = only(seen)
        assert "the shared file system /home is full" in found.what
        assert len(found.where) == 4

    def test_inodes_run_out_as_well(self):
        seen = healthy()
        facts(seen, "cpu-0")["disks"]["/"].update(inodes=1000, inodes_free=5)
        assert "of its inodes used, 5 are left" in only(seen).what

    def test_a_missing_mount_and_one_that_hangs(self):
        seen = healthy()
        facts(seen, "cpu-0")["disks"]["/opt/apps"] = {"mounted": False, "shared": True}
        assert "/opt/apps is not mounted" in only(seen).what
        facts(seen, "cpu-0")["disks"]["/opt/apps"] = {"error": "no answer within 4 s"}
        found = only(seen)
        assert found.id == "mount-missing"
        assert "/opt/apps does not answer" in found.what


class TestOrders:
    def test_a_slurmd_with_other_files(self):
        seen = healthy()
        facts(seen, "cpu-1")["files"]["cache"]["slurm.conf"] = "0" * 16
        found = only(seen)
        assert (found.id, found.where) == ("old-config", ("hc-cpu-1",))
        assert "slurm.conf differs" in found.what

    def test_a_node_that_follows_older_orders(self):
        seen = healthy()
        facts(seen, "cpu-1")["cluster_state"]["report"]["digest"] = "older"
        assert "it reported config version older" in only(seen).what


def test_parts_that_nobody_could_read_are_not_judged():
    seen = healthy()
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

    def test_packages_of_long_ago_are_told_whenever_the_image_was_made(self):
        # NOW is the 21st of November 2026.
        found = only(self.observed(snapshot="20260901T000000Z"))
        assert (found.id, found.where) == ("image-old", ("hc-cpu-0", "hc-cpu-1"))
        assert found.what.startswith("its packages are of 2026-09-01, 81 days ago")
        assert "image.snapshot" in found.note

    def test_packages_of_60_days_are_not(self):
        assert findings(self.observed(snapshot="20260922T120000Z")) == []

    def test_an_image_of_before_is_known_by_when_it_was_made(self):
        assert only(self.observed(made=NOW - 61 * 86400)).id == "image-old"

    def test_a_kernel_that_is_held_is_told_on_any_image(self):
        found = only(self.observed(kernel="2026-07-01", snapshot="20261101T000000Z"))
        assert (found.id, found.where) == ("kernel-old", ("hc-cpu-0", "hc-cpu-1"))
        assert found.what.startswith("its kernel is of 2026-07-01, 143 days ago")
        assert "image.recipe" in found.note
        assert findings(self.observed(kernel="2026-11-20")) == []

    def test_machines_that_keep_themselves_up_to_date_are_not_told(self):
        assert findings(self.observed(snapshot="20250101T000000Z", baked=0)) == []

    def test_a_machine_of_no_image_has_no_age(self):
        seen = healthy()
        facts(seen, "cpu-0")["image"] = {}
        assert findings(seen) == []


def late(seen: ClusterObservation, *names: str) -> ClusterObservation:
    why = "no answer within 24 s, although SSH let us in"
    machines = [
        MachineObservation(name=one.name, roles=one.roles, reached=False, late=True, why=why)
        if one.name[3:] in names
        else one
        for one in seen.machines
    ]
    return ClusterObservation(stack=seen.stack, machines=tuple(machines))


@pytest.mark.parametrize("name", ["controller", "login-0", "cpu-1"])
def test_a_machine_that_is_there_and_late(name: str):
    found = only(late(healthy(), name))
    assert (found.id, found.where, found.todo) == ("machine-late", (f"hc-{name}",), "./hpc status hc --timeout 60")


def test_all_are_late():
    found = only(late(healthy(), "controller", "login-0", "cpu-0", "cpu-1"))
    assert found.id == "host-busy"
    assert "this host is busy" in found.what


def test_no_silence_of_a_daemon_counts_on_a_machine_that_is_busy_itself():
    seen = healthy()
    silence(seen)
    facts(seen, "cpu-0")["munge"].update(works=False, why="`unmunge` did not end within 6 s")
    assert {one.id for one in findings(seen)} == {"slurmctld-down", "munge-down"}
    for name in ("controller", "cpu-0"):
        facts(seen, name)["boot"] = {"error": "no answer within 12 s"}
    found = only(seen)
    assert (found.id, found.where) == ("machine-late", ("hc-controller", "hc-cpu-0"))


def test_no_verdict_on_keys_without_the_controllers():
    seen = healthy(5)
    facts(seen, "cpu-1")["munge"]["key"] = "0123456789ab"
    assert only(seen).id == "munge-key"
    assert only(late(seen, "controller")).id == "machine-late"
