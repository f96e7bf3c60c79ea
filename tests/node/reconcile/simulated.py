"""A cluster in simulated time: slurmctld's power saving as the reconcile loop reads it, machines that boot, and Compute
Engine's stand-in in the same process, with faults."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interface import ReconcileInput, ReconcileTemplate
from reconcile.compute_engine import CloudError, ComputeEngine, ErrorKind, kind_of
from reconcile.loop import Loop
from reconcile.service import BUSY_SECONDS, IDLE_SECONDS
from reconcile.slurmctld import Slurmctld
from slurm.nodes import Node

from components.local.compute_engine.http import Call
from tests.lab.google.compute import STOCK_OUT, FakeElastic, Fault

RESUME_TIMEOUT, SUSPEND_TIMEOUT, IDLE, SLURMD_TIMEOUT, REQUEUE, HASTENED = 900, 120, 600, 300, 121, 4
TEMPLATES: dict[str, dict[str, Any]] = {name: {"machineType": "m"} for name in ("t-spot", "t-demand", "t-new")}
SPOT: ReconcileTemplate = {"way": "spot", "template": "projects/p/global/instanceTemplates/t-spot"}
FLEX: ReconcileTemplate = {
    "way": "flex",
    "template": "projects/p/global/instanceTemplates/t-flex",
    "run_seconds": 86400,
}
for name in ("t-flex", "t-flex-2"):
    TEMPLATES[name] = {
        "machineType": "m",
        "scheduling": {"provisioningModel": "FLEX_START"},
        "labels": {"hpc-cluster": "c", "hpc-nodeset": "gpu", "hpc-made-by": "reconcile"},
    }


def settings(count: int = 8, **given: Any) -> ReconcileInput:
    names = [f"c-gpu-{number}" for number in range(count)]
    return {  # pyrefly: ignore[bad-unpacking]
        "mode": "act",
        "actions_per_hour": 100_000,
        "max_unavailable": 1.0,
        "maintain": True,
        "cloud": {
            "project": "p",
            "zone": "us-central1-a",
            "region": "us-central1",
            "cluster": "c",
            "endpoint": "http://nowhere",
            "token_file": "/dev/null",
        },
        "nodesets": {
            "gpu": {
                "nodes": names,
                "static": [],
                "templates": [
                    SPOT,
                    {"way": "on_demand", "template": "projects/p/global/instanceTemplates/t-demand"},
                ],
                "idle_seconds": IDLE,
                "boot_seconds": RESUME_TIMEOUT * 4 // 5,
            }
        },
        **given,
    }  # fmt: skip


@dataclass
class SimNode:
    states: set[str]
    reason: str = ""
    by: str = ""
    since: float = 0.0
    """When its power state began, or it became idle."""
    job: str = ""


@dataclass
class Job:
    size: int
    seconds: float
    nodes: list[str] = field(default_factory=list)
    began: float = 0.0
    eligible: float = 0.0
    done: bool = False
    comment: str = ""


class SimSlurm(Slurmctld):
    """slurmctld: allocates sleeping nodes, waits for them, suspends idle ones (src/slurmctld/power_save.c)."""

    def __init__(self, names: Sequence[str], clock: Callable[[], float]) -> None:
        self.clock = clock
        self.nodes_: dict[str, SimNode] = {name: SimNode({"IDLE", "CLOUD", "POWERED_DOWN"}) for name in names}
        self.jobs: dict[str, Job] = {}
        self.started = -1000.0
        self.registered: set[str] = set()
        """Nodes whose slurmd runs now."""
        self.untouchable: set[str] = set()
        self.resume_timeout = RESUME_TIMEOUT
        self.ends: dict[str, float] = {}

    # -- methods that the loop calls

    def young(self) -> str:
        return "young" if self.clock() - self.started < 60 else ""

    def nodes(self) -> tuple[dict[str, Node], dict[str, dict[str, float]]]:
        found = {
            name: Node(name, frozenset(node.states), node.reason, node.by if node.reason else "")
            for name, node in self.nodes_.items()
        }
        busy = {name: self.jobs[node.job] for name, node in self.nodes_.items() if node.job}
        return found, {name: {self.nodes_[name].job: job.began + job.seconds} for name, job in busy.items()}

    def update(self, names: Sequence[str], state: str, reason: str) -> None:
        for name in names:
            assert name not in self.untouchable, f"{state} of {name}, which a person holds"
            node = self.nodes_[name]
            if reason:
                node.reason, node.by = reason, "root"
            if state == "DOWN":
                self._down(name)
            elif state == "DRAIN":
                node.states |= {"DRAIN"}
            elif state == "RESUME":
                # _require_node_reg of src/slurmctld/node_mgr.c
                node.states |= {"IDLE", "NOT_RESPONDING"} if "DOWN" in node.states else set()
                node.states -= {"DOWN", "DRAIN"}
                node.reason = node.by = ""
                if "POWERING_DOWN" in node.states:
                    self._power(node, "POWERED_DOWN")
                node.since = self.clock()
            elif state == "POWER_DOWN_FORCE":
                self._requeue(name)
                node.states -= {"POWERING_UP"}
                node.states |= {"POWER_DOWN"}
            elif state.startswith("POWER_DOWN") and not node.states & {"POWERING_DOWN"}:
                node.states |= {"POWER_DOWN"}

    def keep_ends(self, ends: Mapping[str, float]) -> None:
        self.ends = dict(ends)

    def measure(self, name: str) -> str:
        return ""

    def hasten(self, jobs: Sequence[str]) -> None:
        for job in jobs:
            self.jobs[job].eligible = self.clock() + HASTENED

    def comment(self, jobs: Sequence[str], text: str) -> None:
        for job in jobs:
            self.jobs[job].comment = text

    # -- the simulation

    def submit(self, number: str, size: int, seconds: float) -> None:
        self.jobs[number] = Job(size, seconds)

    def _power(self, node: SimNode, state: str) -> None:
        node.states -= {"POWERING_UP", "POWERING_DOWN", "POWERED_DOWN", "POWER_DOWN"}
        node.states |= {state} if state else set()
        node.since = self.clock()

    def _requeue(self, name: str) -> None:
        number = self.nodes_[name].job
        if not number:
            return
        job = self.jobs[number]
        for other in job.nodes:
            node = self.nodes_[other]
            node.job = ""
            node.states -= {"ALLOCATED"}
            node.since = self.clock() if "POWERING_UP" not in node.states else node.since
            if "DOWN" not in node.states:
                node.states |= {"IDLE"}
        job.nodes, job.began, job.eligible = [], 0.0, self.clock() + REQUEUE

    def _down(self, name: str) -> None:
        self._requeue(name)
        node = self.nodes_[name]
        node.states -= {"IDLE", "ALLOCATED"}
        node.states |= {"DOWN"}

    def step(self) -> None:
        now = self.clock()
        for name, node in self.nodes_.items():
            self._step_node(name, node, now)
        for number, job in self.jobs.items():
            if job.done:
                continue
            if not job.nodes and now >= job.eligible:
                free = [name for name, node in self.nodes_.items() if _is_free(node)]
                if len(free) >= job.size:
                    job.nodes = free[: job.size]
                    for name in job.nodes:
                        node = self.nodes_[name]
                        node.job = number
                        node.states = (node.states - {"IDLE"}) | {"ALLOCATED"}
                        if "POWERED_DOWN" in node.states:
                            self._power(node, "POWERING_UP")
            elif job.nodes and not job.began:
                if not any("POWERING_UP" in self.nodes_[name].states for name in job.nodes):
                    job.began = now
            elif job.nodes and now - job.began > job.seconds:
                job.done = True
                for name in job.nodes:
                    node = self.nodes_[name]
                    node.job, node.since = "", now
                    node.states = (node.states - {"ALLOCATED"}) | {"IDLE"}

    def _step_node(self, name: str, node: SimNode, now: float) -> None:
        if "POWERING_DOWN" in node.states:
            if now - node.since > SUSPEND_TIMEOUT:
                self._power(node, "POWERED_DOWN")
        elif "POWERING_UP" in node.states:
            if name in self.registered:
                self._power(node, "")
            elif now - node.since > self.resume_timeout:
                self._down(name)
                self._power(node, "POWERED_DOWN")
                node.reason = f"{node.reason} : ResumeTimeout reached" if node.reason else "ResumeTimeout reached"
                node.by = node.by or "slurm"
        elif "POWER_DOWN" in node.states:
            if not node.job:
                self._suspend(node)
        elif "POWERED_DOWN" not in node.states:
            if name not in self.registered and "DOWN" not in node.states:
                node.states |= {"NOT_RESPONDING"}
                if now - node.since > SLURMD_TIMEOUT:
                    self._down(name)
                    node.reason, node.by = node.reason or "Not responding", node.by or "slurm"
            elif name in self.registered:
                node.states -= {"NOT_RESPONDING"}
                if "IDLE" in node.states and not node.states & {"DRAIN", "DOWN"} and now - node.since > IDLE:
                    self._suspend(node)

    def _suspend(self, node: SimNode) -> None:
        """Begin to power a node down, as with idle_on_node_suspend."""
        self._power(node, "POWERING_DOWN")
        node.states = (node.states - {"DOWN", "DRAIN", "NOT_RESPONDING"}) | {"IDLE"}
        node.reason = node.by = ""


def _is_free(node: SimNode) -> bool:
    busy = {"DOWN", "DRAIN", "POWERING_DOWN", "POWER_DOWN", "NOT_RESPONDING", "POWERING_UP"}
    return "IDLE" in node.states and not node.job and not node.states & busy


class Cluster:
    """Slurm, machines, the cloud and the loop, with one clock."""

    def __init__(self, folder: Path, *, seed: int = 0, count: int = 8, **given: Any) -> None:
        self.now = 1_800_000_000.0
        self.random = random.Random(seed)  # noqa: S311 - of a test
        self.folder = folder
        self.settings = settings(count, **given)
        self.fake = FakeElastic(TEMPLATES, requests_each=2)
        self.fake.clock = lambda: self.now
        self.fake.boot, self.fake.halt = self._boot, self._halt
        self.slurm = SimSlurm(self.settings["nodesets"]["gpu"]["nodes"], lambda: self.now)
        self.boots: dict[str, float] = {}
        self.deaf: set[str] = set()
        """Nodes whose slurmd can not reach slurmctld."""
        self.boot_seconds: Callable[[], float] = lambda: self.random.uniform(20, 60)
        self.faults = 0.0
        """Part of the requests that fail."""
        self.injected = 0
        self.failing = ""
        """The error with which requests of flex start fail."""
        self.kill_at: set[int] = set()
        """Requests at which the loop is killed, by their number."""
        self.orphans: dict[str, float] = {}
        self.deletes_on_partial_lists = 0
        self.partial = False
        self.restart()

    def restart(self) -> None:
        """Start the loop again, as after a kill: only its files remain."""
        self.loop = Loop(
            self.settings,
            cloud=InProcess(self),
            slurm=self.slurm,
            folder=self.folder,
            clock=lambda: self.now,
            at_once=1,
        )

    def _boot(self, name: str, resource: dict[str, Any]) -> None:
        self.boots[name] = self.now + self.boot_seconds()

    def _halt(self, name: str, resource: dict[str, Any]) -> None:
        self.boots.pop(name, None)
        self.slurm.registered.discard(name)

    @property
    def instances(self) -> dict[str, str]:
        return {row["name"]: row["status"] for row in self.resources()}

    def resources(self) -> list[dict[str, Any]]:
        return [machine.resource for machine in self.fake.world.machines.values()]

    def end(self, name: str, status: str = "") -> None:
        """End a machine, without a request."""
        self.fake.end(name, status)

    def run(self, seconds: float, step: float = 0.0) -> None:
        """Let time pass, with a pass of the loop in each step: as often as the service has one, if none is given."""
        end, busy = self.now + seconds, True
        while self.now < end:
            self.now = min(end, self.now + (step or (BUSY_SECONDS if busy else IDLE_SECONDS)))
            for name, at in list(self.boots.items()):
                if at <= self.now and name in self.instances and name not in self.deaf:
                    self.slurm.registered.add(name)
            self.slurm.step()
            try:
                busy = self.loop.run_pass()
            except KilledError:
                self.restart()
            self._check()

    def _check(self) -> None:
        ours = {row["name"] for row in self.resources() if row["labels"].get("hpc-made-by") == "reconcile"}
        nodes = self.slurm.nodes_
        sleeping = {name for name in ours if name not in nodes or "POWERED_DOWN" in nodes[name].states}
        self.orphans = {name: self.orphans.get(name, self.now) for name in sleeping}
        late = {name: self.now - since for name, since in self.orphans.items() if self.now - since > 300}
        assert not late, f"instances without a node: {late}"

    def machine(self, name: str) -> dict[str, Any]:
        """Return an instance as the cloud has it."""
        return self.fake.world.machines[f"projects/p/zones/us-central1-a/instances/{name}"].resource

    def take_out(self, name: str, state: str, reason: str, by: str = "root") -> None:
        """Drain a node or set it down."""
        node = self.slurm.nodes_[name]
        node.states |= {state}
        node.reason, node.by = reason, by

    def requests(self, method: str, *ends: str) -> list[str]:
        """Return the paths of the requests with this method whose path ends so."""
        return [call.path for call in self.fake.calls if call.method == method and call.path.endswith(ends)]

    def status(self) -> dict[str, Any]:
        return json.loads((self.folder / "status.json").read_text())

    def journal(self) -> list[dict[str, Any]]:
        path = self.folder / "journal.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def acted(self) -> list[tuple[str, str]]:
        return [(row["rule"], name) for row in self.journal() if row.get("mode") == "act" for name in row["nodes"]]


class KilledError(BaseException):
    """The loop is killed at this request."""


class InProcess(ComputeEngine):
    """The client, whose requests reach the stand-in without a network, and fail as often as the cluster says."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.settings["cloud"])
        self.cluster = cluster

    def _send(
        self, method: str, path: str, query: dict[str, str] | None = None, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        cluster, fake = self.cluster, self.cluster.fake
        kind = ""
        if cluster.random.random() < cluster.faults:
            kind = cluster.random.choice(
                ("503", "429", "lost", "answer lost", "stock-out", "hangs", "partial", "killed")
            )
            cluster.injected += 1
        fake.faults.clear()
        fake.queue_error = str(STOCK_OUT["code"]) if kind == "stock-out" else cluster.failing
        if kind == "stock-out":
            fake.faults["instances.insert"] = Fault(errors=[STOCK_OUT])
        elif kind == "hangs":
            fake.faults["instances.insert"] = fake.faults["groups.insert"] = Fault(never=True)
        elif kind == "503":
            raise CloudError(ErrorKind.TRANSIENT, "backendError", "503")
        elif kind == "429":
            raise CloudError(ErrorKind.RATE_LIMIT, "rateLimitExceeded", "429")
        elif kind == "lost":
            raise CloudError(ErrorKind.TRANSIENT, "TimeoutError", "")
        if path == "/aggregated/instances":
            cluster.partial = kind == "partial"
            fake.unreachable = ["zones/us-central1-a"] if cluster.partial else []
        if method == "DELETE":
            assert not cluster.partial, "deleted on a partial list"
            name = path.rpartition("/")[2]
            assert name not in cluster.slurm.untouchable, f"deleted {name}, which a person holds"
        status, found = fake.answer(Call(method, f"/compute/v1/projects/p{path}", query or {}, body or {}, {}))
        if kind == "killed" or len(fake.calls) in cluster.kill_at:
            raise KilledError
        if kind == "answer lost":
            raise CloudError(ErrorKind.TRANSIENT, "ConnectionResetError", "")
        if status >= 400:
            row = found["error"]["errors"][0]
            raise CloudError(kind_of(row["reason"], row["message"], status), row["reason"], row["message"])
        return found


def states(cluster: Cluster, name: str = "c-gpu-0") -> set[str]:
    return cluster.slurm.nodes_[name].states - {"CLOUD"}
