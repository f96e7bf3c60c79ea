"""Measures idle nodes by jobs, on the controller: TCP throughput of pairs, DCGM's diagnostic, NCCL tests.

    hpc-health-measure            measurements that are due; hpc-health-measure.timer starts it every hour
    hpc-health-measure NODE...    these nodes now, if they are idle

No job of a user waits for it: it starts only if nodes are idle and no job is pending, its jobs have the lowest priority
and end within minutes, and it cancels a job that does not start at once. It drains nodes that are too slow.
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

from health import drain_unhealthy, gpu, outcome, run_checks
from health.check_kinds import reason
from slurm import scheduler
from slurm.job_reasons import NOT_FOR_NODES
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
    unread_units,
    write,
    write_unit,
)
from system.locks import LOCKS, describe_holders, open_lock, take_lock

PROGRAM = Path("/usr/local/sbin/hpc-health-measure")
SETTINGS = Path("/etc/hpc/health-measure.json")
LOCK = LOCKS / "health-measure.lock"
LOGS = cluster_state.JOBS
THROUGHPUT = Path(__file__).with_name("throughput.py")
Pair = tuple[str, str]
Measured = Mapping[Pair, bool]
"""Whether each pair was fast."""
ROUNDS = 3
Key = TypeVar("Key", str, "tuple[str, str]")
"""A node, or a pair of them."""
Results = dict[str, tuple[str, str]]
"""State and text of each node's measurement."""
MeasurePairs = Callable[[list[Pair]], dict[Pair, float]]
"""Measures pairs in parallel. The result has no pairs whose job did not run."""
# As slurm, since the controller's NFS server maps root of a node to nobody.
SAVE_OUTPUT = f'2>&1 | runuser -u {cluster_state.OWNER} -- tee "{LOGS}/$SLURM_JOB_ID.out" >/dev/null'
NETWORK_MINUTES = 10  # includes the prolog of the partition, which may pull containers
_AVERAGE = re.compile(r"^# Avg bus bandwidth\s*:\s*([0-9]+(?:\.[0-9]+)?)", re.MULTILINE)  # nccl-tests, src/common.cu
START_SECONDS = 60  # a job that has not started by then waits for another job
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
    """Measure; return the exit code."""
    if arguments[:1] == ["--help"]:
        sys.stdout.write(str(__doc__))
        return 0
    settings = read_json(SETTINGS, None)
    if not settings:
        log("the stack has no measurements")
        return 0
    with open_lock(LOCK) as lock:
        if not take_lock(lock):
            log(f"another measurement is under way: {describe_holders(lock)}; not started")
            return 1
        try:
            _measure(settings, arguments)
        except SetupError as error:
            sys.stderr.write(printable(f"hpc-health-measure: {error}\n"))
            return 1
    return 0


def _measure(settings: dict[str, Any], names: list[str]) -> None:
    """Measure the nodes `names` if they are idle; without any, the idle nodes that are due."""
    # Held and dependent jobs may be pending for weeks, and wait for no node.
    pending = [] if names else scheduler.read_jobs("--states=pending")
    if any(job.reason not in NOT_FOR_NODES for job in pending):
        log("jobs are pending: nothing is measured now")
        return
    folder(outcome.MEASURED)
    for old in LOGS.glob("*.out"):
        old.unlink()
    for kind, measure in MEASURES.items():
        for part in settings.get(kind, {}).get("partitions", ()):
            idle = idle_nodes(part["nodes"])
            if not settings[kind]["hours"]:
                continue  # only repaired nodes are measured (acceptance.py)
            due = [name for name in idle if name in names or (not names and _is_due(name, kind, settings[kind]))]
            measure(part, due, idle, settings[kind])


def idle_nodes(names: list[str]) -> list[str]:
    """Return which of these nodes are idle. Elastic nodes without a machine, which have further flags, are not."""
    nodes = scheduler.read_nodes()
    return [name for name, node in nodes.items() if name in names and node.states - {"CLOUD"} == {"IDLE"}]


def _is_due(name: str, kind: str, settings: dict[str, Any]) -> bool:
    """Return whether a node's last measurement is old, or was too slow: since it is idle, somebody has resumed it."""
    last = last_result(name, kind)
    resumed = last.get("state") == "failed" and not last.get("common")
    # Half an hour less, because the timer runs hourly: a measurement would be an hour late each time.
    return resumed or time.time() - last.get("time", 0) >= settings["hours"] * 3600 - 1800


def last_result(name: str, kind: str) -> dict[str, Any]:
    """Return the last result of a measurement of a node; empty if there is none."""
    return read_json(outcome.MEASURED / f"{name}.json", {}).get(kind, {})


def _network(part: dict[str, Any], due: list[str], idle: list[str], settings: dict[str, Any]) -> None:
    """Measure TCP throughput between pairs, and drain slow nodes."""
    measure = partial(_measure_throughput, part, settings["seconds"])
    _measure_by_pairs("network", part["nodes"], due, idle, measure, least=settings["mbps"], unit="Mbit/s")


def _fabric(part: dict[str, Any], due: list[str], idle: list[str], settings: dict[str, Any]) -> None:
    """Run the NCCL test between pairs over the network of the GPUs, and drain slow nodes."""

    def measure(pairs: list[Pair]) -> dict[Pair, float]:
        averages = _averages("fabric", part, {pair: ",".join(pair) for pair in pairs}, settings)
        for pair, why in averages.items():
            if isinstance(why, str):
                log(f"{pair[0]} and {pair[1]}: {why}")
        return {pair: average for pair, average in averages.items() if isinstance(average, float)}

    _measure_by_pairs("fabric", part["nodes"], due, idle, measure, least=part["busbw_gbps"], unit="GB/s")


def _measure_by_pairs(
    kind: str, nodes: list[str], due: list[str], idle: list[str], measure: MeasurePairs, *, least: float, unit: str
) -> None:
    """Measure pairs until each due node is known to be good or slow; record the results and drain slow nodes.

    A single due node is measured with other idle nodes.
    """
    candidates = due if len(due) > 1 else [*due, *[name for name in idle if name not in due][:2]]
    if not due or len(candidates) < 2:
        return
    fast: dict[Pair, bool] = {}
    figures: dict[Pair, float] = {}
    for _ in range(ROUNDS):
        pairs = next_pairs(candidates, fast)
        if not pairs:
            break
        figures |= measure(pairs)
        fast = {pair: figure >= least for pair, figure in figures.items()}
        if not set(pairs) <= set(fast):
            break  # a job did not run: its nodes are busy now
    slow, unknown = slow_nodes(fast), undecided(fast)
    limit = f", least {least}" if least else ""
    results: Results = {}
    for name in sorted({name for pair in fast for name in pair}):
        measured = {pair: figure for pair, figure in figures.items() if name in pair}
        if name in slow:
            pair = next(pair for pair in measured if slow[name] in pair)
            results[name] = ("failed", f"{measured[pair]:.0f} {unit} with {slow[name]}{limit}")
            continue
        pair = max(measured, key=measured.__getitem__)
        other = next(node for node in pair if node != name)
        text = f"{measured[pair]:.0f} {unit} with {other}{limit}"
        if name in unknown:
            text += ": one of the two is slow, and no third node was idle"
        results[name] = ("skipped" if name in unknown else "ok", text)
    _record_and_drain(kind, nodes, results)


def _measure_throughput(part: Mapping[str, Any], seconds: int, pairs: list[Pair]) -> dict[Pair, float]:
    """Return the Mbit/s of each pair in its slower direction, without pairs whose job did not run."""
    options: dict[Pair, list[str]] = {}
    for first, second in pairs:
        line = f"python3 -S {shlex.quote(str(THROUGHPUT))} {seconds} {first} {second}"
        tasks = ["--nodes=2", "--ntasks=2", "--ntasks-per-node=1", f"--nodelist={first},{second}"]
        options[first, second] = [*tasks, *_wrap(line)]
    figures: dict[Pair, float] = {}
    for job, pair in run_jobs("network", part, NETWORK_MINUTES, options).items():
        last = cluster_state.read_text(LOGS / f"{job}.out").strip().splitlines()[-1:]
        try:
            both = json.loads(last[0]) if last else {}
            figures[pair] = min(float(both["there"]), float(both["back"]))
        except (ValueError, KeyError, TypeError):
            log(f"{pair[0]} and {pair[1]}: job {job} measured nothing" + (f": {last[0]}" if last else ""))
    return figures


def _nccl(part: dict[str, Any], due: list[str], _: list[str], settings: dict[str, Any]) -> None:
    """Run the NCCL test of each node in parallel, as the user who has built it, and drain slow nodes."""
    results: Results = {}
    for name in due:
        driver = outcome.check_of(cluster_state.read_object(outcome.RESULTS / f"{name}.json"), "gpu-driver")
        if driver.get("state") != "ok":
            results[name] = ("skipped", str(driver.get("text") or "the driver was not checked yet"))
    with_driver = {name: name for name in due if name not in results}
    for name, average in _averages("nccl", part, with_driver, settings).items():
        least = part["busbw_gbps"]
        if isinstance(average, str):
            results[name] = ("skipped", average)
            continue
        text = f"{average:.1f} GB/s bus bandwidth" + (f", least {least}" if least else "")
        results[name] = ("failed" if average < least else "ok", text)
    _record_and_drain("nccl", part["nodes"], results)


def _diag(part: dict[str, Any], due: list[str], _: list[str], settings: dict[str, Any]) -> None:
    """Run a diagnostic of DCGM that needs the whole node, on all due nodes in parallel, and drain faulty nodes."""
    options = {name: [f"--nodelist={name}", *_wrap(f"dcgmi diag -r {settings['level']} -j")] for name in due}
    results: Results = {}
    for job, name in run_jobs("diag", part, settings["minutes"], options).items():
        result = gpu.diag(0, cluster_state.read_text(LOGS / f"{job}.out"))
        results[name] = ("ok" if result["state"] == "warning" else result["state"], result["text"])
    _record_and_drain("diag", part["nodes"], results)


MEASURES: dict[str, Callable[[dict[str, Any], list[str], list[str], dict[str, Any]], None]] = {
    "network": _network,
    "diag": _diag,
    "nccl": _nccl,
    "fabric": _fabric,
}
"""Each measures nodes of a partition: (the partition, its due nodes, its idle nodes, the settings of the kind)."""


def _averages(
    kind: str, part: dict[str, Any], nodelists: dict[Key, str], settings: dict[str, Any]
) -> dict[Key, float | str]:
    """Run the NCCL test on each list of nodes in parallel; return its average bus bandwidth in GB/s, or why there is
    none."""
    try:
        user = pwd.getpwnam(settings["user"])
    except KeyError:
        raise SetupError(f"there is no user {settings['user']}, who is to run the NCCL test") from None
    options = {key: [f"--nodelist={nodelist}", f"--chdir={user.pw_dir}"] for key, nodelist in nodelists.items()}
    jobs = run_jobs(kind, part, settings["minutes"], options, stdin=part["script"], user=user)
    results: dict[Key, float | str] = {}
    for job, key in jobs.items():
        path = f"{user.pw_dir}/{part['log'].replace('%j', job)}"
        try:
            # As the user: root does not follow links in a home.
            log_end = run("runuser", "-u", user.pw_name, "--", "tail", "-c", "100000", path, timeout=30)
        except SetupError:
            log_end = ""
        averages = _AVERAGE.findall(log_end)
        results[key] = float(averages[-1]) if averages else f"job {job} of {user.pw_name} has no result: {path}"
    return results


def _record_and_drain(kind: str, nodes: list[str], results: Results) -> None:
    """Record results, and drain nodes that are too slow and not drained yet, unless most of `nodes` are too slow.

    Then the network, a new driver or the limit is the cause, and draining them would stop the cluster.
    """
    for name, (state, text) in results.items():
        record_result(name, kind, state, text)
    for name, (state, text) in results.items():
        if state != "failed":
            continue
        if _most_are_slow(kind, [node for node in nodes if node != name]):
            doubt = "so are most nodes, which are not drained: is the limit right?"
            record_result(name, kind, state, f"{text}; {doubt}", common=True)
        elif not drain_unhealthy.read_node(name).drained:
            drain_unhealthy.apply_action(name, "drain", reason({kind: text}))


def _most_are_slow(kind: str, others: list[str]) -> bool:
    """Return whether more than half of the others that were measured, and more than one, were too slow."""
    states = [last_result(name, kind).get("state") for name in others]
    failed, passed = states.count("failed"), states.count("ok")
    return failed > max(1, passed)


def record_result(name: str, kind: str, state: str, text: str, *, common: bool = False) -> None:
    """Record the result of a measurement of a node."""
    log(f"{name}: {kind}: {state}: {text}")
    path = outcome.MEASURED / f"{name}.json"
    results = read_json(path, {})
    results[kind] = {"state": state, "text": text, "time": time.time(), "common": common}
    write(path, json.dumps(results) + "\n", quiet=True)


def run_jobs(
    kind: str,
    part: Mapping[str, Any],
    minutes: int,
    options: Mapping[Key, list[str]],
    *,
    stdin: str = "",
    user: pwd.struct_passwd | None = None,
) -> dict[str, Key]:
    """Submit a job with the options of sbatch for each key, wait for all, and return the keys by job number.

    Jobs run in the part's partition, and in its reservation if it has one. Jobs that Slurm refuses are left out.
    """
    command = ["sbatch", "--parsable", f"--job-name=hpc-health-{kind}", f"--partition={part['partition']}"]
    command += [f"--reservation={part['reservation']}"] if "reservation" in part else []
    command += ["--exclusive", "--no-requeue", "--nice=10000", f"--time={minutes}"]
    if user:
        # sbatch passes its environment to the job, in which the user can't read root's HOME.
        name, home = user.pw_name, [f"HOME={user.pw_dir}", f"SHELL={user.pw_shell}", f"PATH={PATH}"]
        command = ["runuser", "-u", name, "--", "env", "-i", *home, f"USER={name}", f"LOGNAME={name}", *command]
    jobs: dict[str, Key] = {}
    for key, own_options in options.items():
        try:
            jobs[run(*command, *own_options, stdin=stdin or None, timeout=60).strip().partition(";")[0]] = key
        except SetupError as error:
            log(f"{kind}: {error}")
    wait_for_jobs(list(jobs), minutes * 60)
    return jobs


def _wrap(program: str) -> list[str]:
    """Return the options of a job that runs a program and saves its output for the controller."""
    return ["--chdir=/", "--output=/dev/null", "--wrap", f"srun --mpi=none {program} {SAVE_OUTPUT}"]


def wait_for_jobs(jobs: list[str], seconds: float) -> None:
    """Wait until these jobs have ended. A job that does not start soon is cancelled, since another job has its node."""
    began, remaining = time.monotonic(), set(jobs)
    while remaining:
        time.sleep(0.3)
        listed = run("squeue", "--noheader", f"--jobs={','.join(sorted(remaining))}", "--format=%i %T", accept=(0, 1))
        states = dict(line.split(" ", 1) for line in listed.splitlines() if " " in line)
        remaining &= set(states)
        late = [job for job in remaining if states[job] == "PENDING" and time.monotonic() - began > START_SECONDS]
        if time.monotonic() - began > seconds + START_SECONDS:
            late = sorted(remaining)
        if late:
            log(f"cancelled {', '.join(late)}: not started, or not ended, in time")
            run("scancel", *late)
            remaining -= set(late)


# A slow pair does not show which of its two nodes is slow. A node is good if it was fast with any partner. It is slow
# if it was fast with none, and slow with a good partner. GoogleCloudPlatform/cluster-health-scanner works the same way
# (ENABLE_TWO_PASS_STRATEGY). Pure functions.


def good_nodes(measured: Measured) -> set[str]:
    """Return the nodes that were fast with any partner."""
    return {name for pair, fast in measured.items() if fast for name in pair}


def slow_nodes(measured: Measured) -> dict[str, str]:
    """Return the slow nodes, each with a good partner with which it was slow."""
    good = good_nodes(measured)
    slow: dict[str, str] = {}
    for pair, fast in measured.items():
        for name, other in (pair, pair[::-1]):
            if not fast and name not in good and other in good:
                slow.setdefault(name, other)
    return slow


def undecided(measured: Measured) -> set[str]:
    """Return the nodes of slow pairs that were measured with no good node: either of the two may be slow."""
    return {name for pair in measured for name in pair} - good_nodes(measured) - set(slow_nodes(measured))


def next_pairs(nodes: Iterable[str], measured: Measured) -> list[Pair]:
    """Return disjoint pairs to measure next, so that every node becomes good or slow; none if no pair would help.

    A node is paired with a good one if there is any, and never with the same one again.
    """
    good, slow = good_nodes(measured), slow_nodes(measured)
    names = sorted(nodes)
    unknown = [name for name in names if name not in good and name not in slow]
    partners = [name for name in names if name in good]
    pairs: list[Pair] = []
    used: set[str] = set()
    for name in unknown:
        if name in used:
            continue
        others = [*partners, *(node for node in unknown if node != name)]
        new = (node for node in others if not {(name, node), (node, name)} & set(measured))
        other = next((node for node in new if node not in used), None)
        if other is not None:
            pairs.append((name, other))
            used |= {name, other}
    return pairs


def converge(settings: dict[str, Any] | None) -> None:
    """Run the timer with these settings; without any, remove it."""
    files = [PROGRAM, SETTINGS, UNITS / f"{NAME}.service", UNITS / f"{NAME}.timer"]
    if not settings:
        if any(path.exists() for path in files):
            stop_services(f"{NAME}.timer")
            unread_units()
            for path in files:
                path.unlink(missing_ok=True)
            reload_units()
            log("measurements of nodes are removed")
        return
    write(SETTINGS, json.dumps(settings, indent=1) + "\n", mode=0o600)
    write(PROGRAM, run_checks.starter("health.measure"), mode=0o755)
    changed = [write_unit(UNITS / f"{NAME}.{kind}", text) for kind, text in (("service", SERVICE), ("timer", TIMER))]
    reload_units()
    if any(changed) or not succeeds("systemctl", "is-active", "--quiet", f"{NAME}.timer"):
        run("systemctl", "enable", "--now", "--quiet", f"{NAME}.timer")
