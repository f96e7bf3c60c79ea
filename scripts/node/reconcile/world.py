"""The observation of one pass of the reconcile loop, and the properties of each name in it that its rules read. Pure
functions.

Slurm's states show which nodes must have a machine, the list of instances which nodes have one. The loop's own record
holds only how long a state has lasted, operations that are under way, and what has failed.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from health.check_kinds import PREFIX as HEALTH
from interface import ReconcileNodeset, ReconcileTemplate
from reconcile.compute_engine import TEMPLATE_LABEL, Instance
from slurm.output import CLOUD_REASONS, NO_CAPACITY, NO_MACHINE

# Reasons that the loop gives nodes. A node's reason is compared by its beginning.
GONE = "hpc: its machine is gone"
ENDS = "hpc: its machine stops"
NO_BOOT = "hpc: its machine did not boot"
REPLACED = "hpc: its machine is replaced"
MAINTAINED = "hpc: its host is maintained now, while it is idle"
NEW = "hpc: new machine, being checked"
FAULTY = "hpc: the cloud has found a fault of its host"
DUPLICATE = "Duplicate jobid"
"""A reason that Slurm gives (DSH_DUP_JOBID, src/slurmctld/agent.c): a slurmctld that was killed starts a job on a node
that runs it already, and drains the node."""
LOOP_REASONS = (GONE, ENDS, NO_CAPACITY, NO_MACHINE, NO_BOOT, REPLACED, MAINTAINED, FAULTY, *CLOUD_REASONS)
"""Reasons of nodes that the loop resumes, or powers down, without a person."""

ORPHAN_SECONDS = 90  # until an instance of a powered-down node is deleted: as slurm-gcp waits (slurmsync.py)
STRAY_SECONDS = 1800  # an instance that the loop has not made: `up` may be about to put it into Slurm, or to delete it
DOWN_SECONDS = 600  # a node may be down while its machine runs: longer than a boot, as ReturnToService=2 resumes it
SUSPENDED_SECONDS = 15  # a node is powering down without a machine: lists may be late
JOBLESS_SECONDS = 30  # until the request of a queued machine that no job waits for is given up
MAINTAIN_SECONDS = 600  # from the request for a maintenance until it begins
REPAIR_SECONDS = 1800  # by then a machine that was rebooted, moved or replaced has been checked
DAY = 24 * 3600
JOINED_SECONDS = 15  # from the end of a machine's set-up until slurmctld shows its node as up
REPLACED_PER_DAY = 3  # machines of one nodeset
HOST_SECONDS = 7 * DAY  # after a host was given up, or its last machine deleted, until it is used again
UNMEASURED_SECONDS = 3600  # until a measurement without a result is tried again
HOST_MACHINES = 3  # machines created on a host that was given up, until the ways that lead there cool down
NODES_PER_REPAIR = 16  # nodes of one nodeset for each one that may be in repair
COMMON_PART = 0.2  # of a nodeset's nodes: a fault that more of them have is not caused by their machines
COMING, RUNNING = ("PROVISIONING", "STAGING"), "RUNNING"
ENDING, ENDED = ("PENDING_STOP", "STOPPING", "DEPROVISIONING"), ("TERMINATED", "STOPPED")
REPORTABLE = ("a3-highgpu-8g", "a3-megagpu-", "a3-ultragpu-", "a4-", "a4x-")
"""Machine types whose hosts may be reported as faulty, if they are of a reservation. Other reports are refused, and the
machine is replaced."""
_POWER = ("POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "POWERED_DOWN")
_TIMEOUT = re.compile(r"(^| : )ResumeTimeout reached$")


@dataclass(frozen=True)
class ReconciledNode:
    """A node as Slurm shows it; `by` is who gave the reason, `jobs` are those that it runs or boots for, and `ends` is
    when the last of them ends at the latest."""

    name: str
    nodeset: str
    elastic: bool
    states: frozenset[str]
    reason: str = ""
    by: str = ""
    jobs: tuple[str, ...] = ()
    ends: float = 0.0


@dataclass(frozen=True)
class StateAge:
    """The state of a name and its age: the instance's status and the node's mode have been the same since `since`, in
    `passes` passes (1, or 2 for more). The node's power state has been the same since `power_since`; `before` is the
    one before it."""

    status: str
    mode: str
    since: float
    passes: int
    power: str
    power_since: float
    before: str = ""


@dataclass(frozen=True)
class Pending:
    """An operation that is under way: create, delete, reset, report or maintain. `size` is the number of instances that
    its request is for."""

    kind: str
    operation: str
    began: float
    way: str = ""
    size: int = 1


@dataclass(frozen=True)
class Cooling:
    """The reason why a way of a nodeset is not tried before `until` for `size` instances or more: a refusal of so many
    says nothing of fewer."""

    until: float
    minutes: int
    reason: str
    size: int = 1


@dataclass(frozen=True)
class Health:
    """The last health check of a node: whether a check failed, how many runs in a row since its boot passed, and
    whether a fault requires a repair of the machine (health/drain_unhealthy.py)."""

    time: float
    failed: bool
    passes: int
    repair: bool = False
    found: float = 0.0
    """The time at which the oldest fault of the machine was found."""
    slow: float = 0.0
    """The last time that a measurement failed: the machine is too slow, though its checks pass."""
    unmeasured: float = 0.0
    """The last time that the NCCL test with another node, for which this node is drained, ended without a result."""


@dataclass(frozen=True)
class BadHost:
    """A host that was given up because it was reported as faulty or its machine was replaced: the last time, the
    reason, and how many machines were created on it since."""

    time: float
    reason: str
    machines: int = 0


@dataclass(frozen=True)
class Repair:
    """The times at which a node's machine was last rebooted, its host reported and the machine replaced; 0 is never."""

    reset: float = 0.0
    report: float = 0.0
    replace: float = 0.0
    refused: bool = False
    """True if the host could not be reported."""
    maintain: float = 0.0
    """The last time that maintenance of its host was asked for."""

    @property
    def last(self) -> float:
        """The time of the last step."""
        return max(self.reset, self.report, self.replace)


@dataclass(frozen=True)
class World:
    """The observation of one pass: a decision is made from nothing else."""

    now: float
    nodes: Mapping[str, ReconciledNode]
    instances: Mapping[str, tuple[Instance, ...]]
    nodesets: Mapping[str, ReconcileNodeset]
    max_unavailable: float = 0.25
    maintain: bool = True
    """Whether the loop requests announced maintenance of static nodes' hosts while they are idle."""
    seen: Mapping[str, StateAge] = field(default_factory=dict)
    pending: Mapping[str, Pending] = field(default_factory=dict)
    cooling: Mapping[str, Cooling] = field(default_factory=dict)
    """Refusals by way (`way_key`), and by the name of a node whose name another instance has."""
    retry: Mapping[str, float] = field(default_factory=dict)
    """By node, the time until which no request is sent, since one has just failed."""
    health: Mapping[str, Health] = field(default_factory=dict)
    repairs: Mapping[str, Repair] = field(default_factory=dict)
    hosts: Mapping[str, BadHost] = field(default_factory=dict)
    """Hosts that were given up: no job is to run there."""
    waits: frozenset[str] = frozenset()
    """Repaired nodes that wait for another node to be measured with."""
    boot: Mapping[str, str] = field(default_factory=dict)
    """Set-up states that booting machines have published."""
    joined: Mapping[str, float] = field(default_factory=dict)
    """The time at which booting machines have last ended their set-up, at whose end slurmd starts."""
    node_names: frozenset[str] = frozenset()
    """Names of all nodes of Slurm, those of other nodesets included."""
    refused: str = ""
    """The reason why no machine is created at all: the budget is used."""
    unsafe: str = ""
    """The reason why nothing may be deleted or set down now: a partial list, or a slurmctld that has just started."""
    awake: float = 0.0
    """The time since which the loop has made its passes without a break. No state counts as older than that."""

    @cached_property
    def silent_nodesets(self) -> frozenset[str]:
        """Nodesets of which so many nodes are down while their machines run that the machines are not the cause, but
        the network, a firewall rule or a file server."""
        sizes = Counter(node.nodeset for node in self.nodes.values())
        counts = Counter(node.nodeset for node in self.nodes.values() if Case(self, node.name).is_silent)
        return frozenset(name for name, count in counts.items() if count > max(2, COMMON_PART * sizes[name]))

    @cached_property
    def main_jobs(self) -> dict[str, str]:
        """By node that boots and has no instance, the job for which its instance is requested: of those that share the
        node the one with the most nodes. A node without a job is requested alone."""
        sizes = Counter(job for node in self.nodes.values() for job in node.jobs)
        cases = (Case(self, name) for name, node in self.nodes.items() if node.elastic)
        wanted = (case for case in cases if case.booting and not case.instances and not case.requested)
        return {case.name: max(case.node.jobs, key=lambda job: sizes[job], default=case.name) for case in wanted}

    @cached_property
    def request_sizes(self) -> dict[str, int]:
        """By node without an instance, the number of instances in the request that would be for it.

        A node that sleeps, or is about to, counts those before it: a job that takes it too needs so many. So of a
        nodeset for which four were refused, three sleeping nodes are left to Slurm.
        """
        requests = Counter((self.nodes[name].nodeset, job) for name, job in self.main_jobs.items())
        sizes = {name: requests[self.nodes[name].nodeset, job] for name, job in self.main_jobs.items()}
        asleep: Counter[str] = Counter()
        for name in sorted(self.nodes, key=lambda name: (len(name), name)):
            case = Case(self, name)
            sleeps = case.power in ("POWERED_DOWN", "POWERING_DOWN") or (case.power == "POWER_DOWN" and not case.busy)
            if case.node.elastic and sleeps and not case.held_by_others:
                asleep[case.node.nodeset] += 1
                sizes[name] = asleep[case.node.nodeset]
        return sizes


def way_key(nodeset: str, way: str) -> str:
    """Return the key of a way's cool-down."""
    return f"{nodeset}/{way}"


def state_ages(before: Mapping[str, StateAge], world: World) -> dict[str, StateAge]:
    """Return the state of each name and its age, given those of the last pass. A pure function."""
    ages: dict[str, StateAge] = {}
    for name in {*world.nodes, *world.instances}:
        case = Case(world, name)
        last = before.get(name)
        same = last is not None and (last.status, last.mode) == (case.status, case.mode)
        same_power = last is not None and last.power == case.power
        ages[name] = StateAge(
            status=case.status,
            mode=case.mode,
            since=min(last.since, world.now) if last and same else world.now,
            passes=2 if same else 1,
            power=case.power,
            power_since=min(last.power_since, world.now) if last and same_power else world.now,
            before=(last.before if same_power else last.power) if last else "",
        )
    return ages


_NO_NODE = ReconciledNode("", "", elastic=False, states=frozenset())
_NO_INSTANCE = Instance("", "", "")
_NO_REPAIR, _NO_HEALTH = Repair(), Health(0.0, failed=False, passes=0)


class Case:
    """A name with its node, its instance, and the properties of both that the conditions of rules read. If there is
    none, the field has an empty one."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.now = world, name, world.now
        self.node = world.nodes.get(name, _NO_NODE)
        self.states = self.node.states
        power = next((power for power in _POWER if power in self.states), "up")
        self.power = power if name in world.nodes else "none"
        self.instances = world.instances.get(name, ())
        self.instance = self.instances[0] if self.instances else _NO_INSTANCE
        self.status = self.instance.status
        self.age = world.seen.get(name) or StateAge(self.status, self.mode, self.now, 1, self.power, self.now)
        self.pending = world.pending.get(name)
        self.repair = world.repairs.get(name, _NO_REPAIR)
        self.health = world.health.get(name, _NO_HEALTH)

    @property
    def mode(self) -> str:
        """The node's power state, and why it is out of service."""
        out = "sick" if self.sick else "new" if self.new else "down" if self.down else ""
        return f"{self.power} {out}".strip()

    @property
    def requested(self) -> bool:
        """Return whether a request for its instance is under way, or has just failed."""
        return self.pending is not None or self.world.retry.get(self.name, 0) > self.now

    @property
    def lasted(self) -> float:
        """Seconds for which the state has lasted."""
        return self.now - max(self.age.since, self.world.awake)

    @property
    def booting(self) -> bool:
        return self.power == "POWERING_UP"

    @property
    def down(self) -> bool:
        return "DOWN" in self.states

    @property
    def is_silent(self) -> bool:
        """Return whether Slurm or the loop has set the node down while its machine runs."""
        return self.down and self.power == "up" and self.status == RUNNING and not self.held_by_others

    @property
    def up(self) -> bool:
        """Return whether the node is on and not down; it may be drained."""
        return self.power == "up" and not self.down

    @property
    def reason(self) -> str:
        """The node's reason, without the text that Slurm appends at ResumeTimeout."""
        return _TIMEOUT.sub("", self.node.reason)

    def is_drained_for(self, *reasons: str) -> bool:
        """Return whether the node is drained, and its reason begins with one of these."""
        return "DRAIN" in self.states and self.reason.startswith(reasons)

    @property
    def sick(self) -> bool:
        """Return whether a health check has drained the node."""
        return self.is_drained_for(HEALTH)

    @property
    def new(self) -> bool:
        """Return whether the node waits for its new machine, or until that is checked."""
        return self.is_drained_for(NEW)

    @property
    def faulty(self) -> bool:
        """Return whether maintenance of its host is announced for a fault. The node should take no more jobs then."""
        return self.instance.maintenance == "PENDING" and bool(self.instance.fault)

    @property
    def maintainable(self) -> bool:
        """Return whether the host's maintenance is announced, may be done now, and was not requested within a day."""
        allowed = self.world.maintain and self.instance.reschedules and not self.within_day(self.repair.maintain)
        return self.instance.maintenance == "PENDING" and (self.node.elastic or allowed)

    @property
    def maintenance_over(self) -> bool:
        """Return whether no maintenance is announced any more, or the requested one has not begun."""
        late = 0 < self.repair.maintain < self.now - MAINTAIN_SECONDS
        not_begun = self.instance.maintenance == "PENDING" and late and not self.maintainable and not self.faulty
        return not self.instance.maintenance or not_begun

    @property
    def held_by_others(self) -> bool:
        """Return whether a person or `up` has taken the node out of service, or Slurm has drained it."""
        if not self.states & {"DOWN", "DRAIN", "FAIL"} or self.sick or self.new or self.reason.startswith(LOOP_REASONS):
            return False
        by_slurm = not self.reason or (self.node.by == "slurm" and self.reason == self.node.reason)
        return not by_slurm or bool(self.states & {"DRAIN", "FAIL"})

    @property
    def in_maintenance(self) -> bool:
        """Return whether a reservation with the flag MAINT holds the node now."""
        return "MAINTENANCE" in self.states

    @property
    def busy(self) -> bool:
        return bool(self.node.jobs or self.states & {"ALLOCATED", "MIXED", "COMPLETING"})

    @property
    def templates(self) -> list[ReconcileTemplate]:
        """The templates of the nodeset, in the order in which they are tried."""
        return self.world.nodesets[self.node.nodeset]["templates"] if self.node.nodeset else []

    @property
    def next_template(self) -> ReconcileTemplate | None:
        """The template of the first way that does not cool down for as many instances; None where there is none, or
        no machine is created at all."""
        if self.world.refused or self._is_refused(self.name, 1):
            return None
        size = self.world.request_sizes.get(self.name, 1)
        rows = (row for row in self.templates if not self._is_refused(way_key(self.node.nodeset, row["way"]), size))
        return next(rows, None)

    def _is_refused(self, key: str, size: int) -> bool:
        cooling = self.world.cooling.get(key)
        return cooling is not None and cooling.until > self.now and cooling.size <= size

    @property
    def refusal(self) -> str:
        """The reason of the way that can be tried again first; for a node of which all ways cool down, or for which no
        machine is created at all."""
        if self.world.refused:
            return self.world.refused
        keys = [way_key(self.node.nodeset, row["way"]) for row in self.templates]
        if self._is_refused(self.name, 1):
            keys = [self.name]
        cooling = [self.world.cooling[key] for key in keys if key in self.world.cooling]
        return min(cooling, key=lambda way: way.until).reason if cooling else NO_CAPACITY

    @property
    def old_machine(self) -> bool:
        """Return whether the instance existed before Slurm requested it. Such a machine does not boot again, so its
        node would never join."""
        powers_up = self.age.before in ("POWERED_DOWN", "POWERING_DOWN") and self.age.power == "POWERING_UP"
        return powers_up and 0 < self.instance.created < self.age.power_since - 60

    @property
    def boot_failed(self) -> bool:
        if self.world.boot.get(self.name, "").startswith("failed"):
            return True
        since = max(self.age.power_since, self.world.awake)
        if any(row.get("run_seconds") for row in self.templates):
            # The machine was in a queue before, for which Slurm's ResumeTimeout is longer than a boot.
            since = max(since, self.instance.created)
        return self.now - since > self.world.nodesets[self.node.nodeset]["boot_seconds"]

    @property
    def unheard(self) -> bool:
        """Return whether the machine has joined while slurmctld still waits for it. slurmctld ignores a machine that
        booted before the request, and a restarted slurmctld, which lost its first request, sends another one."""
        return self.instance.created < self.world.joined.get(self.name, 0.0) < self.now - JOINED_SECONDS

    @property
    def outdated(self) -> bool:
        """Return whether the instance was made from a template that the nodeset does not have any more."""
        # An instance of a group has no label where the group could not be read.
        is_labelled = TEMPLATE_LABEL in self.instance.labels
        return self.node.elastic and self.instance.made_by_loop and is_labelled and not self.template_ways

    # -- repair ------------------------------------------------------------------------------------------------------

    @property
    def confirmed(self) -> bool:
        """Return whether a check since the last step of the repair requires another step, or the machine did not come
        back after that step."""
        since = max(self.repair.last, self.world.awake)
        missing = self.within_day(self.repair.last) and not self.checked and self.now - since > REPAIR_SECONDS
        return missing or self.slow or (self.checked and self.health.repair)

    @property
    def checked(self) -> bool:
        """Return whether health checks have run since the last step of the repair."""
        return self.health.time > self.repair.last

    @property
    def slow(self) -> bool:
        """Return whether a measurement has failed since the last step of the repair. Checks that pass do not count
        then."""
        return self.within_day(self.repair.last) and self.health.slow > self.repair.last

    @property
    def unmeasured(self) -> bool:
        """Return whether its checks pass, and its NCCL test with another node had no result in the last hour."""
        since = max(self.repair.last, self.now - UNMEASURED_SECONDS)
        return self.sound and self.health.unmeasured > since

    @property
    def sound(self) -> bool:
        """Return whether two checks in a row have passed since the last step of the repair, and no measurement has
        failed."""
        return self.checked and not self.health.failed and self.health.passes >= 2 and not self.slow

    @property
    def bad_host(self) -> bool:
        """Return whether the machine is on a host that was given up."""
        return self.instance.host in self.world.hosts

    def within_day(self, time: float) -> bool:
        return self.now - time < DAY

    @property
    def nodes_of_nodeset(self) -> list[ReconciledNode]:
        return [node for node in self.world.nodes.values() if node.nodeset == self.node.nodeset]

    @property
    def replaceable(self) -> bool:
        """Return whether the machine may be deleted. Of a reservation, the next one would be on the same host."""
        if not self.node.elastic or not self.instance.made_by_loop or self.within_day(self.repair.replace):
            return False
        repairs = [self.world.repairs.get(node.name, _NO_REPAIR) for node in self.nodes_of_nodeset]
        replaced = sum(self.within_day(repair.replace) for repair in repairs)
        return all(way.startswith(("on_demand", "spot")) for way in self.template_ways) and replaced < REPLACED_PER_DAY

    @property
    def template_ways(self) -> set[str]:
        """The ways whose template the instance was made from."""
        template = self.instance.labels.get(TEMPLATE_LABEL)
        return {row["way"] for row in self.templates if row["template"].rpartition("/")[2] == template}

    @property
    def over_budget(self) -> bool:
        """Return whether so many nodes of the nodeset are sick that the cause is not their machines, or as many are in
        repair as may be."""
        nodes = self.nodes_of_nodeset
        sick = [node.name for node in nodes if "DRAIN" in node.states and node.reason.startswith((HEALTH, NEW))]
        # A node whose jobs still run, for days perhaps, is not in repair yet.
        idle = [name for name in sick if not Case(self.world, name).busy]
        repaired = [name for name in idle if self.within_day(self.world.repairs.get(name, _NO_REPAIR).last)]
        allowed = max(1, len(nodes) // NODES_PER_REPAIR)
        is_held_back = self.name not in repaired and len(repaired) >= allowed
        return is_held_back or len(sick) > max(1, COMMON_PART * len(nodes))
