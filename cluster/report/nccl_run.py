"""A run of nccl-tests: its rows, its machines, and which collective it measured."""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import NamedTuple

COLLECTIVES = (
    "all_gather",
    "all_reduce",
    "alltoall",
    "alltoallv",
    "broadcast",
    "gather",
    "hypercube",
    "reduce",
    "reduce_scatter",
    "scatter",
    "sendrecv",
)
"""Tests of nccl-tests (src/Makefile), by the names of their programs without _perf."""
_RING = {"all_gather", "reduce_scatter", "broadcast", "reduce"}


class Measure(NamedTuple):
    """One half of a row: out of place or in place."""

    time_us: float
    algbw: float
    """GB/s."""
    busbw: float
    """GB/s."""
    wrong: int | None
    """Number of wrong elements; None if they were not checked (N/A)."""


@dataclass(frozen=True)
class SizeRow:
    """A message size of a run."""

    size: int
    """Bytes."""
    count: int
    """Elements."""
    type: str
    redop: str
    root: int
    out_of_place: Measure | None
    in_place: Measure | None
    line: int = 0
    """Line of the log where it begins."""

    @property
    def measures(self) -> tuple[Measure, ...]:
        return tuple(half for half in (self.out_of_place, self.in_place) if half)

    @property
    def spread(self) -> float:
        """Relative difference between the times of the halves."""
        times = [half.time_us for half in self.measures]
        return (max(times) - min(times)) / max(times) if len(times) == 2 and max(times) > 0 else 0.0


class Device(NamedTuple):
    """A rank and its GPU."""

    rank: int
    host: str
    name: str


class Quote(NamedTuple):
    """A line of the log that a report repeats."""

    line: int
    text: str
    times: int = 1


@dataclass(kw_only=True)
class ProgramRun:
    """The output of one run of a program."""

    line: int
    """Line of the log where it begins."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Values of the line `# hpc:`."""
    program: str = ""
    """Name of the program, such as all_gather_perf; empty if its version does not print it."""
    environment: dict[str, str] = field(default_factory=dict)
    """NCCL's variables, if NCCL_DEBUG=INFO printed them."""
    networks: set[str] = field(default_factory=set)
    """Names of the networks that NCCL uses by its own messages: Socket, IB, or a plugin's."""
    adapters: dict[str, int] = field(default_factory=dict)
    """Number of InfiniBand ports that NCCL found active, by host and by its own messages."""
    devices: list[Device] = field(default_factory=list)
    elided: bool = False
    """True if dots stand for some of its devices."""
    rows: list[SizeRow] = field(default_factory=list)
    out_of_bounds: int | None = None
    """The footer's number of wrong results; None without a footer. It is 0 if results were not checked."""
    average: float | None = None
    """The footer's average busbw of all rows, GB/s; None without a footer."""
    average_failed: bool = False
    """True if nccl-tests compared the average with NCCL_TESTS_MIN_BW and it was too low."""
    torn: list[Quote] = field(default_factory=list)
    """Lines that are no complete row, and rows among which those of another program stand."""
    complaints: list[Quote] = field(default_factory=list)
    """Warnings of NCCL and errors of Slurm, MPI and CUDA, each once."""

    @property
    def complete(self) -> bool:
        """True if the log has the footer."""
        return self.average is not None

    @property
    def collective(self) -> str:
        """The collective by its program, else by the line `# hpc:`; empty if the log does not name it."""
        return collective_name(self.program or self.facts.get("collective", ""))

    @property
    def hosts(self) -> tuple[str, ...]:
        """Machines, in order of their ranks."""
        return tuple(dict.fromkeys(device.host for device in self.devices))

    @property
    def nodes(self) -> int | None:
        """Number of machines, by the line `# hpc:`, else by its devices; None if the log does not show it."""
        nodes = self.facts.get("nodes", "")
        return int(nodes) if re.fullmatch("[1-9][0-9]{0,6}", nodes) else len(self.hosts) if self.ranks else None

    @property
    def ranks(self) -> int | None:
        """Number of ranks; None if the log does not have the lines of all."""
        ranks = {device.rank for device in self.devices}
        return len(ranks) if ranks == set(range(len(ranks))) and ranks and not self.elided else None

    @property
    def gpu(self) -> str:
        """Names of its GPUs; empty if the log does not have them."""
        return ", ".join(sorted({device.name for device in self.devices if device.name}))

    @property
    def types(self) -> str:
        """Data types of its rows."""
        return ", ".join(sorted({row.type for row in self.rows}))

    @property
    def measures(self) -> list[Measure]:
        return [measure for row in self.rows for measure in row.measures]

    @property
    def checked(self) -> bool:
        """True if results were checked."""
        return any(measure.wrong is not None for measure in self.measures)

    @property
    def wrong(self) -> int:
        """Number of wrong elements in all rows."""
        return sum(measure.wrong or 0 for measure in self.measures)

    def mean(self, sizes: Collection[int] | None = None) -> float | None:
        """Return the average busbw of rows of these sizes (None: of all) over both halves, as nccl-tests does."""
        return _mean(half.busbw for row in self.rows if sizes is None or row.size in sizes for half in row.measures)

    def curve(self) -> dict[int, float]:
        """Return busbw by size: out of place, else in place; the average if a size was measured more than once."""
        found: dict[int, list[float]] = {}
        for row in self.rows:
            if row.size > 0 and row.measures:
                found.setdefault(row.size, []).append(row.measures[0].busbw)
        means = {size: _mean(values) for size, values in sorted(found.items())}
        return {size: mean for size, mean in means.items() if mean is not None}


@dataclass(frozen=True)
class NcclLog:
    """The runs of a log, in the order in which they begin."""

    name: str
    runs: tuple[ProgramRun, ...]

    @property
    def last(self) -> ProgramRun:
        """The run that the result is about: the last one with rows, else the last one."""
        return next((run for run in reversed(self.runs) if run.rows), self.runs[-1])


def _mean(values: Iterable[float]) -> float | None:
    """Return the average of the finite values; None without any."""
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else None


def format_size(size: int) -> str:
    """Return a size in binary units: 8 MiB; with one decimal if it is not a whole number of any."""
    units = [(1 << shift, unit) for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")) if size >= 1 << shift]
    whole = next((f"{size // factor} {unit}" for factor, unit in units if size % factor == 0), "")
    return whole or next((f"{size / factor:.1f} {unit}" for factor, unit in units), f"{size} B")


def collective_name(program: str) -> str:
    """Return `all_gather` for all_gather_perf and /usr/bin/all_gather_perf_mpi; for another program its name."""
    return PurePath(program).name.partition("_perf")[0]


def shows_nics(run: ProgramRun, collective: str) -> bool:
    """Return whether busbw between nodes is what their NICs carry.

    With all_reduce it is so in a ring only. NCCL takes trees or NVLSTree by itself, which reduce inside each node
    first: on two nodes NVLSTree has twice the bandwidth of the NICs (NVIDIA/nccl v2.30.7-1, src/graph/tuning.cc,
    interBw; NVIDIA/nccl-tests issues 196 and 309: 117 % of the line rate), so that a half of them passes for all.
    """
    ring = run.environment.get("NCCL_ALGO", "").lower() == "ring"
    return collective in _RING or (collective == "all_reduce" and ring)


def uses_all_nics(collective: str) -> bool:
    """Return whether busbw is at least the bandwidth of all NICs of a node together. In other collectives each GPU
    sends for itself, so that busbw is that of one NIC, which a node without the GPUs' network reaches as well."""
    return collective in _RING or collective == "all_reduce"
