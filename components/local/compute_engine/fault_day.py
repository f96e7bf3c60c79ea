"""A day of faults in minutes: faults of a cloud and its machines for a rehearsal's elastic nodes while jobs run, and a
report of what was lost.

Waits of ten minutes and more (capacity that is not tried again, the time of a boot) are ended with `hpc-reconcile
lift`, as an administrator can.
"""

import json
import shlex
import signal
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.local.compute_engine.errors import QUOTA, STOCK_OUT
from components.local.compute_engine.host_compute import LOST, NVIDIA_SMI
from components.local.host import cloud, machine
from components.local.host.cloud import CloudPaths
from components.local.host.namespaces import inside
from components.local.host.paths import HostError, StackPaths
from components.local.host.process import Process

JOBS = 12
JOB = "sleep 20"
RECORD_SECONDS = 10.0
"""Time until the end of a job is in the database: slurmctld sends records every five seconds."""
LONGEST_SECONDS = 1500.0
"""Longest time from the last fault until all jobs have ended."""
EFFECT_SECONDS = 240.0
"""Longest time until a fault has its effect: a node is powered down (SuspendTimeout, 120 s) or boots before it."""
USER = "getent passwd | awk -F: '$3 >= 1000 && $3 < 60000 { print $1; exit }'"
"""Prints the first of the stack's users."""
JOURNAL = "/var/lib/hpc/controller/reconcile/journal.jsonl"
TWICE = "COMPLETED twice"
_ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE")


class NotPlayedError(Exception):
    """A fault did not happen, or was not repaired. Its text says why."""


class FaultClient:
    """Sets faults of the cloud of a stack on this host: see `Faults` in host_compute.py."""

    def __init__(self, root: Path, stack: str) -> None:
        """Raises FileNotFoundError if the stack has no elastic nodes."""
        design = json.loads(CloudPaths(StackPaths(root, stack).cloud).design.read_text())
        self._url = f"http://{design['gateway']}:{int(design['port'])}"
        self._token, self._place = design["token"], design["place"]

    def set(self, **faults: object) -> None:
        """Set these faults and no others."""
        self._ask("/rehearsal/faults", faults)

    def preempt(self, name: str, seconds: float = 0) -> None:
        """Preempt an instance after this number of seconds."""
        self._ask(f"/rehearsal/preempt/{name}?seconds={seconds}", {})

    def maintain(self, name: str, seconds: float) -> None:
        """Announce maintenance of an instance's host."""
        self._ask(f"/rehearsal/maintenance/{name}?seconds={seconds}", {})

    def instances(self) -> list[dict[str, Any]]:
        """Return the instances, those of static nodes included."""
        return self._ask(f"/compute/v1/{self._place}/instances")["items"]

    def groups(self) -> list[dict[str, Any]]:
        """Return the managed instance groups."""
        return self._ask(f"/compute/v1/{self._place}/instanceGroupManagers")["items"]

    def requests(self) -> list[dict[str, Any]]:
        """Return the last requests: time, method, path, status."""
        return self._ask("/rehearsal/requests")["requests"]

    def refused(self, code: str) -> frozenset[str]:
        """Return the operations that ended with this error, by name."""
        rows = self._ask(f"/compute/v1/{self._place}/operations")["items"]
        errors = {row["name"]: row.get("error", {}).get("errors", ()) for row in rows}
        return frozenset(name for name, found in errors.items() if any(error["code"] == code for error in found))

    def hanging(self) -> int:
        """Return how many of the next insertions will not end."""
        return self._ask("/rehearsal/faults")["hang"].get("insert", 0)

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - this host
            self._url + path, data, {"Authorization": f"Bearer {self._token}"}
        )
        while True:
            try:
                with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310
                    return json.loads(reply.read())
            except urllib.error.HTTPError as error:
                if error.code != 503:  # the fault `unavailable`
                    raise


@dataclass
class Day:
    """The day of a stack on this host."""

    paths: StackPaths
    controller: str
    cloud: FaultClient
    elastic: list[str]
    """Elastic nodes of the partition."""
    partition: str = ""
    largest: int = 1
    user: str = "root"
    began: float = field(default_factory=time.time)
    jobs: list[str] = field(default_factory=list)
    """Names of the jobs. Slurm may reuse the numbers of jobs that slurmctld forgot."""

    def slurm(self, script: str) -> str:
        """Return what a shell script prints that root runs on the controller."""
        return self.inside(self.controller, script)

    def inside(self, name: str, script: str) -> str:
        """Return what a shell script prints that root runs on a node."""
        return inside(machine.bare(self.paths.folder.parents[1], self.paths.stack, name).paths, script, check=False)

    def host(self, name: str) -> str:
        """Return the host of a node's instance."""
        hosts = (row["resourceStatus"]["physicalHost"] for row in self.cloud.instances() if row["name"] == name)
        return next(hosts, "").rpartition("/")[2] or "no host"

    def repairs(self) -> list[dict[str, Any]]:
        """Return the lines of the loop's journal about repaired nodes."""
        lines = self.slurm(f"grep -h '\"repaired\"' {JOURNAL}").splitlines()
        return [json.loads(line) for line in lines]

    def submit(self, count: int, *, node: str = "") -> None:
        """Submit jobs of one node and of several nodes in turn, on `node` if it is given."""
        for number in range(count):
            nodes = 1 + number % self.largest
            name = f"day-{self.began:.0f}-{len(self.jobs)}"
            words = f"--parsable --chdir=/tmp --output=/dev/null --partition={self.partition} --nodes={nodes}"
            more = f"--job-name={name} --exclusive --time=30 --requeue" + (f" --nodelist={node}" if node else "")
            if not self.slurm(f"runuser -u {self.user} -- sbatch {words} {more} --wrap '{JOB}'"):
                raise HostError(f"partition {self.partition} takes no job of {self.user}'s")
            self.jobs.append(name)

    def running(self) -> list[str]:
        """Return names of elastic nodes that run jobs."""
        names = self.slurm(
            "squeue --noheader --states=RUNNING --format=%N | xargs -rn1 scontrol show hostnames"
        ).split()
        elastic = {row["name"] for row in self.cloud.instances() if row["labels"].get("hpc-made-by")}
        return [name for name in names if name in elastic]

    def idle(self, state: str) -> list[str]:
        """Return the elastic nodes in this state of sinfo: `idle`, or `idle~` without a machine."""
        rows = (row.split() for row in self.slurm("sinfo --noheader --Node --format='%N %T'").splitlines())
        found = {name for name, word in rows if word == state}
        return [name for name in self.elastic if name in found]

    def busy(self) -> str:
        """Return an elastic node that runs a job. Raises NotPlayedError if there is none in time."""
        self.submit(1, node=next(iter(self.idle("idle") or self.idle("idle~")), ""))
        running: list[str] = []

        def runs() -> bool:
            running[:] = self.running()
            return bool(running)

        self.expect(runs, "no elastic node ran a job")
        return running[0]

    def sleeper(self) -> str:
        """Return an elastic node without a machine; if all have one, the last of them."""
        return next(iter(self.idle("idle~")), self.elastic[-1])

    def ask_for_machine(self, node: str) -> None:
        """Submit a job that needs another machine for `node`, and one for any. A node with a machine is powered down
        first, when its job has ended."""
        if node not in self.idle("idle~"):
            self.slurm(f"scontrol update NodeName={node} State=POWER_DOWN_ASAP")
        self.submit(1, node=node)
        self.submit(1)

    def expect(self, condition: Callable[[], bool], otherwise: str, seconds: float = EFFECT_SECONDS) -> None:
        """Wait for a condition. Raises NotPlayedError with this text if it is not met in time."""
        if not self.until(condition, seconds):
            raise NotPlayedError(f"{otherwise} in {seconds:.0f} s")

    def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for a condition. Return whether it was met in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition():
                return True
            time.sleep(2)
        return False

    def states(self) -> Counter[str]:
        """Count the jobs by their state, of which `COMPLETED twice` is one."""
        records: dict[str, list[str]] = {name: [] for name in self.jobs}
        for row in self.slurm("sacct -aXnPD --starttime=now-1day --format=JobName,State").splitlines():
            name, _, state = row.partition("|")
            # A job that ran again has several rows.
            if name in records:
                records[name].append(state.split()[0])
        # A requeued job gets its new record only when it may run again.
        waiting = set(self.slurm("squeue --noheader --format=%j").split())
        return Counter("WAITING" if name in waiting else _state(states) for name, states in records.items())

    def ended(self) -> bool:
        """Return whether all jobs have ended."""
        return sum(self.states()[state] for state in (*_ENDED, TWICE)) == len(self.jobs)


def _state(states: list[str]) -> str:
    """Return the state of a job by all of its records."""
    completed = states.count("COMPLETED")
    pending = [state for state in states if state not in (*_ENDED, "REQUEUED")]
    return (TWICE if completed > 1 else "COMPLETED") if completed else (pending or states or ["UNKNOWN"])[-1]


def _no_capacity(day: Day) -> str:
    before = day.cloud.refused(STOCK_OUT["code"])
    day.cloud.set(stock_out_until={"*": time.time() + 2 * EFFECT_SECONDS}, unavailable=0.01)
    day.ask_for_machine(day.sleeper())
    day.expect(lambda: bool(day.cloud.refused(STOCK_OUT["code"]) - before), "no request was refused")
    time.sleep(30)
    day.cloud.set(unavailable=0.01)
    day.slurm("hpc-reconcile lift")
    return "a request was refused"


def _quota(day: Day) -> str:
    before, began = day.cloud.refused(QUOTA["code"]), time.time()
    day.cloud.set(quota=0, unavailable=0.05)
    day.ask_for_machine(day.sleeper())
    day.expect(lambda: bool(day.cloud.refused(QUOTA["code"]) - before), "no request was refused")
    missed = [row for row in day.cloud.requests() if row["time"] > began and row["status"] == 503]
    day.cloud.set(unavailable=0.05)
    day.slurm("hpc-reconcile lift")
    return f"no further instance was allowed; of all requests meanwhile {len(missed)} were answered with 503"


def _hanging(day: Day) -> str:
    day.cloud.set(hang={"insert": 1})
    day.ask_for_machine(day.sleeper())
    day.expect(lambda: day.cloud.hanging() == 0, "no instance was asked for")
    day.cloud.set()
    return "an insert does not end"


def _preempted(day: Day) -> str:
    name = day.busy()
    machines = _running_machines(day, name)
    day.cloud.preempt(name)
    day.expect(lambda: not machines & _running_machines(day, name), f"{name} was not stopped")
    return f"{name} was stopped by the cloud"


def _running_machines(day: Day, name: str) -> set[str]:
    """Return the id of the instance of this name, if it runs."""
    return {row["id"] for row in day.cloud.instances() if row["name"] == name and row["status"] == "RUNNING"}


def _crash(day: Day) -> str:
    name = day.busy()
    machine.stop(machine.bare(day.paths.folder.parents[1], day.paths.stack, name))
    return f"{name} was cut off"


def _killed(day: Day) -> str:
    day.submit(2)
    time.sleep(RECORD_SECONDS)  # slurmctld saves jobs every five seconds too, and forgets others when it is killed
    if "killed" not in day.slurm("systemctl kill --signal=KILL hpc-reconcile slurmctld && echo killed"):
        raise NotPlayedError("loop and slurmctld could not be killed")
    paths = cloud.CloudPaths(day.paths.cloud)
    process = Process.load(paths.record)
    if process is None:
        raise NotPlayedError("the process of the cloud's API is unknown")
    process.end(signal.SIGKILL, wait=10)
    cloud.start(day.paths, json.loads(paths.design.read_text()))
    return "loop, slurmctld and the cloud's API were killed"


def _maintenance(day: Day) -> str:
    name = day.busy()
    day.cloud.maintain(name, 7200)
    time.sleep(30)
    return f"maintenance of {name} in two hours"


def _sick_host(day: Day) -> str:
    """Make a host whose machines lose a GPU, also after each reboot, until the machine is on another host."""
    name, before = day.busy(), len(day.repairs())
    host = day.host(name)
    day.cloud.set(sick_hosts=[host])
    day.inside(name, f"printf %s {shlex.quote(LOST)} >{NVIDIA_SMI}; chmod 755 {NVIDIA_SMI}")
    day.expect(
        lambda: any(name in row["nodes"] for row in day.repairs()[before:]),
        f"{name} lost a GPU on {host}, and was not repaired",
        seconds=420,
    )
    repair = next(row for row in day.repairs()[before:] if name in row["nodes"])
    day.cloud.set()
    day.slurm("hpc-reconcile lift")  # makes the loop use the host again before a week is over
    took = _clock(time.monotonic() - sum(repair["seconds"].values()))
    return f"{name} lost a GPU on {host}: {', '.join(repair['steps'])}; sound on {day.host(name)} after {took}"


def _bad_host(day: Day) -> str:
    node, before = day.sleeper(), {row["id"] for row in day.cloud.instances()}
    taken = {row["resourceStatus"]["physicalHost"].rpartition("/")[2] for row in day.cloud.instances()}
    # The next instance gets the first host that is free then: that of the node may be, if it is powered down.
    first = next(host for number in range(len(taken) + 1) if (host := f"host-{number}") not in taken)
    bad = {first, day.host(node)}
    day.cloud.set(bad_hosts=sorted(bad))
    day.ask_for_machine(node)
    day.expect(
        lambda: any(day.host(row["name"]) in bad for row in day.cloud.instances() if row["id"] not in before),
        f"no machine was on {first}",
    )
    time.sleep(30)
    day.cloud.set()
    return f"a machine on {first} boots and does not join"


LOST_GPU = "lost GPU"
FAULTS: dict[str, Callable[[Day], str]] = {
    "no capacity": _no_capacity,
    "preemption": _preempted,
    "quota": _quota,
    "a machine dies": _crash,
    "an operation hangs": _hanging,
    "kill -9": _killed,
    "maintenance": _maintenance,
    LOST_GPU: _sick_host,
    "bad host": _bad_host,
}


def play(root: Path, stack: str) -> int:
    """Play the day, and print what was lost. Return 1 if something was lost, or a fault was not played."""
    paths = StackPaths(root, stack)
    design = json.loads(cloud.CloudPaths(paths.cloud).design.read_text())
    elastic = [name for name in design["addresses"] if name not in design["static"]]
    day = Day(paths, f"{stack}-controller", FaultClient(root, stack), elastic)
    day.partition = day.slurm(f"sinfo --noheader --nodes={elastic[0]} --format=%R").split()[0]
    members = set(day.slurm(f"sinfo --noheader --Node --partition={day.partition} --format=%N").split())
    day.elastic = [name for name in elastic if name in members]
    day.largest = min(3, len(day.elastic))
    day.user = day.slurm(USER) or day.user
    return play_day(day, elastic)


def play_day(day: Day, elastic: list[str]) -> int:
    """Play the faults of a day, and print what was lost. `elastic` are the elastic nodes of all partitions. Return 1 if
    something was lost, or a fault was not played."""
    began = time.monotonic()
    day.submit(JOBS)
    missed: list[str] = []
    for name, fault in FAULTS.items():
        if name == LOST_GPU and (why := _without_gpu_checks(day)):
            print(f"{_clock(began)}  {name}: left out, as {why}", flush=True)
            continue
        try:
            print(f"{_clock(began)}  {name}: {fault(day)}", flush=True)
        except (NotPlayedError, HostError, OSError) as error:
            missed.append(name)
            print(f"{_clock(began)}  {name}: NOT PLAYED: {error}", flush=True)
            day.cloud.set()
            day.slurm("hpc-reconcile lift")
    day.cloud.set()
    day.slurm("hpc-reconcile lift")
    in_time = day.until(day.ended, LONGEST_SECONDS)
    time.sleep(RECORD_SECONDS)
    states = day.states()
    print(f"{_clock(began)}  {len(day.jobs)} jobs: {', '.join(f'{n} {state}' for state, n in sorted(states.items()))}")
    asleep = day.until(lambda: _leftovers(day, elastic) == [], LONGEST_SECONDS if in_time else 1)
    lost = [f"job {state}: {count}" for state, count in states.items() if state != "COMPLETED"]
    lost += _leftovers(day, elastic)
    print(f"{_clock(began)}  lost: {'; '.join(lost) if lost else 'nothing'}", flush=True)
    if missed:
        print(f"{_clock(began)}  not played: {', '.join(missed)}. The day shows nothing about these", flush=True)
    return 0 if asleep and not lost and not missed else 1


def _without_gpu_checks(day: Day) -> str:
    """Return why nothing on this stack would notice a lost GPU; empty if something would."""
    if not day.slurm("scontrol show config | grep '^HealthCheckProgram.*hpc'"):
        return "the stack has no health checks"
    if "gpu" not in day.slurm(f"sinfo --noheader --nodes={day.elastic[0]} --format=%G"):
        return "the elastic nodes have no GPU"
    return ""


def _leftovers(day: Day, elastic: list[str]) -> list[str]:
    """Return the nodes that are neither idle nor powered down, and the instances without an idle node."""
    rows = [row.split() for row in day.slurm("sinfo --noheader --Node --format='%N %T'").splitlines()]
    nodes = sorted({f"node {name} is {state}" for name, state in rows if state not in ("idle", "idle~")})
    awake = {name for name, state in rows if state == "idle"}
    machines = {row["name"] for row in day.cloud.instances()}
    return nodes + [f"instance {name} without a node" for name in sorted(machines & {*elastic} - awake)]


def _clock(began: float) -> str:
    seconds = int(time.monotonic() - began)
    return f"{seconds // 60:02}:{seconds % 60:02}"
