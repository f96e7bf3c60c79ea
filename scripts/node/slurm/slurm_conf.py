"""What slurm.conf says of nodes and partitions. Pure functions of its text."""

from __future__ import annotations

import re

# What running jobs are tied to: slurmctld ends those whose node has other sockets or cores when it starts
# (job_resources.c, valid_job_resources), and hands out GPUs by number.
SHAPE = ("cpus", "boards", "sockets", "socketsperboard", "corespersocket", "threadspercore", "gres")
_BRACKETS = re.compile(r"^(.*?)\[([0-9,-]+)\](.*)$")


def nodes(text: str) -> dict[str, tuple[str, ...]]:
    """Every node of a slurm.conf as written by this set-up's cluster, with its sockets, cores, threads and GPUs."""
    found: dict[str, tuple[str, ...]] = {}
    for line in _lines(text, "nodename"):
        shape = tuple(line.get(name, "") for name in SHAPE)
        found.update(dict.fromkeys(expand(line["nodename"]), shape))
    return found


def partitions(text: str) -> set[str]:
    """The names of all partitions."""
    return {line["partitionname"] for line in _lines(text, "partitionname")}


def cluster(text: str) -> str:
    """ClusterName; empty if there is none."""
    return next((line["clustername"] for line in _lines(text, "clustername")), "")


def expand(hosts: str) -> list[str]:
    """The names that a host list stands for: `a-[0-1,3],b` is a-0, a-1, a-3, b."""
    found: list[str] = []
    for part in re.split(r",(?![^\[]*\])", hosts):
        match = _BRACKETS.match(part)
        if match is None:
            found += [part] if part else []
            continue
        for span in match.group(2).split(","):
            first, _, last = span.partition("-")
            numbers = range(int(first), int(last or first) + 1)
            found += [f"{match.group(1)}{number:0{len(first)}d}{match.group(3)}" for number in numbers]
    return found


def _lines(text: str, first: str) -> list[dict[str, str]]:
    """The lines that begin with a parameter, as its words by lower-case name."""
    rows = (
        {key.lower(): value for key, _, value in (word.partition("=") for word in line.split())}
        for line in text.split("\n")
        if line.lower().startswith(f"{first}=")
    )
    return list(rows)
