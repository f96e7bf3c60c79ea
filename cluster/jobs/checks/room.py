"""What each node has and what of it is free, from `scontrol --oneliner show node`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from cluster.observe.nodes import Node
from scripts.node.slurm.scontrol import rows

_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:([0-9]+)")
_GPUS_ALLOCATED = re.compile(r"(?:^|,)gres/gpu=([0-9]+)")


@dataclass(frozen=True, kw_only=True)
class Room:
    """CPUs, memory and GPUs of a node."""

    cpus: int = 0
    free_cpus: int = 0
    memory: int = 0
    """MiB."""
    free_memory: int = 0
    """MiB."""
    gpus: int = 0
    free_gpus: int = 0


def parse_rooms(text: str) -> dict[str, Room]:
    """What `scontrol --oneliner show node` prints, by the node's name."""
    return {row["NodeName"]: _room(row) for row in rows(text) if "NodeName" in row}


def _room(row: Mapping[str, str]) -> Room:
    cpus, memory = _number(row.get("CPUEfctv") or row.get("CPUTot")), _number(row.get("RealMemory"))
    gpus = sum(int(count) for count in _GPUS.findall(row.get("Gres", "")))
    used = _GPUS_ALLOCATED.search(row.get("AllocTRES", ""))
    return Room(
        cpus=cpus,
        free_cpus=max(0, cpus - _number(row.get("CPUAlloc"))),
        memory=memory,
        free_memory=max(0, memory - _number(row.get("MemSpecLimit")) - _number(row.get("AllocMem"))),
        gpus=gpus,
        free_gpus=max(0, gpus - (int(used[1]) if used else 0)),
    )


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


def why_unusable(node: Node) -> str:
    """Why a node takes no jobs at all; empty if it does."""
    # A node whose last job is only cleaned up after is soon free.
    if replace(node, states=node.states - {"COMPLETING"}).fine:
        return ""
    reason = f": {node.reason}" if node.reason else ""
    return f"{node.word}{reason}"


def why_busy(node: Node, room: Room, *, cpus: int, memory: int, gpus: int) -> str:
    """Why a job of this size can't start on a node now; empty if it can."""
    if gpus > room.gpus:
        return f"slurmctld has {room.gpus} GPUs of {node.name}"
    lacking = [
        name
        for name, free, needed in (
            ("CPU", room.free_cpus, cpus), ("memory", room.free_memory, memory), ("GPU", room.free_gpus, gpus)
        )
        if free < needed
    ]  # fmt: skip
    if not lacking:
        return ""
    numbers = ", ".join(job.number for job in node.busy)
    jobs = f"busy with job{'s' if len(node.busy) > 1 else ''} {numbers}" if numbers else "busy"
    return f"no free {' and '.join(lacking)} on {node.name}: {jobs}"
