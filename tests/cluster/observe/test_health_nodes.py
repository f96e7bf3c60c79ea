"""Why a node takes no jobs: dead, cut off, without slurmd, held down, drained, or not joined yet."""

import pytest

from cluster.observe.health.findings import findings
from cluster.observe.nodes import Node
from tests.cluster.observe.observations import NOW, facts, healthy, only, state, stop, without


class TestNodes:
    def test_a_dead_one_that_slurmctld_has_not_missed_yet(self):
        found = only(without(healthy(), "cpu-1"))
        assert (found.id, found.where) == ("node-down", ("hc-cpu-1",))
        assert "does not answer SSH" in found.what
        assert "has not noticed yet" in found.what

    def test_slurmd_does_not_run(self):
        seen = healthy()
        stop(seen, "cpu-0", "slurmd")
        found = only(seen)
        assert found.id == "node-down"
        assert found.todo == "./hpc ssh hc hc-cpu-0 -- systemctl start slurmd"

    def test_one_that_is_joining_and_one_whose_set_up_failed(self):
        seen = healthy()
        stop(seen, "cpu-0", "slurmd")
        facts(seen, "cpu-0")["daemons"]["hpc-node"].update(state="activating", sub="start", since=NOW - 9)
        assert only(seen).what.startswith("is joining the cluster")
        facts(seen, "cpu-0")["cluster_state"]["report"].update(state="failed", message="no mount")
        assert only(seen).id == "setup-failed", "slurmd starts after it: one cause, one finding"

    def test_slurmctld_holds_it_down(self):
        seen = healthy()
        state(seen, "cpu-0", State="DOWN", Reason="gres/gpu count too low [slurm@2026-11-21T06:20:00]")
        found = only(seen)
        assert found.id == "node-down"
        assert "gres/gpu count too low (said by slurm)" in found.what
        assert found.todo == "./hpc nodes hc resume hc-cpu-0"

    def test_one_that_hangs_or_is_cut_off_on_the_way_back(self):
        seen = healthy()
        state(seen, "cpu-0", State="IDLE*")
        found = only(seen)
        assert found.id == "network-cut"
        assert "slurmctld says that it does not respond" in found.what

    def test_a_drained_one_with_reason_person_and_time(self):
        seen = healthy()
        state(seen, "cpu-0", State="IDLE+DRAIN", Reason="disk errors, see ticket=7 [alice@2026-11-21T06:20:00]")
        found = only(seen)
        assert (found.id, found.where, found.since) == ("node-drained", ("hc-cpu-0",), 1795242000.0)
        assert "drained by alice" in found.what
        assert "disk errors, see ticket=7" in found.what

    def test_a_failed_prolog_leads_to_its_log(self):
        seen = healthy()
        state(seen, "cpu-1", State="IDLE+DRAIN", Reason="Prolog error [slurm@2026-11-21T06:20:00]")
        assert only(seen).todo == "./hpc ssh hc hc-cpu-1 -- tail /var/log/slurm/prolog.log"

    def test_one_that_slurmctld_does_not_know(self):
        seen = healthy()
        del facts(seen, "controller")["slurm"]["nodes"]["hc-cpu-1"]
        assert "does not know it" in only(seen).what

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


class TestHeldJobs:
    def test_are_named_with_the_reason_and_how_they_are_released(self):
        seen = healthy()
        row = {"id": "17", "user": "alice", "state": "PENDING", "reason": "launch failed requeued held"}
        facts(seen, "controller")["slurm"]["jobs"]["held"] = [row]
        found = only(seen)
        assert (found.id, found.where) == ("jobs-held", ("hc-controller",))
        assert found.what == (
            "1 job is held, and it starts only when released: 17 of alice (launch failed requeued held)"
        )
        assert found.todo == "./hpc ssh hc controller -- scontrol release 17"

    def test_many_are_counted(self):
        seen = healthy()
        rows = [{"id": f"{n}", "user": "bob", "state": "PENDING", "reason": "JobHeldAdmin"} for n in range(7)]
        facts(seen, "controller")["slurm"]["jobs"]["held"] = rows
        assert only(seen).what.startswith("7 jobs are held, and they start only when released: 0 of bob (JobHeldAdmin)")
        assert only(seen).what.endswith(", 2 more")


class TestMissingJobs:
    @pytest.mark.parametrize(
        ("there", "seconds", "job_id", "told"),
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
        self, there: dict[str, list[str]], seconds: str, job_id: str, *, told: bool
    ):
        seen = healthy()
        for name, jobs in there.items():
            facts(seen, name.removeprefix("hc-"))["jobs"] = jobs
        row = {"id": job_id, "number": "17", "state": "RUNNING", "seconds": seconds, "nodes": "hc-cpu-[0-1]"}
        facts(seen, "controller")["slurm"]["jobs"]["first"] = [row]
        if not told:
            assert findings(seen) == []
            return
        assert (only(seen).id, only(seen).where) == ("jobs-missing", ("hc-controller",))
        assert only(seen).what.startswith("1 running job without a process on any node: 7_2. ")


def test_jobs_that_ended_without_a_record():
    seen = healthy()
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
