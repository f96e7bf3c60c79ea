"""Measurements of idle nodes by jobs, on the controller: TCP throughput between pairs, the diagnostic of DCGM, and the
NCCL test of one node, or of pairs over the network of the GPUs.

    hpc-health-measure            what is due: started every hour by hpc-health-measure.timer
    hpc-health-measure NODE...    these nodes now, if they are idle

No job of a user waits for it: it begins only where nodes are idle and no job is pending, its jobs have the least
priority and end within minutes, and one that does not start at once is cancelled. A node that is too slow is drained.
"""

import json
import pwd
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from health import drain, gpu, outcome, program
from health.kinds import reason
from slurm.output import parse_rows
from system import cluster_state
from system.host import (
    SetupError,
    folder,
    log,
    printable,
    read_json,
    reload_units,
    run,
    stop_services,
    succeeds,
    take_lock,
    unread_units,
    write,
    write_unit,
)

PROGRAM = Path("/usr/local/sbin/hpc-health-measure")
SETTINGS = Path("/etc/hpc/health-measure.json")
LOCK = Path("/run/hpc/health-measure.lock")
LOGS = cluster_state.JOBS
THROUGHPUT = Path(__file__).with_name("throughput.py")
Pair = tuple[str, str]
Measured = Mapping[Pair, bool]
"""Pairs, and whether each was fast."""
ROUNDS = 3
Key = TypeVar("Key", str, "tuple[str, str]")
"""A node, or a pair of them."""
Results = dict[str, tuple[str, str]]
"""State and text of each node's measurement."""
Runs = Callable[[list[Pair]], dict[Pair, float]]
"""Measures pairs side by side; those that did not run are left out."""
IDLE = ("IDLE", "IDLE+CLOUD")
NOT_FOR_NODES = ("JobHeldUser", "JobHeldAdmin", "Dependency", "DependencyNeverSatisfied", "JobArrayTaskLimit")
"""Reasons for which jobs wait for something else than nodes (slurm.schedmd.com/job_reason_codes.html)."""
# Root of a node is nobody to the controller's NFS server.
KEPT = f'2>&1 | runuser -u {cluster_state.OWNER} -- tee "{LOGS}/$SLURM_JOB_ID.out" >/dev/null'
NETWORK_MINUTES = 10  # with the prolog of a partition, which may pull containers
_AVERAGE = re.compile(r"^# Avg bus bandwidth\s*:\s*([0-9]+(?:\.[0-9]+)?)", re.MULTILINE)  # nccl-tests, src/common.cu
START_SECONDS = 60  # a job that has not started by then waits for somebody else's
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
UNITS = Path("/etc/systemd/system")
NAME = "hpc-health-measure"
SERVICE = f"""\
[Unit]
Description=Measure idle nodes of the Slurm cluster
After=slurmctld.service

[Service]
Type=oneshot
ExecStart={PROGRAM}
"""
TIMER = """\
[Unit]
Description=Measure idle nodes of the Slurm cluster, those that are due

[Timer]
OnCalendar=hourly
RandomizedDelaySec=600
Persistent=false

[Install]
WantedBy=timers.target
"""


def main(arguments: list[str]) -> int:
    """Measure; the exit code."""
    if arguments[:1] == ["--help"]:
        sys.stdout.write(str(__doc__))
        return 0
    wanted = read_json(SETTINGS, None)
    if not wanted:
        log("the stack has no measurements")
        return 0
    LOCK.parent.mkdir(exist_ok=True)
    with LOCK.open("w") as lock:
        if not take_lock(lock):
            log("another measurement is under way: not started")
            return 1
        try:
            _measure(wanted, arguments)
        except SetupError as error:
            sys.stderr.write(printable(f"hpc-health-measure: {error}\n"))
            return 1
    return 0


def _measure(wanted: dict[str, Any], names: list[str]) -> None:
    # Some jobs are held for weeks, or for other jobs: these wait for no node.
    pending = run("squeue", "--noheader", "--states=pending", "--format=%r").split("\n") if not names else []
    if any(line.strip() not in ("", *NOT_FOR_NODES) for line in pending):
        log("jobs are pending: nothing is measured now")
        return
    folder(outcome.MEASURED)
    for stale in LOGS.glob("*.out"):
        stale.unlink()
    for kind, measure in MEASURES.items():
        for part in wanted.get(kind, {}).get("partitions", ()):
            there = idle(part["nodes"])
            if not wanted[kind]["hours"]:
                continue  # only for nodes that were repaired
            due = [name for name in there if name in names or (not names and _due(name, kind, wanted[kind]))]
            measure(part, due, there, wanted[kind])


def idle(names: list[str]) -> list[str]:
    # An elastic node whose machine is off has a further flag: nothing starts it for a measurement.
    found = parse_rows(run("scontrol", "--oneliner", "show", "node"))
    return [row["NodeName"] for row in found if row.get("NodeName") in names and row.get("State") in IDLE]


def _due(name: str, kind: str, wanted: dict[str, Any]) -> bool:
    """Return whether a node's last measurement is old, or was slow: then it is idle because somebody has resumed it."""
    last = last_result(name, kind)
    # Half an hour less: the timer comes every hour, and would else be late by one each time.
    resumed = last.get("state") == "failed" and not last.get("common")
    return resumed or time.time() - last.get("time", 0) >= wanted["hours"] * 3600 - 1800


def last_result(name: str, kind: str) -> dict[str, Any]:
    """The last result of a measurement of a node; empty where there is none."""
    return read_json(outcome.MEASURED / f"{name}.json", {}).get(kind, {})


def _network(part: dict[str, Any], due: list[str], idle: list[str], wanted: dict[str, Any]) -> None:
    run_ = partial(_run_pairs, part, wanted["seconds"])
    _by_pairs("network", part["nodes"], due, idle, run_, least=wanted["mbps"], unit="Mbit/s")


def _fabric(part: dict[str, Any], due: list[str], idle: list[str], wanted: dict[str, Any]) -> None:
    """The NCCL test between pairs: whether the GPUs' network carries what it should, and is in use at all."""

    def run_(todo: list[Pair]) -> dict[Pair, float]:
        found = _averages("fabric", part, {pair: ",".join(pair) for pair in todo}, wanted)
        for pair, why in found.items():
            if isinstance(why, str):
                log(f"{pair[0]} and {pair[1]}: {why}")
        return {pair: average for pair, average in found.items() if isinstance(average, float)}

    _by_pairs("fabric", part["nodes"], due, idle, run_, least=part["busbw_gbps"], unit="GB/s")


def _by_pairs(
    kind: str, nodes: list[str], due: list[str], idle: list[str], run_: Runs, *, least: float, unit: str
) -> None:
    """Measure pairs until every due node is decided, and act. A lonely node borrows a partner that is idle."""
    every = due if len(due) > 1 else [*due, *[name for name in idle if name not in due][:2]]
    if not due or len(every) < 2:
        return
    fast: dict[Pair, bool] = {}
    figures: dict[Pair, float] = {}
    for _ in range(ROUNDS):
        todo = next_pairs(every, fast)
        if not todo:
            break
        figures |= run_(todo)
        fast = {pair: figure >= least for pair, figure in figures.items()}
        if not set(todo) <= set(fast):
            break  # a job did not run: its nodes are busy now
    slow, open_ = slow_nodes(fast), undecided(fast)
    wanted = f", least {least}" if least else ""
    found: Results = {}
    for name in sorted({name for pair in fast for name in pair}):
        mine = {pair: figure for pair, figure in figures.items() if name in pair}
        if name in slow:
            pair = next(pair for pair in mine if slow[name] in pair)
            found[name] = ("failed", f"{mine[pair]:.0f} {unit} with {slow[name]}{wanted}")
            continue
        pair = max(mine, key=lambda measured: mine[measured])
        other = next(node for node in pair if node != name)
        text = f"{mine[pair]:.0f} {unit} with {other}{wanted}"
        if name in open_:
            text += ": one of the two is slow, and no third node was idle"
        found[name] = ("skipped" if name in open_ else "ok", text)
    _record_and_drain(kind, nodes, found)


def _run_pairs(part: Mapping[str, Any], seconds: int, todo: list[Pair]) -> dict[Pair, float]:
    """Mbit/s of each pair, in its slower direction; those whose job did not run are left out."""
    words: dict[Pair, list[str]] = {}
    for first, second in todo:
        line = f"python3 -S {shlex.quote(str(THROUGHPUT))} {seconds} {first} {second}"
        tasks = ["--nodes=2", "--ntasks=2", "--ntasks-per-node=1", f"--nodelist={first},{second}"]
        words[first, second] = [*tasks, *_wrapped(line)]
    found: dict[Pair, float] = {}
    for job, pair in run_jobs("network", part, NETWORK_MINUTES, words).items():
        last = cluster_state.read_text(LOGS / f"{job}.out").strip().splitlines()[-1:]
        try:
            both = json.loads(last[0]) if last else {}
            found[pair] = min(float(both["there"]), float(both["back"]))
        except (ValueError, KeyError, TypeError):
            log(f"{pair[0]} and {pair[1]}: job {job} measured nothing" + (f": {last[0]}" if last else ""))
    return found


def _nccl(part: dict[str, Any], due: list[str], _: list[str], wanted: dict[str, Any]) -> None:
    """Run the NCCL test of each node, side by side, as the user who has built it; act on its average."""
    found: Results = {}
    for name in due:
        driver = outcome.check_of(cluster_state.read_object(outcome.RESULTS / f"{name}.json"), "gpu-driver")
        if driver.get("state") != "ok":
            found[name] = ("skipped", str(driver.get("text") or "the driver was not checked yet"))
    sound = {name: name for name in due if name not in found}
    for name, average in _averages("nccl", part, sound, wanted).items():
        least = part["busbw_gbps"]
        if isinstance(average, str):
            found[name] = ("skipped", average)
            continue
        text = f"{average:.1f} GB/s bus bandwidth" + (f", least {least}" if least else "")
        found[name] = ("failed" if average < least else "ok", text)
    _record_and_drain("nccl", part["nodes"], found)


def _diag(part: dict[str, Any], due: list[str], _: list[str], wanted: dict[str, Any]) -> None:
    """Run a diagnostic of DCGM that needs the whole node, side by side."""
    words = {name: [f"--nodelist={name}", *_wrapped(f"dcgmi diag -r {wanted['level']} -j")] for name in due}
    found: Results = {}
    for job, name in run_jobs("diag", part, wanted["minutes"], words).items():
        result = gpu.diag(0, cluster_state.read_text(LOGS / f"{job}.out"))
        found[name] = ("ok" if result["state"] == "warning" else result["state"], result["text"])
    _record_and_drain("diag", part["nodes"], found)


MEASURES: dict[str, Callable[[dict[str, Any], list[str], list[str], dict[str, Any]], None]] = {
    "network": _network,
    "diag": _diag,
    "nccl": _nccl,
    "fabric": _fabric,
}
"""Of a partition's nodes those that are due, with idle ones beside them."""


def _averages(kind: str, part: dict[str, Any], lists: dict[Key, str], wanted: dict[str, Any]) -> dict[Key, float | str]:
    """Average bus bandwidth in GB/s of the NCCL test on each list of nodes, side by side; why there is none, else."""
    try:
        user = pwd.getpwnam(wanted["user"])
    except KeyError:
        raise SetupError(f"there is no user {wanted['user']}, who is to run the NCCL test") from None
    words = {key: [f"--nodelist={nodelist}", f"--chdir={user.pw_dir}"] for key, nodelist in lists.items()}
    jobs = run_jobs(kind, part, wanted["minutes"], words, stdin=part["script"], user=user)
    found: dict[Key, float | str] = {}
    for job, key in jobs.items():
        path = f"{user.pw_dir}/{part['log'].replace('%j', job)}"
        try:
            # As the user: root does not follow links in a home.
            said = run("runuser", "-u", user.pw_name, "--", "tail", "-c", "100000", path, timeout=30)
        except SetupError as error:
            said = str(error)
        averages = _AVERAGE.findall(said)
        found[key] = float(averages[-1]) if averages else f"job {job} of {user.pw_name} has no result: {path}"
    return found


def _record_and_drain(kind: str, nodes: list[str], found: Results) -> None:
    """Record results, and drain nodes that are too slow unless somebody has, or most of their kind are: then the
    network, a new driver or the limit is at fault, and the cluster would stop."""
    for name, (state, text) in found.items():
        note_result(name, kind, state, text)
    for name, (state, text) in found.items():
        if state != "failed":
            continue
        if _most_are_slow(kind, [node for node in nodes if node != name]):
            doubt = "so are most nodes, which are not drained: is the limit right?"
            note_result(name, kind, state, f"{text}; {doubt}", common=True)
        elif "DRAIN" not in drain.read_node_state(name)["states"]:
            drain.apply_action(name, "drain", reason({kind: text}))


def _most_are_slow(kind: str, others: list[str]) -> bool:
    """Return whether more than half of the others that were measured, and more than one, were too slow."""
    states = [last_result(name, kind).get("state") for name in others]
    failed, passed = states.count("failed"), states.count("ok")
    return failed > max(1, passed)


def note_result(name: str, kind: str, state: str, text: str, *, common: bool = False) -> None:
    """Record the result of a measurement of a node."""
    log(f"{name}: {kind}: {state}: {text}")
    path = outcome.MEASURED / f"{name}.json"
    kept = read_json(path, {})
    kept[kind] = {"state": state, "text": text, "time": time.time(), "common": common}
    write(path, json.dumps(kept) + "\n", quiet=True)


def run_jobs(
    kind: str,
    part: Mapping[str, Any],
    minutes: int,
    words: Mapping[Key, list[str]],
    *,
    stdin: str = "",
    user: pwd.struct_passwd | None = None,
) -> dict[str, Key]:
    """Submit a job with these options of sbatch for each key to the part's partition, inside its reservation if it has
    one, and wait for all; the keys by the jobs' numbers.

    A job that Slurm refuses is left out.
    """
    start = ["sbatch", "--parsable", f"--job-name=hpc-health-{kind}", f"--partition={part['partition']}", "--exclusive"]
    start += [f"--reservation={part['reservation']}"] if "reservation" in part else []
    start += ["--no-requeue", "--nice=10000", f"--time={minutes}"]
    if user:
        # sbatch gives its own environment to the job, where root's HOME is a place that the user can't read.
        name, place = user.pw_name, [f"HOME={user.pw_dir}", f"SHELL={user.pw_shell}", f"PATH={PATH}"]
        start = ["runuser", "-u", name, "--", "env", "-i", *place, f"USER={name}", f"LOGNAME={name}", *start]
    jobs: dict[str, Key] = {}
    for key, more in words.items():
        try:
            jobs[run(*start, *more, stdin=stdin or None, timeout=60).strip().partition(";")[0]] = key
        except SetupError as error:
            log(f"{kind}: {error}")
    wait_for_jobs(list(jobs), minutes * 60)
    return jobs


def _wrapped(program: str) -> list[str]:
    """Options for a job that runs a program, and whose output the controller reads."""
    return ["--chdir=/", "--output=/dev/null", "--wrap", f"srun --mpi=none {program} {KEPT}"]


def wait_for_jobs(jobs: list[str], seconds: float) -> None:
    """Wait until these jobs have ended. One that does not start soon is cancelled: whoever has its node goes first."""
    began, left = time.monotonic(), set(jobs)
    while left:
        time.sleep(0.3)
        listed = run("squeue", "--noheader", f"--jobs={','.join(sorted(left))}", "--format=%i %T", accept=(0, 1))
        states = dict(line.split(" ", 1) for line in listed.splitlines() if " " in line)
        left &= set(states)
        late = [job for job in left if states[job] == "PENDING" and time.monotonic() - began > START_SECONDS]
        if time.monotonic() - began > seconds + START_SECONDS:
            late = sorted(left)
        if late:
            log(f"cancelled {', '.join(late)}: not started, or not ended, in time")
            run("scancel", *late)
            left -= set(late)


# One slow pair does not say which of its two nodes is slow. A node is good if it was fast with anybody, and slow if it
# was slow with somebody who is good and fast with nobody. GoogleCloudPlatform/cluster-health-scanner has the same two
# passes (ENABLE_TWO_PASS_STRATEGY). Pure functions.


def good(measured: Measured) -> set[str]:
    """Nodes that were fast with anybody."""
    return {name for pair, fast in measured.items() if fast for name in pair}


def slow_nodes(measured: Measured) -> dict[str, str]:
    """Slow nodes, each with a good one that it was slow with."""
    sound = good(measured)
    found: dict[str, str] = {}
    for pair, fast in measured.items():
        for name, other in (pair, pair[::-1]):
            if not fast and name not in sound and other in sound:
                found.setdefault(name, other)
    return found


def undecided(measured: Measured) -> set[str]:
    """Nodes of slow pairs of which the slow one is unknown: no good node was measured with them."""
    return {name for pair in measured for name in pair} - good(measured) - set(slow_nodes(measured))


def next_pairs(nodes: Iterable[str], measured: Measured) -> list[Pair]:
    """Disjoint pairs to measure next, so that every node is decided: with a good one if there is any, never with the
    same one again. Empty when all are, or nothing more can be found out."""
    sound, bad = good(measured), slow_nodes(measured)
    every = sorted(nodes)
    open_ = [name for name in every if name not in sound and name not in bad]
    partners = [name for name in every if name in sound]
    found: list[Pair] = []
    used: set[str] = set()
    for name in open_:
        if name in used:
            continue
        others = [*partners, *(node for node in open_ if node != name)]
        new = (node for node in others if not {(name, node), (node, name)} & set(measured))
        other = next((node for node in new if node not in used), None)
        if other is not None:
            found.append((name, other))
            used |= {name, other}
    return found


def converge(wanted: dict[str, Any] | None) -> None:
    """Have the timer running with these settings, or nothing of it."""
    files = [PROGRAM, SETTINGS, UNITS / f"{NAME}.service", UNITS / f"{NAME}.timer"]
    if not wanted:
        if any(path.exists() for path in files):
            stop_services(f"{NAME}.timer")
            unread_units()
            for path in files:
                path.unlink(missing_ok=True)
            reload_units()
            log("measurements of nodes are removed")
        return
    write(SETTINGS, json.dumps(wanted, indent=1) + "\n", mode=0o600)
    write(PROGRAM, program.starter("health.measure"), mode=0o755)
    changed = [write_unit(UNITS / f"{NAME}.{kind}", text) for kind, text in (("service", SERVICE), ("timer", TIMER))]
    reload_units()
    if any(changed) or not succeeds("systemctl", "is-active", "--quiet", f"{NAME}.timer"):
        run("systemctl", "enable", "--now", "--quiet", f"{NAME}.timer")
