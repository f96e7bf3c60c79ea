"""A node is drained once with its failures, and resumed if its checks pass again."""

import json
import os

import pytest
from health import checks, drain_unhealthy, outcome, run_checks
from health.check_kinds import reason
from health.drain_unhealthy import decide
from hypothesis import given
from hypothesis import strategies as st
from slurm.nodes import Node
from system.host import SetupError

WANTED = {
    "mine": {"gpus": 2},
    "limits": {},
    "skip": [],
    "seconds": 1,
    "resume_after": 2,
    "drain": True,
    "requeue": False,
}
STATES = st.sets(st.sampled_from(["IDLE", "ALLOCATED", "DRAIN", "DOWN", "NOT_RESPONDING", "COMPLETING"]))
FAILED = st.dictionaries(st.sampled_from(["gpu-count", "gpu-ecc", "mount", "clock", "disk"]), st.text(max_size=30))


class TestDecide:
    def test_a_node_is_drained_once_and_keeps_lasting_faults(self):
        first = decide({"IDLE"}, "", {"gpu-count": "7 of 8"}, passes=0, resume_after=2)
        assert first == ("drain", "hpc-health: gpu-count: 7 of 8")
        again = decide({"IDLE", "DRAIN"}, first.reason, {"gpu-count": "6 of 8"}, passes=0, resume_after=2)
        assert again.name == "none"
        more = decide({"IDLE", "DRAIN"}, first.reason, {"mount": "/home"}, passes=0, resume_after=2)
        assert more == ("reason", "hpc-health: gpu-count: 7 of 8; mount: /home")
        assert decide({"IDLE", "DRAIN"}, more.reason, {}, passes=99, resume_after=2).name == "none"

    def test_a_node_is_resumed_after_some_passes(self):
        given = reason({"mount": "/home"})
        found = [decide({"IDLE", "DRAIN"}, given, {}, passes=n, resume_after=3).name for n in (1, 2, 3)]
        assert found == ["none", "none", "resume"]
        assert decide({"DOWN", "DRAIN"}, given, {}, passes=9, resume_after=3).name == "none"

    @given(STATES, st.text(), FAILED, st.integers(0, 9))
    def test_a_drain_by_others_is_left_alone(self, states, given, failed, passes):
        if not given.startswith("hpc-health: "):
            assert decide({*states, "DRAIN"}, given, failed, passes=passes, resume_after=1).name == "none"

    @given(STATES, FAILED, FAILED, st.integers(0, 9))
    def test_a_node_with_failures_is_drained_and_not_resumed(self, states, before, failed, passes):
        given = reason(before) if before and "DRAIN" in states else ""
        found = decide(states, given, failed, passes=passes, resume_after=2)
        if failed:
            assert found.name != "resume"
            assert "DRAIN" in states or found.name == "drain"
        if found.name == "resume":
            assert {"gpu-count", "gpu-ecc"}.isdisjoint(before)


class TestProgram:
    @pytest.fixture
    def slurmctld(self, monkeypatch, tmp_path):
        """slurmctld's side of one node, and this node's files."""
        seen = {"states": {"IDLE"}, "reason": "", "asked": 0}

        def look(_):
            seen["asked"] += 1
            return Node("n", frozenset(seen["states"]), seen["reason"])

        def apply(_, name, text):
            seen["states"] = seen["states"] - {"DRAIN"} | ({"DRAIN"} if name != "resume" else set())
            seen["reason"] = text

        monkeypatch.setattr(drain_unhealthy, "read_node", look)
        monkeypatch.setattr(drain_unhealthy, "apply_action", apply)
        monkeypatch.setattr(drain_unhealthy.cluster_state, "boot_id", lambda: "boot")
        monkeypatch.setattr(outcome, "LAST", tmp_path / "last.json")
        monkeypatch.setattr(outcome, "RESULTS", tmp_path / "results")
        monkeypatch.setattr(run_checks, "read_settings", lambda: WANTED)
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(outcome, "write", lambda path, text, **_: path.write_text(text))
        return seen

    def run(self, monkeypatch, mode: str = "", **found: outcome.Outcome) -> int:
        monkeypatch.setattr(checks, "all_checks", lambda _: found)
        monkeypatch.setattr(checks, "quick", lambda _: found)
        monkeypatch.setattr(checks, "after_job", lambda *_: found)
        return run_checks.main([mode] if mode else [])

    def test_from_the_fault_to_the_resume(self, slurmctld, monkeypatch, capsys):
        assert self.run(monkeypatch, mount=outcome.failed("/home is not mounted")) == 0
        assert slurmctld["reason"] == "hpc-health: mount: /home is not mounted"
        for _ in range(2):
            assert self.run(monkeypatch, mount=outcome.ok()) == 0
        assert slurmctld["states"] == {"IDLE"}
        asked = slurmctld["asked"]
        for _ in range(5):
            self.run(monkeypatch, mount=outcome.ok())
        assert slurmctld["asked"] == asked, "slurmctld is asked although nothing is wrong"

    def test_an_unsure_failure_drains_at_the_second_run(self, slurmctld, monkeypatch):
        late = {"mount": outcome.unsure("/home: no answer within 20 s")}
        self.run(monkeypatch, "", **late)
        assert slurmctld["states"] == {"IDLE"}
        assert outcome.last_record()["checks"]["mount"]["state"] == "failed"
        self.run(monkeypatch, mount=outcome.ok())
        self.run(monkeypatch, "", **late)
        assert slurmctld["states"] == {"IDLE"}
        self.run(monkeypatch, "", **late)
        assert slurmctld["reason"] == "hpc-health: mount: /home: no answer within 20 s"

    @pytest.mark.parametrize(
        ("others", "drained"), [((), True), (("ok", "failed"), True), (("ok", "failed", "failed"), False)]
    )
    def test_a_clock_that_differs_on_most_nodes_drains_no_node(self, slurmctld, monkeypatch, others, drained):
        outcome.RESULTS.mkdir()
        monkeypatch.setattr(outcome.cluster_state, "FOLDER", outcome.RESULTS)
        for number, state in enumerate(others):
            text = json.dumps({"checks": {"clock": {"state": state, "text": ""}}})
            (outcome.RESULTS / f"n{number}.json").write_text(text)
        for _ in range(2):
            self.run(monkeypatch, clock=outcome.unsure("90 s behind the controller"))
        assert ("DRAIN" in slurmctld["states"]) == drained
        assert ("most other nodes" in outcome.last_record()["checks"]["clock"]["text"]) != drained

    def test_leftover_processes_are_checked_until_they_end(self, slurmctld, monkeypatch):
        monkeypatch.setenv("SLURM_JOB_ID", "7")
        left = {"gpu-processes": outcome.failed("processes 10 of no job hold GPUs")}
        self.run(monkeypatch, "epilog", **left)
        monkeypatch.delenv("SLURM_JOB_ID")
        asked = []
        monkeypatch.setattr(checks, "left", lambda _, job: asked.append(job) or left)
        for _ in range(4):
            self.run(monkeypatch)
        assert "DRAIN" in slurmctld["states"]
        left = {"gpu-processes": outcome.ok()}
        for _ in range(2):
            self.run(monkeypatch)
        assert slurmctld["states"] == {"IDLE"}
        assert asked == ["7"] * 5

    def test_a_failed_prolog_keeps_the_job_away(self, slurmctld, monkeypatch, capsys):
        assert self.run(monkeypatch, "prolog", mount=outcome.failed("/home is not mounted")) == 1
        assert slurmctld["reason"] == "hpc-health: mount: /home is not mounted"
        assert "mount: /home is not mounted" in capsys.readouterr().err

    def test_an_epilog_drains_and_succeeds(self, slurmctld, monkeypatch):
        assert self.run(monkeypatch, "epilog", **{"gpu-ecc": outcome.failed("GPU 0: 1 uncorrectable error")}) == 0
        assert "DRAIN" in slurmctld["states"]

    def test_without_drain_it_only_records(self, slurmctld, monkeypatch):
        monkeypatch.setattr(run_checks, "read_settings", lambda: {**WANTED, "drain": False})
        assert self.run(monkeypatch, "prolog", mount=outcome.failed("x")) == 0
        assert slurmctld["states"] == {"IDLE"}
        assert outcome.last_record()["checks"]["mount"]["state"] == "failed"

    def test_the_drain_is_repeated_after_slurmctld_did_not_answer(self, slurmctld, monkeypatch):
        look = drain_unhealthy.read_node
        monkeypatch.setattr(drain_unhealthy, "read_node", lambda _: (_ for _ in ()).throw(SetupError("no answer")))
        assert self.run(monkeypatch, mount=outcome.failed("x")) == 0
        assert outcome.last_record()["why"] == "no answer"
        monkeypatch.setattr(drain_unhealthy, "read_node", look)
        self.run(monkeypatch, mount=outcome.failed("x"))
        assert "DRAIN" in slurmctld["states"]

    def test_a_machine_without_settings_is_not_checked(self, slurmctld, monkeypatch):
        monkeypatch.setattr(run_checks, "read_settings", lambda: None)
        assert self.run(monkeypatch, mount=outcome.failed("x")) == 0
        assert slurmctld["asked"] == 0

    def test_settings_are_found_by_the_name_of_the_node(self):
        given = {"nodes": {"lab-cpu": {"gpus": 0}, "lab-controller": {"gpus": 1}}, "drain": True}
        for name, gpus in {"lab-cpu-12": 0, "lab-controller": 1}.items():
            found = run_checks.node_settings(given, name)
            assert found
            assert found["mine"]["gpus"] == gpus
        assert run_checks.node_settings(given, "lab-login-0") is None
