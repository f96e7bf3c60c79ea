"""A repaired node is measured in a reservation before jobs return to it."""

import json
from pathlib import Path

import pytest
from health import acceptance, drain_unhealthy, measure, outcome
from slurm import reservations
from system.host import SetupError

PAIRS = {"partition": "gpu", "nodes": ["a", "c"], "over_fabric": True, "built": ""}
SETTINGS = {
    "network": {"hours": 24, "partitions": [{"partition": "p", "nodes": ["a", "b", "c", "d"]}]},
    "fabric": {"hours": 0, "user": "root", "partitions": [PAIRS]},
    "nccl": {"hours": 24, "user": "root", "partitions": [{"partition": "other", "nodes": ["x"]}]},
}


@pytest.fixture
def results() -> dict[str, tuple[str, str]]:
    """Results of the measurements, by kind."""
    return {"fabric": ("ok", "170 GB/s with c")}


@pytest.fixture
def said(results, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Commands, changes of nodes, and measurements (with due and idle nodes), in order."""
    said: list[str] = []

    def measured(kind: str):
        def measure_(part, due, there, _) -> None:
            said.append(f"{kind} {part['partition']} {part['reservation']} {due} {there}")
            if result := results.get(kind):
                measure.record_result(due[0], kind, *result)

        return measure_

    monkeypatch.setattr(measure, "SETTINGS", tmp_path / "settings.json")
    measure.SETTINGS.write_text(json.dumps(SETTINGS))
    monkeypatch.setattr(measure, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(outcome, "MEASURED", tmp_path / "measured")
    outcome.MEASURED.mkdir()
    monkeypatch.setattr(measure, "MEASURES", {kind: measured(kind) for kind in ("network", "nccl", "fabric")})
    monkeypatch.setattr(measure, "idle_nodes", lambda names: [name for name in names if name != "b"])
    for module in (acceptance, reservations):
        monkeypatch.setattr(module, "run", lambda *words, **_: said.append(" ".join(words)) or "")
    monkeypatch.setattr(acceptance, "succeeds", lambda *_: False)
    monkeypatch.setattr(
        drain_unhealthy, "apply_action", lambda name, action, why: said.append(f"{action} {name} {why}")
    )
    return said


def test_the_node_is_resumed_and_measured_with_idle_nodes_in_a_reservation(said: list[str]):
    assert acceptance.main("a") == 0
    created = (
        "scontrol create reservation ReservationName=hpc-accept-a StartTime=now Duration=60 "
        "Users=root Nodes=a,c,d Flags=MAINT,IGNORE_JOBS"
    )
    deleted = "scontrol delete ReservationName=hpc-accept-a"
    assert said == [
        deleted,
        created,
        "resume a ",
        "network p hpc-accept-a ['a'] ['a', 'c', 'd']",
        "fabric gpu hpc-accept-a ['a'] ['a', 'c']",
        deleted,
    ]


def test_the_reservation_ends_after_an_error(said: list[str], monkeypatch: pytest.MonkeyPatch, capsys):
    def refuse(*_: object) -> None:
        raise SetupError("slurmctld does not answer")

    monkeypatch.setattr(drain_unhealthy, "apply_action", refuse)
    assert acceptance.main("a") == 1
    assert said[-1] == "scontrol delete ReservationName=hpc-accept-a"
    assert capsys.readouterr().err == "a: slurmctld does not answer\n"


def test_a_measurement_without_a_result_drains_the_node(said: list[str], results):
    results["fabric"] = ("skipped", "job 7 has no result")
    assert acceptance.main("a") == 0
    assert said[-2] == "drain a hpc-health: fabric: job 7 has no result"
    results.clear()
    outcome.MEASURED.joinpath("a.json").unlink()
    assert acceptance.main("a") == 0
    assert said[-2] == "drain a hpc-health: fabric: no pair was measured"
    assert measure.last_result("a", "fabric")["state"] == "skipped"


def test_a_node_that_the_test_has_drained_keeps_its_reason(said: list[str], results):
    results["fabric"] = ("failed", "12 GB/s with c, least 150")
    assert acceptance.main("a") == 0
    assert not [line for line in said if line.startswith("drain")]


def test_begin_returns_what_the_node_waits_for(said: list[str], monkeypatch: pytest.MonkeyPatch):
    assert [acceptance.begin(name) for name in ("y", "c")] == ["", acceptance.UNDER_WAY]
    assert said[-1].startswith("systemd-run --quiet --collect --unit=hpc-health-accept-c --property=ExecStopPost=")
    assert acceptance.begin("x") == acceptance.UNDER_WAY
    assert said[-1].startswith("systemd-run --quiet --collect --unit=hpc-health-accept-x --property=ExecStopPost=")
    assert "State=DRAIN" not in said[-1]
    assert "scontrol delete ReservationName=hpc-accept-x " in said[-1]
    measure.record_result("c", "fabric", "failed", "12 GB/s")
    assert acceptance.begin("a") == acceptance.NO_PARTNER, "c was slow"
    monkeypatch.setattr(acceptance, "succeeds", lambda *_: True)
    before = list(said)
    assert acceptance.begin("x") == acceptance.UNDER_WAY
    assert said == before, "it is measured already"
    measure.SETTINGS.unlink()
    assert acceptance.begin("a") == ""


def test_a_test_that_is_not_built_is_not_required(said: list[str]):
    part = {**PAIRS, "built": "hpc-nccl/missing"}
    measure.SETTINGS.write_text(json.dumps({"fabric": {**SETTINGS["fabric"], "partitions": [part]}}))
    assert acceptance.begin("a") == ""
