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
USER = "getent passwd | awk -F: '$3 >= 1000 && $3 < 60000 { print $1; exit }'"
"""Prints the first of the stack's users."""
JOURNAL = "/var/lib/hpc/controller/reconcile/journal.jsonl"
TWICE = "COMPLETED twice"
_ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE")


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

    def refused(self) -> int:
        """Return the number of operations that ended with an error."""
        rows = self._ask(f"/compute/v1/{self._place}/operations")["items"]
        return sum("error" in row for row in rows)

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

    def submit(self, count: int) -> None:
        """Submit jobs of one node and of several nodes in turn."""
        for number in range(count):
            nodes = 1 + number % self.largest
            name = f"day-{self.began:.0f}-{len(self.jobs)}"
            words = f"--parsable --chdir=/tmp --output=/dev/null --partition={self.partition} --nodes={nodes}"
            more = f"--job-name={name} --exclusive --time=30 --requeue"
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
    until = time.time() + 60
    day.cloud.set(stock_out_until={"*": until}, unavailable=0.01)
    day.submit(3)
    refused = day.until(lambda: day.cloud.refused() > 0, 120)
    time.sleep(max(0.0, until - time.time()))
    day.cloud.set(unavailable=0.01)
    day.slurm("hpc-reconcile lift")
    return "a request was refused" if refused else "nothing was asked for meanwhile"


def _quota(day: Day) -> str:
    day.cloud.set(quota=1, unavailable=0.05)
    day.submit(2)
    time.sleep(30)
    day.cloud.set(unavailable=0.05)
    day.slurm("hpc-reconcile lift")
    return "one instance, and no more, for 30 s; every twentieth request was answered with 503"


def _hanging(day: Day) -> str:
    day.cloud.set(hang={"insert": 1})
    day.submit(2)
    time.sleep(30)
    day.cloud.set()
    return "an insert does not end"


def _preempted(day: Day) -> str:
    if not day.until(lambda: bool(day.running()), 120):
        return "no elastic node ran a job"
    name = day.running()[0]
    day.cloud.preempt(name)
    return f"{name} was stopped by the cloud"


def _crash(day: Day) -> str:
    if not day.until(lambda: bool(day.running()), 120):
        return "no elastic node ran a job"
    name = day.running()[0]
    machine.stop(machine.bare(day.paths.folder.parents[1], day.paths.stack, name))
    return f"{name} was cut off"


def _killed(day: Day) -> str:
    day.submit(2)
    time.sleep(RECORD_SECONDS)  # slurmctld saves jobs every five seconds too, and forgets others when it is killed
    day.slurm("systemctl kill --signal=KILL hpc-reconcile slurmctld")
    paths = cloud.CloudPaths(day.paths.cloud)
    if process := Process.load(paths.record):
        process.end(signal.SIGKILL, wait=10)
    cloud.start(day.paths, json.loads(paths.design.read_text()))
    return "loop, slurmctld and the cloud's API were killed"


def _maintenance(day: Day) -> str:
    name = day.cloud.instances()[-1]["name"]
    day.cloud.maintain(name, 7200)
    time.sleep(30)
    return f"maintenance of {name} in two hours"


def _sick_host(day: Day) -> str:
    """Make a host whose machines lose a GPU, also after each reboot, until the machine is on another host."""
    if not day.slurm("scontrol show config | grep '^HealthCheckProgram.*hpc'"):
        return "the stack has no health checks"
    if not day.until(lambda: bool(day.running()), 120):
        return "no elastic node ran a job"
    name, before = day.running()[0], len(day.repairs())
    host = day.host(name)
    day.cloud.set(sick_hosts=[host])
    day.inside(name, f"printf %s {shlex.quote(LOST)} >{NVIDIA_SMI}; chmod 755 {NVIDIA_SMI}")
    if not day.until(lambda: any(name in row["nodes"] for row in day.repairs()[before:]), 420):
        return f"{name} lost a GPU on {host}, and was not repaired in 7 minutes"
    repair = next(row for row in day.repairs()[before:] if name in row["nodes"])
    day.cloud.set()
    day.slurm("hpc-reconcile lift")  # makes the loop use the host again before a week is over
    took = _clock(time.monotonic() - sum(repair["seconds"].values()))
    return f"{name} lost a GPU on {host}: {', '.join(repair['steps'])}; sound on {day.host(name)} after {took}"


def _bad_host(day: Day) -> str:
    free = f"host-{len(day.cloud.instances())}"
    day.cloud.set(bad_hosts=[free])
    day.submit(2)
    time.sleep(30)
    day.cloud.set()
    return f"a machine on {free} boots and does not join"


FAULTS: dict[str, Callable[[Day], str]] = {
    "no capacity": _no_capacity,
    "preemption": _preempted,
    "quota": _quota,
    "a machine dies": _crash,
    "an operation hangs": _hanging,
    "kill -9": _killed,
    "maintenance": _maintenance,
    "lost GPU": _sick_host,
    "bad host": _bad_host,
}


def play(root: Path, stack: str) -> int:
    """Play the day, and print what was lost. Return 1 if something was lost."""
    paths = StackPaths(root, stack)
    design = json.loads(cloud.CloudPaths(paths.cloud).design.read_text())
    controller = f"{stack}-controller"
    day = Day(paths, controller, FaultClient(root, stack))
    elastic = [name for name in design["addresses"] if name not in design["static"]]
    partitions = day.slurm(f"sinfo --noheader --nodes={elastic[0]} --format=%R").split()
    day.partition, day.largest = partitions[0], min(3, len(elastic))
    day.user = day.slurm(USER) or day.user
    began = time.monotonic()
    day.submit(JOBS)
    for name, fault in FAULTS.items():
        print(f"{_clock(began)}  {name}: {fault(day)}", flush=True)
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
    return 0 if asleep and not lost else 1


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
