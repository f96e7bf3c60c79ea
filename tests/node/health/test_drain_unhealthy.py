"""Faults that require a repair of the machine; sound machines stay in service despite noise in their checks."""

import json
import math
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pytest
from health import checks, drain_unhealthy, gpu, outcome, xids
from health.check_kinds import KINDS, MACHINE, RESUMES
from health.drain_unhealthy import CONFIRM_SECONDS, update_repairs
from health.nvlink import nvlink
from health.outcome import Outcome, certain, failed, ok
from hypothesis import given
from hypothesis import strategies as st
from reconcile import slurmctld
from reconcile.world import Health, ReconciledNode
from slurm import nodes
from system.host import SetupError

from tests.node.health.gpu_documents import T4, document, gpu_element

RUNS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(KINDS), st.sampled_from(["ok", "failed", "certain"]), max_size=3),
        st.floats(1, 2 * CONFIRM_SECONDS),
    ),
    max_size=12,
)


def outcomes(states: dict[str, str]) -> dict[str, Outcome]:
    return {kind: {"ok": ok(), "failed": failed("x"), "certain": certain("x")}[state] for kind, state in states.items()}


class TestRepairs:
    def test_a_certain_fault_requires_a_repair_until_the_next_boot(self):
        first = update_repairs({}, {"gpu-xid": certain("Xid 79")}, now=0)
        assert first["repair"] == ["gpu-xid"]
        assert update_repairs(first, {"gpu-xid": ok()}, now=300)["repair"] == ["gpu-xid"]

    def test_another_fault_must_be_found_twice_five_minutes_apart(self):
        found = {"gpu-count": failed("7 of 8")}
        first = update_repairs({}, found, now=0)
        soon = update_repairs(first, found, now=CONFIRM_SECONDS - 1)
        assert (first["repair"], soon["repair"]) == ([], [])
        assert update_repairs(soon, found, now=CONFIRM_SECONDS)["repair"] == ["gpu-count"]

    def test_a_fault_that_ends_requires_no_repair(self):
        first = update_repairs({}, {"nic": failed("eth1 is missing")}, now=0)
        assert update_repairs(first, {"nic": ok()}, now=1) == {"faults": {}, "repair": []}
        again = update_repairs(first, {"nic": failed("eth1 is missing")}, now=CONFIRM_SECONDS)
        assert again["repair"] == ["nic"]
        assert update_repairs(again, {"nic": ok()}, now=999)["repair"] == []

    @given(RUNS)
    def test_only_faults_of_the_machine_that_were_confirmed(self, runs):
        record: dict[str, Any] = {}
        now, seen, sure = 0.0, Counter[str](), set[str]()
        for states, seconds in runs:
            now += seconds
            found = outcomes(states)
            record = update_repairs(record, found, now=now)
            seen.update(kind for kind, item in found.items() if item["state"] == "failed")
            sure |= {kind for kind, item in found.items() if item.get("certain")}
            for kind in record["repair"]:
                assert kind in MACHINE
                assert kind in sure or seen[kind] > 1
                assert kind not in RESUMES or kind not in found or found[kind]["state"] == "failed"


class Machine:
    """A sound machine with GPUs: its drivers' documents and logs as they vary, and a step that is slow now and then."""

    PARSED = tuple(
        tuple(gpu.parse_gpus(document(*(gpu_element(number, **changed) for number in range(2)))))
        for changed in (
            {}, {"persistence_mode": "Disabled"}, {"remapped_row_pending": "Yes"}, {"gpu_temp": "86 C"}, T4,
            {"remapped_row_unc": "3"}, {"gpu_recovery_action": "N/A"}, {"sram_uncorrectable_parity": "N/A"},
            {"dram_uncorrectable": "1", "remapped_row_pending": "Yes"}, {"sw_thermal_slowdown": "Active"},
        )
    )  # fmt: skip
    SLOW = tuple(gpu.parse_gpus(document(gpu_element(0), gpu_element(1, hw_slowdown="Active"))))
    XIDS = (
        "13, pid=7, Graphics Exception", "31, pid=9, name=python, Ch 00000008, MMU Fault", "43, pid=9, Ch 00000010",
        "45, pid=9, Ch 00000008", "63, Row Remapper: New row marked", "69, pid=3, Class Error", "94, pid=7, Contained",
        "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "137, pid=1, NVLink",
        "145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x040988e2 0x00000008 0x00000000)",
    )  # fmt: skip
    MOMENTS = ("gpu-driver", "gpu-state", "mount", "clock")
    """Kinds that a slow answer, a hot minute or a step of the clock makes fail once."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random, self.folder = random.Random(seed), folder  # noqa: S311 - the same noise each time
        self.sequence, self.crc, self.replays, self.failing = 0, 0, 0, set[str]()
        self.places: dict[str, dict[str, object]] = {}
        (folder / "boot").write_text("b\n")

    def found(self, mode: str, now: float) -> dict[str, Outcome]:
        """The outcomes of a run."""
        # Nothing is slow each of two times that it is looked at: that is what the checks take for a fault.
        late = self.random.choice([*sorted({*self.MOMENTS} - self.failing), *[""] * 6])
        found = {"gpu-xid": self._xids(), **self._driver(late, now)}
        if mode == "periodic":
            found["mount"] = outcome.unsure("/home: no answer in 20 s") if late == "mount" else ok()
            theirs = "2026-11-23T10:00:30" if late == "clock" else "2026-11-23T10:00:00"
            found["clock"] = checks.compare_clocks(theirs, 1795428000.2, 1795428000.4, 5)
            self.failing.clear()
        failing = {kind for kind, item in found.items() if item["state"] == "failed"}
        self.failing = (self.failing - {*found}) | failing
        return found

    def _driver(self, late: str, now: float) -> dict[str, Outcome]:
        if late == "gpu-driver":
            said = self.random.choice(["no answer in 20 s", outcome.BUSY])
            return checks._driver({"error": said}, 20)
        gpus = list(self.random.choice(self.PARSED))
        self.crc += self.random.choice([0, 0, 1, 40, 900])
        self.replays += self.random.choice([0, 0, 0, 1, 2])
        links = "".join(f"GPU {n}: H100\n\t Link 0: 26.562 GB/s\n" for n in range(2))
        errors = f"GPU 0: H100\n\t Link 0: Replay Errors: {self.replays}\n\t Link 0: CRC Errors: {self.crc}\n"
        link = nvlink(links, errors, most=0, expected=1, before=self.places.get("gpu-nvlink", {}), now=now)
        self.places["gpu-nvlink"] = link.get("place", {})
        state = list(self.SLOW) if late == "gpu-state" else gpus
        found = gpu.judge(state, fabric=True)
        return {**gpu.judged_outcomes(state, found, ecc_errors=0), "gpu-nvlink": link}

    def _xids(self) -> Outcome:
        lines: list[str] = []
        for text in self.random.choices(self.XIDS, k=self.random.choice([0, 0, 1, 3])):
            self.sequence += 1
            lines.append(f"3,{self.sequence},1000,-;NVRM: Xid (PCI:0000:04:00): {text}\n")
        (self.folder / "kmsg").write_text("".join(lines))
        found = xids.xids(self.places.get("gpu-xid", {"boot": "b"}), self.folder / "kmsg", self.folder / "boot")
        self.places["gpu-xid"] = found.get("place", {})
        return found


class TestSoundMachines:
    SETTINGS: ClassVar = {"drain": True, "requeue": False, "resume_after": 3}

    @pytest.fixture(autouse=True)
    def slurmctld(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Record the requests to slurmctld in `asked`, and the records of nodes in `kept`."""
        self.asked, self.kept = Counter[str](), dict[str, dict[str, object]]()
        self.node = ""
        monkeypatch.setattr(outcome, "last_record", lambda: self.kept.get(self.node, {}))
        monkeypatch.setattr(outcome, "keep_record", lambda record: self.kept.update({self.node: record}))
        monkeypatch.setattr(outcome, "is_common", lambda *_: False)
        monkeypatch.setattr(drain_unhealthy.cluster_state, "boot_id", lambda: "boot")
        monkeypatch.setattr(drain_unhealthy, "read_node", lambda name: nodes.Node(name, frozenset({"IDLE"})))
        monkeypatch.setattr(
            drain_unhealthy, "apply_action", lambda _, action, reason: self.asked.update([f"{action}: {reason}"])
        )

    def test_ten_thousand_runs_drain_no_node(self, tmp_path: Path):
        warned = failures = 0
        for number in range(100):
            self.node = f"n{number}"
            machine, now = Machine(number, tmp_path), 0.0
            for turn in range(100):
                now += 300
                mode = "epilog" if turn % 7 == 3 else "periodic"
                found = machine.found(mode, now)
                warned += any(item["state"] == "warning" for item in found.values())
                failures += any(item["state"] == "failed" for item in found.values())
                record = drain_unhealthy.apply_results(self.node, mode, self.SETTINGS, found, began=now)
                assert record["repair"] == [], found
        assert self.asked == {}
        assert min(warned, failures) > 1000, "the noise is not there"

    def test_a_fault_among_the_noise_drains_and_requires_a_repair(self, tmp_path: Path):
        machine, self.node = Machine(1, tmp_path), "n"
        for turn in range(20):
            found = machine.found("periodic", 300.0 * turn)
            if turn == 12:
                found["gpu-xid"] = certain("Xid 79 (the GPU has fallen off the bus) of GPU 0000:04:00")
            record = drain_unhealthy.apply_results("n", "periodic", self.SETTINGS, found, began=300.0 * turn)
            assert bool(self.asked) == (turn >= 12)
            if turn == 12:
                assert record["repair"] == ["gpu-xid"]
                assert record["held"]
                break


class TestRequeue:
    """The batch jobs of a node whose GPU is not to be used."""

    JOBS = "41|1|1|(null)  \n42|1|1|\n43|1|1|hpc: ear\n44|1|1|ask Ann \n45|0|1|\n46|1|0|\n"

    @pytest.fixture
    def said(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The commands for slurmctld, which does not requeue job 42."""
        said: list[str] = []

        def run(*command: str, **_: object) -> str:
            said.append(f"hasten {' '.join(command[7:])}" if command[0] == "systemd-run" else " ".join(command))
            if command[1:] == ("requeue", "42"):
                raise SetupError("Only batch jobs are accepted")
            return self.JOBS if command[0] == "squeue" else ""

        monkeypatch.setattr(drain_unhealthy, "run", run)
        monkeypatch.setattr(drain_unhealthy.scheduler, "run", run)
        monkeypatch.setattr(drain_unhealthy.scheduler, "requeued_text", lambda node, why: f"hpc: {node}, {why}")
        monkeypatch.setattr(drain_unhealthy, "read_node", lambda name: nodes.Node(name, frozenset({"ALLOCATED"})))
        monkeypatch.setattr(drain_unhealthy.cluster_state, "boot_id", lambda: "boot")
        monkeypatch.setattr(outcome, "last_record", dict)
        monkeypatch.setattr(outcome, "keep_record", lambda _: None)
        return said

    def settle(self, found: Outcome, *, requeue: bool = True) -> None:
        wanted = {"drain": True, "requeue": requeue, "resume_after": 3}
        drain_unhealthy.apply_results("n", "periodic", wanted, {"gpu-lost": found}, began=0.0)

    def test_jobs_are_requeued_after_the_drain_with_a_comment(self, said: list[str]):
        self.settle(certain("GPU 1 is lost"))
        held = "--nodelist=n --states=RUNNING,SUSPENDED,CONFIGURING"
        assert said == [
            "scontrol update NodeName=n State=DRAIN Reason=hpc-health: gpu-lost: GPU 1 is lost",
            f"squeue --noheader {held} --Format=JobID:|,BatchFlag:|,Requeue:|,admin_comment:8",
            "scontrol update JobId=41,42,43 AdminComment=hpc: n, hpc-health: gpu-lost: GPU 1 is lost",
            "scontrol requeue 41",
            "scontrol requeue 42",
            "scontrol requeue 43",
            "scontrol requeue 44",
            f"scontrol update JobId=41,43,44 StartTime=now+{drain_unhealthy.scheduler.BEGIN_SECONDS}seconds",
            "hasten 41 43 44",
        ]

    def test_jobs_continue_if_the_fault_is_not_certain_or_requeue_is_off(self, said: list[str]):
        self.settle(failed("x"))
        self.settle(certain("x"), requeue=False)
        assert {line.split()[1] for line in said} == {"update"}


class TestLoop:
    """What the reconcile loop reads of a record."""

    @pytest.mark.parametrize(
        ("record", "found"),
        [
            ({}, None),
            ({"time": 5, "passes": 3, "checks": {"gpu-ecc": ok()}}, Health(5, failed=False, passes=3)),
            ({"time": 5, "checks": {"gpu-ecc": failed("1 uncorrectable error")}}, Health(5, failed=True, passes=0)),
            ({"time": 5, "passes": 4, "checks": {"gpu-xid": ok()}, "repair": ["gpu-xid"]},
             Health(5, failed=False, passes=4, repair=True)),
            # Root of the node writes it: nothing there may end the loop.
            ({"time": "now", "checks": {}}, None),
            ({"time": 5, "checks": ["gpu-xid"]}, None),
            ({"time": 5, "checks": {"gpu-xid": "failed"}}, None),
            ({"time": 5, "passes": 1e400}, None),
            ({"time": 5, "faults": {"gpu-xid": math.nan, "gpu-ecc": 3}}, Health(5, failed=False, passes=0, found=3)),
            # A clock that is wrong: the file's time counts.
            ({"time": 905, "seconds": 2, "faults": {"gpu-ecc": 903}}, Health(3, failed=False, passes=0, found=1)),
            ({"time": 1, "seconds": 1e9}, Health(5 - 3600, failed=False, passes=0)),
        ],
    )  # fmt: skip
    def test_a_record_is_read_by_the_loop(self, record, found, monkeypatch, tmp_path: Path):
        monkeypatch.setattr(slurmctld.cluster_state, "HEALTH", tmp_path)
        (tmp_path / "n.json").write_text(json.dumps(record))
        os.utime(tmp_path / "n.json", (5, 5))
        sick = "hpc-health: gpu-xid: Xid 79"
        node = ReconciledNode("n", "gpu", elastic=True, states=frozenset({"IDLE", "DRAIN"}), reason=sick, by="root")
        assert slurmctld.last_checks({"n": node}) == ({"n": found} if found else {})
