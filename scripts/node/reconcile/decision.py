"""Decides what the reconcile loop does with each node and instance: a table, and a pure function over observations.

`RULES` is the table; the first rule that applies to a name decides. Slurm says which nodes must have a machine, the
list of instances which have one. The loop's own memory holds only how long a state has lasted, operations that are
under way, and what has failed. A node that a person has drained or set down is left alone, and so are nodes that reboot
or that a maintenance reservation holds.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from health.kinds import PREFIX as HEALTH
from interface import ReconcileNodeset
from reconcile.compute_engine import MADE_BY, OURS, TEMPLATE, Instance
from slurm.output import CLOUD

# Reasons that the loop gives nodes; each is known again by its beginning.
GONE = "hpc: its machine is gone"
ENDS = "hpc: its machine stops"
NO_CAPACITY = "hpc: no capacity"
NO_MACHINE = "hpc: its machine is refused"
NO_BOOT = "hpc: its machine did not boot"
REPLACED = "hpc: its machine is replaced"
MAINTAINED = "hpc: its host is maintained now, while it is idle"
NEW = "hpc: new machine, being checked"
FAULTY = "hpc: the cloud has found a fault of its host"
DUPLICATE = "Duplicate jobid"
"""Reason of Slurm's own (DSH_DUP_JOBID, src/slurmctld/agent.c): a slurmctld that was killed starts a job on a node that
runs it already, and drains the node."""
LOOPS = (GONE, ENDS, NO_CAPACITY, NO_MACHINE, NO_BOOT, REPLACED, MAINTAINED, FAULTY, *CLOUD)
"""Reasons of nodes that the loop resumes, or powers down, by itself."""

ORPHAN_SECONDS = 90  # an instance of a node that sleeps: as slurm-gcp waits (slurmsync.py)
DOWN_SECONDS = 600  # a node that is down while its machine runs: longer than a boot, and ReturnToService=2
SUSPENDED_SECONDS = 15  # a node that is powering down without a machine: lists may be late
JOBLESS_SECONDS = 30  # a machine in the queue that no job waits for
MAINTAIN_SECONDS = 600  # from the request for a maintenance until it begins
REPAIR_SECONDS = 1800  # a machine that was rebooted, moved or replaced is checked by then
DAY = 24 * 3600
BOOT_PART = 0.8  # of ResumeTimeout: a machine that has not joined by then
JOINED_SECONDS = 15  # from a machine's set-up until slurmctld takes its node to be up
REPLACED_PER_DAY = 3  # machines of one nodeset
HOST_SECONDS = 7 * DAY  # since a host was given up, or its last machine deleted: it is trusted again
UNMEASURED_SECONDS = 3600  # until a measurement without a result is tried again
HOST_MACHINES = 3  # machines that come back on such a host, until their way cools down
NODES_PER_REPAIR = 16  # nodes of one nodeset for each one that may be in repair
COMMON_PART = 0.2  # of a nodeset's nodes: a fault that more of them have is not of their machines
COMING, RUNNING = ("PROVISIONING", "STAGING"), "RUNNING"
ENDING, ENDED = ("PENDING_STOP", "STOPPING", "DEPROVISIONING"), ("TERMINATED", "STOPPED")
REPORTABLE = ("a3-highgpu-8g", "a3-megagpu-", "a3-ultragpu-", "a4-", "a4x-")
"""Machine types whose hosts may be reported as faulty: those of a reservation; others are refused, then replaced."""
_POWER = ("POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "POWERED_DOWN")
_TIMEOUT = re.compile(r"(^| : )ResumeTimeout reached$")


class Do(Enum):
    """An action on a node or its instance."""

    NOTHING = "nothing"
    ALERT = "show it in `status`"
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
"""Actions that are also taken on a partial list, and while slurmctld has just started."""


@dataclass(frozen=True)
class Node:
    """A node as Slurm has it; `by` is who gave the reason, `jobs` those that it runs or boots for."""

    name: str
    nodeset: str
    elastic: bool
    states: frozenset[str]
    reason: str = ""
    by: str = ""
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Seen:
    """The time for which a name has been as it is: the instance's status and the node's mode since `since`, in one pass
    or more; its power state alone since `power_since`, after `before`."""

    status: str
    mode: str
    since: float
    passes: int
    power: str
    power_since: float
    before: str = ""


@dataclass(frozen=True)
class Pending:
    """An operation that is under way: create, delete, reset or report."""

    kind: str
    operation: str
    began: float
    way: str = ""


@dataclass(frozen=True)
class Cooling:
    """A way of a nodeset that is not tried before `until`, and why."""

    until: float
    minutes: int
    reason: str


@dataclass(frozen=True)
class Health:
    """The last health check of a node: whether anything failed, runs in a row since its boot in which nothing did, and
    whether a fault calls for a repair of the machine (health/drain.py)."""

    time: float
    failed: bool
    passes: int
    repair: bool = False
    found: float = 0.0
    """Since when the oldest fault of the machine is known."""
    slow: float = 0.0
    """The last time that a measurement failed: the machine is too slow, though its checks pass."""
    unmeasured: float = 0.0
    """The last time that the NCCL test between pairs, for which the node is drained, ended without a result."""


@dataclass(frozen=True)
class BadHost:
    """A host that was given up, since it was reported as faulty or its machine replaced: when last, why, and how many
    machines have come back on it."""

    time: float
    reason: str
    machines: int = 0


@dataclass(frozen=True)
class Repair:
    """The times at which a node's machine was last rebooted, its host reported, the machine replaced; 0 is never."""

    reset: float = 0.0
    report: float = 0.0
    replace: float = 0.0
    refused: bool = False
    """True if the host could not be reported."""
    maintain: float = 0.0
    """The last time that maintenance of its host was asked for."""

    @property
    def last(self) -> float:
        """The last step."""
        return max(self.reset, self.report, self.replace)


@dataclass(frozen=True)
class World:
    """The observations that a decision is made from."""

    now: float
    nodes: Mapping[str, Node]
    instances: Mapping[str, tuple[Instance, ...]]
    nodesets: Mapping[str, ReconcileNodeset]
    max_unavailable: float = 0.25
    maintain: bool = True
    """Whether hosts of static nodes are maintained on request."""
    seen: Mapping[str, Seen] = field(default_factory=dict)
    pending: Mapping[str, Pending] = field(default_factory=dict)
    cooling: Mapping[str, Cooling] = field(default_factory=dict)
    retry: Mapping[str, float] = field(default_factory=dict)
    """Nodes whose request failed for a moment, and until when none is sent."""
    health: Mapping[str, Health] = field(default_factory=dict)
    repairs: Mapping[str, Repair] = field(default_factory=dict)
    hosts: Mapping[str, BadHost] = field(default_factory=dict)
    """Hosts that no job is to run on."""
    waits: frozenset[str] = frozenset()
    """Repaired nodes that wait for another one to be measured with."""
    boot: Mapping[str, str] = field(default_factory=dict)
    """States of their set-up that machines have published while they boot."""
    joined: Mapping[str, float] = field(default_factory=dict)
    """The time at which machines that boot have last ended their set-up, at whose end slurmd starts."""
    known: frozenset[str] = frozenset()
    """Names of the nodes that Slurm has, those of other nodesets included."""
    unsafe: str = ""
    """The reason why nothing may be deleted or set down now: a partial list, or a slurmctld that has just started."""
    awake: float = 0.0
    """Since when the loop has made its passes without a break: nothing counts as having lasted for longer."""

    @cached_property
    def silent(self) -> frozenset[str]:
        """Nodesets of which so many nodes are down while their machines run that the cause is not the machines: the
        network, a firewall rule, a file server."""
        sizes = Counter(node.nodeset for node in self.nodes.values())
        down = (node for node in self.nodes.values() if "DOWN" in node.states and Case(self, node.name).is_silent)
        counts = Counter(node.nodeset for node in down)
        return frozenset(name for name, count in counts.items() if count > max(2, COMMON_PART * sizes[name]))


@dataclass(frozen=True)
class Action:
    """Something to do; `rule` is the table's row."""

    rule: str
    do: Do
    nodes: tuple[str, ...]
    nodeset: str = ""
    reason: str = ""
    way: str = ""
    template: str = ""


def way_key(nodeset: str, way: str) -> str:
    """Under which a way's cool-down is kept."""
    return f"{nodeset}/{way}"


def observe(before: Mapping[str, Seen], world: World) -> dict[str, Seen]:
    """Return how long each name has been as it is now. A pure function."""
    found: dict[str, Seen] = {}
    for name in {*world.nodes, *world.instances}:
        case = Case(world, name)
        last = before.get(name)
        same = last is not None and (last.status, last.mode) == (case.status, case.mode)
        kept = last is not None and last.power == case.power
        found[name] = Seen(
            status=case.status,
            mode=case.mode,
            since=min(last.since, world.now) if last and same else world.now,
            passes=2 if same else 1,
            power=case.power,
            power_since=min(last.power_since, world.now) if last and kept else world.now,
            before=(last.before if kept else last.power) if last else "",
        )
    return found


_NO_REPAIR = Repair()


class Case:
    """A name: its node, its instance, and what the rules ask about them."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.now = world, name, world.now
        self.node = world.nodes.get(name)
        self.found = world.instances.get(name, ())
        self.instance = self.found[0] if self.found else None
        self.status = self.instance.status if self.instance else ""
        self.states = self.node.states if self.node else frozenset[str]()
        self.power = next((power for power in _POWER if power in self.states), "up") if self.node else "none"
        self.seen = world.seen.get(name) or Seen(self.status, self.mode, self.now, 1, self.power, self.now)
        self.pending = world.pending.get(name)
        self.repair = world.repairs.get(name, _NO_REPAIR)
        self.health = world.health.get(name)

    @property
    def mode(self) -> str:
        """The node's power state, and why it is out of service."""
        out = "sick" if self.sick else "new" if self.new else "down" if self.down else ""
        return f"{self.power} {out}".strip()

    @property
    def ours(self) -> bool:
        """Return whether the loop made the instance."""
        return self.instance is not None and self.instance.labels.get(MADE_BY) == OURS

    @property
    def elastic(self) -> bool:
        return self.node is not None and self.node.elastic

    @property
    def deleted(self) -> bool:
        """Return whether its deletion is under way. A creation that hangs keeps no unwanted instance."""
        return self.pending is not None and self.pending.kind == "delete"

    @property
    def asked(self) -> bool:
        """Return whether a request for its instance is under way, or has just failed."""
        return self.pending is not None or self.world.retry.get(self.name, 0) > self.now

    @property
    def lasted(self) -> float:
        return self.now - max(self.seen.since, self.world.awake)

    @property
    def booting(self) -> bool:
        return self.power == "POWERING_UP"

    @property
    def down(self) -> bool:
        return "DOWN" in self.states

    @property
    def is_silent(self) -> bool:
        """Return whether Slurm, or the loop, has set the node down, and its machine runs."""
        return self.down and self.power == "up" and self.status == RUNNING and not self.others

    @property
    def up(self) -> bool:
        """Return whether Slurm takes the node to be in service, drained or not."""
        return self.power == "up" and not self.down

    @property
    def reason(self) -> str:
        """The node's reason, without what Slurm appends at ResumeTimeout."""
        return _TIMEOUT.sub("", self.node.reason) if self.node else ""

    @property
    def sick(self) -> bool:
        """Return whether a health check has drained the node."""
        return "DRAIN" in self.states and self.reason.startswith(HEALTH)

    @property
    def new(self) -> bool:
        """Return whether the node waits for its new machine, or for its check."""
        return "DRAIN" in self.states and self.reason.startswith(NEW)

    @property
    def twice_started(self) -> bool:
        """Return whether Slurm has drained the node for a job that it had forgotten."""
        return "DRAIN" in self.states and self.node is not None and self.node.by == "slurm" and self.reason == DUPLICATE

    @property
    def maintained(self) -> bool:
        """Return whether the loop has drained the node to have its host maintained."""
        return "DRAIN" in self.states and self.reason.startswith((MAINTAINED, FAULTY))

    @property
    def faulty(self) -> bool:
        """Return whether its host is to be maintained for a fault, which jobs should not wait for."""
        return self.instance is not None and self.instance.maintenance == "PENDING" and bool(self.instance.fault)

    @property
    def maintainable(self) -> bool:
        """Return whether the host's maintenance is announced, may be done now, and was not asked for since a day."""
        if self.instance is None or self.instance.maintenance != "PENDING":
            return False
        now = self.world.maintain and self.instance.reschedules and not self.within(self.repair.maintain)
        return self.elastic or now

    @property
    def maintenance_over(self) -> bool:
        """Return whether none is announced any more, or what was asked for has not begun."""
        announced = self.instance.maintenance if self.instance else ""
        late = 0 < self.repair.maintain < self.now - MAINTAIN_SECONDS
        return not announced or (announced == "PENDING" and late and not self.maintainable and not self.faulty)

    @property
    def others(self) -> bool:
        """Return whether a person, `up`, or Slurm by a drain, has taken the node out of service."""
        if not self.node or not self.states & {"DOWN", "DRAIN", "FAIL"} or self.sick or self.new:
            return False
        if self.reason.startswith(LOOPS):
            return False
        slurms = not self.reason or (self.node.by == "slurm" and self.reason == self.node.reason)
        return not slurms or bool(self.states & {"DRAIN", "FAIL"})

    @property
    def busy(self) -> bool:
        return bool(self.node and self.node.jobs) or bool(self.states & {"ALLOCATED", "MIXED", "COMPLETING"})

    @property
    def free(self) -> bool:
        """Return whether nobody has a use for the node now: no job, none that is planned for it, no reservation."""
        return not self.busy and not self.states & {"PLANNED", "RESERVED"}

    @property
    def way(self) -> tuple[str, str] | None:
        """The first way of the nodeset that may be tried now, with its template; None where there is none."""
        if not self.node:
            return None
        for row in self.world.nodesets[self.node.nodeset]["templates"]:
            cooling = self.world.cooling.get(way_key(self.node.nodeset, row["way"]))
            if cooling is None or cooling.until <= self.now:
                return row["way"], row["template"]
        return None

    @property
    def refusal(self) -> str:
        """The reason why there is no way: that of the one that can be tried again first."""
        if not self.node:
            return ""
        rows = self.world.nodesets[self.node.nodeset]["templates"]
        keys = [way_key(self.node.nodeset, row["way"]) for row in rows]
        there = [self.world.cooling[key] for key in keys if key in self.world.cooling]
        return min(there, key=lambda cooling: cooling.until).reason if there else NO_CAPACITY

    @property
    def old_machine(self) -> bool:
        """Return whether the instance was there before Slurm asked for it: it will not boot again by itself."""
        asked = self.seen.before in ("POWERED_DOWN", "POWERING_DOWN") and self.seen.power == "POWERING_UP"
        return asked and self.instance is not None and 0 < self.instance.created < self.seen.power_since - 60

    @property
    def boot_failed(self) -> bool:
        if not self.node or self.world.boot.get(self.name, "").startswith("failed"):
            return bool(self.node)
        nodeset = self.world.nodesets[self.node.nodeset]
        since = max(self.seen.power_since, self.world.awake)
        if self.instance and any(row.get("run_seconds") for row in nodeset["templates"]):
            since = max(since, self.instance.created)  # it has waited, and Slurm waits longer than for a boot
        return self.now - since > BOOT_PART * nodeset["boot_seconds"]

    @property
    def unheard(self) -> bool:
        """Return whether the machine has joined, and slurmctld still waits: it ignores a machine that booted before it
        asked, as it does again after a restart that lost its first request."""
        joined = self.world.joined.get(self.name, 0.0)
        return self.instance is not None and self.instance.created < joined < self.now - JOINED_SECONDS

    @property
    def outdated(self) -> bool:
        """Return whether the instance is of a template that the nodeset does not have any more."""
        if not self.node or not self.instance or not self.elastic or not self.ours:
            return False
        rows = self.world.nodesets[self.node.nodeset]["templates"]
        # One of a group has none where the group could not be read.
        template = self.instance.labels.get(TEMPLATE)
        return template is not None and template not in {row["template"].rpartition("/")[2] for row in rows}

    # -- repair ------------------------------------------------------------------------------------------------------

    @property
    def confirmed(self) -> bool:
        """Return whether a fault calls for a repair, by a check since its last step; or the machine is not back."""
        since = max(self.repair.last, self.world.awake)
        silent = self.within(self.repair.last) and not self.checked and self.now - since > REPAIR_SECONDS
        return silent or self.slow or (self.checked and self.health is not None and self.health.repair)

    @property
    def checked(self) -> bool:
        """Return whether health checks have run since the last step of the repair."""
        return self.health is not None and self.health.time > self.repair.last

    @property
    def slow(self) -> bool:
        """Return whether a measurement has failed since the last step of the repair: its checks prove nothing then."""
        return self.health is not None and self.within(self.repair.last) and self.health.slow > self.repair.last

    @property
    def failed(self) -> bool:
        return self.checked and self.health is not None and self.health.failed

    @property
    def unmeasured(self) -> bool:
        """Return whether its checks pass, and its NCCL test with another node had no result in the last hour."""
        since = max(self.repair.last, self.now - UNMEASURED_SECONDS)
        return self.sound and self.health is not None and self.health.unmeasured > since

    @property
    def sound(self) -> bool:
        passes = self.checked and self.health is not None and not self.health.failed and self.health.passes >= 2
        return passes and not self.slow

    @property
    def bad_host(self) -> bool:
        """Return whether the machine is on a host that was given up."""
        return self.instance is not None and self.instance.host in self.world.hosts

    def within(self, time: float) -> bool:
        return self.now - time < DAY

    @property
    def reportable(self) -> bool:
        typed = self.instance is not None and self.instance.machine_type.startswith(REPORTABLE)
        return typed and not self.repair.refused and not self.within(self.repair.report)

    @property
    def replaceable(self) -> bool:
        """Return whether the machine may be deleted: not one of a reservation, whose next one is on the same host."""
        if not self.elastic or not self.ours or not self.node or self.within(self.repair.replace):
            return False
        names = {node.name for node in self.world.nodes.values() if node.nodeset == self.node.nodeset}
        done = sum(self.within(repair.replace) for name, repair in self.world.repairs.items() if name in names)
        return all(way.startswith(("on_demand", "spot")) for way in self.ways) and done < REPLACED_PER_DAY

    @property
    def ways(self) -> set[str]:
        """The ways whose template the instance was made from."""
        template = self.instance.labels.get(TEMPLATE) if self.instance else None
        rows = self.world.nodesets[self.node.nodeset]["templates"] if self.node else []
        return {row["way"] for row in rows if row["template"].rpartition("/")[2] == template}

    @property
    def over_budget(self) -> bool:
        """Return whether so many nodes of the nodeset are sick that the cause is not their machines."""
        if not self.node:
            return False
        nodes = [node for node in self.world.nodes.values() if node.nodeset == self.node.nodeset]
        sick = [node.name for node in nodes if "DRAIN" in node.states and node.reason.startswith((HEALTH, NEW))]
        repaired = [name for name in sick if self.within(self.world.repairs.get(name, Repair()).last)]
        allowed = max(1, len(nodes) // NODES_PER_REPAIR)
        is_held_back = self.node.name not in repaired and len(repaired) >= allowed
        return is_held_back or len(sick) > max(1, COMMON_PART * len(nodes))


class When(NamedTuple):
    """A condition of the table, as people read it and as the program checks it."""

    text: str
    holds: Callable[[Case], bool]


@dataclass(frozen=True)
class Rule:
    """A row of the table: conditions of the instance, of the node, and others; then the action. `counts`: whether the
    brakes hold it, since nobody has asked for it."""

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
        # Whatever a row says: the loop deletes only what it has made, and asks for it once.
        if self.do is Do.DELETE and (not case.ours or case.deleted):
            return False
        return all(condition.holds(case) for condition in self.when)


def _status(*names: str) -> When:
    return When(", ".join(names), lambda c: c.status in names)


def _lasts(text: str, seconds: float) -> When:
    return When(text, lambda c: c.lasted > seconds)


ANY, ELSE = When("any", lambda _: True), When("else", lambda _: True)
# Instances.
NONE = When("none", lambda c: not c.found)
QUEUED, RUNS, ON = _status("PENDING"), _status(*COMING, RUNNING), _status(RUNNING)
STOPS, STOPPED = _status(*ENDING, *ENDED), _status(*ENDED)
# Nodes.
NO_NODE = When("not in slurm.conf", lambda c: c.node is None)
ASLEEP, BOOTS = When("POWERED_DOWN", lambda c: c.power == "POWERED_DOWN"), When("POWERING_UP", lambda c: c.booting)
FALLS_ASLEEP = When("POWERING_DOWN", lambda c: c.power == "POWERING_DOWN")
ASLEEP_DOWN = When("POWERED_DOWN, DOWN", lambda c: c.power == "POWERED_DOWN" and c.down)
UP, DOWN = When("in service", lambda c: c.up), When("DOWN", lambda c: c.down and c.power == "up")
IS_NEW, SICK = When(f"DRAIN `{NEW}`", lambda c: c.new), When("drained by a health check", lambda c: c.sick)
MAINTAINS = When("drained for the maintenance of its host", lambda c: c.maintained)
# Others.
ELASTIC, MADE = When("elastic", lambda c: c.elastic), When("made by the loop", lambda c: c.ours)
STATIC, BY_US = When("not elastic", lambda c: not c.elastic), When("by the loop or by Slurm", lambda c: not c.others)
TWICE, ORPHANED = When("seen twice", lambda c: c.seen.passes >= 2), _lasts("90 s", ORPHAN_SECONDS)
JOBLESS, IDLE = When("without jobs", lambda c: not c.busy), When("idle", lambda c: c.free)
NOT_ASKED = When("nothing is under way", lambda c: c.pending is None)
WAY = When("a way of the nodeset may be tried", lambda c: c.way is not None)
NO_WAY = When("every way has failed and cools down", lambda c: c.way is None)
GIVEN_UP = When("on a host that was given up", lambda c: c.bad_host)
ANNOUNCED = When("maintenance of its host is announced", lambda c: c.maintainable)
FAULT = When("maintenance of its host is announced for a fault", lambda c: c.faulty)
DOWN_LONG = _lasts("for 10 min", DOWN_SECONDS)
NOT_REBOOTED = When("not rebooted for 24 h", lambda c: not c.within(c.repair.reset))
REPLACEABLE = When("elastic, on demand or spot, at most 3 a day", lambda c: c.replaceable)

RULES: tuple[Rule, ...] = (
    Rule("two-zones", When("in two zones", lambda c: len(c.found) > 1), ANY, (), Do.ALERT),
    Rule("unknown", ANY, NO_NODE, (When("nor of another nodeset", lambda c: c.name not in c.world.known), MADE, TWICE,
         ORPHANED), Do.DELETE, counts=True),
    Rule("not-ours", ANY, NO_NODE, (ELSE,), Do.NOTHING),
    Rule("reboots", ANY, When("REBOOT_*", lambda c: any(s.startswith("REBOOT") for s in c.states)), (), Do.NOTHING),
    Rule("maintenance", ANY, When("in a MAINT reservation", lambda c: "MAINTENANCE" in c.states), (), Do.NOTHING),
    Rule("power-down-waits", ANY, When("POWER_DOWN", lambda c: c.power == "POWER_DOWN"), (), Do.NOTHING),
    Rule("twice-started", ON, When(f"DRAIN `{DUPLICATE}` by Slurm", lambda c: c.twice_started), (JOBLESS, TWICE),
         Do.RESUME),
    Rule("others", ANY, When("DOWN, DRAIN or FAIL", lambda c: bool(c.states & {"DOWN", "DRAIN", "FAIL"})),
         (When("by a person, by `up`, or a drain by Slurm", lambda c: c.others),), Do.NOTHING),
    # Maintenance of a host, done while its node is idle.
    Rule("maintain-now", ON, MAINTAINS, (JOBLESS, ANNOUNCED, NOT_ASKED), Do.MAINTAIN, counts=True),
    Rule("maintained", ON, MAINTAINS, (
         When(f"it is over, or has not begun in {MAINTAIN_SECONDS // 60} min", lambda c: c.maintenance_over),
         When("the node is up and answers", lambda c: not c.states & {"DOWN", "NOT_RESPONDING"}), NOT_ASKED, TWICE),
         Do.RESUME),
    Rule("maintain-waits", ANY, MAINTAINS, (ELSE,), Do.NOTHING),
    Rule("host-again", RUNS, When(f"POWERING_UP or DRAIN `{NEW}`", lambda c: c.booting or c.new),
         (ELASTIC, MADE, GIVEN_UP), Do.DELETE, counts=True),
    # A machine that is replaced: the node is drained all the time.
    Rule("new-create", NONE, IS_NEW, (WAY, When("no request is under way or has just failed", lambda c: not c.asked)),
         Do.CREATE),
    Rule("new-sound", ON, IS_NEW, (When("two health checks have passed since", lambda c: c.sound),), Do.RESUME),
    Rule("new-sick", ON, IS_NEW, (When("a health check has failed since", lambda c: c.failed),), Do.ALERT),
    Rule("new-ended", STOPPED, IS_NEW, (ELASTIC, MADE), Do.DELETE, counts=True),
    Rule("new-waits", ANY, IS_NEW, (ELSE,), Do.NOTHING),
    # No instance.
    Rule("creating", NONE, BOOTS, (When("the request is under way, or has just failed", lambda c: c.asked),),
         Do.NOTHING),
    Rule("create", NONE, BOOTS, (ELASTIC, WAY), Do.CREATE),
    Rule("no-way", NONE, BOOTS, (ELASTIC, NO_WAY), Do.REFUSE),
    # Not resumed: a node that is resumed from DOWN counts as one that does not answer (_require_node_reg of
    # src/slurmctld/node_mgr.c), and while it sleeps it is lost to jobs after the next reconfigure (read_config.c).
    # As it is powered down again, Slurm clears both.
    Rule("capacity-again", NONE, ASLEEP_DOWN, (BY_US, WAY), Do.POWER_DOWN),
    Rule("capacity-waits", NONE, ASLEEP_DOWN, (BY_US, NO_WAY), Do.NOTHING),
    Rule("dead-end", NONE, When("POWERED_DOWN, NOT_RESPONDING", lambda c: c.power == "POWERED_DOWN"
         and "NOT_RESPONDING" in c.states), (TWICE,), Do.FORCE, counts=True),
    Rule("no-capacity", NONE, ASLEEP, (ELASTIC, NO_WAY), Do.DOWN),
    Rule("asleep", NONE, ASLEEP, (ELSE,), Do.NOTHING),
    Rule("suspended", NONE, FALLS_ASLEEP, (When("for 15 s", lambda c: c.lasted >= SUSPENDED_SECONDS), TWICE,
         NOT_ASKED), Do.RESUME),
    Rule("suspends", NONE, FALLS_ASLEEP, (ELSE,), Do.NOTHING),
    Rule("gone-down", NONE, DOWN, (ELASTIC, BY_US), Do.POWER_DOWN, counts=True),
    # The fault has gone with its machine.
    Rule("gone-drained", NONE, SICK, (ELASTIC, JOBLESS, TWICE), Do.POWER_DOWN, counts=True),
    Rule("gone", NONE, UP, (TWICE,), Do.DOWN, reason=GONE, counts=True),
    Rule("gone-once", NONE, ANY, (ELSE,), Do.NOTHING),
    # Instances that wait, boot or run.
    Rule("queued-jobless", QUEUED, BOOTS, (MADE, _lasts("for 30 s", JOBLESS_SECONDS),
         When("no job waits for it", lambda c: not (c.node and c.node.jobs))), Do.FORCE),
    Rule("queued", QUEUED, BOOTS, (), Do.NOTHING),
    Rule("queued-unneeded", QUEUED, ANY, (ELASTIC, MADE, TWICE), Do.DELETE, counts=True),
    Rule("old-machine", RUNS, BOOTS, (MADE, When("created before Slurm asked for it", lambda c: c.old_machine)),
         Do.DELETE, counts=True),
    Rule("boot-failed", RUNS, BOOTS, (When("the machine reports a failure, or 80 % of ResumeTimeout are over",
         lambda c: c.boot_failed),), Do.BOOT_FAILED, reason=NO_BOOT, counts=True),
    Rule("unheard", ON, BOOTS, (When(f"its set-up ended {JOINED_SECONDS} s ago", lambda c: c.unheard),), Do.REGISTER),
    Rule("boots", RUNS, BOOTS, (ELSE,), Do.NOTHING),
    Rule("suspend", _status(*COMING, RUNNING, "SUSPENDED"), FALLS_ASLEEP, (MADE,), Do.DELETE),
    Rule("orphan-busy", RUNS, ASLEEP, (When("jobs run there", lambda c: bool(c.node and c.node.jobs)),), Do.ALERT),
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
         lambda c: c.bad_host and c.now - c.repair.last > REPAIR_SECONDS), NOT_ASKED, REPLACEABLE,
         When("few of the nodeset are sick", lambda c: not c.over_budget)), Do.REPLACE, reason=NEW, counts=True),
    Rule("sick-host", ON, SICK, (GIVEN_UP,), Do.ALERT),
    Rule("sick-unmeasured", ON, SICK, (When("its NCCL test with another node had no result in the last hour",
         lambda c: c.unmeasured),), Do.ALERT),
    Rule("sick-mended", ON, SICK, (When("two health checks have passed since its machine was rebooted or moved",
         lambda c: c.sound and (c.within(c.repair.last) or c.name in c.world.waits)),), Do.RESUME),
    Rule("sick-waits", ANY, SICK, (When("no fault that calls for a repair, or a step of one is under way",
         lambda c: not c.confirmed or c.pending is not None or c.status != RUNNING),), Do.NOTHING),
    Rule("sick-many", ON, SICK, (When("more than 20 % of the nodeset are sick, or one in 16 is in repair",
         lambda c: c.over_budget),), Do.ALERT),
    Rule("sick-reboot", ON, SICK, (NOT_REBOOTED,), Do.RESET, counts=True),
    Rule("sick-report", ON, SICK, (When("rebooted, the machine type can move to another host",
         lambda c: c.reportable),), Do.REPORT, counts=True),
    Rule("sick-replace", ON, SICK, (REPLACEABLE,), Do.REPLACE, reason=NEW, counts=True),
    Rule("sick-person", ON, SICK, (ELSE,), Do.ALERT),
    # Others that run.
    Rule("back", ON, DOWN, (When("by the loop", lambda c: c.reason.startswith((GONE, ENDS))),
         When("the node answers", lambda c: "NOT_RESPONDING" not in c.states), TWICE), Do.RESUME, counts=True),
    # The cause is not their machines.
    Rule("down-many", ON, DOWN, (BY_US, DOWN_LONG, When("more than two nodes and 20 % of the nodeset are",
         lambda c: c.node is not None and c.node.nodeset in c.world.silent)), Do.ALERT),
    Rule("down-long", ON, DOWN, (ELASTIC, BY_US, DOWN_LONG), Do.POWER_DOWN, counts=True),
    Rule("down-static", ON, DOWN, (STATIC, BY_US, DOWN_LONG, NOT_REBOOTED, NOT_ASKED), Do.RESET, counts=True),
    Rule("down", ON, DOWN, (ELSE,), Do.NOTHING),
    Rule("fault-elastic", ON, UP, (ELASTIC, FAULT), Do.ASAP, reason=FAULTY, counts=True),
    Rule("fault", ON, UP, (FAULT,), Do.DRAIN, reason=FAULTY, counts=True),
    Rule("maintain-elastic", ON, UP, (ELASTIC, IDLE, ANNOUNCED), Do.POWER_DOWN, counts=True),
    Rule("maintain", ON, UP, (IDLE, When("maintenance of its host is announced and may be done now, once a day, for "
         "one node of the nodeset", lambda c: c.maintainable)), Do.DRAIN, reason=MAINTAINED, counts=True),
    Rule("outdated", ON, UP, (When("made from a template that the nodeset has no more", lambda c: c.outdated),),
         Do.ASAP, reason=REPLACED, counts=True),
    Rule("host-up", ON, UP, (ELASTIC, MADE, When("on a host that was given up before", lambda c: c.bad_host
         and c.repair.report < (c.instance.created if c.instance else 0))), Do.ASAP, reason=REPLACED, counts=True),
    Rule("well", ANY, ANY, (ELSE,), Do.NOTHING),
)  # fmt: skip
BY_ID = {rule.id: rule for rule in RULES}
REPAIRED = ("new-sound", "sick-mended")
"""Rules that return a repaired node, once it is measured (health/acceptance.py)."""
COLUMNS = ("rule", "instance", "node", "condition", "action")


def table() -> list[tuple[str, ...]]:
    """The rules as people read them."""
    return [
        (rule.id, rule.instance.text, rule.node.text, "; ".join(when.text for when in rule.when) or "-", rule.do.value)
        for rule in RULES
    ]


def rule_of(case: Case) -> Rule:
    """The first rule that applies. A pure function."""
    return next(rule for rule in RULES if rule.applies(case))


def decide(world: World) -> list[Action]:
    """Return what is to be done now: nothing on a partial list but what harms nothing. A pure function.

    Nodes that boot for the same job are created by one action, so that all of them come or none.
    """
    found: list[Action] = []
    together: dict[tuple[str, ...], Action] = {}
    sizes = Counter(job for node in world.nodes.values() for job in node.jobs)
    for name in sorted({*world.nodes, *world.instances}):
        rule = rule_of(case := Case(world, name))
        if rule.do is Do.NOTHING or (world.unsafe and rule.do not in HARMLESS):
            continue
        nodeset = case.node.nodeset if case.node else ""
        action = Action(rule.id, rule.do, (name,), nodeset, rule.reason)
        if rule.do is Do.CREATE and case.way:
            action = replace(action, way=case.way[0], template=case.way[1])
            # Of jobs that share the node, the one over most nodes.
            job = max(case.node.jobs, key=lambda job: sizes[job], default=name) if case.node else name
            key = (nodeset, action.way, job)
            together[key] = replace(
                action, nodes=(*together[key].nodes, name) if key in together else (name,), rule=rule.id
            )
            continue
        if rule.id in ("no-way", "no-capacity"):
            action = replace(action, reason=case.refusal)
        if rule.do is Do.REPLACE and case.node:
            action = replace(action, reason=f"{NEW} ({case.reason.removeprefix(HEALTH)[:200]})")
        found.append(action)
    return [*together.values(), *found]


@dataclass(frozen=True)
class Held:
    """Actions that a brake holds, and which."""

    brake: str
    actions: tuple[Action, ...]


def restrain(actions: Iterable[Action], world: World, *, left: int) -> tuple[list[Action], list[Held]]:
    """The actions that may be done now, and those that a brake holds. A pure function.

    What Slurm has asked for is not held. `left`: actions of this hour. In one pass at most `max_unavailable` of a
    nodeset, and two of a small one, are taken out of service or deleted; nodes in service are only powered down for a
    newer template while no more than that part is out of service already. Those that a person holds, perhaps for weeks,
    are none of these, and a host with a fault takes no more jobs in any case.
    """
    done: list[Action] = []
    held: dict[str, list[Action]] = {}
    taken: dict[str, int] = {}
    for action in actions:
        if not BY_ID[action.rule].counts or action.do is Do.ALERT:
            done.append(action)
            continue
        mine = [node for node in world.nodes.values() if node.nodeset == action.nodeset]
        part = int(world.max_unavailable * len(mine))
        most = max(2, part)
        if action.do is Do.ASAP and action.rule != "fault-elastic":
            out = [node for node in mine if node.states & {"DOWN", "DRAIN", "POWER_DOWN", "POWERING_DOWN"}]
            most = max(1, part) - sum(not Case(world, node.name).others for node in out)
        if action.rule == "maintain":
            most = 0 if any(node.reason.startswith(MAINTAINED) for node in mine) else 1
        if left <= 0:
            held.setdefault("actions_per_hour", []).append(action)
        elif taken.get(action.nodeset, 0) >= most:
            held.setdefault("max_unavailable", []).append(action)
        else:
            taken[action.nodeset] = taken.get(action.nodeset, 0) + 1
            left -= 1
            done.append(action)
    return done, [Held(brake, tuple(found)) for brake, found in held.items()]
