"""Parsers of what Slurm's commands print, and limits of QOS as sacctmgr takes and prints them. Pure functions, which
`./hpc` uses too."""

import json
import math
import re
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

NODE_FIELDS = (
    "State Reason CPUTot CPUAlloc RealMemory AllocMem Gres GresUsed Version NodeAddr BootTime SlurmdStartTime "
    "LastBusyTime Partitions ReservationName"
).split()
PARTITION_FIELDS = (
    "Default MaxTime DefaultTime State Nodes TotalCPUs TotalNodes AllowAccounts AllowQos AllowGroups PriorityTier "
    "OverSubscribe"
).split()
# A Reason extends to the end of its line, or to fields that later releases print behind it.
_REASON = re.compile(r" Reason=(?P<reason>.*?)(?: (?:Comment|Extra|InstanceId|InstanceType)=.*)?$")
_SIGNED = re.compile(r"^(?P<text>.*?)(?:(?:^| )\[(?P<by>\S+?)@(?P<at>\S+?)\])?$")


def parse_rows(text: str) -> list[dict[str, str]]:
    """Return the fields of each line of `scontrol --oneliner show node`, `partition` or `reservation`.

    It can't parse `show job`, where the Reason and the job's name, which may contain anything, stand in the middle.
    """
    rows: list[dict[str, str]] = []
    for line in text.split("\n"):
        row: dict[str, str] = {}
        # What a person typed as a Reason may look like a field, and is none.
        reason = _REASON.search(line.rstrip())
        name = ""
        for word in line[: reason.start() if reason else len(line)].split(" "):
            key, equals, value = word.partition("=")
            if equals and key.isidentifier():
                name, row[key] = key, value
            elif name:
                row[name] = f"{row[name]} {word}"
        if row:
            rows.append({key: value.strip() for key, value in row.items()})
            if reason:
                rows[-1]["Reason"] = reason["reason"].strip()
    return rows


def node_states(row: Mapping[str, str]) -> set[str]:
    """Return the states in a row of a node. The star of `IDLE*+DRAIN` marks a node that does not answer."""
    return set(row.get("State", "UNKNOWN").replace("*", "+NOT_RESPONDING").split("+"))


def split_reason(reason: str) -> tuple[str, str, str]:
    """Return a Reason's text, who gave it and when, in local time. The last two are empty where Slurm has none."""
    match = _SIGNED.match(reason)
    return (match["text"].strip(), match["by"] or "", match["at"] or "") if match else (reason, "", "")


def node_rows(text: str) -> dict[str, dict[str, str]]:
    """Return the NODE_FIELDS of every node, by name."""
    return {
        row["NodeName"]: {k: row[k] for k in NODE_FIELDS if k in row} for row in parse_rows(text) if "NodeName" in row
    }


def partition_rows(text: str) -> dict[str, dict[str, str]]:
    """Return the PARTITION_FIELDS of every partition, by name."""
    named = [row for row in parse_rows(text) if "PartitionName" in row]
    return {row["PartitionName"]: {k: row[k] for k in PARTITION_FIELDS if k in row} for row in named}


def parameters(text: str) -> dict[str, str]:
    """Return the values of `scontrol show config` by parameter."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and line[:1].strip():
            values.setdefault(name.strip(), value.strip())
    return values


MAX_JOBS = 50  # listed one by one; the others are counted
COLUMNS = {
    column[:-2]: column[-1]
    for column in "id:i number:A user:u state:T seconds:M limit:l nodes:N count:D partition:P reason:r name:j".split()
}
"""Letters of squeue(1)'s format, by column. The `id` of an array's task is 7_2; its processes have the `number`."""
# States of jobs that hold no node, though squeue may print the nodes of their last run (job_state_string of src/common;
# %T of squeue(1)). A job in a state that is not in the list counts as one that holds its nodes.
WAITING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
PREEMPTED = "hpc: the cloud takes the machine back"
MAINTENANCE = "hpc: the cloud stops the machine to maintain its host"
CLOUD_REASONS = (PREEMPTED, MAINTENANCE)
"""Reasons of drained nodes that are resumed without a person when their machine is back."""
NO_CAPACITY, NO_MACHINE = "hpc: no capacity", "hpc: its machine is refused"
"""Beginnings of reasons of nodes that the reconcile loop has set down until it may ask for their machines again."""
JOURNAL = "/var/lib/hpc/controller/reconcile/journal.jsonl"
"""Journal of the reconcile loop (reconcile/loop.py) on controllers, for root alone. The one before it ends in `.1`."""


def squeue_format(mark: str) -> str:
    """Return the `--format` of squeue that `parse_squeue` reads. `mark` is a random separator: a job's name may contain
    anything, whole rows of other jobs too."""
    return "".join(f"%{column}{mark}" for column in COLUMNS.values())


def parse_squeue(text: str, mark: str) -> list[dict[str, str]]:
    """Return squeue's rows by COLUMNS; `mark` follows every field. A pure function."""
    cells, width = text.split(mark)[:-1], len(COLUMNS)
    rows = [cells[at : at + width] for at in range(0, len(cells) - width + 1, width)]
    return [dict(zip(COLUMNS, [row[0].lstrip("\n"), *row[1:]], strict=True)) for row in rows]


def is_held(row: dict[str, str]) -> bool:
    """Return whether a waiting job starts only when an operator releases it. A pure function.

    The words are those of job_state_reason_string (JobHeldAdmin, JobHoldMaxRequeue) and of src/slurmctld/job_mgr.c
    ("launch failed requeued held", "job requeued in held state"), from 22.05 to 26.05. A job with the reason
    JobHeldUser is held by its user, who can release it.
    """
    return (
        row["state"] in WAITING
        and bool(re.search(r"held|hold", row["reason"], re.IGNORECASE))
        and (row["reason"] != "JobHeldUser")
    )


def count_tasks(number: str) -> int:
    """Return the number of jobs that an id of squeue stands for: 1 for `7` or `7_2`, 6 for `7_[1-5,9%2]`. A pure
    function."""
    count = 0
    for part in number.partition("[")[2].rstrip("]").partition("%")[0].split(","):
        first, _, last = part.partition(":")[0].partition("-")
        step = int(part.partition(":")[2] or 1) if ":" in part else 1
        if first.isdigit() and (last or first).isdigit():
            count += (int(last or first) - int(first)) // step + 1
    return count or 1


def summarize_jobs(jobs: list[dict[str, str]]) -> dict[str, Any]:
    """Return how many jobs are in each state, the first MAX_JOBS of them, and those that Slurm or an operator holds."""
    states: Counter[str] = Counter()
    for job in jobs:
        states[job["state"]] += count_tasks(job["id"])
        if job["state"] in WAITING:
            job["nodes"] = ""  # squeue prints the nodes of its last run
    return {"states": dict(states), "first": jobs[:MAX_JOBS], "held": [job for job in jobs if is_held(job)][:MAX_JOBS]}


TRES_LIMITS = {"MaxTRESPerJob", "MaxTRESPerUser", "GrpTRES"}
LIST_LIMITS = {"Preempt", "Flags"}
_SPAN = re.compile(r"^(?:(?P<d>[0-9]+)-)?(?P<a>[0-9]+)(?::(?P<b>[0-9]+))?(?::(?P<c>[0-9]+))?$")


def same_limit(key: str, value: str, current: str) -> bool:
    """Return whether sacctmgr prints `current` for a limit that was set to `value`. An empty text is no limit."""
    if key == "Priority":
        return int(value or 0) == int(current or 0)
    if key in TRES_LIMITS or key in LIST_LIMITS:
        return set(filter(None, value.lower().split(","))) == set(filter(None, current.lower().split(",")))
    if key == "MaxWall" and value and current:
        # A lone number is minutes here, as everywhere in sacctmgr.
        return _minutes(value) == _minutes(current)
    return value.lower() == current.lower()


def limit_value(key: str, value: str, current: str) -> str:
    """Return the value with which sacctmgr changes `current` to `value`.

    sacctmgr (24.11.5) keeps resources that are not named, so each that is removed is set to -1. As the value of another
    limit, -1 removes it.
    """
    if key in TRES_LIMITS:
        kept = {word.partition("=")[0] for word in value.split(",")}
        removed = [name for word in current.split(",") if (name := word.partition("=")[0]) and name not in kept]
        return ",".join([*filter(None, [value]), *(f"{name}=-1" for name in removed)])
    if key == "Preempt":
        return value
    if key == "Priority":
        return value or "0"
    return value or "-1"


def seconds_of(text: str) -> int | None:
    """Return the seconds of a number or a time as Slurm writes it ([days-]hours:minutes:seconds); None for other
    texts."""
    match = _SPAN.match(text)
    if not match:
        return None
    days, a, b, c = (int(digits or 0) for digits in match.groups())
    if match["d"] is not None:
        return ((days * 24 + a) * 60 + b) * 60 + c
    if match["c"] is not None:
        return (a * 60 + b) * 60 + c
    return a * 60 + b if match["b"] is not None else a


_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_CLOCK = re.compile(r"(?:(?P<d>[0-9]+)-)?(?:(?P<h>[0-9]+):)?(?P<m>[0-9]+):(?P<s>[0-9]+(?:\.[0-9]+)?)")


def cpu_seconds(text: str) -> float:
    """Return the seconds of a CPU time as sacct prints it: `1-02:03:04`, `02:03:04`, `00:04.005`; 0 for other texts."""
    match = _CLOCK.fullmatch(text.strip())
    if not match:
        return 0.0
    return (int(match["d"] or 0) * 24 + int(match["h"] or 0)) * 3600 + int(match["m"]) * 60 + float(match["s"])


def parse_tres(text: str) -> dict[str, float]:
    """Return Slurm's list of resources, such as `cpu=2,gres/gpu:a100=1,mem=2048M`, by name: counts, sizes in bytes,
    times in seconds. Other values are left out."""
    resources: dict[str, float] = {}
    for name, _, value in (part.rpartition("=") for part in text.split(",") if part):
        if ":" in value:
            resources[name] = cpu_seconds(value)
        elif match := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMGTP]?)", value):
            resources[name] = float(match[1]) * _UNITS.get(match[2], 1)
    return resources


def count_gpus(resources: dict[str, float]) -> int:
    """Return the number of GPUs among resources. `gres/gpu` counts all of them, `gres/gpu:TYPE` those of a type."""
    by_type = (count for name, count in resources.items() if name.startswith("gres/gpu:"))
    return int(resources.get("gres/gpu", 0) or sum(by_type))


def sacct_command(fields: tuple[str, ...], mark: str, options: str) -> str:
    """Return the command whose output `parse_sacct` reads, for the records that the options of sacct choose."""
    return f"sacct {options} --parsable --delimiter={mark} --noheader --noconvert --format={','.join(fields)}"


def parse_sacct(text: str, fields: tuple[str, ...], mark: str) -> list[dict[str, str]]:
    """Return the rows of `sacct_command`, by field. `mark` is a random separator, as for `squeue_format`.

    Raises ValueError if the text does not consist of whole rows.
    """
    *cells, rest = text.split(mark)
    if len(cells) % len(fields) or rest.strip():
        raise ValueError(f"sacct printed {len(cells)} fields, not rows of {len(fields)}: {rest.strip()[:200]!r}")
    rows = (cells[at : at + len(fields)] for at in range(0, len(cells), len(fields)))
    return [dict(zip(fields, [row[0].lstrip("\n"), *row[1:]], strict=True)) for row in rows]


def parse_json_lines(text: str) -> list[dict[str, Any]]:
    """Return the JSON objects of a text, one a line. Other lines are left out: one may be cut off, or written by
    somebody else."""
    rows: list[dict[str, Any]] = []
    for line in text.splitlines():
        with suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, dict):
                rows.append(row)
    return rows


def job_end(text: str) -> float:
    """Return squeue's EndTime in seconds since the epoch; infinite for a job without a limit (`N/A`, `Unknown`)."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return math.inf


def valid_time(value: object) -> float | None:
    """Return a value as seconds since the epoch; None if it is no time. Root of any node may have written it."""
    return float(value) if isinstance(value, (int, float)) and 0 <= value < 1e11 else None


def text_values(value: object) -> dict[str, str]:
    """Return a JSON object with its values as texts; an empty one for any other value."""
    return {str(name): str(text) for name, text in value.items()} if isinstance(value, dict) else {}


def _minutes(text: str) -> int | None:
    return int(text) * 60 if text.isdigit() else seconds_of(text)
