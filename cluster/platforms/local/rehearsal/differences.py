"""What Slurm's files say in a rehearsal and not in production, or the other way round."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cluster.catalog.parameters import CONF, NODE, PARTITION
from cluster.config.cluster import ClusterConfig
from cluster.platforms.local.address_plan import plan
from cluster.slurm.files import render

_ADDRESSES = "local machines have fixed addresses"
WHY: Mapping[str, str] = {
    "SlurmctldHost": _ADDRESSES,
    "NodeAddr": _ADDRESSES,
    "SlurmdParameters": "a local machine stands for a larger one",
    "TaskPlugin": "local machines share the host's cores",
    "ConstrainCores": "local machines share the host's cores",
    "JobAcctGatherType": "which cgroup controllers can be read depends on the host",
}
"""Reasons that are the same in every rehearsal."""
COUNT = "the rehearsal has another number of nodes"
_MANY = ("NodeName", "NodeSet", "PartitionName", "SwitchName")
"""Parameters that begin a line of several, of which a file has many."""
_ASSIGNMENT = re.compile(r'([^\s=]+)=("[^"]*"|\S*)')


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One setting of one line."""

    file: str
    key: str
    """Which line, by the keys of `lines`."""
    line: str
    """What begins the line, with its name where a file has many such lines: `NodeName=a3mega-gpu-[0-3]`."""
    name: str
    production: str | None
    """None where production's line does not have it."""
    here: str | None
    why: str

    def __str__(self) -> str:
        whose = "" if self.line.partition("=")[0] == self.name else f" of {self.line}"
        here = f"{self.name} not set" if self.here is None else f"{self.name}={self.here}"
        there = "where production has none" if self.production is None else f"where production has {self.production}"
        return f"{self.file}: {here}{whose}, {there}: {self.why}"


def differences(
    production: ClusterConfig, local: ClusterConfig, *, addresses: Mapping[str, str] | None = None
) -> list[Difference]:
    """Every setting that differs, in the files' order. `addresses` are production's, where its slurm.conf has some."""
    there, here = render(production, addresses or None), render(local, plan(local).of)
    return [found for file in here for found in _of_file(file, lines(there[file]), lines(here[file]), local)]


def lines(text: str) -> dict[str, dict[str, str]]:
    """The lines of a file of Slurm's without its comments: the settings of each, by a key of its own."""
    seen: Counter[str] = Counter()
    found: dict[str, dict[str, str]] = {}
    for line in text.split("\n"):
        if line.startswith("#") or not line.strip():
            continue
        settings = dict(_ASSIGNMENT.findall(line))
        first = next(iter(settings))
        # Nodes may be fewer here, and then named otherwise; nodesets and partitions come in the same order.
        found[f"{first}/{seen[first]}" if first in _MANY else first] = settings
        seen[first] += 1
    return found


def _of_file(
    file: str, there: Mapping[str, Mapping[str, str]], here: Mapping[str, Mapping[str, str]], local: ClusterConfig
) -> Iterator[Difference]:
    for key in dict.fromkeys([*there, *here]):
        ours, theirs = here.get(key, {}), there.get(key, {})
        first = next(iter(ours or theirs))
        line = f"{first}={(ours or theirs)[first]}" if key != first else first
        for name in dict.fromkeys([*theirs, *ours]):
            if ours.get(name) != theirs.get(name):
                yield Difference(
                    file=file,
                    key=key,
                    line=line,
                    name=name,
                    production=theirs.get(name),
                    here=ours.get(name),
                    why=_why(first, name, local),
                )


def _why(first: str, name: str, local: ClusterConfig) -> str:
    table = {"NodeName": NODE, "PartitionName": PARTITION}.get(first, CONF)
    release, known = local.slurm_version, table.canonical(name)
    if known and release not in table.versions(known):
        return f"Slurm {release}, which local machines run, does not know it"
    return WHY.get(name, COUNT)
