"""Measurements of idle nodes by jobs, on the controller: TCP throughput between pairs, and the NCCL test of one node.

    hpc-health-measure            what is due: started every hour by hpc-health-measure.timer
    hpc-health-measure NODE...    these nodes now, if they are idle

No job of a user waits for it: it begins only where nodes are idle and no job is pending, its jobs have the least
priority and end within minutes, and one that does not start at once is cancelled. A node that is too slow is drained.
"""

from __future__ import annotations

import fcntl
import json
import pwd
import re
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from health import pairs, record, slurm_node
from health.kinds import reason
from slurm.scontrol import rows
from system.host import SetupError, folder, log, printable, read_json, run, write

SETTINGS = Path("/etc/hpc/health-measure.json")
MEASURED = record.RESULTS / "measured"
LOGS = record.RESULTS / "jobs"
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
PROGRAM = Path(__file__).with_name("throughput.py")
Results = dict[str, tuple[str, str]]
"""State and text of each node's measurement."""
ELSE = ("JobHeldUser", "JobHeldAdmin", "Dependency", "DependencyNeverSatisfied", "JobArrayTaskLimit")
"""Reasons for which jobs wait for something else than nodes (slurm.schedmd.com/job_reason_codes.html)."""
START_SECONDS = 60  # a job that has not started by then waits for somebody else's
NETWORK_MINUTES = 10  # with the prolog of a partition, which may pull containers
_AVERAGE = re.compile(r"^# Avg bus bandwidth\s*:\s*([0-9]+(?:\.[0-9]+)?)", re.MULTILINE)  # nccl-tests, src/common.cu


def main(arguments: list[str]) -> int:
    """Measure; the exit code."""
    if arguments[:1] == ["--help"]:
        sys.stdout.write(str(__doc__))
        return 0
    wanted = read_json(SETTINGS, None)
    if not wanted:
        log("the stack has no measurements")
        return 0
    Path("/run/hpc").mkdir(exist_ok=True)
    with Path("/run/hpc/health-measure.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log("another measurement is under way: not started")
            return 1
        try:
            _measure(wanted, arguments)
        except SetupError as error:
            sys.stderr.write(printable(f"hpc-health-measure: {error}\n"))
            return 1
    return 0


def _measure(wanted: dict[str, Any], names: list[str]) -> None:
    if not names and _waiting():
        log("jobs are pending: nothing is measured now")
        return
    for path in (record.RESULTS, MEASURED, LOGS):
        folder(path)
    for stale in LOGS.glob("*.out"):
        stale.unlink()
    if network := wanted.get("network"):
        for part in network["partitions"]:
            nodes = [
                name for name in _idle(part["nodes"]) if name in names or (not names and _due(name, "network", network))
            ]
            _network(part, nodes, _idle(part["nodes"]), network)
    if nccl := wanted.get("nccl"):
        for part in nccl["partitions"]:
            nodes = [name for name in _idle(part["nodes"]) if name in names or (not names and _due(name, "nccl", nccl))]
            _nccl(part, nodes, nccl)


def _waiting() -> bool:
    """Whether jobs wait for nodes. Some are held for weeks, or for other jobs: these do not."""
    lines = run("squeue", "--noheader", "--states=pending", "--format=%r").splitlines()
    return any(line.strip() not in ELSE for line in lines if line.strip())


def _idle(names: list[str]) -> list[str]:
    """Those of the nodes that are idle and nothing else."""
    found = rows(run("scontrol", "--oneliner", "show", "node"))
    return [row["NodeName"] for row in found if row.get("NodeName") in names and row.get("State") == "IDLE"]


def _due(name: str, kind: str, wanted: dict[str, Any]) -> bool:
    """Whether a node's last measurement is old, or was slow: then it is idle because somebody has resumed it."""
    last = read_json(MEASURED / f"{name}.json", {}).get(kind, {})
    # Half an hour less: the timer comes every hour, and would else be late by one each time.
    resumed = last.get("state") == "failed" and not last.get("common")
    return resumed or time.time() - last.get("time", 0) >= wanted["hours"] * 3600 - 1800


def _network(part: dict[str, Any], due: list[str], idle: list[str], wanted: dict[str, Any]) -> None:
    """Measure pairs until every due node is decided, and act. A lonely node borrows a partner that is idle."""
    every = due if len(due) > 1 else [*due, *[name for name in idle if name not in due][:2]]
    if not due or len(every) < 2:
        return
    fast: dict[pairs.Pair, bool] = {}
    figures: dict[pairs.Pair, float] = {}
    for _ in range(pairs.ROUNDS):
        todo = pairs.next_pairs(every, fast)
        if not todo:
            break
        for pair, mbps in _run_pairs(part["partition"], todo, wanted["seconds"]).items():
            fast[pair], figures[pair] = mbps >= wanted["mbps"], mbps
        if not set(todo) <= set(fast):
            break  # a job did not run: its nodes are busy now
    slow, open_ = pairs.slow(fast), pairs.undecided(fast)
    least = f", least {wanted['mbps']}" if wanted["mbps"] else ""
    found: Results = {}
    for name in sorted({name for pair in fast for name in pair}):
        mine = {pair: mbps for pair, mbps in figures.items() if name in pair}
        if name in slow:
            pair = next(pair for pair in mine if slow[name] in pair)
            found[name] = ("failed", f"{mine[pair]:.0f} Mbit/s with {slow[name]}{least}")
            continue
        pair = max(mine, key=lambda one: mine[one])
        other = next(one for one in pair if one != name)
        text = f"{mine[pair]:.0f} Mbit/s with {other}{least}"
        if name in open_:
            text += ": one of the two is slow, and no third node was idle"
        found[name] = ("skipped" if name in open_ else "ok", text)
    _settle("network", part["nodes"], found)


def _run_pairs(partition: str, todo: list[pairs.Pair], seconds: int) -> dict[pairs.Pair, float]:
    """Mbit/s of each pair, in its slower direction; those whose job did not run are left out."""
    jobs: dict[str, pairs.Pair] = {}
    for first, second in todo:
        line = f"srun --mpi=none python3 -S {shlex.quote(str(PROGRAM))} {seconds} {first} {second}"
        options = ["--nodes=2", "--ntasks=2", "--ntasks-per-node=1", f"--nodelist={first},{second}", "--chdir=/",
                   f"--output={LOGS}/%j.out", f"--time={NETWORK_MINUTES}"]  # fmt: skip
        if job := _submit("network", partition, options, ["--wrap", line]):
            jobs[job] = (first, second)
    _wait(list(jobs), NETWORK_MINUTES * 60)
    found: dict[pairs.Pair, float] = {}
    for job, pair in jobs.items():
        said = LOGS / f"{job}.out"
        last = said.read_text(errors="replace").strip().splitlines()[-1:] if said.exists() else []
        try:
            both = json.loads(last[0]) if last else {}
            found[pair] = min(float(both["there"]), float(both["back"]))
        except (ValueError, KeyError, TypeError):
            log(f"{pair[0]} and {pair[1]}: job {job} measured nothing" + (f": {last[0]}" if last else ""))
    return found


def _nccl(part: dict[str, Any], nodes: list[str], wanted: dict[str, Any]) -> None:
    """Run the NCCL test of each node, side by side, as the user who has built it; act on its average."""
    try:
        user = pwd.getpwnam(wanted["user"])
    except KeyError:
        raise SetupError(f"there is no user {wanted['user']}, who is to run the NCCL test") from None
    jobs: dict[str, str] = {}
    found: Results = {}
    for name in nodes:
        state = read_json(record.RESULTS / f"{name}.json", {}).get("checks", {}).get("gpu-driver", {})
        if state.get("state") != "ok":
            found[name] = ("skipped", state.get("text") or "the driver was not checked yet")
            continue
        options = [f"--nodelist={name}", f"--chdir={user.pw_dir}", f"--time={wanted['minutes']}"]
        if job := _submit("nccl", part["partition"], options, [], stdin=part["script"], user=user):
            jobs[job] = name
    _wait(list(jobs), wanted["minutes"] * 60)
    for job, name in jobs.items():
        path = f"{user.pw_dir}/{part['log'].replace('%j', job)}"
        try:
            # As the user: root does not follow links in a home.
            said = run("runuser", "-u", user.pw_name, "--", "tail", "-c", "100000", path, timeout=30)
        except SetupError as error:
            said = str(error)
        averages = _AVERAGE.findall(said)
        if not averages:
            found[name] = ("skipped", f"job {job} of {user.pw_name} has no result: {path}")
            continue
        least = part["busbw_gbps"]
        text = f"{float(averages[-1]):.1f} GB/s bus bandwidth" + (f", least {least}" if least else "")
        found[name] = ("failed" if float(averages[-1]) < least else "ok", text)
    _settle("nccl", part["nodes"], found)


def _submit(
    kind: str,
    partition: str,
    options: list[str],
    end: list[str],
    *,
    stdin: str = "",
    user: pwd.struct_passwd | None = None,
) -> str:
    """Submit one job; its number, or nothing where Slurm refuses it."""
    words = ["sbatch", "--parsable", f"--job-name=hpc-health-{kind}", f"--partition={partition}", "--exclusive",
             "--no-requeue", "--nice=10000", *options, *end]  # fmt: skip
    try:
        said = run(*(_as(user) if user else []), *words, stdin=stdin or None, timeout=60)
    except SetupError as error:
        log(f"{kind}: {error}")
        return ""
    return said.strip().partition(";")[0]


def _as(user: pwd.struct_passwd) -> list[str]:
    """A command before another one, which then runs as the user: sbatch gives its own environment to the job, where
    root's HOME is a place that the user can't read."""
    name = user.pw_name
    place = [f"HOME={user.pw_dir}", f"USER={name}", f"LOGNAME={name}", f"SHELL={user.pw_shell}", f"PATH={PATH}"]
    return ["runuser", "-u", name, "--", "env", "-i", *place]


def _wait(jobs: list[str], seconds: float) -> None:
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


def _settle(kind: str, nodes: list[str], found: Results) -> None:
    """Record results, and drain nodes that are too slow unless somebody has, or most of their kind are: then the
    network, a new driver or the limit is at fault, and the cluster would stop."""
    for name, (state, text) in found.items():
        _record(name, kind, state, text)
    for name, (state, text) in found.items():
        if state != "failed":
            continue
        if _common(kind, [one for one in nodes if one != name]):
            _record(
                name, kind, state, f"{text}; so are most nodes, which are not drained: is the limit right?", common=True
            )
        elif "DRAIN" not in slurm_node.look(name).states:
            slurm_node.apply(name, "drain", reason({kind: text}))


def _common(kind: str, others: list[str]) -> bool:
    """Whether more than half of the others that were measured, and more than one, were too slow."""
    states = [read_json(MEASURED / f"{name}.json", {}).get(kind, {}).get("state") for name in others]
    failed, passed = states.count("failed"), states.count("ok")
    return failed > max(1, passed)


def _record(name: str, kind: str, state: str, text: str, *, common: bool = False) -> None:
    log(f"{name}: {kind}: {state}: {text}")
    path = MEASURED / f"{name}.json"
    kept = read_json(path, {})
    kept[kind] = {"state": state, "text": text, "time": time.time(), "common": common}
    write(path, json.dumps(kept) + "\n", quiet=True)
