"""A day of faults is green only if each fault was played and nothing was lost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.local.compute_engine import fault_day
from components.local.compute_engine.errors import QUOTA, STOCK_OUT
from components.local.compute_engine.fault_day import FAULTS, LOST_GPU, Day, FaultClient, NotPlayedError
from components.local.host.paths import HostError, StackPaths

NODES = ["c-gpu-1", "c-gpu-2"]
PLACE = "projects/rehearsal/zones/local-a"


class Cloud(FaultClient):
    """A cloud without a server: what it answers, and which faults it was asked for."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {"operations": [], "hang": {}, "requests": []}
        self.machines = [self.machine("1", NODES[0], "host-0")]
        self.asked: list[dict[str, Any]] = []
        self._place = PLACE

    @staticmethod
    def machine(number: str, name: str, host: str, status: str = "RUNNING") -> dict[str, Any]:
        host = f"/cluster/block/{host}"
        labels = {"hpc-made-by": "reconcile"}
        return {
            "id": number, "name": name, "status": status, "labels": labels, "resourceStatus": {"physicalHost": host},
        }  # fmt: skip

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        if body is not None:
            self.asked.append({"path": path, **body})
            return {}
        if path.endswith("/instances"):
            return {"items": self.machines}
        if path.endswith("/operations"):
            return {"items": self.answers["operations"]}
        return {"hang": self.answers["hang"], "requests": self.answers["requests"]}

    def refuse(self, error: dict[str, Any]) -> None:
        row = {"name": f"operation-{len(self.answers['operations'])}", "error": {"errors": [error]}}
        self.answers["operations"].append(row)


class Played(Day):
    """A day whose cluster answers from a table. Each wait is over at once: `happens` is called in between."""

    replies: dict[str, str]
    lines: list[str]
    happens: Callable[[], None]

    def slurm(self, script: str) -> str:
        self.lines.append(script)
        return next((reply for part, reply in self.replies.items() if part in script), "")

    def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        if condition():
            return True
        self.happens()
        return condition()


@pytest.fixture
def day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    """A day on two elastic nodes with GPUs, of which one is up and runs a job."""
    monkeypatch.setattr(fault_day.time, "sleep", lambda _: None)
    made = Played(StackPaths(tmp_path, "c"), "c-controller", Cloud(), list(NODES), partition="p", largest=2)
    made.lines, made.happens = [], lambda: None
    made.replies = {
        "squeue --noheader --states=RUNNING": NODES[0],
        "sinfo --noheader --Node": f"{NODES[0]} allocated\n{NODES[1]} idle~",
        "HealthCheckProgram": "HealthCheckProgram = /usr/local/lib/hpc/health",
        "--format=%G": "gpu:8",
        "sbatch": "1",
    }
    return made


def cloud(day: Played) -> Cloud:
    assert isinstance(day.cloud, Cloud)
    return day.cloud


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("no capacity", STOCK_OUT, "no request was refused"),
        ("quota", QUOTA, "no request was refused"),
    ],
)
def test_a_refusal_is_one_of_this_fault(day: Played, name: str, error: dict[str, Any], words: str):
    other = QUOTA if error is STOCK_OUT else STOCK_OUT
    for before in (error, other):
        cloud(day).refuse(before)
    with pytest.raises(NotPlayedError, match=words):
        FAULTS[name](day)
    day.happens = lambda: cloud(day).refuse(error)
    assert FAULTS[name](day)


def test_an_insert_hangs_only_if_one_was_asked_for(day: Played):
    cloud(day).answers["hang"] = {"insert": 1}
    with pytest.raises(NotPlayedError, match="no instance was asked for"):
        FAULTS["an operation hangs"](day)
    day.happens = lambda: cloud(day).answers["hang"].update(insert=0)
    assert FAULTS["an operation hangs"](day)


def test_a_preempted_machine_stops(day: Played):
    with pytest.raises(NotPlayedError, match=f"{NODES[0]} was not stopped"):
        FAULTS["preemption"](day)
    day.happens = lambda: cloud(day).machines[0].update(status="STOPPING")
    assert FAULTS["preemption"](day) == f"{NODES[0]} was stopped by the cloud"


def test_a_bad_host_has_a_new_machine(day: Played):
    with pytest.raises(NotPlayedError, match="no machine was on host-1"):
        FAULTS["bad host"](day)
    day.happens = lambda: cloud(day).machines.append(Cloud.machine("2", NODES[1], "host-1"))
    assert FAULTS["bad host"](day) == "a machine on host-1 boots and does not join"


@pytest.mark.parametrize("name", ["preemption", "a machine dies", "maintenance", LOST_GPU])
def test_where_no_job_runs_there_is_nothing_to_strike(day: Played, name: str):
    day.replies["squeue --noheader --states=RUNNING"] = ""
    with pytest.raises(NotPlayedError, match="no elastic node ran a job"):
        FAULTS[name](day)


def test_a_gpu_that_nobody_repairs_is_a_failure(day: Played, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(day, "inside", lambda *_: "")
    with pytest.raises(NotPlayedError, match="lost a GPU on host-0, and was not repaired in 420 s"):
        FAULTS[LOST_GPU](day)


def test_a_node_with_a_machine_is_powered_down_before_it_is_asked_for(day: Played):
    day.ask_for_machine(NODES[1])
    assert not any("POWER_DOWN" in line for line in day.lines)
    day.ask_for_machine(NODES[0])
    assert any(f"NodeName={NODES[0]} State=POWER_DOWN_ASAP" in line for line in day.lines)
    assert sum("--nodelist=" in line for line in day.lines) == 2


class TestExitCode:
    @pytest.fixture
    def over(self, day: Played, monkeypatch: pytest.MonkeyPatch) -> Played:
        """A day whose faults are all played, whose jobs are all complete, and whose nodes are all idle or off."""
        monkeypatch.setattr(fault_day, "FAULTS", dict.fromkeys(FAULTS, lambda _: "played"))
        monkeypatch.setattr(day, "states", lambda: fault_day.Counter({"COMPLETED": len(day.jobs)}))
        day.replies["sinfo --noheader --Node"] = f"{NODES[0]} idle\n{NODES[1]} idle~"
        return day

    def test_is_0_if_all_was_played_and_nothing_lost(self, over: Played, capsys: pytest.CaptureFixture[str]):
        assert fault_day.play_day(over, NODES) == 0
        said = capsys.readouterr().out
        assert "lost: nothing" in said
        assert "not played" not in said.lower()

    @pytest.mark.parametrize("error", [NotPlayedError("why"), HostError("why"), ConnectionResetError("why")])
    def test_is_1_if_a_fault_was_not_played(
        self, over: Played, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
    ):
        def fails(_: Day) -> str:
            raise error

        monkeypatch.setitem(fault_day.FAULTS, "quota", fails)
        assert fault_day.play_day(over, NODES) == 1
        said = capsys.readouterr().out
        assert "quota: NOT PLAYED: why" in said
        assert "lost: nothing" in said
        assert said.splitlines()[-1].endswith("not played: quota. The day shows nothing about these")
        assert "bad host: played" in said, "the day goes on"

    @pytest.mark.parametrize(("reply", "why"), [("HealthCheckProgram", "no health checks"), ("--format=%G", "no GPU")])
    def test_a_lost_gpu_that_nothing_looks_for_is_left_out(
        self, over: Played, capsys: pytest.CaptureFixture[str], reply: str, why: str
    ):
        over.replies[reply] = ""
        assert fault_day.play_day(over, NODES) == 0
        assert f"{LOST_GPU}: left out, as the " in (said := capsys.readouterr().out)
        assert why in said
