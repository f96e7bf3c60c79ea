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
    def twice(self) -> bool:
        return self.seen.passes >= 2

    @property
    def lasted(self) -> float:
        return self.now - max(self.seen.since, self.world.awake)

    @property
    def none(self) -> bool:
        return self.instance is None

    @property
    def asleep(self) -> bool:
        return self.power == "POWERED_DOWN"

    @property
    def booting(self) -> bool:
        return self.power == "POWERING_UP"

    @property
    def powering_down(self) -> bool:
        return self.power == "POWERING_DOWN"

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
        one = self.instance
        return (
            one is not None
            and one.maintenance == "PENDING"
            and (self.elastic or (self.world.maintain and one.reschedules and not self.within(self.repair.maintain)))
        )

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
        return min(there, key=lambda one: one.until).reason if there else NO_CAPACITY

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
        names = {one.name for one in self.world.nodes.values() if one.nodeset == self.node.nodeset}
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
        names = [one for one in self.world.nodes.values() if one.nodeset == self.node.nodeset]
        sick = [one for one in names if "DRAIN" in one.states and one.reason.startswith((HEALTH, NEW))]
        repaired = [one for one in sick if self.within(self.world.repairs.get(one.name, Repair()).last)]
        allowed = max(1, len(names) // NODES_PER_REPAIR)
        mine = self.node.name in {one.name for one in repaired}
        return (not mine and len(repaired) >= allowed) or len(sick) > max(1, COMMON_PART * len(names))


@dataclass(frozen=True)
class Rule:
    """A row of the table: the instance, the node, the condition and the action as people read them; then the same for
    the program. `counts`: whether the brakes hold it, since nobody has asked for it."""

    id: str
    instance: str
    node: str
    when: str
    do: Do
    applies: Callable[[Case], bool]
    reason: str = ""
    counts: bool = False


ANY, NONE, RUNS = "any", "none", "PROVISIONING, STAGING, RUNNING"
ENDINGS = ", ".join(ENDING)
HEALTHY = "drained by a health check"
MAINTAINS = "drained for the maintenance of its host"


def _is(status: tuple[str, ...]) -> Callable[[Case], bool]:
    return lambda case: case.status in status


RULES: tuple[Rule, ...] = (
    Rule("two-zones", "in two zones", ANY, "", Do.ALERT, lambda c: len(c.found) > 1),
    Rule("unknown", ANY, "not in slurm.conf", "made by the loop, seen twice, 90 s", Do.DELETE,
         lambda c: c.node is None and c.name not in c.world.known and c.ours and c.twice and not c.deleted
         and c.lasted > ORPHAN_SECONDS, counts=True),
    Rule("not-ours", ANY, "not in slurm.conf", "else", Do.NOTHING, lambda c: c.node is None),
    Rule("reboots", ANY, "REBOOT_*", "", Do.NOTHING, lambda c: any(s.startswith("REBOOT") for s in c.states)),
    Rule("maintenance", ANY, "in a MAINT reservation", "", Do.NOTHING, lambda c: "MAINTENANCE" in c.states),
    Rule("power-down-waits", ANY, "POWER_DOWN", "", Do.NOTHING, lambda c: c.power == "POWER_DOWN"),
    Rule("twice-started", RUNNING, f"DRAIN `{DUPLICATE}`", "by Slurm; without jobs, seen twice", Do.RESUME,
         lambda c: c.status == RUNNING and c.twice_started and not c.busy and c.twice),
    Rule("others", ANY, "DOWN, DRAIN or FAIL", "by a person, by `up`, or a drain by Slurm", Do.NOTHING,
         lambda c: c.others),
    # Maintenance of a host, done while its node is idle.
    Rule("maintain-now", RUNNING, MAINTAINS, "without jobs; maintenance of its host is announced",
         Do.MAINTAIN, lambda c: c.maintained and c.status == RUNNING and not c.busy and c.maintainable
         and not c.pending, counts=True),
    Rule("maintained", RUNNING, MAINTAINS,
         f"it is over, or has not begun in {MAINTAIN_SECONDS // 60} min; the node answers, seen twice", Do.RESUME,
         lambda c: c.maintained and c.status == RUNNING and not c.pending and c.twice and c.maintenance_over
         and not c.states & {"DOWN", "NOT_RESPONDING"}),
    Rule("maintain-waits", ANY, MAINTAINS, "else", Do.NOTHING, lambda c: c.maintained),
    Rule("host-again", RUNS, f"POWERING_UP or DRAIN `{NEW}`", "made by the loop, on a host that was given up",
         Do.DELETE, lambda c: c.status in (*COMING, RUNNING) and (c.booting or c.new) and c.bad_host and c.elastic
         and c.ours and not c.deleted, counts=True),
    # A machine that is replaced: the node is drained all the time.
    Rule("new-create", NONE, f"DRAIN `{NEW}`", "a way may be tried", Do.CREATE,
         lambda c: c.new and c.none and not c.pending and c.way is not None
         and c.world.retry.get(c.name, 0) <= c.now),
    Rule("new-sound", RUNNING, f"DRAIN `{NEW}`", "two health checks have passed since", Do.RESUME,
         lambda c: c.new and c.status == RUNNING and c.sound),
    Rule("new-sick", RUNNING, f"DRAIN `{NEW}`", "a health check has failed since", Do.ALERT,
         lambda c: c.new and c.status == RUNNING and c.checked and c.health is not None and c.health.failed),
    Rule("new-ended", "TERMINATED, STOPPED", f"DRAIN `{NEW}`", "elastic", Do.DELETE,
         lambda c: c.new and c.elastic and c.ours and c.status in ENDED and not c.deleted, counts=True),
    Rule("new-waits", ANY, f"DRAIN `{NEW}`", "else", Do.NOTHING, lambda c: c.new),
    # No instance.
    Rule("creating", NONE, "POWERING_UP", "the request is under way, or has just failed", Do.NOTHING,
         lambda c: c.none and c.booting and (c.pending is not None or c.world.retry.get(c.name, 0) > c.now)),
    Rule("create", NONE, "POWERING_UP", "a way of the nodeset may be tried", Do.CREATE,
         lambda c: c.none and c.booting and c.elastic and c.way is not None),
    Rule("no-way", NONE, "POWERING_UP", "every way has failed and cools down", Do.REFUSE,
         lambda c: c.none and c.booting and c.elastic),
    # Not resumed: a node that is resumed from DOWN counts as one that does not answer (_require_node_reg of
    # src/slurmctld/node_mgr.c), and while it sleeps it is lost to jobs after the next reconfigure (read_config.c).
    # As it is powered down again, Slurm clears both.
    Rule("capacity-again", NONE, "POWERED_DOWN, DOWN", "by the loop or by Slurm; a way may be tried", Do.POWER_DOWN,
         lambda c: c.none and c.asleep and c.down and c.way is not None),
    Rule("capacity-waits", NONE, "POWERED_DOWN, DOWN", "by the loop or by Slurm; every way cools down", Do.NOTHING,
         lambda c: c.none and c.asleep and c.down),
    Rule("dead-end", NONE, "POWERED_DOWN, NOT_RESPONDING", "seen twice", Do.FORCE,
         lambda c: c.none and c.asleep and "NOT_RESPONDING" in c.states and c.twice, counts=True),
    Rule("no-capacity", NONE, "POWERED_DOWN", "every way has failed and cools down", Do.DOWN,
         lambda c: c.none and c.asleep and c.elastic and c.way is None),
    Rule("asleep", NONE, "POWERED_DOWN", "else", Do.NOTHING, lambda c: c.none and c.asleep),
    Rule("suspended", NONE, "POWERING_DOWN", "for 15 s, in two passes", Do.RESUME,
         lambda c: c.none and c.powering_down and not c.pending and c.twice and c.lasted >= SUSPENDED_SECONDS),
    Rule("suspends", NONE, "POWERING_DOWN", "else", Do.NOTHING, lambda c: c.none and c.powering_down),
    Rule("gone-down", NONE, "DOWN", "elastic; by the loop or by Slurm", Do.POWER_DOWN,
         lambda c: c.none and c.down and c.elastic and c.power == "up", counts=True),
    Rule("gone-drained", NONE, HEALTHY, "elastic, without jobs, seen twice: the fault has gone with its machine",
         Do.POWER_DOWN, lambda c: c.none and c.sick and c.elastic and not c.busy and c.twice, counts=True),
    Rule("gone", NONE, "in service", "seen twice", Do.DOWN,
         lambda c: c.none and c.up and c.twice, reason=GONE, counts=True),
    Rule("gone-once", NONE, ANY, "else", Do.NOTHING, lambda c: c.none),
    # Instances that wait, boot or run.
    Rule("queued-jobless", "PENDING", "POWERING_UP", "made by the loop, for 30 s; no job waits for it", Do.FORCE,
         lambda c: c.status == "PENDING" and c.booting and c.ours and not (c.node and c.node.jobs)
         and c.lasted > JOBLESS_SECONDS),
    Rule("queued", "PENDING", "POWERING_UP", "", Do.NOTHING, lambda c: c.status == "PENDING" and c.booting),
    Rule("queued-unneeded", "PENDING", ANY, "elastic, seen twice", Do.DELETE,
         lambda c: c.status == "PENDING" and c.elastic and c.ours and c.twice and not c.deleted, counts=True),
    Rule("old-machine", RUNS, "POWERING_UP", "made by the loop, created before Slurm asked for it", Do.DELETE,
         lambda c: c.status in (*COMING, RUNNING) and c.booting and c.ours and c.old_machine and not c.deleted,
         counts=True),
    Rule("boot-failed", RUNS, "POWERING_UP", "the machine reports a failure, or 80 % of ResumeTimeout are over",
         Do.BOOT_FAILED, lambda c: c.status in (*COMING, RUNNING) and c.booting and c.boot_failed, reason=NO_BOOT,
         counts=True),
    Rule("unheard", RUNNING, "POWERING_UP", f"its set-up ended {JOINED_SECONDS} s ago", Do.REGISTER,
         lambda c: c.status == RUNNING and c.booting and c.unheard),
    Rule("boots", RUNS, "POWERING_UP", "else", Do.NOTHING,
         lambda c: c.status in (*COMING, RUNNING) and c.booting),
    Rule("suspend", f"{RUNS}, SUSPENDED", "POWERING_DOWN", "made by the loop", Do.DELETE,
         lambda c: c.status in (*COMING, RUNNING, "SUSPENDED") and c.powering_down and c.ours and not c.deleted),
    Rule("orphan-busy", RUNS, "POWERED_DOWN", "jobs run there", Do.ALERT,
         lambda c: c.status in (*COMING, RUNNING) and c.asleep and c.node is not None and bool(c.node.jobs)),
    Rule("orphan", RUNS, "POWERED_DOWN", "made by the loop, seen twice, 90 s", Do.DELETE,
         lambda c: c.status in (*COMING, RUNNING) and c.asleep and c.ours and c.twice and not c.deleted
         and c.lasted > ORPHAN_SECONDS, counts=True),
    # Instances that end.
    Rule("sick-moves", f"{ENDINGS}, TERMINATED, STOPPED", HEALTHY, "a step of its repair is under way", Do.NOTHING,
         lambda c: c.status in (*ENDING, *ENDED) and c.sick and c.pending is not None),
    Rule("ends", f"{ENDINGS}, TERMINATED, STOPPED", "in service", "", Do.DOWN,
         lambda c: c.status in (*ENDING, *ENDED) and c.up, reason=ENDS, counts=True),
    Rule("ending", ENDINGS, ANY, "else", Do.NOTHING, _is(ENDING)),
    Rule("ended-down", "TERMINATED, STOPPED", "DOWN", "elastic", Do.POWER_DOWN,
         lambda c: c.status in ENDED and c.down and c.elastic and c.power == "up", counts=True),
    Rule("ended", "TERMINATED, STOPPED", "POWERING_UP, POWERING_DOWN, POWERED_DOWN", "elastic", Do.DELETE,
         lambda c: c.status in ENDED and c.elastic and c.ours and c.power != "up" and not c.deleted, counts=True),
    Rule("stopped", "TERMINATED, STOPPED", ANY, "else: `up` starts it again", Do.NOTHING, _is(ENDED)),
    Rule("moves", "SUSPENDED, SUSPENDING, REPAIRING", "in service", "", Do.DOWN,
         lambda c: c.status in ("SUSPENDED", "SUSPENDING", "REPAIRING") and c.up and not c.sick, reason=ENDS,
         counts=True),
    Rule("moves-long", "SUSPENDED, REPAIRING", ANY, "for 30 min", Do.ALERT,
         lambda c: c.status in ("SUSPENDED", "REPAIRING") and c.lasted > 1800),
    # Repair of a node that a health check has drained.
    Rule("sick-busy", ANY, HEALTHY, "jobs run there", Do.NOTHING, lambda c: c.sick and c.busy),
    Rule("sick-host-replace", RUNNING, HEALTHY, "for 30 min still on the host that was given up; elastic, on demand or "
         "spot, at most 3 a day", Do.REPLACE, lambda c: c.sick and c.status == RUNNING and c.bad_host and not c.pending
         and c.now - c.repair.last > REPAIR_SECONDS and c.replaceable and not c.over_budget, reason=NEW, counts=True),
    Rule("sick-host", RUNNING, HEALTHY, "on a host that was given up", Do.ALERT,
         lambda c: c.sick and c.status == RUNNING and c.bad_host),
    Rule("sick-unmeasured", RUNNING, HEALTHY, "its NCCL test with another node had no result in the last hour",
         Do.ALERT, lambda c: c.sick and c.status == RUNNING and c.sound and c.health is not None
         and max(c.repair.last, c.now - UNMEASURED_SECONDS) < c.health.unmeasured),
    Rule("sick-mended", RUNNING, HEALTHY, "two health checks have passed since its machine was rebooted or moved",
         Do.RESUME,
         lambda c: c.sick and c.status == RUNNING and c.sound
         and (c.within(c.repair.last) or c.name in c.world.waits)),
    Rule("sick-waits", ANY, HEALTHY, "no fault that calls for a repair, or a step of one is under way",
         Do.NOTHING, lambda c: c.sick and (not c.confirmed or c.pending is not None or c.status != RUNNING)),
    Rule("sick-many", RUNNING, HEALTHY, "more than 20 % of the nodeset are sick, or one in 16 is in repair", Do.ALERT,
         lambda c: c.sick and c.over_budget),
    Rule("sick-reboot", RUNNING, HEALTHY, "not rebooted for 24 h", Do.RESET,
         lambda c: c.sick and not c.within(c.repair.reset), counts=True),
    Rule("sick-report", RUNNING, HEALTHY, "rebooted; the machine type can move to another host", Do.REPORT,
         lambda c: c.sick and c.reportable, counts=True),
    Rule("sick-replace", RUNNING, HEALTHY, "rebooted; elastic, on demand or spot, at most 3 a day", Do.REPLACE,
         lambda c: c.sick and c.replaceable, reason=NEW, counts=True),
    Rule("sick-person", RUNNING, HEALTHY, "else", Do.ALERT, lambda c: c.sick),
    # Others that run.
    Rule("back", RUNNING, "DOWN", "by the loop; the node answers, seen twice", Do.RESUME,
         lambda c: c.status == RUNNING and c.down and c.power == "up" and c.reason.startswith((GONE, ENDS))
         and "NOT_RESPONDING" not in c.states and c.twice, counts=True),
    Rule("down-many", RUNNING, "DOWN", "by the loop or by Slurm, for 10 min; more than two nodes and 20 % of the "
         "nodeset are: the cause is not their machines", Do.ALERT, lambda c: c.is_silent and c.lasted > DOWN_SECONDS
         and c.node is not None and c.node.nodeset in c.world.silent),
    Rule("down-long", RUNNING, "DOWN", "elastic; by the loop or by Slurm, for 10 min", Do.POWER_DOWN,
         lambda c: c.status == RUNNING and c.down and c.power == "up" and c.elastic and c.lasted > DOWN_SECONDS,
         counts=True),
    Rule("down-static", RUNNING, "DOWN", "not elastic; by Slurm, for 10 min, not rebooted for 24 h", Do.RESET,
         lambda c: c.status == RUNNING and c.down and c.power == "up" and not c.elastic
         and c.lasted > DOWN_SECONDS and not c.within(c.repair.reset) and not c.pending, counts=True),
    Rule("down", RUNNING, "DOWN", "else", Do.NOTHING, lambda c: c.status == RUNNING and c.down),
    Rule("fault-elastic", RUNNING, "in service", "elastic; maintenance of its host is announced for a fault", Do.ASAP,
         lambda c: c.status == RUNNING and c.up and c.elastic and c.faulty, reason=FAULTY, counts=True),
    Rule("fault", RUNNING, "in service", "maintenance of its host is announced for a fault", Do.DRAIN,
         lambda c: c.status == RUNNING and c.up and c.faulty, reason=FAULTY, counts=True),
    Rule("maintain-elastic", RUNNING, "in service", "elastic, idle; maintenance of its host is announced",
         Do.POWER_DOWN, lambda c: c.status == RUNNING and c.up and c.elastic and c.free and c.maintainable,
         counts=True),
    Rule("maintain", RUNNING, "in service",
         "idle; maintenance of its host is announced and may be done now, once a day, for one node of the nodeset",
         Do.DRAIN, lambda c: c.status == RUNNING and c.up and c.free and c.maintainable, reason=MAINTAINED,
         counts=True),
    Rule("outdated", RUNNING, "in service", "made from a template that the nodeset has no more", Do.ASAP,
         lambda c: c.status == RUNNING and c.up and c.outdated, reason=REPLACED, counts=True),
    Rule("host-up", RUNNING, "in service", "made by the loop, on a host that was given up before", Do.ASAP,
         lambda c: c.status == RUNNING and c.up and c.elastic and c.ours and c.bad_host
         and c.repair.report < (c.instance.created if c.instance else 0), reason=REPLACED, counts=True),
    Rule("well", ANY, ANY, "else", Do.NOTHING, lambda _: True),
)  # fmt: skip
BY_ID = {rule.id: rule for rule in RULES}
REPAIRED = ("new-sound", "sick-mended")
"""Rules that return a repaired node, once it is measured (health/acceptance.py)."""
COLUMNS = ("rule", "instance", "node", "condition", "action")


def table() -> list[tuple[str, ...]]:
    """The rules as people read them."""
    return [(rule.id, rule.instance, rule.node, rule.when or "-", rule.do.value) for rule in RULES]


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
            job = max(case.node.jobs, key=lambda one: sizes[one], default=name) if case.node else name
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
        size = sum(node.nodeset == action.nodeset for node in world.nodes.values())
        most = max(2, int(world.max_unavailable * size))
        if action.do is Do.ASAP and action.rule != "fault-elastic":
            out = sum(
                1 for node in world.nodes.values()
                if node.nodeset == action.nodeset and node.states & {"DOWN", "DRAIN", "POWER_DOWN", "POWERING_DOWN"}
                and not Case(world, node.name).others
            )  # fmt: skip
            most = max(1, int(world.max_unavailable * size)) - out
        if action.rule == "maintain":
            there = (node for node in world.nodes.values() if node.nodeset == action.nodeset)
            most = 0 if any(node.reason.startswith(MAINTAINED) for node in there) else 1
        if left <= 0:
            held.setdefault("actions_per_hour", []).append(action)
        elif taken.get(action.nodeset, 0) >= most:
            held.setdefault("max_unavailable", []).append(action)
        else:
            taken[action.nodeset] = taken.get(action.nodeset, 0) + 1
            left -= 1
            done.append(action)
    return done, [Held(brake, tuple(found)) for brake, found in held.items()]
