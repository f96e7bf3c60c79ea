"""The reconcile loop: reads Slurm and the cloud, decides, acts, and keeps a record and a journal of it.

One process does all of it, one pass at a time, and any pass may be its last: what Slurm asks for is in Slurm's own
state, requests to the cloud carry an id that is the same when they are sent again, and what must not be done twice is
recorded before it is done.
"""

import errno
import json
import re
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from health import acceptance
from interface import Reconcile
from reconcile import decision, flex
from reconcile.compute_engine import CAPACITY, MADE_BY, OURS, PASSING, CloudError, ComputeEngine, Group, Instance, Kind
from reconcile.decision import Action, BadHost, Cooling, Do, Node, Pending, Repair, Seen, World, way_key
from reconcile.record import Record, follow
from reconcile.slurmctld import Slurm, health_of, joined, node_of
from slurm import scheduler
from system import cluster_state
from system.host import SetupError, in_parallel, log, printable, write

FOLDER = Path("/var/lib/hpc/controller/reconcile")  # on the state disk, where there is one
SETTINGS = Path("/etc/hpc/reconcile.json")
PAUSED = FOLDER / "paused"  # it outlives the controller's machine, as the loop does
LIFT = "hpc-reconcile lift"
RETRY_SECONDS, RETRY_MOST = 10, 300
COOL_MINUTES, COOL_MOST = 10, 60
BOOT_FAILURES = 10  # machines of a nodeset in a row that did not boot: its image, not its machines
AT_ONCE = 8  # requests to the cloud; the API's limit is some 25 a second
BULKS = 5  # requests for many instances in one pass; the API takes 10 at a time
ASK_BOOT_SECONDS = 30  # between two questions for a booting machine's guest attribute
REGISTER_SECONDS = 60  # between two requests to register again
SKEW_SECONDS = 30  # of this machine's clock and the cloud's, by whose times the age of machines is known
STUCK_SECONDS = 600  # of an operation that neither ends nor shows in the list
REPORT_SECONDS = 1800  # of a report, which takes 10 to 12 minutes
JOURNAL_BYTES = 5_000_000
SHOWN = 10  # actions in the status
COMMENTS = 200  # jobs whose reason is remembered; those that have ended are among them
REPAIRS = 2000  # lines of repairs that a new journal takes over
_REPAIR = re.compile(r'"action": "(reset|report|replace)"|"rule": "repaired"')
_PLAIN = re.compile(r"[^ -~]|[\"'\\]")


class Loop:
    """The loop of one cluster."""

    def __init__(
        self,
        settings: Reconcile,
        *,
        cloud: ComputeEngine,
        slurm: Slurm,
        folder: Path = FOLDER,
        paused: Path = PAUSED,
        clock: Callable[[], float] = time.time,
        at_once: int = AT_ONCE,
    ) -> None:
        self.settings, self.cloud, self.slurm, self.clock = settings, cloud, slurm, clock
        self.folder, self.paused, self.at_once = folder, paused, at_once
        self.record = Record.read(folder / "record.json")
        self._flex = flex.Groups(cloud, settings)
        self._ends: dict[str, float] | None = None
        self.why = ""
        self._of = {
            name: (nodeset, name in row["nodes"])
            for nodeset, row in settings["nodesets"].items()
            for name in (*row["nodes"], *row["static"])
        }
        self._asked: dict[str, tuple[float, str]] = {}
        self._registering: dict[str, int] = {}
        self._advised: set[tuple[str, tuple[str, ...]]] = set()
        self._held: list[decision.Held] = []
        self._alerts: list[tuple[Action, str]] = []
        self._recent: list[dict[str, Any]] = []
        self._full = ""

    # -- a pass ------------------------------------------------------------------------------------------------------

    def turn(self, *, locked: bool = False) -> bool:
        """Do one pass. Return whether something is under way, so that the next pass is due soon. `locked`: `up` changes
        nodes, so this pass only reads."""
        now = self.clock()
        try:
            world = self._world(now)
        except (SetupError, CloudError) as error:
            self.why = printable(str(error))
            self._show(now)
            return True
        self.why = world.unsafe
        self.record.courses, ended = follow(self.record.courses, world)
        for row in ended:
            self._write(**row)
        actions = decision.decide(world)
        self._alerts = [(action, self._describe(action, world)) for action in actions if action.do is Do.ALERT]
        actions = [action for action in actions if action.do is not Do.ALERT]
        self.record.actions = [at for at in self.record.actions if at > now - 3600]
        left = self.settings["actions_per_hour"] - len(self.record.actions)
        actions, self._held = decision.restrain(actions, world, left=left)
        if self.settings["mode"] == "act" and not self.paused.exists() and not locked:
            self._unless_full(lambda: self._register([action for action in actions if action.do is Do.REGISTER], world))
            if others := [action for action in actions if action.do is not Do.REGISTER]:
                self._apply(others, world)
            self._apply_flex(world)
        elif self.settings["mode"] == "advise":
            self._advise(actions, world)
        self._save()
        self._show(now)
        moving = any(
            node.states & {"POWERING_UP", "POWERING_DOWN", "POWER_DOWN"} and not self._is_queued(name, world)
            for name, node in world.nodes.items()
        )
        # What has just changed is to be seen once more, before anything is made of it.
        changed = any(seen.passes == 1 for seen in self.record.seen.values())
        return moving or changed or bool(actions or self.record.pending or self.record.retry)

    def _is_queued(self, name: str, world: World) -> bool:
        return any(instance.status == "PENDING" for instance in world.instances.get(name, ()))

    def _world(self, now: float) -> World:
        """Read everything that this pass decides from. Raises SetupError and CloudError."""
        unsafe = self.slurm.young()
        rows, jobs = self.slurm.nodes()
        if not rows:
            raise SetupError("slurmctld names no node")  # each machine would be one without a node
        groups = self._flex.read(now)
        listing = self.cloud.instances()
        found: dict[str, tuple[Instance, ...]] = {}
        for instance in listing.instances:
            found[instance.name] = (*found.get(instance.name, ()), instance)
        self._flex.add(found)
        ours = {name: row for name, row in rows.items() if name in self._of}
        nodes = {name: node_of(name, *self._of[name], row, jobs.get(name, ())) for name, row in ours.items()}
        self.record.note_pass(now)
        if partial := listing.partial or groups:
            unsafe = f"the list of instances is partial: {partial}"
        else:
            self._settle(found, now)
        if abs(self.cloud.skew) > SKEW_SECONDS:
            way = "ahead of" if self.cloud.skew > 0 else "behind"
            unsafe = f"this machine's clock is {abs(self.cloud.skew):.0f} s {way} the cloud's"
        record = self.record
        record.retry = {name: at for name, at in record.retry.items() if at > now}
        record.cooling = {key: way for key, way in record.cooling.items() if way.until > now - 3600}
        record.hosts = {key: host for key, host in record.hosts.items() if host.time > now - decision.HOST_SECONDS}
        record.waits = {
            name: at for name, at in record.waits.items() if name in nodes and "DRAIN" in nodes[name].states
        }
        world = World(
            now=now, nodes=nodes, instances=found, nodesets=self.settings["nodesets"],
            max_unavailable=self.settings["max_unavailable"], maintain=self.settings["maintain"],
            pending=record.pending, cooling=record.cooling,
            retry=record.retry, repairs=record.repairs, hosts=record.hosts, waits=frozenset(record.waits),
            known=frozenset(rows), unsafe=unsafe, awake=record.awake,
        )  # fmt: skip
        # A job that runs waits for nothing any more.
        waits = {job for node in nodes.values() for job in node.jobs if "POWERING_UP" in node.states}
        for job in {job for node in nodes.values() for job in node.jobs} - waits:
            record.comments.pop(job, None)
        before, record.seen = record.seen, decision.observe(record.seen, world)
        self._count_boots(before, nodes)
        world = replace(world, seen=record.seen)
        return replace(world, health=health_of(nodes), boot=self._boot(world), joined=joined(world))

    def _settle(self, found: Mapping[str, tuple[Instance, ...]], now: float) -> None:
        """Take note of operations that have ended."""
        asked: dict[str, Any] = {}
        for name, pending in list(self.record.pending.items()):
            there = found.get(name)
            status = there[0].status if there else ""
            if pending.kind == "create" and status:
                if status not in decision.COMING:
                    self._ended(name)
                    self.record.failures.pop(name, None)
            elif pending.kind == "delete" and not status:
                self._ended(name)
            elif pending.kind != "delete" or now - pending.began > decision.ORPHAN_SECONDS:
                if pending.operation not in asked:
                    try:
                        asked[pending.operation] = self.cloud.operation(pending.operation)
                    except CloudError as error:
                        asked[pending.operation] = error
                self._settle_one(name, pending, asked[pending.operation], now)

    def _settle_one(self, name: str, pending: Pending, answer: Any, now: float) -> None:  # noqa: ANN401
        late = now - pending.began > (REPORT_SECONDS if pending.kind == "report" else STUCK_SECONDS)
        if isinstance(answer, CloudError):
            if answer.kind is Kind.NOT_FOUND or late:
                self._ended(name)
        elif answer.done and answer.error:
            self._ended(name)
            if pending.kind == "create":
                self._failed([name], pending.way, answer.error, now)
            elif pending.kind == "report":
                self.record.repairs[name] = replace(self.record.repairs.get(name, Repair()), refused=True)
            self._write(rule=f"{pending.kind}-failed", nodes=[name], result=str(answer.error))
        elif (answer.done and (pending.kind != "create" or now - pending.began > 60)) or late:
            # Of a creation without an error, the list may be late; one without an end is asked for again.
            self._ended(name)

    def _ended(self, name: str) -> None:
        del self.record.pending[name]
        self.record.serial[name] = self.record.serial.get(name, 0) + 1

    def _failed(self, names: Sequence[str], way: str, error: CloudError, now: float) -> None:
        """Schedule the next try of a request that failed, or let its way cool down."""
        if names[0] not in self._of:
            return  # the node has left the stack meanwhile
        if error.kind is Kind.EXISTS:  # the list is late
            self.record.retry |= dict.fromkeys(names, now + RETRY_SECONDS)
            return
        if error.kind in PASSING:
            self._delay(names, now, RETRY_MOST)
            return
        nodeset = self._of[names[0]][0]
        last = self.record.cooling.get(way_key(nodeset, way))
        if last and last.until > now:
            return  # another node has found it before
        capacity = error.kind in CAPACITY
        # A permission that was just given takes minutes to take effect.
        soon = error.kind is Kind.PERMISSION or (capacity and error.kind is not Kind.QUOTA)
        minutes = COOL_MINUTES if soon else COOL_MOST
        if last:
            minutes = max(minutes, min(2 * last.minutes, COOL_MOST))
        text = decision.NO_CAPACITY if capacity else decision.NO_MACHINE
        why = f"{error.code}: {error.message}" if not capacity or error.kind is Kind.QUOTA else error.code
        self._cool(nodeset, way, now + minutes * 60, text=text, why=why, minutes=minutes)

    def _must_wait(self, action: Action, now: float) -> bool:
        """Whether the cloud refused this a moment ago, or has the instance that slurmctld misses."""
        if action.rule in ("gone", "gone-down", "gone-drained") and self._is_there(action):
            return True
        return action.do not in _STATES and self.record.retry.get(action.nodes[0], 0) > now

    def _delay(self, names: Iterable[str], now: float, most: float) -> None:
        """Send no request to the cloud for these nodes for a while, which doubles each time."""
        for name in names:
            count = self.record.failures[name] = self.record.failures.get(name, 0) + 1
            self.record.retry[name] = now + min(RETRY_SECONDS * 2 ** min(count - 1, 5), most)

    def _cool(self, nodeset: str, way: str, until: float, *, text: str, why: str, minutes: int = COOL_MOST) -> None:
        clock = time.strftime("%H:%M", time.localtime(until))
        reason = f"{text} for {nodeset} as {way} in {self.settings['cloud']['zone']} until {clock} ({why})"
        self.record.cooling[way_key(nodeset, way)] = Cooling(until, minutes, plain(reason))
        log(reason)

    def _give_up_host(self, name: str, world: World) -> None:
        """Record the host of a machine that is about to leave it: no job is to run there."""
        if host := world.instances[name][0].host:
            self.record.hosts[host] = BadHost(world.now, f"{name}: {world.nodes[name].reason}")

    def _came_back(self, name: str, world: World) -> None:
        """Count a machine that came back on such a host. The way that leads there cools down at the third one."""
        host = world.instances[name][0].host
        bad = self.record.hosts[host]
        bad = self.record.hosts[host] = replace(bad, time=world.now, machines=bad.machines + 1)
        if bad.machines % decision.HOST_MACHINES == 0:
            nodeset = world.nodes[name].nodeset
            why = f"its machines come back on {host}, which was given up. {bad.reason}"
            for way in decision.Case(world, name).ways:
                self._cool(nodeset, way, world.now + COOL_MOST * 60, text=decision.NO_CAPACITY, why=why)

    def _count_boots(self, before: Mapping[str, Seen], nodes: Mapping[str, Node]) -> None:
        for name, node in nodes.items():
            last, seen = before.get(name), self.record.seen[name]
            if last and last.power == "POWERING_UP" and seen.mode == "up":
                self.record.boots.pop(node.nodeset, None)

    def _boot(self, world: World) -> dict[str, str]:
        """Return what machines have published that boot for a minute or longer."""
        found: dict[str, str] = {}
        for name, seen in world.seen.items():
            there = world.instances.get(name)
            early = world.now - seen.power_since < 60 or self._is_queued(name, world)
            if seen.power != "POWERING_UP" or not there or early:
                continue
            at, text = self._asked.get(name, (0.0, ""))
            if world.now - at > ASK_BOOT_SECONDS:
                try:
                    text = self.cloud.guest_attribute(name)
                except CloudError:
                    text = ""
                self._asked[name] = (world.now, text)
            found[name] = text
        return found

    # -- actions -----------------------------------------------------------------------------------------------------

    def _register(self, actions: Sequence[Action], world: World) -> None:
        """Write which nodes are to register again into the file that each of them reads (watch.sh). A node registers
        once for each number."""
        before, turn = self._registering, int(world.now // REGISTER_SECONDS)
        self._registering = {}
        for action in actions:
            (name,) = action.nodes
            last = before.get(name, 0)
            self._registering[name] = last if turn - last < 2 else turn
            if self._registering[name] != last:
                self._note(action, world)
        if self._registering:
            text = "".join(f"{name} {number}\n" for name, number in sorted(self._registering.items()))
            write(cluster_state.REGISTER, text, quiet=True)
        else:
            cluster_state.REGISTER.unlink(missing_ok=True)

    def _apply(self, actions: Sequence[Action], world: World) -> None:
        creates = [action for action in actions if action.do is Do.CREATE]
        many = [action for action in creates if len(action.nodes) > 1][BULKS:]
        creates = [action for action in creates if action not in many]
        for action in creates:
            self._note(action, world)
        for answer in (
            in_parallel(self._create, creates, at_once=self.at_once)
            if self.at_once > 1
            else [self._create(action) for action in creates]
        ):
            self._created(*answer, world.now)
        self._save()
        grouped: dict[tuple[str, str, str], Action] = {}
        for action in actions:
            if action.do is Do.CREATE or self._must_wait(action, world.now):
                continue
            if decision.BY_ID[action.rule].counts:
                self.record.actions.append(world.now)
            if action.rule in REQUEUES and (node := world.nodes.get(action.nodes[0])):
                text = scheduler.requeued_text(node.name, action.reason, world.now)
                text = action.reason if action.do is Do.REFUSE else text
                self._comment(node.jobs, text)
            if state := _STATES.get(action.do):
                key = (state, action.reason, action.rule)
                others = grouped[key].nodes if key in grouped else ()
                grouped[key] = replace(action, nodes=(*others, *action.nodes))
                continue
            self._note(action, world)
            try:
                self._unless_full(partial(self._one, action, world))
            except (SetupError, CloudError) as error:
                self._write(rule=action.rule, nodes=action.nodes, result=str(error))
                # One that is refused for good is neither sent every few seconds nor takes all of the hour's actions.
                lasts = isinstance(error, SetupError) or error.kind not in PASSING
                self._delay(action.nodes, world.now, RETRY_MOST if lasts else RETRY_SECONDS)
        for (state, reason, rule), action in grouped.items():
            names = [name for name in action.nodes if rule not in decision.REPAIRED or not self._measured(name)]
            if names:
                self._note(replace(action, nodes=tuple(names)), world)
                self._update(names, state, reason)
            jobs = sorted({job for name in names for job in world.nodes[name].jobs}) if rule in LOST else []
            if jobs:
                with self._noted("hasten", jobs):
                    self.slurm.hasten(jobs)

    @contextmanager
    def _noted(self, rule: str, names: Sequence[str]) -> Generator[None]:
        """Note in the journal that slurmctld or the cloud has refused something, and go on."""
        try:
            yield
        except (SetupError, CloudError) as error:
            self._write(rule=rule, nodes=names, result=str(error))

    def _measured(self, name: str) -> bool:
        """Begin the measurement of a repaired node; return whether the node has to wait for it, or for its begin."""
        try:
            waits = self.slurm.measure(name)
        except SetupError as error:
            self._write(rule="measure", nodes=[name], result=str(error))
            return True
        if waits == acceptance.NO_PARTNER:
            self.record.waits.setdefault(name, self.clock())
        else:
            self.record.waits.pop(name, None)
        return bool(waits)

    def _comment(self, jobs: Iterable[str], reason: str) -> None:
        """Write into jobs why they wait again, before their nodes are taken from them."""
        news = [job for job in jobs if self.record.comments.get(job) != reason]
        self.record.comments |= dict.fromkeys(news, reason)
        if news:
            with self._noted("comment", news):
                self.slurm.comment(news, reason)

    def _is_there(self, action: Action) -> bool:
        """Return whether an instance is there that the list did not have; so too where that can't be read."""
        try:
            return self.cloud.get(action.nodes[0]) is not None
        except CloudError:
            return True

    def _update(self, names: list[str], state: str, reason: str) -> None:
        """Change nodes together; one by one where slurmctld refuses one of them."""
        try:
            self.slurm.update(names, state, reason)
        except SetupError as error:
            if len(names) == 1:
                self._write(rule=state, nodes=names, result=str(error))
            for name in names if len(names) > 1 else ():
                self._update([name], state, reason)

    def _one(self, action: Action, world: World) -> None:
        """Do an action on one node. Raises SetupError and CloudError."""
        (name,) = action.nodes
        repair = self.record.repairs.get(name, Repair())
        if action.do is Do.DELETE and self._is_queued(name, world) and (group := self._flex.queued(name)):
            self._delete_group(group, world.now)
        elif action.do is Do.DELETE:
            if self._delete(name, world.now) and action.rule == "host-again":
                self._came_back(name, world)
        elif action.do is Do.BOOT_FAILED:
            self._keep_log(name)
            self.slurm.update([name], "POWER_DOWN_FORCE", action.reason)
            self._boot_failure(name, world)
        elif action.do is Do.RESET:
            self._remember(name, replace(repair, reset=world.now))
            self._began("reset", name, self.cloud.reset(name, request=self._request("reset", name)).name, world.now)
        elif action.do is Do.REPORT:
            self._remember(name, replace(repair, report=world.now))
            request = self._request("report", name)
            try:
                operation = self.cloud.report_faulty(name, world.nodes[name].reason, request=request)
            except CloudError as error:
                if error.kind not in PASSING:
                    self._remember(name, replace(repair, report=world.now, refused=True))
                raise
            self._give_up_host(name, world)
            self._began("report", name, operation.name, world.now)
        elif action.do is Do.MAINTAIN:
            self._remember(name, replace(repair, maintain=world.now))
            operation = self.cloud.perform_maintenance(name, request=self._request("maintain", name))
            self._began("maintain", name, operation.name, world.now)
        elif action.do is Do.REPLACE:
            self._keep_log(name)
            self._give_up_host(name, world)
            self._remember(name, replace(repair, replace=world.now))
            self.slurm.update([name], "", action.reason)
            self._delete(name, world.now)

    def _create(self, action: Action) -> tuple[Action, str, CloudError | None]:
        """Send one request; a thread of its own may call this, so nothing is recorded here."""
        try:
            request = self._request(f"create {action.way}", *action.nodes)
            names, nodeset, way = list(action.nodes), action.nodeset, action.way
            if row := self._flex.rows.get(way_key(nodeset, way)):
                policy = row.get("policy", "")
                found = self.cloud.insert_group(
                    names, template=action.template, nodeset=nodeset, way=way, policy=policy, request=request
                )
            else:
                found = self.cloud.insert(names, template=action.template, nodeset=nodeset, request=request)
        except CloudError as error:
            return action, "", error
        return action, found.name, None

    def _created(self, action: Action, operation: str, error: CloudError | None, now: float) -> None:
        for name in action.nodes if error is None else ():
            self._began("create", name, operation, now, action.way)
        if error is not None:
            self._write(rule=action.rule, nodes=action.nodes, result=str(error))
            for name in action.nodes:
                # The same request would be answered with the same refusal.
                if error.kind not in PASSING:
                    self.record.serial[name] = self.record.serial.get(name, 0) + 1
            self._failed(action.nodes, action.way, error, now)

    def _delete(self, name: str, now: float) -> bool:
        """Delete an instance, which is read again before: only one that the loop has made, and under a name of the
        cluster's; False where there is none. Raises CloudError, and SetupError for any other."""
        instance = self.cloud.get(name)
        cluster = self.settings["cloud"]["cluster"]
        if instance is None:
            return False
        labels = instance.labels
        if labels.get("hpc-cluster") != cluster or labels.get(MADE_BY) != OURS or not name.startswith(f"{cluster}-"):
            raise SetupError(f"{name} is not an instance that the reconcile loop of {cluster} has made: not deleted")
        # By the instance's own number, and a number for each try: a second instance of the name is another request.
        request = self._request(f"delete {instance.id}", name)
        operation = self.cloud.delete(name, request=request, group=instance.group)
        if operation:
            self._began("delete", name, operation.name, now)
        self.record.failures.pop(name, None)
        return operation is not None

    def _apply_flex(self, world: World) -> None:
        """Ask for the machines of groups, delete groups without use, write into jobs what they wait for, and keep jobs
        from machines that end."""
        for step in self._flex.steps(world):
            self._write(rule=step.rule, nodes=step.group.nodes, group=step.group.name, result=str(step.error or ""))
            with self._noted(step.rule, step.group.nodes):
                self._do_flex(step, world.now)
        for group, text in self._flex.reasons(self.settings["cloud"]["zone"]):
            booting = [world.nodes[name] for name in group.nodes if name in world.nodes]
            jobs = sorted({job for node in booting if "POWERING_UP" in node.states for job in node.jobs})
            self._comment(jobs, plain(text))
        elastic = (name for name, node in world.nodes.items() if node.elastic and name in world.instances)
        ends = {name: found.ends for name in elastic if (found := world.instances[name][0]).ends}
        if ends != self._ends and not world.unsafe:
            with self._noted("ends", sorted(ends)):
                self.slurm.keep_ends(ends)
                self._ends = ends

    def _do_flex(self, step: flex.Step, now: float) -> None:
        """Do what one group needs. Raises CloudError."""
        group, row, error = step.group, step.row, step.error
        # A request that has failed is sent again as another one, later.
        turn = int(now // REGISTER_SECONDS)
        if step.rule == "flex-template" and row:
            self.cloud.set_template(group, row["template"], request=self._request(f"{group.id} {turn}", group.name))
            return
        if step.rule == "flex-ask" and row:
            request = self._request(f"ask {group.id} {turn}", group.name)
            try:
                error = self.cloud.insert_resize(group, row.get("run_seconds", 0), request=request).error
            except CloudError as refused:
                error = refused
            if error is None or error.kind is Kind.EXISTS:
                return
            if error.kind in PASSING:
                raise error
            self._write(rule=step.rule, nodes=group.nodes, result=str(error))
        if step.rule == "flex-failed" and error is None:
            error = CloudError(Kind.STOCK_OUT, "resize request ended", "")
        if error and row:
            self._failed(group.nodes, group.way, error, now)
        self._delete_group(group, now)

    def _delete_group(self, group: Group, now: float) -> None:
        """Delete a group of which no machine is there. Raises CloudError."""
        before = [self.record.pending.get(name) for name in group.nodes if self._flex.queued(name) is group]
        if any(pending and pending.kind == "delete" for pending in before):
            return  # for another node of it
        request = self._request(f"delete {group.id} {int(now // REGISTER_SECONDS)}", group.name)
        operation = self.cloud.delete_group(group.name, request=request)
        for name in group.nodes:
            if operation and self._flex.queued(name) is group:
                self._began("delete", name, operation.name, now)

    def _began(self, kind: str, name: str, operation: str, now: float, way: str = "") -> None:
        self.record.pending[name] = Pending(kind, operation, now, way)

    def _request(self, what: str, *names: str) -> str:
        """Return the id of a request: the same one, sent again by another process, is answered with the same
        operation."""
        serials = [f"{name}={self.record.serial.get(name, 0)}" for name in names]
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.settings['cloud']['cluster']} {what} {' '.join(serials)}"))

    def _remember(self, name: str, repair: Repair) -> None:
        """Record a step before it is done: one that was not done is worth less than one that is done twice."""
        before = self.record.repairs.get(name, Repair())
        self.record.repairs[name] = repair
        try:
            self._store()
        except OSError:
            self.record.repairs[name] = before
            raise

    def _boot_failure(self, name: str, world: World) -> None:
        nodeset = world.nodes[name].nodeset
        count = self.record.boots[nodeset] = self.record.boots.get(nodeset, 0) + 1
        if count < BOOT_FAILURES:
            return
        reason = f"{decision.NO_BOOT}: {count} of {nodeset} in a row; look at {self.folder / 'serial'}"
        for row in self.settings["nodesets"][nodeset]["templates"]:
            self.record.cooling[way_key(nodeset, row["way"])] = Cooling(world.now + 3600, COOL_MOST, plain(reason))
        self.record.boots.pop(nodeset)

    def _keep_log(self, name: str) -> None:
        """Keep the serial log of a machine that is about to be deleted; without it, nothing waits."""
        try:
            text = self.cloud.serial_log(name)
        except CloudError as error:
            text = f"{error}\n"
        self._unless_full(lambda: write(self.folder / "serial" / f"{name}.log", text, mode=0o600, quiet=True))

    # -- the journal, the record and the status ----------------------------------------------------------------------

    def lift(self) -> None:
        """Lift every brake: forget this hour's actions, ways that cool down, and hosts that were given up."""
        self.record.actions, self.record.cooling, self.record.boots, self.record.retry = [], {}, {}, {}
        self.record.hosts = {}
        self._write(rule="lifted", nodes=[], result="by a person: brakes, cool-downs and hosts that were given up")
        self._save()

    def asked(self, kind: str, hosts: str, at: float) -> None:
        """Take note of a request of slurmctld's."""
        self._write(rule=f"asked-{kind}", nodes=[hosts], asked=at)

    def _advise(self, actions: Sequence[Action], world: World) -> None:
        before, steps = self._advised, self._flex.steps(world)
        self._advised = {(action.rule, action.nodes) for action in actions}
        self._advised |= {(step.rule, step.group.nodes) for step in steps}
        for action in actions:
            if (action.rule, action.nodes) not in before:
                self._note(action, world, mode="advise")
        for step in steps:
            if (step.rule, step.group.nodes) not in before:
                self._write(rule=step.rule, nodes=step.group.nodes, group=step.group.name, mode="advise")

    def _note(self, action: Action, world: World, *, mode: str = "act") -> None:
        text = self._describe(action, world)
        first = decision.Case(world, action.nodes[0])
        self._write(
            rule=action.rule, action=action.do.name.lower(), nodes=action.nodes, mode=mode, instance=first.status,
            slurm="+".join(sorted(first.states)), reason=action.reason, way=action.way,
        )  # fmt: skip
        log(f"{'would ' if mode == 'advise' else ''}{text}")

    def _describe(self, action: Action, world: World) -> str:
        case = decision.Case(world, action.nodes[0])
        states = "+".join(sorted(case.states)) or "not in slurm.conf"
        way = f" as {action.way}" if action.way else ""
        seen = f"instance {case.status or 'none'}, node {states}"
        why = f" ({action.reason or case.reason})" if action.reason or case.reason else ""
        return f"{action.do.value}{way}: {','.join(action.nodes)}: {action.rule}: {seen}{why}"

    def _write(self, **row: Any) -> None:  # noqa: ANN401 - JSON values
        row = {"time": round(self.clock(), 1), **row}
        self._recent = [*self._recent, row][-SHOWN:]
        self._unless_full(lambda: self._append(json.dumps(row)))
        if row.get("result"):
            log(f"{row['rule']}: {','.join(row['nodes'])}: {row['result']}")

    def _append(self, line: str) -> None:
        path = self.folder / "journal.jsonl"
        self.folder.mkdir(parents=True, exist_ok=True)
        kept: list[str] = []
        if path.exists() and path.stat().st_size > JOURNAL_BYTES:
            last = path.with_suffix(".jsonl.1")
            if last.exists():  # its lines go, but for those of repairs, which figures of months are made from
                kept = [row for row in last.read_text().splitlines() if _REPAIR.search(row)][-REPAIRS:]
            path.replace(last)
        with path.open("a") as file:
            file.write("".join(f"{row}\n" for row in (*kept, line)))

    def _unless_full(self, writes: Callable[[], object]) -> None:
        """Write what a pass can do without: a disk that users have filled, as /home is on it too, keeps no machine from
        its job. What must be recorded before it is done is not done then (`_remember`).

        Any other error ends the loop: the disk may have been taken from this controller by another one.
        """
        try:
            writes()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            if (text := str(error)) != self._full:
                self._full = text
                log(f"the loop can't write its files, and goes on without: {text}")

    def _save(self) -> None:
        self._unless_full(self._store)

    def _store(self) -> None:
        self.record.comments = dict(list(self.record.comments.items())[-COMMENTS:])
        write(self.folder / "record.json", self.record.text(), mode=0o600, quiet=True)

    def _show(self, now: float) -> None:
        brakes: list[dict[str, str]] = []
        mode = self.settings["mode"]
        if mode != "act":
            todo = "set slurm.reconcile.mode: act"
            brakes.append({"brake": f"mode: {mode}", "text": "nothing is done", "todo": todo})
        if self.paused.exists():
            brakes.append({"brake": "paused", "text": f"{self.paused} is there", "todo": "hpc-reconcile unpause"})
        for held in self._held:
            nodes = ",".join(sorted({name for action in held.actions for name in action.nodes}))
            value = self.settings["actions_per_hour" if held.brake == "actions_per_hour" else "max_unavailable"]
            text = f"{len(held.actions)} actions wait: {nodes} ({held.brake}: {value})"
            # The other brake lets a part through in each pass.
            if held.brake == "actions_per_hour":
                brakes.append({"brake": held.brake, "text": text, "todo": LIFT})
        status = {
            "mode": mode,
            "why": self.why,
            "brakes": brakes,
            "cooling": {key: way.reason for key, way in self.record.cooling.items() if way.until > now},
            "alerts": [text for _, text in self._alerts],
            "waits": self.record.waits,
            "jobs": self.record.comments,
            "actions": self._recent,
        }
        text = json.dumps(status, sort_keys=True) + "\n"
        self._unless_full(lambda: write(self.folder / "status.json", text, quiet=True))


_STATES = {
    Do.DOWN: "DOWN",
    Do.DRAIN: "DRAIN",
    Do.RESUME: "RESUME",
    Do.POWER_DOWN: "POWER_DOWN",
    Do.FORCE: "POWER_DOWN_FORCE",
    Do.REFUSE: "POWER_DOWN_FORCE",
    Do.ASAP: "POWER_DOWN_ASAP",
}
"""Actions that are one change of a node's state, as scontrol takes it."""


REQUEUES = ("no-way", "gone", "ends", "moves", "boot-failed")
"""Rules that take nodes from jobs, which are requeued."""
LOST = ("gone", "ends", "moves")
"""Those of them whose jobs may begin at once: their nodes are not asked for again."""


def plain(text: str) -> str:
    """Return a reason as scontrol takes it: one line of ASCII without quotes."""
    return _PLAIN.sub(" ", text)[:300]
