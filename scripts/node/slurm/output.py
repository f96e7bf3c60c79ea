"""Output of Slurm's commands, as rows, and limits of QOS as sacctmgr takes and prints them. Pure functions, which the
stack's side uses too."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

KEPT = (
    "State Reason CPUTot CPUAlloc RealMemory AllocMem Gres GresUsed Version NodeAddr BootTime SlurmdStartTime "
    "LastBusyTime Partitions ReservationName"
).split()
PARTITION = (
    "Default MaxTime DefaultTime State Nodes TotalCPUs TotalNodes AllowAccounts AllowQos AllowGroups PriorityTier "
    "OverSubscribe"
).split()
# A Reason runs on to the end of its line, or to what later releases print behind it.
_REASON = re.compile(r" Reason=(?P<reason>.*?)(?: (?:Comment|Extra|InstanceId|InstanceType)=.*)?$")
_SIGNED = re.compile(r"^(?P<text>.*?)(?:(?:^| )\[(?P<by>\S+?)@(?P<at>\S+?)\])?$")


def rows(text: str) -> list[dict[str, str]]:
    """Lines of `scontrol --oneliner show node` or `partition`, NAME=VALUE words; a Reason is whole.

    Not of `show job`: there a Reason stands in the middle, after the job's name.
    """
    found: list[dict[str, str]] = []
    for line in text.split("\n"):
        row: dict[str, str] = {}
        # Nothing of what a person typed as a Reason is a name.
        reason = _REASON.search(line.rstrip())
        name = ""
        for word in line[: reason.start() if reason else len(line)].split(" "):
            key, equals, value = word.partition("=")
            if equals and key.isidentifier():
                name, row[key] = key, value
            elif name:
                row[name] = f"{row[name]} {word}"
        if row:
            found.append({key: value.strip() for key, value in row.items()})
            if reason:
                found[-1]["Reason"] = reason["reason"].strip()
    return found


def node_states(row: Mapping[str, str]) -> set[str]:
    """Return the states in a row of a node. The star of `IDLE*+DRAIN` marks a node that does not answer."""
    return set(row.get("State", "UNKNOWN").replace("*", "+NOT_RESPONDING").split("+"))


def signed(reason: str) -> tuple[str, str, str]:
    """A Reason's own text, who gave it and when, in local time; the last two are empty where it is not signed."""
    found = _SIGNED.match(reason)
    return (found["text"].strip(), found["by"] or "", found["at"] or "") if found else (reason, "", "")


def node_rows(text: str) -> dict[str, dict[str, str]]:
    """Every node, by name, with the fields of KEPT that `show node` has."""
    return {row["NodeName"]: {k: row[k] for k in KEPT if k in row} for row in rows(text) if "NodeName" in row}


def partition_rows(text: str) -> dict[str, dict[str, str]]:
    """Every partition, by name, with the fields of PARTITION."""
    named = [row for row in rows(text) if "PartitionName" in row]
    return {row["PartitionName"]: {k: row[k] for k in PARTITION if k in row} for row in named}


def parameters(text: str) -> dict[str, str]:
    """Values by parameter, as `show config` prints them."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and line[:1].strip():
            found.setdefault(name.strip(), value.strip())
    return found


JOBS = 50  # as many are reported each by itself; the others are counted
COLUMNS = {
    column[:-2]: column[-1]
    for column in "id:i number:A user:u state:T seconds:M limit:l nodes:N count:D partition:P reason:r name:j".split()
}
"""Letters of squeue(1)'s format, by column. The `id` of an array's task is 7_2; its processes have the `number`."""
# Of these, squeue may still name the nodes of their last run (job_state_string of src/common; %T of squeue(1)). A state
# that is not known here counts as one that holds its nodes.
WAITING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}


PREEMPTED = "hpc: the cloud takes the machine back"
MAINTENANCE = "hpc: the cloud stops the machine to maintain its host"
# Why a node was drained that is resumed by itself when its machine is back.
CLOUD = (PREEMPTED, MAINTENANCE)


def columns(mark: str) -> str:
    """The `--format` that `table` reads. `mark` is one that nobody who gave a job its name could know: a name may hold
    anything, whole rows of other jobs too."""
    return "".join(f"%{column}{mark}" for column in COLUMNS.values())


def table(text: str, mark: str) -> list[dict[str, str]]:
    """Return what squeue printed, by COLUMNS, with `mark` behind every field. A pure function."""
    cells, width = text.split(mark)[:-1], len(COLUMNS)
    rows = [cells[at : at + width] for at in range(0, len(cells) - width + 1, width)]
    return [dict(zip(COLUMNS, [row[0].lstrip("\n"), *row[1:]], strict=True)) for row in rows]


def is_held(row: dict[str, str]) -> bool:
    """Return whether a waiting job starts only when an operator releases it. A pure function.

    The words are those of job_state_reason_string (JobHeldAdmin, JobHoldMaxRequeue) and of src/slurmctld/job_mgr.c
    ("launch failed requeued held", "job requeued in held state"), from 22.05 to 26.05. JobHeldUser: its user's wish.
    """
    return (
        row["state"] in WAITING
        and bool(re.search(r"held|hold", row["reason"], re.IGNORECASE))
        and (row["reason"] != "JobHeldUser")
    )


def tasks(number: str) -> int:
    """Return how many jobs squeue shows by one number: `7`, `7_2` are one, `7_[1-5,9%2]` is six. A pure function."""
    count = 0
    for part in number.partition("[")[2].rstrip("]").partition("%")[0].split(","):
        first, _, last = part.partition(":")[0].partition("-")
        step = int(part.partition(":")[2] or 1) if ":" in part else 1
        if first.isdigit() and (last or first).isdigit():
            count += (int(last or first) - int(first)) // step + 1
    return count or 1


def summary(found: list[dict[str, str]]) -> dict[str, Any]:
    """Return how many jobs are in each state, the first JOBS of them, and those that Slurm or an operator holds."""
    states: Counter[str] = Counter()
    for row in found:
        states[row["state"]] += tasks(row["id"])
        if row["state"] in WAITING:
            row["nodes"] = ""  # those of its last run, until it runs again
    return {"states": dict(states), "first": found[:JOBS], "held": [row for row in found if is_held(row)][:JOBS]}


TRES_LIMITS = {"MaxTRESPerJob", "MaxTRESPerUser", "GrpTRES"}
LIST_LIMITS = {"Preempt", "Flags"}
_SPAN = re.compile(r"^(?:(?P<d>[0-9]+)-)?(?P<a>[0-9]+)(?::(?P<b>[0-9]+))?(?::(?P<c>[0-9]+))?$")


def same_limit(key: str, said: str, there: str) -> bool:
    """Return whether sacctmgr prints `there` for a limit that was set to `said`; empty texts are no limit."""
    if key == "Priority":
        return int(said or 0) == int(there or 0)
    if key in TRES_LIMITS or key in LIST_LIMITS:
        return set(filter(None, said.lower().split(","))) == set(filter(None, there.lower().split(",")))
    if key == "MaxWall" and said and there:
        # A lone number is minutes here, as everywhere in sacctmgr.
        return _minutes(said) == _minutes(there)
    return said.lower() == there.lower()


def limit_value(key: str, said: str, there: str) -> str:
    """The value with which sacctmgr changes `there` to `said`.

    It keeps resources that are not named, so each that goes is set to -1; -1 alone is no resource, and no QOS either.
    """
    if key in TRES_LIMITS:
        kept = {word.partition("=")[0] for word in said.split(",")}
        gone = [name for word in there.split(",") if (name := word.partition("=")[0]) and name not in kept]
        return ",".join([*filter(None, [said]), *(f"{name}=-1" for name in gone)])
    if key == "Preempt":
        return said
    if key == "Priority":
        return said or "0"
    return said or "-1"


def seconds_of(text: str) -> int | None:
    """Seconds of a number or a time as Slurm writes it ([days-]hours:minutes:seconds); None where it is neither."""
    match = _SPAN.match(text)
    if not match:
        return None
    days, a, b, c = (int(limit_value) if limit_value else 0 for limit_value in match.groups())
    if match["d"] is not None:
        return ((days * 24 + a) * 60 + b) * 60 + c
    if match["c"] is not None:
        return (a * 60 + b) * 60 + c
    return a * 60 + b if match["b"] is not None else a


_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_CLOCK = re.compile(r"(?:(?P<d>[0-9]+)-)?(?:(?P<h>[0-9]+):)?(?P<m>[0-9]+):(?P<s>[0-9]+(?:\.[0-9]+)?)")


JOURNAL = "/var/lib/hpc/controller/reconcile/journal.jsonl"
"""Journal of the reconcile loop (reconcile/loop.py) on controllers, for root alone. The one before it ends in `.1`."""


def cpu_seconds(text: str) -> float:
    """Seconds of a processor's time as sacct prints it: `1-02:03:04`, `02:03:04`, `00:04.005`; 0 for no time."""
    found = _CLOCK.fullmatch(text.strip())
    if not found:
        return 0.0
    return (int(found["d"] or 0) * 24 + int(found["h"] or 0)) * 3600 + int(found["m"]) * 60 + float(found["s"])


def tres(text: str) -> dict[str, float]:
    """Slurm's list of resources, `cpu=2,gres/gpu:a100=1,mem=2048M`: counts, sizes in bytes, times in seconds. What is
    none of these is left out."""
    found: dict[str, float] = {}
    for name, _, value in (part.rpartition("=") for part in text.split(",") if part):
        if ":" in value:
            found[name] = cpu_seconds(value)
        elif match := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMGTP]?)", value):
            found[name] = float(match[1]) * _UNITS.get(match[2], 1)
    return found


def gpus(held: dict[str, float]) -> int:
    """GPUs among resources: `gres/gpu` counts all of them, those of each type stand beside it again."""
    named = (count for name, count in held.items() if name.startswith("gres/gpu:"))
    return int(held.get("gres/gpu", 0) or sum(named))


def marked(text: str, fields: tuple[str, ...], mark: str) -> list[dict[str, str]]:
    """Rows of `sacct --parsable --delimiter=MARK`, by field. `mark` is one that nobody who gave a job its name could
    have: a name may hold anything, whole rows of other jobs too.

    Raises ValueError where the text is not of whole rows.
    """
    *cells, rest = text.split(mark)
    if len(cells) % len(fields) or rest.strip():
        raise ValueError(f"sacct printed {len(cells)} fields, not rows of {len(fields)}: {rest.strip()[:200]!r}")
    rows = (cells[at : at + len(fields)] for at in range(0, len(cells), len(fields)))
    return [dict(zip(fields, [row[0].lstrip("\n"), *row[1:]], strict=True)) for row in rows]


def json_rows(text: str) -> list[dict[str, Any]]:
    """JSON objects, one a line; what is none is left out: a line that was cut off, or that somebody else wrote."""
    found: list[dict[str, Any]] = []
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            found.append(row)
    return found


def moment(value: object) -> float | None:
    """Seconds since the epoch, of a file that root of any node may have written; None for what is no time."""
    return float(value) if isinstance(value, (int, float)) and 0 <= value < 1e11 else None


def texts(value: object) -> dict[str, str]:
    """A JSON object as texts by name; empty for what is none."""
    return {str(name): str(text) for name, text in value.items()} if isinstance(value, dict) else {}


def _minutes(text: str) -> int | None:
    return int(text) * 60 if text.isdigit() else seconds_of(text)
