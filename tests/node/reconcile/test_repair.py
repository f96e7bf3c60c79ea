"""Repair of machines whose nodes a health check has drained: which step follows from what the checks have found."""

import json
from pathlib import Path
from typing import Any

import pytest
from reconcile import loop
from reconcile.compute_engine import MADE_BY, OURS, TEMPLATE, Instance
from reconcile.decision import DAY, NEW, REBOOT_SECONDS, Health, Node, Repair, World, rule_for

from tests.node.reconcile.simulated import settings

NOW = 10 * DAY
SICK = "hpc-health: gpu-xid: Xid 79 (the GPU has fallen off the bus)"
FAULT = Health(NOW - 10, failed=True, passes=0, repair=True)
SOUND = Health(NOW - 10, failed=False, passes=2)


def rule(
    health: Health | None,
    repair: Repair | None = None,
    *,
    reason: str = SICK,
    states: str = "IDLE DRAIN",
    kind: str = "n2-standard-8",
    template: str = "t-demand",
    nodes: int = 8,
    **more: Any,
) -> str:
    """The rule that applies to the first of some nodes, whose machine runs."""
    names = [f"c-gpu-{number}" for number in range(nodes)]
    others = {name: Node(name, "gpu", elastic=True, states=frozenset({"IDLE"})) for name in names[1:]}
    mine = Node(names[0], "gpu", elastic=True, states=frozenset(states.split()), reason=reason, by="root", **more)
    labels = {MADE_BY: OURS, TEMPLATE: template}
    instance = Instance(id="1", name=names[0], zone="z", status="RUNNING", labels=labels, machine_type=kind)
    world = World(
        now=NOW,
        nodes={names[0]: mine, **others},
        instances={names[0]: (instance,)},
        nodesets=settings(nodes)["nodesets"],
        health={names[0]: health} if health else {},
        repairs={names[0]: repair} if repair else {},
    )
    return rule_for(world, names[0]).id


class TestLadder:
    def test_nothing_is_done_for_a_fault_that_is_not_confirmed_or_while_jobs_run(self):
        assert rule(None) == "sick-waits"
        assert rule(Health(NOW - 10, failed=True, passes=0)) == "sick-waits"
        assert rule(FAULT, states="ALLOCATED DRAIN", jobs=("7",)) == "sick-busy"
        assert rule(FAULT, reason="maintenance by Ann") == "others"

    def test_the_machine_is_rebooted_first(self):
        assert rule(FAULT) == "sick-reboot"
        assert rule(FAULT, Repair(reset=NOW - 2 * DAY)) == "sick-reboot"

    def test_a_reboot_is_waited_for_until_a_check_has_run(self):
        before = Health(NOW - 100, failed=True, passes=0, repair=True)
        assert rule(before, Repair(reset=NOW - 60)) == "sick-waits"
        assert rule(before, Repair(reset=NOW - REBOOT_SECONDS - 1)) != "sick-waits"

    def test_a_node_that_is_well_after_it_comes_back(self):
        assert rule(SOUND, Repair(reset=NOW - 60)) == "sick-again"
        assert rule(Health(NOW - 10, failed=False, passes=1), Repair(reset=NOW - 60)) == "sick-waits"
        assert rule(SOUND) == "sick-waits", "without a reboot a pass proves nothing"

    def test_then_the_host_is_reported_or_the_machine_replaced(self):
        rebooted = Repair(reset=NOW - 3600)
        assert rule(FAULT, rebooted, kind="a3-megagpu-8g") == "sick-report"
        assert rule(FAULT, Repair(reset=NOW - 3600, refused=True), kind="a3-megagpu-8g") == "sick-replace"
        assert rule(FAULT, rebooted) == "sick-replace"
        assert rule(FAULT, Repair(reset=NOW - 7200, replace=NOW - 3600)) == "sick-person", "once a day"

    def test_the_new_machine_is_checked_before_jobs_return(self):
        replaced = Repair(reset=NOW - 7200, replace=NOW - 3600)
        assert rule(None, replaced, reason=f"{NEW} (gpu-xid)") == "new-waits"
        assert rule(Health(NOW - 10, failed=False, passes=1), replaced, reason=NEW) == "new-waits"
        assert rule(SOUND, replaced, reason=NEW) == "new-sound"
        assert rule(FAULT, replaced, reason=NEW) == "new-sick"


class TestRecords:
    """What the checks of a node have left for the loop."""

    @pytest.mark.parametrize(
        ("record", "found"),
        [
            ({}, None),
            ({"time": 5, "passes": 3, "checks": {"gpu-ecc": {"state": "ok"}}}, Health(5, failed=False, passes=3)),
            ({"time": 5, "checks": {"mount": {"state": "failed"}}}, Health(5, failed=False, passes=0)),
            ({"time": 5, "checks": {"gpu-ecc": {"state": "failed"}}}, Health(5, failed=True, passes=0)),
            ({"time": 5, "passes": 4, "checks": {"gpu-xid": {"state": "ok"}}, "repair": ["gpu-xid"]},
             Health(5, failed=True, passes=4, repair=True)),
        ],
    )  # fmt: skip
    def test_a_fault_is_read_as_the_node_has_judged_it(self, record, found, monkeypatch, tmp_path: Path):
        monkeypatch.setattr(loop.cluster_state, "HEALTH", tmp_path)
        monkeypatch.setattr(loop.cluster_state, "given", lambda path: json.loads(path.read_text()))
        (tmp_path / "n.json").write_text(json.dumps(record))
        node = Node("n", "gpu", elastic=True, states=frozenset({"IDLE", "DRAIN"}), reason=SICK, by="root")
        assert loop._health({"n": node}) == ({"n": found} if found else {})
