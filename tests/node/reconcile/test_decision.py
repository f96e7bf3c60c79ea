"""The table of the reconcile loop: a case for each rule, and invariants of all combinations."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reconcile import decision
from reconcile.brakes import restrain
from reconcile.compute_engine import Instance
from reconcile.decision import HARMLESS, RULES, Do, decide, first_rule
from reconcile.world import (
    DAY,
    FAULTY,
    GONE,
    HEALTH,
    LOOP_REASONS,
    MAINTAINED,
    NEW,
    NO_CAPACITY,
    NO_MACHINE,
    REPLACED,
    BadHost,
    Case,
    Cooling,
    Health,
    Pending,
    ReconciledNode,
    Repair,
    StateAge,
    World,
    state_ages,
)

from tests.node.reconcile.simulated import settings

NOW = 1_800_000_000.0
NAME = "c-gpu-0"
OURS = {"hpc-made-by": "reconcile", "hpc-template": "t-spot", "hpc-cluster": "c"}
SICK = "hpc-health: gpu-xid: Xid 79"


def world(
    states: str | None = "IDLE+CLOUD",
    status: str = "",
    *,
    reason: str = "",
    by: str = "root",
    jobs: tuple[str, ...] = (),
    elastic: bool = True,
    labels: Mapping[str, str] = OURS,
    lasted: float = 3600.0,
    passes: int = 2,
    created: float = NOW - 3600,
    before: str = "",
    machine_type: str = "m",
    maintenance: str = "",
    reschedules: bool = True,
    host: str = "",
    fault: str = "",
    **more: Any,
) -> World:
    """A world of one name, which has been as it is for an hour."""
    nodes = {}
    if states is not None:
        nodes[NAME] = ReconciledNode(NAME, "gpu", elastic, frozenset(states.split("+")), reason, by, jobs)
    one = Instance(NAME, "z", status, created, "1", machine_type, host, maintenance, reschedules, fault, dict(labels))
    found = World(NOW, nodes, {NAME: (one,)} if status else {}, settings(8)["nodesets"], **more)
    (seen,) = (state_ages({}, found) or {NAME: None}).values()
    if seen is None:
        return found
    since = NOW - lasted
    return replace(found, seen={NAME: replace(seen, since=since, power_since=since, passes=passes, before=before)})


COLD = {f"gpu/{way}": Cooling(NOW + 60, 10, f"{NO_CAPACITY} for gpu") for way in ("spot", "on_demand")}
COLD_FOR_TWO = {key: replace(cooling, size=2) for key, cooling in COLD.items()}
TAKEN = {NAME: Cooling(NOW + 60, 60, "taken")}
PENDING = {NAME: Pending("create", "op", NOW - 5, "spot")}
BAD, GOOD, OLD = Health(NOW, True, 0, True), Health(NOW, False, 2), Health(NOW - 7200, True, 0, True)
REBOOTED = {NAME: Repair(reset=NOW - 3600)}
ASKED = {NAME: Repair(maintain=NOW - 600)}
UP, ASLEEP, BOOTS, OFF = "IDLE+CLOUD", "IDLE+CLOUD+POWERED_DOWN", "ALLOCATED+CLOUD+POWERING_UP", "IDLE+POWERING_DOWN"
BAD_HOST: dict[str, Any] = {"host": "/b/1", "hosts": {"/b/1": BadHost(NOW - 7200, "c-gpu-5: lost")}}
REPORTED = {NAME: Repair(reset=NOW - 7200, report=NOW - 3600)}
SLOW, LOST = replace(GOOD, slow=NOW - 60), replace(GOOD, unmeasured=NOW - 3599)
LATE = replace(GOOD, unmeasured=NOW - 3601)
RESET_ONCE = {NAME: Repair(reset=NOW - 3600, replace=NOW - 1800)}


def sick(health: Health, **more: Any) -> World:
    """A node that a health check has drained, with its last check."""
    return world("IDLE+DRAIN", "RUNNING", reason=SICK, health={NAME: health}, **more)


def maintained(**more: Any) -> World:
    """A static node that is drained for the maintenance of its host."""
    return world("IDLE+DRAIN", "RUNNING", reason=MAINTAINED, elastic=False, **more)


def beside(found: World, count: int = 19) -> World:
    """The same among other nodes that are well."""
    more = {f"c-gpu-{n}": ReconciledNode(f"c-gpu-{n}", "gpu", True, frozenset({"IDLE"})) for n in range(1, count + 1)}
    there = {name: (Instance(name, "z", "RUNNING", labels=dict(OURS)),) for name in more}
    return replace(found, nodes={**found.nodes, **more}, instances={**found.instances, **there})


CASES: list[tuple[str, World]] = [
    ("unknown", world(None, "RUNNING", lasted=91)),
    ("not-ours", world(None, "RUNNING", lasted=90)),
    ("not-ours", world(None, "RUNNING", passes=1)),
    ("not-ours", world(None, "RUNNING", node_names=frozenset({NAME}))),
    ("stray", world(None, "RUNNING", labels={"hpc-cluster": "c"})),
    ("stray", world(None, "RUNNING", labels={"hpc-cluster": "c", "hpc-part": "node"}, lasted=1801)),
    ("not-ours", world(None, "RUNNING", labels={"hpc-cluster": "c", "hpc-part": "node"}, lasted=1800)),
    ("not-ours", world(None, "RUNNING", labels={"hpc-cluster": "c", "hpc-part": "login"})),
    ("not-ours", world(None, "TERMINATED", labels={"hpc-cluster": "c"})),
    ("stray-asleep", world(ASLEEP, "RUNNING", labels={"hpc-cluster": "c"})),
    ("stray-asleep", world(f"{ASLEEP}+DRAIN", "RUNNING", labels={}, reason="bad disk", by="bob")),
    ("stray-asleep", world("IDLE+POWERED_DOWN", "RUNNING", labels={}, elastic=False)),
    ("held-asleep", world(f"{ASLEEP}+DRAIN", "RUNNING", reason="bad disk", by="bob")),
    ("held-asleep", world("DOWN+POWERED_DOWN", "RUNNING", reason="bad disk : ResumeTimeout reached", by="bob")),
    ("held-asleep", world(f"{ASLEEP}+MAINTENANCE+RESERVED", "RUNNING", lasted=91)),
    ("maintenance", world(f"{ASLEEP}+MAINTENANCE+RESERVED", "RUNNING", lasted=90)),
    ("others", world(f"{ASLEEP}+DRAIN", "STAGING", reason="bad disk", by="bob", lasted=90)),
    ("suspend", world(f"{OFF}+DRAIN", "RUNNING", reason="bad disk", by="bob")),
    ("suspend", world(f"{OFF}+MAINTENANCE+RESERVED", "RUNNING")),
    ("suspend-late", world(f"{ASLEEP}+MAINTENANCE+RESERVED", "RUNNING", before="POWERING_DOWN", created=NOW - 3601)),
    ("suspend-late", world(f"{ASLEEP}+DRAIN", "STAGING", reason="bad disk", by="bob", before="POWERING_DOWN",
                           created=NOW - 9, lasted=8)),
    ("held-asleep", world(f"{ASLEEP}+MAINTENANCE", "RUNNING", before="POWERING_DOWN", created=NOW - 3600)),
    ("orphan-busy", world(ASLEEP, "RUNNING", before="POWERING_DOWN", created=NOW - 7200, jobs=("7",))),
    ("suspended", world(f"{OFF}+MAINTENANCE+RESERVED")),
    ("others", world(f"{OFF}+DRAIN", reason="bad disk", by="bob")),
    ("create", world(f"{BOOTS}+MAINTENANCE+RESERVED")),
    ("others", world(f"{BOOTS}+DRAIN", reason="bad disk", by="bob")),
    ("boots", world(f"{BOOTS}+MAINTENANCE", "STAGING", lasted=100)),
    ("reboots", world("IDLE+REBOOT_ISSUED")),
    ("maintenance", world("IDLE+MAINTENANCE+RESERVED")),
    ("power-down-waits", world("DOWN+POWER_DOWN")),
    ("others", world("DOWN", "RUNNING", reason="bad disk", by="bob")),
    ("others", world("DOWN+POWERED_DOWN", reason="bad disk : ResumeTimeout reached", by="bob")),
    ("others", world("DOWN+POWERED_DOWN", reason="bad disk : ResumeTimeout reached", by="slurm")),
    ("others", world("IDLE+DRAIN", "RUNNING", reason="hpc: its machine is recreated")),
    ("others", world("IDLE+DRAIN", reason="Kill task failed", by="slurm")),
    ("others", world("ALLOCATED+DRAIN", "RUNNING", reason="Duplicate jobid", by="slurm", jobs=("7",))),
    ("others", world("IDLE+DRAIN", "RUNNING", reason="Duplicate jobid", by="bob")),
    ("twice-started", world("IDLE+DRAIN", "RUNNING", reason="Duplicate jobid", by="slurm")),
    ("new-create", world("IDLE+DRAIN", reason=f"{NEW} (gpu-xid)")),
    ("new-waits", world("IDLE+DRAIN", reason=NEW, cooling=COLD)),
    ("new-waits", world("IDLE+DRAIN", "RUNNING", reason=NEW)),
    ("new-ended", world("IDLE+DRAIN", "TERMINATED", reason=NEW)),
    ("new-sound", world("IDLE+DRAIN", "RUNNING", reason=NEW, health={NAME: GOOD})),
    ("new-sick", world("IDLE+DRAIN", "RUNNING", reason=NEW, health={NAME: BAD})),
    ("creating", world(BOOTS, pending=PENDING)),
    ("creating", world(BOOTS, retry={NAME: NOW + 5})),
    ("create", world(BOOTS)),
    ("no-way", world(BOOTS, cooling=COLD)),
    ("create", world(BOOTS, cooling=COLD_FOR_TWO)),
    ("no-way", world(BOOTS, cooling=TAKEN)),
    ("no-capacity", world(ASLEEP, cooling=TAKEN)),
    ("capacity-waits", world("DOWN+POWERED_DOWN", reason=f"{NO_MACHINE}: taken", cooling=TAKEN)),
    ("capacity-again", world("DOWN+POWERED_DOWN", reason=f"{NO_CAPACITY} until", cooling=COLD_FOR_TWO)),
    ("asleep", world(ASLEEP, cooling=COLD_FOR_TWO)),
    ("capacity-again", world("DOWN+POWERED_DOWN", reason="ResumeTimeout reached", by="slurm")),
    ("capacity-again", world("DOWN+POWERED_DOWN", reason=f"{GONE} : ResumeTimeout reached")),
    ("capacity-again", world("DOWN+POWERED_DOWN", reason=f"{NO_CAPACITY} until : ResumeTimeout reached")),
    ("capacity-waits", world("DOWN+POWERED_DOWN", reason=f"{NO_CAPACITY} until", cooling=COLD)),
    ("dead-end", world(f"{ASLEEP}+NOT_RESPONDING")),
    ("no-capacity", world(ASLEEP, cooling=COLD)),
    ("asleep", world(ASLEEP)),
    ("asleep", world(f"{ASLEEP}+NOT_RESPONDING", passes=1)),
    ("suspended", world(OFF, lasted=15)),
    ("suspends", world(OFF, lasted=14)),
    ("suspends", world(OFF, pending={NAME: Pending("delete", "op", NOW)})),
    ("gone-down", world("DOWN+NOT_RESPONDING", reason="Not responding", by="slurm")),
    ("gone-down", world("DOWN", reason=GONE)),
    ("gone-drained", world("IDLE+DRAIN", reason=SICK)),
    ("gone", world(UP)),
    ("gone", world("ALLOCATED", elastic=False)),
    ("gone-once", world(UP, passes=1)),
    ("gone-once", world("DOWN", reason=GONE, elastic=False)),
    ("queued-jobless", world(BOOTS, "PENDING", lasted=31)),
    ("queued", world(BOOTS, "PENDING", lasted=30)),
    ("queued-refused", world(BOOTS, "PENDING", jobs=("7",), refused=f"{NO_MACHINE}: the budget is used")),
    ("no-way", world(BOOTS, refused=f"{NO_MACHINE}: the budget is used")),
    ("queued", world(BOOTS, "PENDING", lasted=3600, jobs=("7",))),
    ("queued-unneeded", world(ASLEEP, "PENDING")),
    ("old-machine", world(BOOTS, "RUNNING", before="POWERED_DOWN", created=NOW - 7200)),
    ("boot-failed", world(BOOTS, "RUNNING", lasted=721)),
    ("boot-failed", world(BOOTS, "RUNNING", lasted=100, boot={NAME: "failed: no key"})),
    ("unheard", world(BOOTS, "RUNNING", lasted=100, joined={NAME: NOW - 16})),
    ("boots", world(BOOTS, "RUNNING", lasted=100, joined={NAME: NOW - 15})),
    ("boots", world(BOOTS, "RUNNING", lasted=100, created=NOW - 90, joined={NAME: NOW - 100})),
    ("boots", world(BOOTS, "RUNNING", lasted=720)),
    ("boots", world(BOOTS, "STAGING", lasted=100)),
    ("suspend", world(OFF, "RUNNING")),
    ("suspend", world(OFF, "STAGING", pending=PENDING)),
    ("orphan-busy", world(ASLEEP, "RUNNING", jobs=("7",))),
    ("orphan", world(ASLEEP, "RUNNING", lasted=91)),
    ("well", world(ASLEEP, "RUNNING", lasted=90)),
    ("well", world(ASLEEP, "RUNNING", labels={}, lasted=1800)),
    (
        "sick-moves",
        world("IDLE+DRAIN", "STOPPING", reason=SICK, health={NAME: BAD}, pending={NAME: Pending("report", "op", NOW)}),
    ),
    ("ends", world("ALLOCATED+DRAIN", "STOPPING", reason=SICK, health={NAME: BAD})),
    ("ends", world("ALLOCATED", "STOPPING")),
    ("ends", world("ALLOCATED", "TERMINATED", elastic=False)),
    ("ending", world(BOOTS, "STOPPING")),
    ("ended-down", world("DOWN", "TERMINATED", reason="hpc: its machine stops")),
    ("ended", world(OFF, "TERMINATED")),
    ("stopped", world("DOWN", "TERMINATED", reason="hpc: its machine stops", elastic=False)),
    ("moves", world("ALLOCATED", "REPAIRING")),
    ("moves-long", world("DOWN", "REPAIRING", reason="hpc: its machine stops", lasted=1801)),
    ("well", world("DOWN", "REPAIRING", reason="hpc: its machine stops", lasted=1800)),
    ("sick-busy", world("MIXED+DRAIN", "RUNNING", reason=SICK, health={NAME: BAD})),
    ("sick-mended", sick(GOOD, repairs=REBOOTED)),
    ("sick-waits", sick(replace(BAD, repair=False))),
    ("sick-waits", sick(OLD, repairs={NAME: Repair(NOW - 60)})),
    ("back", world("DOWN", "RUNNING", reason=GONE)),
    ("down-long", world("DOWN", "RUNNING", reason="Not responding", by="slurm", lasted=601)),
    ("down-static", world("DOWN", "RUNNING", reason="Not responding", by="slurm", elastic=False)),
    ("down", world("DOWN", "RUNNING", reason="Not responding", by="slurm", lasted=600)),
    ("outdated", world(UP, "RUNNING", labels={**OURS, "hpc-template": "t-older"})),
    ("well", world(UP, "RUNNING")),
    ("host-again", world(BOOTS, "RUNNING", lasted=100, **BAD_HOST)),
    ("host-again", world("IDLE+DRAIN", "RUNNING", reason=NEW, health={NAME: GOOD}, **BAD_HOST)),
    ("boots", world(BOOTS, "RUNNING", lasted=100, pending={NAME: Pending("delete", "op", NOW)}, **BAD_HOST)),
    ("host-up", world("MIXED", "RUNNING", **BAD_HOST)),
    ("well", world(UP, "RUNNING", elastic=False, **BAD_HOST)),
    ("sick-host", sick(GOOD, elastic=False, **BAD_HOST)),
    ("sick-mended", sick(LATE, repairs=REBOOTED)),
    ("sick-unmeasured", sick(LOST, repairs=REBOOTED)),
    ("sick-mended", sick(GOOD, repairs={NAME: Repair(NOW - 200_000)}, waits=frozenset({NAME}))),
    ("sick-person", beside(sick(SLOW, repairs=RESET_ONCE))),
    ("sick-host-replace", beside(sick(GOOD, repairs=REPORTED, **BAD_HOST))),
    ("maintain-elastic", world(UP, "RUNNING", maintenance="PENDING", reschedules=False)),
    ("maintain", world(UP, "RUNNING", maintenance="PENDING", elastic=False)),
    ("well", world(UP, "RUNNING", maintenance="PENDING", reschedules=False, elastic=False)),
    ("well", world(UP, "RUNNING", maintenance="ONGOING")),
    ("well", world(f"{UP}+PLANNED", "RUNNING", maintenance="PENDING")),
    ("well", world("ALLOCATED", "RUNNING", maintenance="PENDING", jobs=("7",))),
    ("well", world(UP, "RUNNING", maintenance="PENDING", elastic=False, repairs=ASKED)),
    ("fault-elastic", world("ALLOCATED", "RUNNING", maintenance="PENDING", fault="FAILURE_GPU", jobs=("7",))),
    ("fault", world("ALLOCATED", "RUNNING", maintenance="PENDING", fault="FAILURE_GPU", jobs=("7",), elastic=False)),
    ("well", world("ALLOCATED", "RUNNING", maintenance="ONGOING", fault="FAILURE_GPU", elastic=False)),
    (
        "maintain-waits",
        world(
            "IDLE+DRAIN", "RUNNING", reason=FAULTY, maintenance="PENDING", fault="FAILURE_GPU", elastic=False,
            repairs={NAME: Repair(maintain=NOW - 601)},
        ),
    ),
    ("maintain-now", maintained(maintenance="PENDING")),
    ("maintain-waits", world("MIXED+DRAIN", "RUNNING", reason=MAINTAINED, maintenance="PENDING", elastic=False)),
    ("maintain-waits", maintained(maintenance="ONGOING")),
    ("maintain-waits", world("IDLE+DRAIN", "REPAIRING", reason=MAINTAINED, elastic=False)),
    ("maintain-waits", world("DOWN+DRAIN", "RUNNING", reason=MAINTAINED, elastic=False)),
    ("maintain-waits", maintained(maintenance="PENDING", repairs=ASKED)),
    ("maintained", maintained(repairs=ASKED)),
    (
        "maintained",  # nothing came of the request
        maintained(maintenance="PENDING", repairs={NAME: Repair(maintain=NOW - 601)}),
    ),
]  # fmt: skip


ALL_SICK = beside(sick(BAD))
ALL_SICK = replace(
    ALL_SICK,
    nodes={n: replace(ALL_SICK.nodes[NAME], name=n) for n in ALL_SICK.nodes},
    health=dict.fromkeys(ALL_SICK.nodes, BAD),
)
MANY_DOWN = beside(world("DOWN+NOT_RESPONDING", "RUNNING", reason="Not responding", by="slurm"), 9)
MANY_DOWN = replace(MANY_DOWN, nodes={n: replace(MANY_DOWN.nodes[NAME], name=n) for n in MANY_DOWN.nodes})
TWO = (NAME, "c-gpu-1")
CASES += [
    ("sick-many", ALL_SICK),
    ("sick-reboot", beside(sick(BAD))),
    ("sick-report", beside(sick(BAD, repairs=REBOOTED, machine_type="a4-highgpu-8g"))),
    ("sick-replace", beside(sick(BAD, repairs=REBOOTED))),
    ("sick-person", beside(sick(BAD, repairs=REBOOTED, elastic=False))),
    ("down-many", MANY_DOWN),
    ("down-long", replace(MANY_DOWN, nodes={n: node for n, node in MANY_DOWN.nodes.items() if n in TWO})),
    (
        "down-long",
        replace(
            MANY_DOWN, nodes={n: node if n in TWO else replace(node, by="bob") for n, node in MANY_DOWN.nodes.items()}
        ),
    ),
    # The loop was away until a minute ago.
    ("boots", world(BOOTS, "RUNNING", lasted=3600, awake=NOW - 60)),
    ("suspends", world(OFF, awake=NOW - 5)),
    ("sick-waits", sick(OLD, repairs=REBOOTED, awake=NOW - 60)),
    ("two-zones", replace(world(UP, "RUNNING"), instances={NAME: (Instance(NAME, "a", "RUNNING"),) * 2})),
]


@pytest.mark.parametrize(("rule", "found"), CASES, ids=[f"{rule}-{number}" for number, (rule, _) in enumerate(CASES)])
def test_the_first_rule_of_each_case(rule: str, found: World) -> None:
    assert first_rule(Case(found, NAME)).id == rule


def test_every_rule_has_a_case() -> None:
    assert {rule for rule, _ in CASES} == {rule.id for rule in RULES}


FLAGS = (
    "DRAIN", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_UP", "POWERING_DOWN", "POWER_DOWN", "COMPLETING", "PLANNED",
    "MAINTENANCE", "REBOOT_ISSUED", "REBOOT_REQUESTED", "FAIL",
)  # fmt: skip
STATUSES = (
    "", "PENDING", "PROVISIONING", "STAGING", "RUNNING", "PENDING_STOP", "STOPPING", "STOPPED", "TERMINATED",
    "SUSPENDING", "SUSPENDED", "REPAIRING", "DEPROVISIONING",
)  # fmt: skip
REASONS = (
    ("", ""), ("Not responding", "slurm"), ("ResumeTimeout reached", "slurm"), (GONE, "root"), (NEW, "root"),
    (SICK, "root"), (f"{NO_CAPACITY} until 12:00", "root"), ("mine", "bob"), ("mine : ResumeTimeout reached", "bob"),
    ("x", "root"), (MAINTAINED, "root"), ("hpc: leaves the cluster", "root"), ("Kill task failed", "slurm"),
)  # fmt: skip


@st.composite
def worlds(draw: st.DrawFn) -> World:
    base = draw(st.sampled_from(("IDLE", "ALLOCATED", "MIXED", "DOWN")))
    flags = draw(st.sets(st.sampled_from(FLAGS), max_size=4))
    reason, by = draw(st.sampled_from(REASONS))
    health = draw(st.sampled_from((None, BAD, GOOD, OLD)))
    made = world(
        draw(st.sampled_from(("+".join([base, *sorted(flags)]), None))),
        draw(st.sampled_from(STATUSES)),
        reason=reason,
        by=by,
        maintenance=draw(st.sampled_from(("", "PENDING", "ONGOING"))),
        fault=draw(st.sampled_from(("", "FAILURE_GPU"))),
        jobs=draw(st.sampled_from(((), ("7",)))),
        elastic=draw(st.booleans()),
        labels=draw(st.sampled_from((OURS, {"hpc-cluster": "c"}, {**OURS, "hpc-template": "older"}))),
        lasted=draw(st.sampled_from((0.0, 20.0, 120.0, 4000.0))),
        passes=draw(st.sampled_from((1, 2))),
        cooling=draw(st.sampled_from(({}, COLD))),
        pending=draw(st.sampled_from(({}, PENDING))),
        repairs=draw(st.sampled_from(({}, REBOOTED))),
        unsafe=draw(st.sampled_from(("", "partial"))),
        health={NAME: health} if health else {},
    )
    return beside(made) if draw(st.booleans()) else made


@given(worlds(), st.integers(0, 3))
def test_invariants_of_decisions(found: World, left: int) -> None:
    actions, node = decide(found), found.nodes.get(NAME)
    names = [name for action in actions for name in action.nodes]
    assert len(names) == len(set(names)), "a name has one action"
    if found.unsafe:
        assert {action.do for action in actions} <= HARMLESS, "on a partial list nothing is deleted or set down"
    mine = [action for action in actions if NAME in action.nodes and action.do is not Do.ALERT]
    if node:
        held = node.states & {"DRAIN", "DOWN", "FAIL"} and node.by in ("bob", "root")
        persons = held and not node.reason.startswith((HEALTH, NEW, *LOOP_REASONS))
        falls_asleep = Case(found, NAME).power == "POWERING_DOWN"
        asked = falls_asleep or Case(found, NAME).power == "POWERING_UP"
        reboots = any(state.startswith("REBOOT") for state in node.states)
        maintains = "MAINTENANCE" in node.states and not asked
        deleted = [action.do for action in mine] == [Do.DELETE] and falls_asleep
        assert not (mine and (reboots or maintains)), "what reboots, or is maintained and not asked for, is not touched"
        assert not (mine and persons) or deleted, "of what a person holds, only the machine is deleted that Slurm ends"
    for action in mine:
        if action.do in (Do.DELETE, Do.REPLACE):
            assert found.instances[NAME][0].labels.get("hpc-made-by") == "reconcile"
        if action.do is Do.DELETE and node and found.instances[NAME][0].status != "PENDING":
            assert any(state == "DOWN" or state.startswith("POWER") for state in node.states), "it is not in service"
    done, kept = restrain(actions, found, remaining=left)
    assert sum(decision.BY_ID[action.rule].counts and action.do is not Do.ALERT for action in done) <= left
    assert sorted(map(str, [*done, *(action for held in kept for action in held.actions)])) == sorted(map(str, actions))


class TestActions:
    def test_nodes_of_a_job_are_one_request_and_others_are_not(self):
        # A smaller job on one of the nodes comes along.
        jobs = {"c-gpu-0": ("3", "1"), "c-gpu-1": ("1",), "c-gpu-2": ("2",)}
        nodes = {
            n: ReconciledNode(n, "gpu", True, frozenset({"ALLOCATED", "POWERING_UP"}), jobs=j) for n, j in jobs.items()
        }
        found = decide(World(NOW, nodes, {}, settings(8)["nodesets"]))
        assert [(action.nodes, action.way) for action in found] == [
            (("c-gpu-0", "c-gpu-1"), "spot"),
            (("c-gpu-2",), "spot"),
        ]

    def test_a_way_that_refused_four_is_asked_for_the_smaller_job_only(self):
        jobs = {f"c-gpu-{number}": ("4",) if number < 4 else ("3",) for number in range(7)}
        nodes = {
            n: ReconciledNode(n, "gpu", True, frozenset({"ALLOCATED", "POWERING_UP"}), jobs=j) for n, j in jobs.items()
        }
        cooling = {"gpu/spot": Cooling(NOW + 60, 10, "x", 4), "gpu/on_demand": Cooling(NOW + 60, 10, "y", 4)}
        found = decide(World(NOW, nodes, {}, settings(8)["nodesets"], cooling=cooling))
        assert [(a.do, a.nodes, a.way) for a in found if a.do is Do.CREATE] == [
            (Do.CREATE, ("c-gpu-4", "c-gpu-5", "c-gpu-6"), "spot")
        ]
        assert [a.nodes[0] for a in found if a.do is Do.REFUSE] == [f"c-gpu-{number}" for number in range(4)]

    def test_a_newer_template_reaches_a_part_of_the_nodes_at_a_time(self):
        old = {**OURS, "hpc-template": "older"}
        names = [f"c-gpu-{number}" for number in range(8)]
        nodes = {name: ReconciledNode(name, "gpu", True, frozenset({"IDLE"})) for name in names}
        found = World(
            NOW, nodes, {n: (Instance(n, "z", "RUNNING", labels=old),) for n in names}, settings(8)["nodesets"], 0.25
        )
        done, held = restrain(decide(found), found, remaining=100)
        assert (len(done), [len(row.actions) for row in held]) == (2, [6])
        nodes["c-gpu-7"] = replace(nodes["c-gpu-7"], states=frozenset({"IDLE", "POWERING_DOWN"}))
        found = replace(found, nodes=nodes, instances={n: found.instances[n] for n in names[:7]})
        assert len([action for action in restrain(decide(found), found, remaining=100)[0] if action.do is Do.ASAP]) == 1
        # Nodes that a person has drained do not keep others from it.
        held = {n: replace(nodes[n], states=frozenset({"IDLE", "DRAIN"}), reason="mine", by="bob") for n in names[:4]}
        found = replace(found, nodes={**nodes, **held})
        assert len([action for action in restrain(decide(found), found, remaining=100)[0] if action.do is Do.ASAP]) == 1

    def test_a_newer_template_reaches_idle_nodes_first_then_those_whose_jobs_end_first(self):
        names = [f"c-gpu-{number}" for number in range(8)]
        old = {name: (Instance(name, "z", "RUNNING", labels={**OURS, "hpc-template": "older"}),) for name in names}
        ends = dict(zip(names, (8, 7, 6, 5, 4, 3, 2, 0), strict=True))
        busy = frozenset({"ALLOCATED"})
        nodes = {n: ReconciledNode(n, "gpu", True, busy, jobs=("1",), ends=float(end)) for n, end in ends.items()}
        nodes["c-gpu-7"] = ReconciledNode("c-gpu-7", "gpu", True, frozenset({"IDLE"}))

        def replaced(**changed: ReconciledNode) -> list[str]:
            found = World(NOW, {**nodes, **changed}, old, settings(8)["nodesets"], 0.25)
            return [a.nodes[0] for a in restrain(decide(found), found, remaining=100)[0] if a.do is Do.ASAP]

        assert sorted(replaced()) == ["c-gpu-6", "c-gpu-7"]
        # Two that are drained while their jobs run hold up further busy ones, and no idle one.
        drained = frozenset({"ALLOCATED", "DRAIN", "POWER_DOWN"})
        late = {n: replace(nodes[n], states=drained, reason=REPLACED) for n in names[:2]}
        assert replaced(**late) == ["c-gpu-7"]

    def test_a_sick_node_whose_jobs_run_holds_up_no_repair(self):
        found = beside(sick(BAD))
        busy = ReconciledNode("c-gpu-1", "gpu", True, frozenset({"MIXED", "DRAIN"}), SICK, "root", ("7",))
        repairs = {"c-gpu-1": Repair(reset=NOW - 3600)}
        found = replace(found, nodes={**found.nodes, "c-gpu-1": busy}, repairs=repairs)
        assert first_rule(Case(found, NAME)).id == "sick-reboot"
        idle = replace(busy, states=frozenset({"IDLE", "DRAIN"}), jobs=())
        found = replace(found, nodes={**found.nodes, "c-gpu-1": idle})
        assert first_rule(Case(found, NAME)).id == "sick-many"

    def test_a_node_that_got_a_job_before_its_maintenance_holds_up_no_other(self):
        names = ("c-gpu-0", "c-gpu-1")
        there = {n: (Instance(n, "z", "RUNNING", maintenance="PENDING", reschedules=True),) for n in names}
        first = ReconciledNode("c-gpu-0", "gpu", False, frozenset({"MIXED", "DRAIN"}), MAINTAINED, "root", ("7",))
        nodes = {"c-gpu-0": first, "c-gpu-1": ReconciledNode("c-gpu-1", "gpu", False, frozenset({"IDLE"}))}
        found = World(NOW, nodes, there, settings(8)["nodesets"])
        assert [action.rule for action in restrain(decide(found), found, remaining=100)[0]] == ["maintain"]
        nodes["c-gpu-0"] = replace(first, states=frozenset({"IDLE", "DRAIN"}), jobs=())
        found = replace(found, nodes=dict(nodes))
        assert "maintain" not in [action.rule for action in restrain(decide(found), found, remaining=100)[0]]

    def test_a_host_with_a_fault_takes_no_more_jobs_though_other_nodes_are_out_of_service(self):
        found = beside(world("ALLOCATED", "RUNNING", maintenance="PENDING", fault="FAILURE_GPU", jobs=("7",)), 3)
        out = replace(found.nodes["c-gpu-1"], states=frozenset({"IDLE", "DRAIN"}), reason=SICK)
        found = replace(found, nodes={**found.nodes, "c-gpu-1": out})
        done, held = restrain(decide(found), found, remaining=100)
        assert ([action.rule for action in done if NAME in action.nodes], held) == (["fault-elastic"], [])


def test_a_state_that_lasted_before_the_clock_was_set_back_lasts_since_then():
    before = state_ages({}, world(ASLEEP, "RUNNING"))
    (seen,) = state_ages(before, replace(world(ASLEEP, "RUNNING"), now=NOW - DAY)).values()
    assert (seen.since, seen.power_since, seen.passes) == (NOW - DAY, NOW - DAY, 2)


def test_ages_of_states_over_three_passes():
    first = world(UP, "RUNNING")
    seen = state_ages({}, first)
    assert (seen[NAME].passes, seen[NAME].since) == (1, NOW)
    later = replace(first, now=NOW + 30)
    again = state_ages(seen, later)
    assert (again[NAME].passes, again[NAME].since) == (2, NOW)
    off = replace(world(OFF, "RUNNING"), now=NOW + 60)
    found = state_ages(again, off)
    assert found[NAME] == StateAge("RUNNING", "POWERING_DOWN", NOW + 60, 1, "POWERING_DOWN", NOW + 60, "up")
