"""Decides what the reconcile loop does with each node and instance: a table, and a pure function over observations.

`RULES` is the table; the first rule that applies to a name decides. A node that a person has drained is left alone,
and one that is set DOWN while it is: with ReturnToService=2 that ends when its slurmd answers (node_did_resp of
src/slurmctld/node_mgr.c). So are nodes that reboot or that a maintenance reservation holds; but a machine is deleted
whose node Slurm powers down, and one is created that a job in a MAINT reservation needs.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from reconcile.world import (
    COMING,
    DOWN_SECONDS,
    DUPLICATE,
    ENDED,
    ENDING,
    ENDS,
    FAULTY,
    GONE,
    HEALTH,
    JOBLESS_SECONDS,
    JOINED_SECONDS,
    MAINTAIN_SECONDS,
    MAINTAINED,
    NEW,
    NO_BOOT,
    ORPHAN_SECONDS,
    REPAIR_SECONDS,
    REPLACED,
    REPORTABLE,
    RUNNING,
    STRAY_SECONDS,
    SUSPENDED_SECONDS,
    Case,
    World,
)


class Do(Enum):
    """An action on a node or its instance."""

    NOTHING = "nothing"
    ALERT = "show it in `status` and as an alert"
    CREATE = "create the instance"
    DELETE = "delete the instance"
    DOWN = "set the node down"
    DRAIN = "drain the node"
    RESUME = "resume the node"
    POWER_DOWN = "power the node down"
    FORCE = "power the node down at once"
    ASAP = "power the node down when its jobs have ended"
    REFUSE = "write the reason into the jobs' comment, power the node down at once"
    BOOT_FAILED = "keep the serial log, power the node down at once"
    REGISTER = "have slurmd register as after a boot"
    RESET = "reboot the machine"
    REPORT = "report the host as faulty"
    MAINTAIN = "have the host maintained now"
    REPLACE = "delete the instance; the node stays drained until its new machine is checked"


HARMLESS = frozenset({Do.CREATE, Do.REFUSE, Do.ALERT, Do.REGISTER})
"""Actions that are done on a partial list too, and while slurmctld has just started."""


@dataclass(frozen=True)
class Action:
    """An action on nodes; `rule` is the row of the table that led to it."""

    rule: str
    do: Do
    nodes: tuple[str, ...]
    nodeset: str = ""
    reason: str = ""
    way: str = ""
    template: str = ""


class When(NamedTuple):
    """A condition of the table: its text for people, and the check."""

    text: str
    holds: Callable[[Case], bool]


@dataclass(frozen=True)
class Rule:
    """A row of the table: conditions of the instance, of the node, and others; then the action. `counts`: whether the
    brakes may hold it, since neither Slurm nor a person has requested it."""

    id: str
    instance: When
    node: When
    when: tuple[When, ...]
    do: Do
    reason: str = ""
    counts: bool = False

    def applies(self, case: Case) -> bool:
        if not self.instance.holds(case) or not self.node.holds(case):
            return False
        # For every row: the loop deletes only instances that it has made, and sends one request for each. A pending
        # creation, which may hang, does not keep it from that.
        is_deleted = case.pending is not None and case.pending.kind == "delete"
        if self.do is Do.DELETE and (not case.instance.made_by_loop or is_deleted):
            return False
        return all(condition.holds(case) for condition in self.when)


def _status(*names: str) -> When:
    return When(", ".join(names), lambda c: c.status in names)


def _lasts(text: str, seconds: float) -> When:
    return When(text, lambda c: c.lasted > seconds)


ANY, ELSE = When("any", lambda _: True), When("else", lambda _: True)
# Conditions of the instance.
NONE = When("none", lambda c: not c.instances)
QUEUED, RUNS, ON = _status("PENDING"), _status(*COMING, RUNNING), _status(RUNNING)
STOPS, STOPPED = _status(*ENDING, *ENDED), _status(*ENDED)
# Conditions of the node.
NO_NODE = When("not in slurm.conf", lambda c: c.name not in c.world.nodes)
ASLEEP, BOOTS = When("POWERED_DOWN", lambda c: c.power == "POWERED_DOWN"), When("POWERING_UP", lambda c: c.booting)
FALLS_ASLEEP = When("POWERING_DOWN", lambda c: c.power == "POWERING_DOWN")
ASLEEP_DOWN = When("POWERED_DOWN, DOWN", lambda c: c.power == "POWERED_DOWN" and c.down)
UP, DOWN = When("in service", lambda c: c.up), When("DOWN", lambda c: c.down and c.power == "up")
IS_NEW, SICK = When(f"DRAIN `{NEW}`", lambda c: c.new), When("drained by a health check", lambda c: c.sick)
MAINTAINS = When("drained for the maintenance of its host", lambda c: c.is_drained_for(MAINTAINED, FAULTY))
# Other conditions.
ELASTIC, STATIC = When("elastic", lambda c: c.node.elastic), When("not elastic", lambda c: not c.node.elastic)
MADE = When("made by the loop", lambda c: c.instance.made_by_loop)
NOT_MADE = When("not made by the loop", lambda c: not c.instance.made_by_loop)
NO_OTHER = When("nor of another nodeset", lambda c: c.name not in c.world.node_names)
STRAY = _lasts("for 30 min", STRAY_SECONDS)
NOT_HELD = When("by the loop or by Slurm", lambda c: not c.held_by_others)
TWICE, ORPHANED = When("seen twice", lambda c: c.age.passes >= 2), _lasts("90 s", ORPHAN_SECONDS)
JOBLESS = When("without jobs", lambda c: not c.busy)
IDLE = When("idle", lambda c: not c.busy and not c.states & {"PLANNED", "RESERVED"})
NOT_PENDING = When("nothing is under way", lambda c: c.pending is None)
WAY = When("a way of the nodeset may be tried", lambda c: c.next_template is not None)
NO_WAY = When("every way has failed and cools down, or the budget is used", lambda c: c.next_template is None)
GIVEN_UP = When("on a host that was given up", lambda c: c.bad_host)
ANNOUNCED = When("maintenance of its host is announced", lambda c: c.maintainable)
FAULT = When("maintenance of its host is announced for a fault", lambda c: c.faulty)
DOWN_LONG = _lasts("for 10 min", DOWN_SECONDS)
NOT_REBOOTED = When("not rebooted for 24 h", lambda c: not c.within_day(c.repair.reset))
REPLACEABLE = When("elastic, on demand or spot, at most 3 a day", lambda c: c.replaceable)

RULES: tuple[Rule, ...] = (
    Rule("two-zones", When("in two zones", lambda c: len(c.instances) > 1), ANY, (), Do.ALERT),
    Rule("unknown", ANY, NO_NODE, (NO_OTHER, MADE, TWICE, ORPHANED), Do.DELETE, counts=True),
    Rule("stray", RUNS, NO_NODE, (NO_OTHER, When("a node by its label `hpc-part`, or without the label",
         lambda c: c.instance.labels.get("hpc-part", "node") == "node"), NOT_MADE, STRAY), Do.ALERT),
    Rule("not-ours", ANY, NO_NODE, (ELSE,), Do.NOTHING),
    Rule("reboots", ANY, When("REBOOT_*", lambda c: any(s.startswith("REBOOT") for s in c.states)), (), Do.NOTHING),
    # Slurm has asked for this machine's end, whoever holds the node now.
    Rule("suspend", _status(*COMING, RUNNING, "SUSPENDED"), FALLS_ASLEEP, (MADE,), Do.DELETE),
    # The same where it could not be deleted in time: after slurmctld's start nothing is, nor with a partial list.
    Rule("suspend-late", _status(*COMING, RUNNING, "SUSPENDED"), ASLEEP, (MADE, JOBLESS, When("it existed while the "
         "node was POWERING_DOWN last", lambda c: c.age.before == "POWERING_DOWN"
         and c.instance.created < c.age.power_since)), Do.DELETE),
    Rule("stray-asleep", RUNS, ASLEEP, (NOT_MADE, STRAY), Do.ALERT),
    Rule("held-asleep", RUNS, ASLEEP, (When("in a MAINT reservation, or DOWN, DRAIN or FAIL by a person, by `up` or a "
         "drain by Slurm", lambda c: c.held_by_others or c.in_maintenance), MADE, TWICE, ORPHANED), Do.ALERT),
    Rule("maintenance", ANY, When("in a MAINT reservation", lambda c: c.in_maintenance), (
         When("neither POWERING_UP nor POWERING_DOWN", lambda c: c.power not in ("POWERING_UP", "POWERING_DOWN")),),
         Do.NOTHING),
    Rule("power-down-waits", ANY, When("POWER_DOWN", lambda c: c.power == "POWER_DOWN"), (), Do.NOTHING),
    Rule("twice-started", ON, When(f"DRAIN `{DUPLICATE}` by Slurm", lambda c: "DRAIN" in c.states
         and c.node.by == "slurm" and c.reason == DUPLICATE), (JOBLESS, TWICE), Do.RESUME),
    Rule("others", ANY, When("DOWN, DRAIN or FAIL", lambda c: bool(c.states & {"DOWN", "DRAIN", "FAIL"})),
         (When("by a person, by `up`, or a drain by Slurm", lambda c: c.held_by_others),), Do.NOTHING),
    # Maintenance of a host, done while its node is idle.
    Rule("maintain-now", ON, MAINTAINS, (JOBLESS, ANNOUNCED, NOT_PENDING), Do.MAINTAIN, counts=True),
    Rule("maintained", ON, MAINTAINS, (
         When(f"it is over, or has not begun in {MAINTAIN_SECONDS // 60} min", lambda c: c.maintenance_over),
         When("the node is up and answers", lambda c: not c.states & {"DOWN", "NOT_RESPONDING"}), NOT_PENDING, TWICE),
         Do.RESUME),
    Rule("maintain-waits", ANY, MAINTAINS, (ELSE,), Do.NOTHING),
    Rule("host-again", RUNS, When(f"POWERING_UP or DRAIN `{NEW}`", lambda c: c.booting or c.new),
         (ELASTIC, MADE, GIVEN_UP), Do.DELETE, counts=True),
    # A machine that is replaced: the node is drained all the time.
    Rule("new-create", NONE, IS_NEW,
         (WAY, When("no request is under way or has just failed", lambda c: not c.requested)), Do.CREATE),
    Rule("new-sound", ON, IS_NEW, (When("two health checks have passed since", lambda c: c.sound),), Do.RESUME),
    Rule("new-sick", ON, IS_NEW,
         (When("a health check has failed since", lambda c: c.checked and c.health.failed),), Do.ALERT),
    Rule("new-ended", STOPPED, IS_NEW, (ELASTIC, MADE), Do.DELETE, counts=True),
    Rule("new-waits", ANY, IS_NEW, (ELSE,), Do.NOTHING),
    # No instance.
    Rule("creating", NONE, BOOTS, (When("the request is under way, or has just failed", lambda c: c.requested),),
         Do.NOTHING),
    Rule("create", NONE, BOOTS, (ELASTIC, WAY), Do.CREATE),
    Rule("no-way", NONE, BOOTS, (ELASTIC, NO_WAY), Do.REFUSE),
    # Powered down, and not resumed: a node that is resumed from DOWN counts as one that does not answer
    # (_require_node_reg of src/slurmctld/node_mgr.c), and while it is off no job gets it after the next reconfigure
    # (read_config.c). Slurm clears both states when it powers the node down.
    Rule("capacity-again", NONE, ASLEEP_DOWN, (NOT_HELD, WAY), Do.POWER_DOWN),
    Rule("capacity-waits", NONE, ASLEEP_DOWN, (NOT_HELD, NO_WAY), Do.NOTHING),
    Rule("dead-end", NONE, When("POWERED_DOWN, NOT_RESPONDING", lambda c: c.power == "POWERED_DOWN"
         and "NOT_RESPONDING" in c.states), (TWICE,), Do.FORCE, counts=True),
    Rule("no-capacity", NONE, ASLEEP, (ELASTIC, NO_WAY), Do.DOWN),
    Rule("asleep", NONE, ASLEEP, (ELSE,), Do.NOTHING),
    Rule("suspended", NONE, FALLS_ASLEEP, (When("for 15 s", lambda c: c.lasted >= SUSPENDED_SECONDS), TWICE,
         NOT_PENDING), Do.RESUME),
    Rule("suspends", NONE, FALLS_ASLEEP, (ELSE,), Do.NOTHING),
    Rule("gone-down", NONE, DOWN, (ELASTIC, NOT_HELD), Do.POWER_DOWN, counts=True),
    # The fault was the machine's, and the machine does not exist any more.
    Rule("gone-drained", NONE, SICK, (ELASTIC, JOBLESS, TWICE), Do.POWER_DOWN, counts=True),
    Rule("gone", NONE, UP, (TWICE,), Do.DOWN, reason=GONE, counts=True),
    Rule("gone-once", NONE, ANY, (ELSE,), Do.NOTHING),
    # Instances that wait, boot or run.
    Rule("queued-jobless", QUEUED, BOOTS, (MADE, _lasts("for 30 s", JOBLESS_SECONDS),
         When("no job waits for it", lambda c: not c.node.jobs)), Do.FORCE),
    Rule("queued-refused", QUEUED, BOOTS, (MADE, When("the budget is used", lambda c: bool(c.world.refused))),
         Do.REFUSE),
    Rule("queued", QUEUED, BOOTS, (), Do.NOTHING),
    Rule("queued-unneeded", QUEUED, ANY, (ELASTIC, MADE, TWICE), Do.DELETE, counts=True),
    Rule("old-machine", RUNS, BOOTS, (MADE, When("created before Slurm asked for it", lambda c: c.old_machine)),
         Do.DELETE, counts=True),
    Rule("boot-failed", RUNS, BOOTS, (When("the machine reports a failure, or 80 % of ResumeTimeout are over",
         lambda c: c.boot_failed),), Do.BOOT_FAILED, reason=NO_BOOT, counts=True),
    Rule("unheard", ON, BOOTS, (When(f"its set-up ended {JOINED_SECONDS} s ago", lambda c: c.unheard),), Do.REGISTER),
    Rule("boots", RUNS, BOOTS, (ELSE,), Do.NOTHING),
    Rule("orphan-busy", RUNS, ASLEEP, (When("jobs run there", lambda c: bool(c.node.jobs)),), Do.ALERT),
    Rule("orphan", RUNS, ASLEEP, (MADE, TWICE, ORPHANED), Do.DELETE, counts=True),
    # Instances that end.
    Rule("sick-moves", STOPS, SICK, (When("a step of its repair is under way", lambda c: c.pending is not None),),
         Do.NOTHING),
    Rule("ends", STOPS, UP, (), Do.DOWN, reason=ENDS, counts=True),
    Rule("ending", _status(*ENDING), ANY, (ELSE,), Do.NOTHING),
    Rule("ended-down", STOPPED, DOWN, (ELASTIC,), Do.POWER_DOWN, counts=True),
    Rule("ended", STOPPED, When("POWERING_UP, POWERING_DOWN, POWERED_DOWN", lambda c: c.power != "up"),
         (ELASTIC, MADE), Do.DELETE, counts=True),
    Rule("stopped", STOPPED, ANY, (When("else: `up` starts it again", lambda _: True),), Do.NOTHING),
    Rule("moves", _status("SUSPENDED", "SUSPENDING", "REPAIRING"), UP, (When("not drained by a health check",
         lambda c: not c.sick),), Do.DOWN, reason=ENDS, counts=True),
    Rule("moves-long", _status("SUSPENDED", "REPAIRING"), ANY, (_lasts("for 30 min", 1800),), Do.ALERT),
    # Repair of a node that a health check has drained.
    Rule("sick-busy", ANY, SICK, (When("jobs run there", lambda c: c.busy),), Do.NOTHING),
    Rule("sick-host-replace", ON, SICK, (When("for 30 min still on the host that was given up",
         lambda c: c.bad_host and c.now - c.repair.last > REPAIR_SECONDS), NOT_PENDING, REPLACEABLE,
         When("few of the nodeset are sick", lambda c: not c.over_budget)), Do.REPLACE, reason=NEW, counts=True),
    Rule("sick-host", ON, SICK, (GIVEN_UP,), Do.ALERT),
    Rule("sick-unmeasured", ON, SICK, (When("its NCCL test with another node had no result in the last hour",
         lambda c: c.unmeasured),), Do.ALERT),
    Rule("sick-mended", ON, SICK, (When("two health checks have passed since its machine was rebooted or moved",
         lambda c: c.sound and (c.within_day(c.repair.last) or c.name in c.world.waits)),), Do.RESUME),
    Rule("sick-waits", ANY, SICK, (When("no fault that calls for a repair, or a step of one is under way",
         lambda c: not c.confirmed or c.pending is not None or c.status != RUNNING),), Do.NOTHING),
    Rule("sick-many", ON, SICK, (When("more than 20 % of the nodeset are sick, or one in 16 is in repair",
         lambda c: c.over_budget),), Do.ALERT),
    Rule("sick-reboot", ON, SICK, (NOT_REBOOTED,), Do.RESET, counts=True),
    Rule("sick-report", ON, SICK, (When("rebooted, the machine type can move to another host",
         lambda c: c.instance.machine_type.startswith(REPORTABLE) and not c.repair.refused
         and not c.within_day(c.repair.report)),), Do.REPORT, counts=True),
    Rule("sick-replace", ON, SICK, (REPLACEABLE,), Do.REPLACE, reason=NEW, counts=True),
    Rule("sick-person", ON, SICK, (ELSE,), Do.ALERT),
    # Others that run.
    Rule("back", ON, DOWN, (When("by the loop", lambda c: c.reason.startswith((GONE, ENDS))),
         When("the node answers", lambda c: "NOT_RESPONDING" not in c.states), TWICE), Do.RESUME, counts=True),
    # So many nodes are down that the cause is not their machines.
    Rule("down-many", ON, DOWN, (NOT_HELD, DOWN_LONG, When("more than two nodes and 20 % of the nodeset are",
         lambda c: c.node.nodeset in c.world.silent_nodesets)), Do.ALERT),
    Rule("down-long", ON, DOWN, (ELASTIC, NOT_HELD, DOWN_LONG), Do.POWER_DOWN, counts=True),
    Rule("down-static", ON, DOWN, (STATIC, NOT_HELD, DOWN_LONG, NOT_REBOOTED, NOT_PENDING), Do.RESET, counts=True),
    Rule("down", ON, DOWN, (ELSE,), Do.NOTHING),
    Rule("fault-elastic", ON, UP, (ELASTIC, FAULT), Do.ASAP, reason=FAULTY, counts=True),
    Rule("fault", ON, UP, (FAULT,), Do.DRAIN, reason=FAULTY, counts=True),
    Rule("maintain-elastic", ON, UP, (ELASTIC, IDLE, ANNOUNCED), Do.POWER_DOWN, counts=True),
    Rule("maintain", ON, UP, (IDLE, When("maintenance of its host is announced and may be done now, once a day, for "
         "one node of the nodeset", lambda c: c.maintainable)), Do.DRAIN, reason=MAINTAINED, counts=True),
    Rule("outdated", ON, UP, (When("made from a template that the nodeset has no more", lambda c: c.outdated),),
         Do.ASAP, reason=REPLACED, counts=True),
    Rule("host-up", ON, UP, (ELASTIC, MADE, When("on a host that was given up before", lambda c: c.bad_host
         and c.repair.report < c.instance.created)), Do.ASAP, reason=REPLACED, counts=True),
    Rule("well", ANY, ANY, (ELSE,), Do.NOTHING),
)  # fmt: skip
BY_ID = {rule.id: rule for rule in RULES}
REPAIRED = ("new-sound", "sick-mended")
"""Rules that resume a repaired node, after it is measured (health/acceptance.py)."""
COLUMNS = ("rule", "instance", "node", "condition", "action")


def table() -> list[tuple[str, ...]]:
    """Return the texts of the rules by COLUMNS."""
    return [
        (rule.id, rule.instance.text, rule.node.text, "; ".join(when.text for when in rule.when) or "-", rule.do.value)
        for rule in RULES
    ]


def first_rule(case: Case) -> Rule:
    """Return the first rule that applies. A pure function."""
    return next(rule for rule in RULES if rule.applies(case))


def decide(world: World) -> list[Action]:
    """Return what is to be done now; while `world` is unsafe, only harmless actions. A pure function.

    Nodes that boot for the same job are created by one action, so that all of them come or none.
    """
    others: list[Action] = []
    creates: dict[tuple[str, ...], Action] = {}
    for name in sorted({*world.nodes, *world.instances}):
        rule = first_rule(case := Case(world, name))
        if rule.do is Do.NOTHING or (world.unsafe and rule.do not in HARMLESS):
            continue
        action = Action(rule.id, rule.do, (name,), case.node.nodeset, rule.reason)
        if rule.do is Do.CREATE and (row := case.next_template):
            key = (action.nodeset, row["way"], world.main_jobs.get(name, name))
            names = (*creates[key].nodes, name) if key in creates else (name,)
            creates[key] = replace(action, nodes=names, way=row["way"], template=row["template"])
            continue
        if rule.id in ("no-way", "queued-refused", "no-capacity"):
            action = replace(action, reason=case.refusal)
        if rule.do is Do.REPLACE:
            action = replace(action, reason=f"{NEW} ({case.reason.removeprefix(HEALTH)[:200]})")
        others.append(action)
    return [*creates.values(), *others]
