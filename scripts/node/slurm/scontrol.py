"""What scontrol prints, as rows. Pure functions, which the stack's side uses too."""

from __future__ import annotations

import re

KEPT = (
    "State", "Reason", "CPUTot", "CPUAlloc", "RealMemory", "AllocMem", "Gres", "GresUsed", "Version", "NodeAddr",
    "BootTime", "SlurmdStartTime", "LastBusyTime", "Partitions",
)  # fmt: skip
PARTITION = (
    "Default", "MaxTime", "DefaultTime", "State", "Nodes", "TotalCPUs", "TotalNodes", "AllowAccounts", "AllowQos",
    "AllowGroups", "PriorityTier", "OverSubscribe",
)  # fmt: skip
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


def signed(reason: str) -> tuple[str, str, str]:
    """A Reason's own text, who gave it and when, in local time; the last two are empty where it is not signed."""
    found = _SIGNED.match(reason)
    return (found["text"].strip(), found["by"] or "", found["at"] or "") if found else (reason, "", "")


def nodes(text: str) -> dict[str, dict[str, str]]:
    """Every node, by name, with the fields of KEPT that `show node` has."""
    return {row["NodeName"]: {k: row[k] for k in KEPT if k in row} for row in rows(text) if "NodeName" in row}


def partitions(text: str) -> dict[str, dict[str, str]]:
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
