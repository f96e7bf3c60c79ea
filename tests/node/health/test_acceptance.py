"""A repaired node is measured in a reservation before jobs return to it."""

import json
from pathlib import Path

import pytest
from health import acceptance, drain, measure
from slurm import reservations
from system.host import SetupError

SETTINGS = {
    "network": {"partitions": [{"partition": "p", "nodes": ["a", "b", "c", "d"]}]},
    "fabric": {"user": "alice", "partitions": [{"partition": "gpu", "nodes": ["a", "c"]}]},
    "nccl": {"user": "alice", "partitions": [{"partition": "other", "nodes": ["x"]}]},
}


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What is done, in order: commands, changes of nodes, measurements with the nodes due and all that are there."""
    said: list[str] = []

    def measured(kind: str):
        return lambda part, due, there, _: said.append(
            f"{kind} {part['partition']} {part['reservation']} {due} {there}"
        )

    monkeypatch.setattr(measure, "SETTINGS", tmp_path / "settings.json")
    measure.SETTINGS.write_text(json.dumps(SETTINGS))
    monkeypatch.setattr(measure, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(measure, "MEASURES", {kind: measured(kind) for kind in ("network", "nccl", "fabric")})
    monkeypatch.setattr(measure, "idle", lambda names: [name for name in names if name != "b"])
    for module in (acceptance, reservations):
        monkeypatch.setattr(module, "run", lambda *words, **_: said.append(" ".join(words)) or "")
    monkeypatch.setattr(acceptance, "succeeds", lambda *_: False)
    monkeypatch.setattr(drain, "apply_action", lambda name, action, _: said.append(f"{action} {name}"))
    return said


def test_it_is_resumed_inside_the_reservation_and_measured_with_idle_nodes(said: list[str]):
    assert acceptance.main("a") == 0
    created = (
        "scontrol create reservation ReservationName=hpc-accept-a StartTime=now Duration=60 "
        "Users=alice,root Nodes=a,c,d Flags=MAINT,IGNORE_JOBS"
    )
    deleted = "scontrol delete ReservationName=hpc-accept-a"
    assert said == [
        deleted,
        created,
        "resume a",
        "network p hpc-accept-a ['a'] ['a', 'c', 'd']",
        "fabric gpu hpc-accept-a ['a'] ['a', 'c']",
        deleted,
    ]


def test_whatever_fails_the_reservation_ends(said: list[str], monkeypatch: pytest.MonkeyPatch, capsys):
    def refuse(*_: object) -> None:
        raise SetupError("slurmctld does not answer")

    monkeypatch.setattr(drain, "apply_action", refuse)
    assert acceptance.main("a") == 1
    assert said[-1] == "scontrol delete ReservationName=hpc-accept-a"
    assert capsys.readouterr().err == "a: slurmctld does not answer\n"


def test_only_nodes_with_a_measurement_wait_for_one(said: list[str], monkeypatch: pytest.MonkeyPatch):
    assert [acceptance.is_measured(name) for name in ("a", "x", "y")] == [True, True, False]
    measure.SETTINGS.unlink()
    assert not acceptance.is_measured("a")
    assert acceptance.begin("a")
    assert said[0].startswith("systemd-run --quiet --collect --unit=hpc-health-accept-a python3 -S -c ")
    monkeypatch.setattr(acceptance, "succeeds", lambda *_: True)
    assert not acceptance.begin("a"), "it is measured already"
