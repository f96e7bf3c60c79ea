"""Nodes and jobs as slurmctld sees them, from `scontrol --oneliner show node` and `squeue`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from cluster.printable import one_line
from cluster.slurm.hostlist import expand
from cluster.slurm.node_states import InStates, parse
from scripts.node.slurm.output import rows, signed

NODES = "scontrol --oneliner --all show node"
_FIELDS = ("%i", "%u", "%T", "%M", "%L", "%N", "%j")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job that holds nodes."""

    number: str
    """The number that squeue shows: 7, 7_2, 7+1."""
    user: str
    state: str
    elapsed: str
    left: str
    """The time until its limit, [days-]hours:minutes:seconds or UNLIMITED."""
    name: str
    nodes: tuple[str, ...] = ()

    @property
    def running(self) -> bool:
        """True if the node still has something to lose; one that is completing is over."""
        return self.state != "COMPLETING"

    def __str__(self) -> str:
        left = "no time limit" if self.left == "UNLIMITED" else f"{self.left} left"
        return (
            f"job {self.number} ({one_line(self.name)}) of {self.user}: {self.state.lower()} for {self.elapsed}, {left}"
        )


@dataclass(frozen=True, kw_only=True)
class Node(InStates):
    """A node as slurmctld sees it."""

    name: str
    states: frozenset[str]
    reason: str = ""
    by: str = ""
    since: str = ""
    """The time of the reason, in the controller's local time."""
    started: str = ""
    """The start of its slurmd, as registered."""
    jobs: tuple[Job, ...] = field(default=())

    @classmethod
    def of(cls, name: str, row: Mapping[str, str]) -> "Node":
        """A node from its fields as scontrol prints them."""
        reason, by, since = signed(row.get("Reason", ""))
        return cls(
            name=name,
            states=parse(row.get("State", "UNKNOWN")),
            reason=reason,
            by=by,
            since=since,
            started=row.get("SlurmdStartTime", ""),
        )

    @property
    def since_utc(self) -> float | None:
        """`since` in seconds since the epoch, where the row was printed in UTC, as those of an observation are."""
        try:
            return datetime.fromisoformat(self.since).replace(tzinfo=timezone.utc).timestamp()
        except ValueError:
            return None

    @property
    def busy(self) -> tuple[Job, ...]:
        return tuple(job for job in self.jobs if job.running)


def jobs_asked(mark: str) -> str:
    """The line that asks for jobs that hold nodes, `mark` behind every field.

    A job's name may hold anything, line ends and whole rows of other jobs among it: so the mark is one that nobody
    could know who gave a name, generated for every call. (Slurm of Debian 12 prints JSON of all jobs or of none, and
    each release in another form.)
    """
    columns = "".join(f"{column}{mark}" for column in _FIELDS)
    return f"squeue --noheader --all --states=running,completing,suspended,stopped --format='{columns}'"


def parse_jobs(text: str, mark: str) -> list[Job]:
    """Parse the output of squeue for `jobs_asked`."""
    cells, width = text.split(mark)[:-1], len(_FIELDS)
    found: list[Job] = []
    for at in range(0, len(cells) - width + 1, width):
        row = dict(zip(("number", "user", "state", "elapsed", "left", "nodes", "name"), cells[at:], strict=False))
        number, nodes = row.pop("number").lstrip("\n"), tuple(expand(row.pop("nodes")))
        found.append(Job(number=number, nodes=nodes, **row))
    return found


def parse_nodes(text: str, jobs: Sequence[Job] = ()) -> dict[str, Node]:
    """Parse the output of NODES, by name and in slurmctld's order, with the jobs on each."""
    found = (Node.of(row["NodeName"], row) for row in rows(text) if "NodeName" in row)
    return {node.name: replace(node, jobs=tuple(job for job in jobs if node.name in job.nodes)) for node in found}


def chosen(given: Iterable[str], nodes: Mapping[str, Node], cluster: str) -> tuple[list[Node], list[str]]:
    """The nodes that host lists name, with or without the cluster's name in front, and the names that are of none."""
    found: dict[str, Node] = {}
    unknown: list[str] = []
    for text in given:
        for name in expand(text):
            whole = next((full for full in (name, f"{cluster}-{name}") if full in nodes), None)
            if whole:
                found[whole] = nodes[whole]
            elif name not in unknown:
                unknown.append(name)
    return list(found.values()), unknown
