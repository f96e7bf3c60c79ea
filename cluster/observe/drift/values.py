"""What slurmctld runs with, which a hand may have changed without touching a file."""

import re
from collections.abc import Iterator, Mapping

from cluster.observe.drift.difference import Difference, Wanted
from cluster.observe.health import ClusterObservation
from cluster.slurm.hostlist import expand
from scripts.node.accounting.limits import span

_LISTS = {"nodename", "nodeset", "partitionname", "slurmctldhost", "downnodes", "frontendname", "switchname", "include"}
"""Lines of slurm.conf that describe things instead of setting a value."""
_UNLIMITED = {"unlimited", "infinite", "none", "n/a", "(null)", "(null type)", ""}


def running(wanted: Wanted, seen: ClusterObservation) -> Iterator[Difference]:
    """Parameters of slurm.conf that have another value in slurmctld."""
    config = seen.slurm("config")
    if not config:
        return
    known = {name.lower(): (name, value) for name, value in config.items()}
    for line in wanted.files["slurm.conf"].split("\n"):
        key, equals, said = line.partition("=")
        name = key.strip().lower()
        if not equals or name.startswith("#") or name in _LISTS or name not in known:
            continue
        shown, value = known[name]
        if not alike(said.strip(), value):
            yield _value(seen, f"running value of {shown}", said.strip(), value)


def partitions(wanted: Wanted, seen: ClusterObservation) -> Iterator[Difference]:
    """Partitions that are not there, are too many, or were changed with `scontrol update`."""
    found = seen.slurm("partitions")
    if found is None:
        return
    lines = [line for line in wanted.files["slurm.conf"].split("\n") if line.startswith("PartitionName=")]
    ours = {row["PartitionName"]: row for row in (dict(_words(line)) for line in lines)}
    # Not a partition, but what holds for all of them.
    ours.pop("DEFAULT", None)
    for name, row in ours.items():
        if name not in found:
            yield _value(seen, f"partition {name}", "a partition", "slurmctld does not know it")
            continue
        there: Mapping[str, str] = {key.lower(): value for key, value in found[name].items()}
        for key, said in row.items():
            value = there.get(key.lower())
            if value is not None and key.lower() != "nodes" and not alike(said, value):
                yield _value(seen, f"partition {name}: {key}", said, value)
        if there.get("state", "UP").upper() != row.get("State", "UP").upper() and "State" not in row:
            yield _value(seen, f"partition {name}: State", "UP", there["state"])
    for name in found.keys() - ours.keys():
        yield _value(seen, f"partition {name}", "no such partition", "a partition")


def nodes(wanted: Wanted, seen: ClusterObservation) -> Iterator[Difference]:
    """Nodes that slurmctld does not know, or that only slurmctld knows."""
    found = seen.slurm("nodes")
    if found is None:
        return
    for name in wanted.nodes:
        if name not in found:
            yield Difference(
                id="node-unknown",
                where=(name,),
                what=f"node {name}",
                stack="a node",
                there="slurmctld does not know it",
            )
    for name in sorted(found.keys() - set(wanted.nodes)):
        yield Difference(
            id="node-unknown", where=(name,), what=f"node {name}", stack="no such node", there="slurmctld has it"
        )


def _value(seen: ClusterObservation, what: str, stack: str, there: str) -> Difference:
    return Difference(id="value-changed", where=(seen.controller.name,), what=what, stack=stack, there=there)


def _words(line: str) -> Iterator[tuple[str, str]]:
    for word in line.split():
        key, _, value = word.partition("=")
        yield key, value


def alike(said: str, shown: str) -> bool:
    """Whether Slurm shows for `said` what it shows here: it adds units, names and what a value implies."""
    ours, theirs = _plain(said), _plain(shown)
    if ours == theirs:
        return True
    if None not in (span(ours), span(theirs)):
        return span(ours) == span(theirs)
    if "[" in ours + theirs:
        try:
            return sorted(expand(ours)) == sorted(expand(theirs))
        except ValueError:
            return False
    # AccountingStorageTRES=gres/gpu is shown with what is always counted, PrologFlags=Contain with what it implies.
    return bool(ours) and "," in theirs and set(ours.split(",")) <= set(theirs.split(","))


def _plain(text: str) -> str:
    value = text.strip().lower()
    if value in _UNLIMITED:
        return ""
    value = re.sub(r"\s+(sec|min|percent|nodes/min|mb)$", "", value)
    # slurm(64030): a user with its number.
    value = re.sub(r"\([0-9]+\)$", "", value)
    return re.sub(r"%$", "", value)
