"""Parsers of what Slurm's commands print, and limits of QOS and associations as sacctmgr takes and prints them.
Pure functions, which `./hpc` uses too."""

import json
import re
from contextlib import suppress
from typing import Any

from .times import cpu_seconds, minutes_limit

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


def split_reason(reason: str) -> tuple[str, str, str]:
    """Return a Reason's text, who gave it and when, in local time. The last two are empty where Slurm has none."""
    match = _SIGNED.match(reason)
    return (match["text"].strip(), match["by"] or "", match["at"] or "") if match else (reason, "", "")


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


PREEMPTED = "hpc: the cloud takes the machine back"
MAINTENANCE = "hpc: the cloud stops the machine to maintain its host"
CLOUD_REASONS = (PREEMPTED, MAINTENANCE)
"""Reasons of drained nodes that are resumed without a person when their machine is back."""
NO_CAPACITY, NO_MACHINE = "hpc: no capacity", "hpc: its machine is refused"
"""Beginnings of reasons of nodes that the reconcile loop has set down until it may ask for their machines again."""
JOURNAL = "/var/lib/hpc/controller/reconcile/journal.jsonl"
"""Journal of the reconcile loop (reconcile/journal.py) on controllers, for root. The one before it ends in `.1`."""
GPU_USE = "/opt/apps/adm/hpc/gpu-use.jsonl"
"""Use of GPUs by job on controllers (monitoring/gpu_use.py), one job per line, which users can read."""


TRES_LIMITS = {"MaxTRESPerJob", "MaxTRESPerUser", "MaxTRES", "GrpTRES", "GrpTRESMins"}
LIST_LIMITS = {"Preempt", "Flags"}


def same_limit(key: str, value: str, current: str) -> bool:
    """Return whether sacctmgr prints `current` for a limit that was set to `value`. An empty text is no limit."""
    if key == "Priority":
        return int(value or 0) == int(current or 0)
    if key in TRES_LIMITS:
        return _amounts(value) == _amounts(current)
    if key in LIST_LIMITS:
        return set(filter(None, value.lower().split(","))) == set(filter(None, current.lower().split(",")))
    if key == "MaxWall" and value and current:
        # A lone number is minutes here, as everywhere in sacctmgr.
        return minutes_limit(value) == minutes_limit(current)
    return value.lower() == current.lower()


def _amounts(text: str) -> dict[str, float]:
    """Return the resources of a limit. Memory without a unit is in MiB; sacctmgr prints it with one."""
    return parse_tres(re.sub(r"(^|,)mem=([0-9]+)(?=,|$)", r"\1mem=\2M", text))


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


_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}


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
    """Return the rows of `sacct_command`, by field. `mark` is a random separator, as for squeue (`jobs.command`).

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


def valid_time(value: object) -> float | None:
    """Return a value as seconds since the epoch; None if it is no time. Root of any node may have written it."""
    return float(value) if isinstance(value, (int, float)) and 0 <= value < 1e11 else None


def text_values(value: object) -> dict[str, str]:
    """Return a JSON object with its values as texts; an empty one for any other value."""
    return {str(name): str(text) for name, text in value.items()} if isinstance(value, dict) else {}
