"""The reconcile loop: reads Slurm and the cloud, decides, acts, and keeps a record and a journal of it.

One process does all of it, one pass at a time, and it may be killed in any pass: what Slurm asks for is in Slurm's own
state, requests to the cloud carry an id that is the same when they are sent again, and what must not be done twice is
recorded before it is done.
"""

import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from health import acceptance
from interface import ReconcileInput
from reconcile import brakes, budget, decision, flex, status
from reconcile.compute_engine import (
    PASSING,
    CloudError,
    ComputeEngine,
    ComputeOperation,
    ErrorKind,
    Instance,
    InstanceGroup,
)
from reconcile.decision import Action, Do
from reconcile.journal import Journal
from reconcile.record import Record, follow_repairs
from reconcile.refusals import MAX_RETRY_SECONDS, RETRY_SECONDS, Refusals, is_own, plain
from reconcile.slurmctld import Slurmctld, joined, last_checks, node_of
from reconcile.world import COMING, HOST_SECONDS, ORPHAN_SECONDS, Case, Pending, Repair, World, state_ages, way_key
from slurm import scheduler
from system import cluster_state
from system.host import SetupError, in_parallel, log, printable, write

FOLDER = Path("/var/lib/hpc/controller/reconcile")  # on the state disk, where there is one
SETTINGS = Path("/etc/hpc/reconcile.json")
PAUSED = FOLDER / "paused"  # on the state disk, so that a pause outlives the controller's machine
AT_ONCE = 8  # requests to the cloud; the API's limit is some 25 a second
BULK_REQUESTS = 5  # requests for many instances in one pass; the API takes 10 at a time
BOOT_STATE_SECONDS = 30  # between two reads of a booting machine's guest attribute
REGISTER_SECONDS = 60  # between two requests to register again
SKEW_SECONDS = 30  # allowed between this machine's clock and the cloud's: ages of machines are by the cloud's times
STUCK_SECONDS = 600  # after which an operation that neither ends nor shows in the list is given up
REPORT_SECONDS = 1800  # the same for a report of a host, which takes 10 to 12 minutes
MAX_COMMENTS = 200  # jobs whose reason is remembered; those that have ended are among them
_NODE_STATES = {
    Do.DOWN: "DOWN",
    Do.DRAIN: "DRAIN",
    Do.RESUME: "RESUME",
    Do.POWER_DOWN: "POWER_DOWN",
    Do.FORCE: "POWER_DOWN_FORCE",
    Do.REFUSE: "POWER_DOWN_FORCE",
    Do.ASAP: "POWER_DOWN_ASAP",
}
"""Actions that are one change of a node's state, by `scontrol update State=`."""
REQUEUES = ("no-way", "queued-refused", "gone", "ends", "moves", "boot-failed")
"""Rules that take nodes from jobs, which are requeued."""
LOST = ("gone", "ends", "moves")
"""Rules among REQUEUES whose jobs may begin at once, since their nodes are not requested again."""

_ONE_BY_ONE = (
    "bulkInsert is refused to the controller's service account, and single requests are not: each machine is requested "
    "by itself, so some may run, and cost, without the others"
)


class Loop:
    """The loop of one cluster."""

    def __init__(
        self,
        settings: ReconcileInput,
        *,
        cloud: ComputeEngine,
        slurm: Slurmctld,
        folder: Path = FOLDER,
        clock: Callable[[], float] = time.time,
        at_once: int = AT_ONCE,
    ) -> None:
        self.settings, self.cloud, self.slurm, self.clock = settings, cloud, slurm, clock
        self.folder, self.paused, self.at_once = folder, folder / PAUSED.name, at_once
        self.record = Record.read(folder / "record.json")
        self._flex = flex.Groups(cloud, settings)
        self._spent = budget.read(folder)
        self._ends: dict[str, float] | None = None
        """Ends of machines for which Slurm has reservations."""
        self.why = ""
        """The reason why this pass may not delete or set down anything."""
        self.refused = ""
        """The reason why no machine may be created, as the last complete list of instances has it."""
        self._nodes = {
            name: (nodeset, name in row["nodes"])
            for nodeset, row in settings["nodesets"].items()
            for name in (*row["nodes"], *row["static"])
        }
        """Nodeset of each node, and whether the node is elastic."""
        self.journal = Journal(folder, clock)
        nodesets = {name: nodeset for name, (nodeset, _) in self._nodes.items()}
        self.refusals = Refusals(self.record, settings, cloud, nodesets=nodesets, serial=folder / "serial")
        self._boot_states: dict[str, tuple[float, str]] = {}
        """When the guest attribute of a booting machine was read, and its value."""
        self._registrations: dict[str, int] = {}
        self._advised: set[tuple[str, tuple[str, ...]]] = set()
        self._held: list[brakes.Held] = []
        self._alerts: list[dict[str, str]] = []

    # -- a pass ------------------------------------------------------------------------------------------------------

    def run_pass(self, *, locked: bool = False) -> bool:
        """Do one pass. Return whether something is under way, so that the next pass is due soon. `locked`: `up` changes
        nodes, so this pass only reads."""
        now = self.clock()
        try:
            world = self._observe(now)
        except (SetupError, CloudError) as error:
            self.why = printable(str(error))
            self._write_status(now)
            return True
        self.why = world.unsafe
        self.record.courses, ended = follow_repairs(self.record.courses, world)
        for row in ended:
            self.journal.write(**row)
        decided = decision.decide(world)
        self._alerts = [status.alert(action, world, self.cloud) for action in decided if action.do is Do.ALERT]
        self.record.actions = [at for at in self.record.actions if at > now - 3600]
        remaining = self.settings["actions_per_hour"] - len(self.record.actions)
        actions = [action for action in decided if action.do is not Do.ALERT]
        actions, self._held = brakes.restrain(actions, world, remaining=remaining)
        if self.settings["mode"] == "act" and not self.paused.exists() and not locked:
            self.journal.unless_full(
                lambda: self._register([action for action in actions if action.do is Do.REGISTER], world)
            )
            self._apply([action for action in actions if action.do is not Do.REGISTER], world)
            self._apply_flex(world)
        elif self.settings["mode"] == "advise":
            self._advise(actions, world)
        self._save_record()
        self._write_status(now)
        changes_power = any(
            node.states & {"POWERING_UP", "POWERING_DOWN", "POWER_DOWN"} and not self._is_queued(name, world)
            for name, node in world.nodes.items()
        )
        # A state that has just changed is read a second time soon, before a rule acts on it.
        is_new = any(age.passes == 1 for age in self.record.seen.values())
        return changes_power or is_new or bool(actions or self.record.pending or self.record.retry)

    def _is_queued(self, name: str, world: World) -> bool:
        return any(instance.status == "PENDING" for instance in world.instances.get(name, ()))

    def _observe(self, now: float) -> World:
        """Read everything that this pass decides from. Raises SetupError and CloudError."""
        record = self.record
        unsafe = self.slurm.young()
        found, jobs = self.slurm.nodes()
        if not found:
            raise SetupError("slurmctld names no node")  # each machine would count as one without a node
        missing_groups = self._flex.read(now)
        listing = self.cloud.instances()
        instances: dict[str, tuple[Instance, ...]] = {}
        for instance in listing.instances:
            instances[instance.name] = (*instances.get(instance.name, ()), instance)
        self._flex.add(instances)
        nodes = {
            name: node_of(node, *self._nodes[name], jobs.get(name, {}))
            for name, node in found.items()
            if name in self._nodes
        }
        record.note_pass(now)
        if partial := listing.partial or missing_groups:
            unsafe = f"the list of instances is partial: {partial}"
        else:
            self._settle_operations(instances, now)
            self.refused = self.spend(instances)
        if abs(self.cloud.skew) > SKEW_SECONDS:
            direction = "ahead of" if self.cloud.skew > 0 else "behind"
            unsafe = f"this machine's clock is {abs(self.cloud.skew):.0f} s {direction} the cloud's"
        record.retry = {name: at for name, at in record.retry.items() if at > now}
        record.cooling = {key: cooling for key, cooling in record.cooling.items() if cooling.until > now - 3600}
        record.hosts = {key: host for key, host in record.hosts.items() if host.time > now - HOST_SECONDS}
        record.waits = {
            name: at for name, at in record.waits.items() if name in nodes and "DRAIN" in nodes[name].states
        }
        world = World(
            now=now, nodes=nodes, instances=instances, nodesets=self.settings["nodesets"],
            max_unavailable=self.settings["max_unavailable"], maintain=self.settings["maintain"],
            pending=record.pending, cooling=record.cooling,
            retry=record.retry, repairs=record.repairs, hosts=record.hosts, waits=frozenset(record.waits),
            node_names=frozenset(found), refused=self.refused, unsafe=unsafe, awake=record.awake,
        )  # fmt: skip
        # A job that has started waits for nothing, so its comment is not shown any more.
        waiting = {job for node in nodes.values() for job in node.jobs if "POWERING_UP" in node.states}
        for job in {job for node in nodes.values() for job in node.jobs} - waiting:
            record.comments.pop(job, None)
        before, record.seen = record.seen, state_ages(record.seen, world)
        for name, node in nodes.items():
            if name in before and before[name].power == "POWERING_UP" and record.seen[name].mode == "up":
                record.boots.pop(node.nodeset, None)
                self.refusals.forget(name)
        world = replace(world, seen=record.seen)
        return replace(world, health=last_checks(nodes), boot=self._read_boot_states(world), joined=joined(world))

    def spend(self, instances: Mapping[str, tuple[Instance, ...]]) -> str:
        """Add up what the cluster costs. Return why no machine may be created; empty if the budget allows it, or there
        is none."""
        given, now = self.settings.get("budget"), self.clock()
        if not given:
            return ""
        elastic = [name for name, (_, elastic) in self._nodes.items() if elastic]
        machines = Counter(
            self._nodes[name][0]
            for name in elastic
            for instance in instances.get(name, ())
            if instance.status != "PENDING"  # it waits in the cloud's queue
        )
        spent, last = budget.add(self._spent, given, budget.price(given, machines), now), self._spent
        if not last or last.hour != spent.hour or spent.at - last.at >= budget.SAVE_SECONDS:
            self._spent = spent
            self.journal.unless_full(lambda: budget.save(self.folder, spent))
        return plain(budget.refusal(budget.state(given, spent, now)))

    def _settle_operations(self, instances: Mapping[str, tuple[Instance, ...]], now: float) -> None:
        """Take operations that have ended off the list of pending ones."""
        answers: dict[str, ComputeOperation | CloudError] = {}
        for name, pending in list(self.record.pending.items()):
            shown = instances[name][0].status if instances.get(name) else ""
            if pending.kind == "create" and shown:
                if shown not in COMING:
                    self._end_operation(name)
                    self.record.failures.pop(name, None)
            elif pending.kind == "delete" and not shown:
                self._end_operation(name)
            elif pending.kind != "delete" or now - pending.began > ORPHAN_SECONDS:
                if pending.operation not in answers:
                    try:
                        answers[pending.operation] = self.cloud.operation(pending.operation)
                    except CloudError as error:
                        answers[pending.operation] = error
                self._settle_operation(name, pending, answers[pending.operation], now)

    def _settle_operation(self, name: str, pending: Pending, answer: ComputeOperation | CloudError, now: float) -> None:
        late = now - pending.began > (REPORT_SECONDS if pending.kind == "report" else STUCK_SECONDS)
        if isinstance(answer, CloudError):
            if answer.kind is ErrorKind.NOT_FOUND or late:
                self._end_operation(name)
        elif answer.done and answer.error:
            self._end_operation(name)
            if pending.kind == "create":
                self.refusals.schedule_retry([name], pending.way, answer.error, now, size=pending.size)
            elif pending.kind == "report":
                self.record.repairs[name] = replace(self.record.repairs.get(name, Repair()), refused=True)
            self.journal.write(rule=f"{pending.kind}-failed", nodes=[name], result=str(answer.error))
        elif (answer.done and (pending.kind != "create" or now - pending.began > 60)) or late:
            # After a creation without an error, the list may be late. A creation that never ends is requested again.
            self._end_operation(name)

    def _end_operation(self, name: str) -> None:
        del self.record.pending[name]
        self.record.serial[name] = self.record.serial.get(name, 0) + 1

    def _read_boot_states(self, world: World) -> dict[str, str]:
        """Return the set-up states that machines have published which have been booting for a minute or longer."""
        states: dict[str, str] = {}
        for name, age in world.seen.items():
            early = world.now - age.power_since < 60 or self._is_queued(name, world)
            if age.power != "POWERING_UP" or not world.instances.get(name) or early:
                continue
            at, text = self._boot_states.get(name, (0.0, ""))
            if world.now - at > BOOT_STATE_SECONDS:
                try:
                    text = self.cloud.guest_attribute(name)
                except CloudError:
                    text = ""
                self._boot_states[name] = (world.now, text)
            states[name] = text
        return states

    # -- actions -----------------------------------------------------------------------------------------------------

    def _register(self, actions: Sequence[Action], world: World) -> None:
        """Write the nodes that are to register again into the file that each of them reads (watch.sh). A node registers
        once for each number."""
        before, number = self._registrations, int(world.now // REGISTER_SECONDS)
        self._registrations = {}
        for action in actions:
            (name,) = action.nodes
            last = before.get(name, 0)
            self._registrations[name] = last if number - last < 2 else number
            if self._registrations[name] != last:
                self._journal_action(action, world)
        if self._registrations:
            text = "".join(f"{name} {number}\n" for name, number in sorted(self._registrations.items()))
            write(cluster_state.REGISTER, text, quiet=True)
        else:
            cluster_state.REGISTER.unlink(missing_ok=True)

    def _apply(self, actions: Sequence[Action], world: World) -> None:
        if not actions:
            return
        self._create([action for action in actions if action.do is Do.CREATE], world)
        self._save_record()
        grouped: dict[tuple[str, str, str], Action] = {}
        for action in actions:
            if action.do is Do.CREATE or self._must_wait(action, world.now):
                continue
            if decision.BY_ID[action.rule].counts:
                self.record.actions.append(world.now)
            if action.rule in REQUEUES and (node := world.nodes.get(action.nodes[0])):
                text = scheduler.requeued_text(node.name, action.reason, world.now)
                self._comment_jobs(node.jobs, action.reason if action.do is Do.REFUSE else text)
            if state := _NODE_STATES.get(action.do):
                key = (state, action.reason, action.rule)
                others = grouped[key].nodes if key in grouped else ()
                grouped[key] = replace(action, nodes=(*others, *action.nodes))
                continue
            self._journal_action(action, world)
            try:
                self.journal.unless_full(partial(self._perform, action, world))
            except (SetupError, CloudError) as error:
                self.journal.write(rule=action.rule, nodes=action.nodes, result=str(error))
                # An action that is refused for good is not tried every few seconds, as it would use up all of the
                # hour's actions.
                lasts = isinstance(error, SetupError) or error.kind not in PASSING
                self.refusals.delay(action.nodes, world.now, MAX_RETRY_SECONDS if lasts else RETRY_SECONDS)
        for (state, reason, rule), action in grouped.items():
            names = [
                name for name in action.nodes if rule not in decision.REPAIRED or not self._begin_measurement(name)
            ]
            if names:
                self._journal_action(replace(action, nodes=tuple(names)), world)
                self._update_nodes(names, state, reason)
            jobs = sorted({job for name in names for job in world.nodes[name].jobs}) if rule in LOST else []
            if jobs:
                with self.journal.errors("hasten", jobs):
                    self.slurm.hasten(jobs)

    def _create(self, creates: Sequence[Action], world: World) -> None:
        """Request the machines of all actions, but for some of many requests for several."""
        postponed = [action for action in creates if len(action.nodes) > 1][BULK_REQUESTS:]
        creates = [action for action in creates if action not in postponed]
        for action in creates:
            self._journal_action(action, world)
        answers = (
            in_parallel(self._send_create, creates, at_once=self.at_once)
            if self.at_once > 1
            else [self._send_create(action) for action in creates]
        )
        for action, sent in zip(creates, answers, strict=True):
            if len(sent) > 1:
                self.journal.write(rule=action.rule, nodes=action.nodes, result=_ONE_BY_ONE)
            for answer in sent:
                self._record_create(*answer, world.now)

    def _must_wait(self, action: Action, now: float) -> bool:
        """Return whether the cloud refused this a moment ago, or has the instance that slurmctld misses."""
        if action.rule in ("gone", "gone-down", "gone-drained"):
            try:
                if self.cloud.get(action.nodes[0]) is not None:
                    return True
            except CloudError:
                return True
        return action.do not in _NODE_STATES and self.record.retry.get(action.nodes[0], 0) > now

    def _begin_measurement(self, name: str) -> bool:
        """Begin the measurement of a repaired node. Return whether the node has to wait for it, or until it begins."""
        try:
            waits = self.slurm.measure(name)
        except SetupError as error:
            self.journal.write(rule="measure", nodes=[name], result=str(error))
            return True
        if waits == acceptance.NO_PARTNER:
            self.record.waits.setdefault(name, self.clock())
        else:
            self.record.waits.pop(name, None)
        return bool(waits)

    def _comment_jobs(self, jobs: Iterable[str], reason: str) -> None:
        """Write into jobs why they wait again, before their nodes are taken from them."""
        changed = [job for job in jobs if self.record.comments.get(job) != reason]
        self.record.comments |= dict.fromkeys(changed, reason)
        if changed:
            with self.journal.errors("comment", changed):
                self.slurm.comment(changed, reason)

    def _update_nodes(self, names: list[str], state: str, reason: str) -> None:
        """Change nodes together; one by one where slurmctld refuses one of them."""
        try:
            self.slurm.update(names, state, reason)
        except SetupError as error:
            if len(names) == 1:
                self.journal.write(rule=state, nodes=names, result=str(error))
            for name in names if len(names) > 1 else ():
                self._update_nodes([name], state, reason)

    def _perform(self, action: Action, world: World) -> None:
        """Perform an action on one node. Raises SetupError and CloudError."""
        (name,) = action.nodes
        repair = self.record.repairs.get(name, Repair())
        if action.do is Do.DELETE and self._is_queued(name, world) and (group := self._flex.queued(name)):
            self._delete_group(group, world.now)
        elif action.do is Do.DELETE:
            if self._delete(name, world.now) and action.rule == "host-again":
                self.refusals.count_return_to_host(name, world)
        elif action.do is Do.BOOT_FAILED:
            self._keep_serial_log(name)
            self.slurm.update([name], "POWER_DOWN_FORCE", action.reason)
            self.refusals.count_boot_failure(world.nodes[name].nodeset, world.now)
        elif action.do is Do.RESET:
            self._store_repair(name, replace(repair, reset=world.now))
            operation = self.cloud.reset(name, request=self._request_id("reset", name))
            self._add_pending("reset", name, operation.name, world.now)
        elif action.do is Do.REPORT:
            self._store_repair(name, replace(repair, report=world.now))
            request = self._request_id("report", name)
            try:
                operation = self.cloud.report_faulty(name, world.nodes[name].reason, request=request)
            except CloudError as error:
                if error.kind not in PASSING:
                    self._store_repair(name, replace(repair, report=world.now, refused=True))
                raise
            self.refusals.give_up_host(name, world)
            self._add_pending("report", name, operation.name, world.now)
        elif action.do is Do.MAINTAIN:
            self._store_repair(name, replace(repair, maintain=world.now))
            operation = self.cloud.perform_maintenance(name, request=self._request_id("maintain", name))
            self._add_pending("maintain", name, operation.name, world.now)
        elif action.do is Do.REPLACE:
            self._keep_serial_log(name)
            self.refusals.give_up_host(name, world)
            self._store_repair(name, replace(repair, replace=world.now))
            self.slurm.update([name], "", action.reason)
            self._delete(name, world.now)

    def _send_create(self, action: Action) -> list[tuple[Action, str, CloudError | None]]:
        """Send a request for instances, and return its operation or its refusal; several where its nodes were
        requested one by one. Threads of their own call this, so it records nothing.

        The controller's role holds for names of the nodeset's. Where its condition does not let a request for several
        names pass, it lets one for each pass; if it refuses the first of them too, the permission itself is missing.
        """
        try:
            return [(action, self._request_instances(action).name, None)]
        except CloudError as error:
            refused = error
        together = len(action.nodes) > 1 and way_key(action.nodeset, action.way) not in self._flex.rows
        if refused.kind is not ErrorKind.PERMISSION or not together:
            return [(action, "", refused)]
        first, *others = [replace(action, nodes=(name,)) for name in action.nodes]
        ((_, operation, error),) = self._send_create(first)
        if error and error.kind is ErrorKind.PERMISSION:
            return [(action, "", refused)]
        return [(first, operation, error), *(answer for other in others for answer in self._send_create(other))]

    def _request_instances(self, action: Action) -> ComputeOperation:
        """Request the instances of an action, by a group of flex start or directly. Raises CloudError."""
        names, nodeset, way = list(action.nodes), action.nodeset, action.way
        request = self._request_id(f"create {way}", *names)
        if row := self._flex.rows.get(way_key(nodeset, way)):
            policy = row.get("policy", "")
            return self.cloud.insert_group(
                names, template=action.template, nodeset=nodeset, way=way, policy=policy, request=request
            )
        return self.cloud.insert(names, template=action.template, nodeset=nodeset, request=request)

    def _record_create(self, action: Action, operation: str, error: CloudError | None, now: float) -> None:
        for name in action.nodes if error is None else ():
            created = Pending("create", operation, now, action.way, len(action.nodes))
            self.record.pending[name] = self.record.created[name] = created
        if error is not None:
            self.journal.write(rule=action.rule, nodes=action.nodes, result=str(error))
            for name in action.nodes:
                # The same request would be answered with the same refusal.
                if error.kind not in PASSING:
                    self.record.serial[name] = self.record.serial.get(name, 0) + 1
            self.refusals.schedule_retry(action.nodes, action.way, error, now, size=len(action.nodes))

    def _delete(self, name: str, now: float) -> bool:
        """Delete an instance, and return whether there is one. It is read again before: only an instance that the loop
        has made, and under a name of the cluster's, is deleted. Raises CloudError, and SetupError for any other."""
        instance = self.cloud.get(name)
        if instance is None:
            return False
        if not is_own(instance, self.settings):
            cluster = self.settings["cloud"]["cluster"]
            raise SetupError(f"{name} is not an instance that the reconcile loop of {cluster} has made: not deleted")
        # The id contains the instance's own number, since a second instance of the name is another request.
        request = self._request_id(f"delete {instance.id}", name)
        operation = self.cloud.delete(name, request=request, group=instance.group)
        if operation:
            self._add_pending("delete", name, operation.name, now)
        self.record.failures.pop(name, None)
        return operation is not None

    def _apply_flex(self, world: World) -> None:
        """Request the machines of groups, delete groups without use, write into jobs what they wait for, and keep jobs
        from machines that end."""
        for step in self._flex.steps(world):
            self.journal.write(
                rule=step.rule, nodes=step.group.nodes, group=step.group.name, result=str(step.error or "")
            )
            with self.journal.errors(step.rule, step.group.nodes):
                self._perform_flex_step(step, world.now)
        # Requests that wait are given up while no machine is created.
        for group, text in self._flex.reasons(self.settings["cloud"]["zone"]) if not world.refused else ():
            booting = [world.nodes[name] for name in group.nodes if name in world.nodes]
            jobs = sorted({job for node in booting if "POWERING_UP" in node.states for job in node.jobs})
            self._comment_jobs(jobs, plain(text))
        elastic = [name for name, node in world.nodes.items() if node.elastic and name in world.instances]
        ends = {name: world.instances[name][0].ends for name in elastic if world.instances[name][0].ends}
        if ends != self._ends and not world.unsafe:
            with self.journal.errors("ends", sorted(ends)):
                self.slurm.keep_ends(ends)
                self._ends = ends

    def _perform_flex_step(self, step: flex.FlexStep, now: float) -> None:
        """Do what one group needs. Raises CloudError."""
        group, row, error = step.group, step.row, step.error
        # The number changes with time: a request that has failed is sent again later under another id.
        number = int(now // REGISTER_SECONDS)
        if step.rule == "flex-template" and row:
            self.cloud.set_template(
                group, row["template"], request=self._request_id(f"{group.id} {number}", group.name)
            )
            return
        if step.rule == "flex-ask" and row:
            request = self._request_id(f"ask {group.id} {number}", group.name)
            try:
                error = self.cloud.insert_resize(group, row.get("run_seconds", 0), request=request).error
            except CloudError as refused:
                error = refused
            if error is None or error.kind is ErrorKind.EXISTS:
                return
            if error.kind in PASSING:
                raise error
            self.journal.write(rule=step.rule, nodes=group.nodes, result=str(error))
        if step.rule == "flex-failed" and error is None:
            error = CloudError(ErrorKind.STOCK_OUT, "resize request ended", "")
        if error and row:
            self.refusals.schedule_retry(group.nodes, group.way, error, now, size=len(group.nodes))
        self._delete_group(group, now)

    def _delete_group(self, group: InstanceGroup, now: float) -> None:
        """Delete a group that has no machine. Raises CloudError."""
        queued = [name for name in group.nodes if self._flex.queued(name) is group]
        if any(name in self.record.pending and self.record.pending[name].kind == "delete" for name in queued):
            return  # requested for another node of it
        request = self._request_id(f"delete {group.id} {int(now // REGISTER_SECONDS)}", group.name)
        if operation := self.cloud.delete_group(group.name, request=request):
            for name in queued:
                self._add_pending("delete", name, operation.name, now)

    def _add_pending(self, kind: str, name: str, operation: str, now: float) -> None:
        self.record.pending[name] = Pending(kind, operation, now)

    def _request_id(self, what: str, *names: str) -> str:
        """Return the id of a request: the same one, sent again by another process, is answered with the same
        operation."""
        serials = [f"{name}={self.record.serial.get(name, 0)}" for name in names]
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.settings['cloud']['cluster']} {what} {' '.join(serials)}"))

    def _store_repair(self, name: str, repair: Repair) -> None:
        """Record a step of a repair before it is done: it is better not done at all than done twice."""
        before = self.record.repairs.get(name, Repair())
        self.record.repairs[name] = repair
        try:
            self._write_record()
        except OSError:
            self.record.repairs[name] = before
            raise

    def _keep_serial_log(self, name: str) -> None:
        """Keep the serial log of a machine that is about to be deleted. It is deleted also if that fails."""
        try:
            text = self.cloud.serial_log(name)
        except CloudError as error:
            text = f"{error}\n"
        self.journal.unless_full(lambda: write(self.folder / "serial" / f"{name}.log", text, mode=0o600, quiet=True))

    # -- the journal, the record and the status ----------------------------------------------------------------------

    def lift(self) -> None:
        """Lift every brake: forget this hour's actions, ways that cool down, and hosts that were given up."""
        self.record.actions, self.record.cooling, self.record.boots, self.record.retry = [], {}, {}, {}
        self.record.hosts = {}
        self.journal.write(
            rule="lifted", nodes=[], result="by a person: brakes, cool-downs and hosts that were given up"
        )
        self._save_record()

    def journal_request(self, kind: str, hosts: str, at: float) -> None:
        """Write a request of slurmctld's programs into the journal."""
        self.journal.write(rule=f"asked-{kind}", nodes=[hosts], asked=at)

    def _advise(self, actions: Sequence[Action], world: World) -> None:
        """Write into the journal what mode `act` would do, where it differs from the last pass."""
        before, steps = self._advised, self._flex.steps(world)
        self._advised = {(action.rule, action.nodes) for action in actions}
        self._advised |= {(step.rule, step.group.nodes) for step in steps}
        for action in actions:
            if (action.rule, action.nodes) not in before:
                self._journal_action(action, world, mode="advise")
        for step in steps:
            if (step.rule, step.group.nodes) not in before:
                self.journal.write(rule=step.rule, nodes=step.group.nodes, group=step.group.name, mode="advise")

    def _journal_action(self, action: Action, world: World, *, mode: str = "act") -> None:
        first = Case(world, action.nodes[0])
        self.journal.write(
            rule=action.rule, action=action.do.name.lower(), nodes=action.nodes, mode=mode, instance=first.status,
            slurm="+".join(sorted(first.states)), reason=action.reason, way=action.way,
        )  # fmt: skip
        log(f"{'would ' if mode == 'advise' else ''}{status.describe(action, world)}")

    def _save_record(self) -> None:
        self.journal.unless_full(self._write_record)

    def _write_record(self) -> None:
        self.record.comments = dict(list(self.record.comments.items())[-MAX_COMMENTS:])
        write(self.folder / "record.json", self.record.text(), mode=0o600, quiet=True)

    def _write_status(self, now: float) -> None:
        document = {
            "mode": self.settings["mode"],
            "why": self.why,
            "brakes": status.brakes(self.settings, self.paused, self._held),
            "cooling": {key: way.reason for key, way in self.record.cooling.items() if way.until > now},
            "alerts": self._alerts,
            "waits": self.record.waits,
            "jobs": self.record.comments,
            "actions": self.journal.recent,
        }
        text = json.dumps(document, sort_keys=True) + "\n"
        self.journal.unless_full(lambda: write(self.folder / "status.json", text, quiet=True))
