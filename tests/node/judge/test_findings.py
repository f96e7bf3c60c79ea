"""Findings are of kinds that exist, page once they have lasted, and are the same series while their figures change."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from judge import findings as judge
from judge.kinds import KINDS
from monitoring import exporter
from slurm.findings import MachineFinding

from tests.architecture.test_sources import ROOT

FACTS = ROOT / "tests/cluster/facts"
NOW = 1_000_000.0


def full(what: str = "/ is full", since: float | None = None) -> MachineFinding:
    return MachineFinding("disk-full", "dev-controller", what, "./hpc ssh STACK dev-controller -- df", since=since)


def published(*rounds: tuple[float, list[MachineFinding]]) -> list[list[judge.Published]]:
    """What is published in each round, given the minutes since the first one and the findings there are."""
    seen: judge.Seen = {}
    rows = []
    for minutes, found in rounds:
        row, seen = judge.publish(found, json.loads(json.dumps(seen)), NOW + 60 * minutes)
        rows.append(row)
    return rows


def pages(*rounds: tuple[float, list[MachineFinding]]) -> list[list[bool]]:
    return [[row.pages for row in rows] for rows in published(*rounds)]


class TestPublish:
    def test_a_finding_pages_once_it_has_lasted_for_the_minutes_of_its_kind(self):
        assert KINDS["disk-full"].minutes == 10
        rounds = ((0, [full()]), (5, [full("/ is 97% full")]), (9, [full()]), (10, [full()]))
        assert pages(*rounds) == [[False], [False], [False], [True]]

    def test_one_that_is_away_for_a_moment_goes_on_and_one_that_is_gone_begins_again(self):
        gone = judge.GONE_SECONDS / 60
        assert pages((0, [full()]), (5, [full()]), (6, []), (4 + gone, [full()]))[-1] == [True]
        assert pages((0, [full()]), (5, [full()]), (6, []), (5 + gone, [full()]))[-1] == [False]

    def test_the_time_that_it_has_itself_counts(self):
        assert pages((0, [full(since=NOW - 3600)])) == [[True]]

    def test_findings_of_one_kind_and_place_are_one_series_with_all_words(self):
        (rows,) = published((0, [full(), full("/home is full"), full()]))
        assert [(row.id, row.where, row.what) for row in rows] == [
            ("disk-full", "dev-controller", "/ is full; /home is full")
        ]

    def test_kinds_without_minutes_never_page(self):
        waits = MachineFinding("repair-waits", "dev-gpu-0", "waits", "./hpc status STACK", since=0.0)
        assert pages((0, [waits]), (10_000, [waits])) == [[False], [False]]


def test_every_kind_that_is_written_somewhere_exists():
    classes = {"scripts/node": "MachineFinding", "cluster": "ClusterFinding"}
    named = {
        value.value
        for folder, name in classes.items()
        for file in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name
        for value in (*(key.value for key in node.keywords if key.arg == "id"), *node.args[:1])
        if isinstance(value, ast.Constant)
    }
    assert {"node-drained", "disk-full", "network-cut", "pod-not-ready"} <= named <= set(KINDS)


@pytest.mark.parametrize("role", ["controller", "login", "node"])
def test_a_sound_machine_has_no_findings_and_one_whose_parts_are_late_neither(role: str):
    document: dict[str, Any] = json.loads((FACTS / f"{role}.json").read_text())
    assert judge.findings(document) == []
    late = {name: {"error": "no answer within 4 s"} for name in document}
    assert judge.findings({**late, "name": "x", "roles": [role], "time": NOW}) == []


def test_the_exporter_writes_findings_and_their_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    document: dict[str, Any] = json.loads((FACTS / "controller.json").read_text())
    document["slurm"]["nodes"]["hc-cpu-0"] |= {"State": "DOWN", "Reason": 'a "bad" disk [root@2020-01-01T00:00:00]'}
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(exporter.observation, "read", lambda names: asked.append(names) or document)
    monkeypatch.setattr(exporter, "SEEN", tmp_path / "seen.json")
    monkeypatch.setattr(exporter, "SETTINGS", tmp_path / "metrics.json")
    exporter.SETTINGS.write_text('{"stack": "prod"}')
    text = exporter.collect({"findings": lambda: [*exporter._findings()]})
    assert 'hpc_finding{id="node-down",where="hc-cpu-0",severity="critical"} 1\n' in text
    assert 'what="slurmctld says down: a \\"bad\\" disk (said by root)",todo="./hpc nodes prod resume hc-cpu-0"' in text
    assert 'hpc_collector_success{collector="findings"} 1' in text
    for line in ("hpc_slurmctld_up 1", "hpc_slurmctld_ping_seconds 0.316", "hpc_slurmdbd_up 1", "hpc_munge_works 1"):
        assert f"\n{line}\n" in text
    document["munge"] = {"error": "no answer within 4 s"}
    assert "hpc_munge_works 0\n" in exporter.collect({"findings": lambda: [*exporter._findings()]})
