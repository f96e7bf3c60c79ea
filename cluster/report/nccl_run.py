"""A run of nccl-tests: its rows, its machines, and which collective it measured."""

import math
import re
import statistics
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
_BY_HEADER = {
    (False, False): {"all_gather", "hypercube", "sendrecv"},
    (True, False): {"all_reduce", "alltoall", "reduce_scatter"},
    (False, True): {"broadcast", "gather", "scatter"},
    (True, True): {"reduce"},
}
"""Collectives by the columns redop and root of tables before 2.13 (github.com/NVIDIA/nccl-tests at 8274cb4)."""
_RING = {"all_gather", "reduce_scatter", "broadcast", "reduce"}
_PROGRAM = re.compile(r"(.+?)_perf(?:_.*)?(?:\.exe)?")


class Measure(NamedTuple):
    """A half of a row: out of place, or in place."""

    time_us: float
    algbw: float
    """GB/s."""
    busbw: float
    """GB/s."""
    wrong: int | None
    """Wrong elements; None where the check was not run (N/A)."""


@dataclass(frozen=True)
class Row:
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
        """The share by which the halves differ in time."""
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
class Run:
    """The output of one run of a program."""

    line: int
    """Line of the log where it begins."""
    task: str = ""
    """Label of the task that wrote it, where the log has labels (`srun --label`)."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Keys of the log's own header."""
    program: str = ""
    """Name of the program, such as all_gather_perf; empty where its version does not print it."""
    settings: dict[str, str] = field(default_factory=dict)
    """Values of the line `# nThread`: iters, warmup iters, validation."""
    environment: dict[str, str] = field(default_factory=dict)
    """NCCL's variables, where NCCL_DEBUG=INFO printed them."""
    networks: set[str] = field(default_factory=set)
    """Names of the networks that NCCL said it uses: Socket, IB, or a plugin's."""
    devices: list[Device] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    columns: tuple[bool, bool] | None = None
    """True if the table has redop and root, where each test has a header of its own: before 2.13."""
    errors_counted: bool = True
    """True if the last column of a half counts wrong elements. Before 2.13 it was the largest difference."""
    out_of_bounds: int | None = None
    """The footer's number of wrong results. None without a footer."""
    average: float | None = None
    """The footer's average busbw of all rows, GB/s. None without a footer."""
    average_failed: bool = False
    """True if nccl-tests compared the average with NCCL_TESTS_MIN_BW and it was too low."""
    torn: list[Quote] = field(default_factory=list)
    """Lines that are no whole row, and what shows that two programs wrote at once."""
    mixed: int = 0
    """First line that shows rows of two programs among each other; 0 where there is none."""
    unfinished: Quote | None = None
    """A row that the end of the log cut off."""
    complaints: list[Quote] = field(default_factory=list)
    """Warnings of NCCL and errors of Slurm, MPI and CUDA, each once."""

    @property
    def complete(self) -> bool:
        """True if the footer is there."""
        return self.average is not None

    @property
    def hosts(self) -> tuple[str, ...]:
        """Machines, in order of their ranks."""
        return tuple(dict.fromkeys(device.host for device in self.devices))

    @property
    def nodes(self) -> int | None:
        """Number of machines, by its own header, else by its devices."""
        given = self.facts.get("nodes", "")
        return int(given) if re.fullmatch("[1-9][0-9]{0,6}", given) else len(self.hosts) or None

    @property
    def gpu(self) -> str:
        """Names of its GPUs; empty where the log does not have them."""
        return ", ".join(sorted({device.name for device in self.devices if device.name}))

    @property
    def types(self) -> str:
        """Data types of its rows."""
        return ", ".join(sorted({row.type for row in self.rows}))

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(sorted({row.size for row in self.rows if row.size > 0}))

    @property
    def checked(self) -> bool:
        """True if any result was compared with what it should be."""
        return (
            any(measure.wrong is not None for row in self.rows for measure in row.measures) or not self.errors_counted
        )

    @property
    def wrong(self) -> int:
        """Wrong elements in all rows."""
        return sum(measure.wrong or 0 for row in self.rows for measure in row.measures)

    def mean(self, sizes: Collection[int] | None = None) -> float | None:
        """Average busbw of rows of these sizes (None: of all), both halves, as nccl-tests averages."""
        return mean(
            measure.busbw for row in self.rows if sizes is None or row.size in sizes for measure in row.measures
        )

    def curve(self) -> dict[int, float]:
        """Size -> busbw: out of place, else in place; the average where a size was measured more than once."""
        found: dict[int, list[float]] = {}
        for row in self.rows:
            if row.size > 0 and row.measures and math.isfinite(row.measures[0].busbw):
                found.setdefault(row.size, []).append(row.measures[0].busbw)
        return {size: sum(values) / len(values) for size, values in sorted(found.items())}


@dataclass(frozen=True)
class NcclLog:
    """The runs of a log, in the order in which they begin."""

    name: str
    runs: tuple[Run, ...]

    @property
    def last(self) -> Run:
        """The run that a result is about: the last one with rows, else the last one."""
        return next((run for run in reversed(self.runs) if run.rows), self.runs[-1])


def mean(values: Iterable[float]) -> float | None:
    """Average of the finite ones."""
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else None


def format_size(size: int) -> str:
    """A size as nccl-tests' options have it, in binary units: 8 MiB; with one decimal where it is no whole number."""
    units = [(1 << shift, unit) for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")) if size >= 1 << shift]
    whole = next((f"{size // of} {unit}" for of, unit in units if size % of == 0), "")
    return whole or next((f"{size / of:.1f} {unit}" for of, unit in units), f"{size} B")


def collective_name(program: str) -> str:
    """`all_gather` of all_gather_perf or /usr/bin/all_gather_perf_mpi; the name itself of another program."""
    name = PurePath(program).name
    found = _PROGRAM.fullmatch(name)
    return found[1] if found else name


def possible_collectives(run: Run) -> tuple[str, ...]:
    """Collectives that a run can be about, the likeliest first: by its program, the log's header, else its columns."""
    if named := run.program or run.facts.get("collective"):
        return (collective_name(named),)
    found = _by_columns(run) if run.rows else ()
    if run.columns is None:
        return found
    had = _BY_HEADER[run.columns]
    return tuple(name for name in found if name in had) or tuple(sorted(had))


def _by_columns(run: Run) -> tuple[str, ...]:
    """Find the collective by root, operation, and busbw / algbw.

    The latter is 2(n-1)/n for all_reduce, (n-1)/n where each rank keeps its own part, 1 where one has everything (GetBw
    of each test).
    """
    row, ratio = run.rows[-1], _ratio(run)
    if ratio is None:
        return COLLECTIVES
    if ratio > 1.005:
        return ("all_reduce",)
    parts, reduces = ratio < 0.995, row.redop not in ("none", "")
    if row.root >= 0:
        return ("reduce",) if reduces else ("scatter", "gather") if parts else ("broadcast",)
    if reduces:  # sendrecv prints an operation too, and with two ranks all_reduce has the ratio 1
        return ("reduce_scatter",) if parts else ("all_reduce", "sendrecv")
    if not parts:
        return ("hypercube", "sendrecv")
    in_place_unchecked = run.errors_counted and run.checked and row.in_place is not None and row.in_place.wrong is None
    return ("alltoall", "alltoallv") if in_place_unchecked else ("all_gather", "alltoall", "alltoallv")


def count_ranks(run: Run, collective: str) -> int | None:
    """Number of ranks: of the lines `# Rank`, else by the ratio of busbw and algbw; None if neither says it."""
    if run.devices:
        return len({device.rank for device in run.devices})
    ratio = _ratio(run)
    factor = 2 if collective == "all_reduce" else 1
    if ratio is None or not factor - ratio > 1e-3 or collective not in {"all_reduce", "all_gather", "reduce_scatter"}:
        return None
    return round(factor / (factor - ratio))


def is_limited_by_nics(collective: str) -> bool:
    """Return whether its busbw can't be above what a node's NICs carry; trees and NVLink SHARP can be in all_reduce."""
    return collective in _RING


def is_limited_by_node(collective: str) -> bool:
    """Return whether its busbw is what all NICs of a node carry together. In the others each GPU sends for itself:
    their busbw comes down to one NIC's, and that is what a node without the GPUs' network reaches as well."""
    return is_limited_by_nics(collective) or collective == "all_reduce"


def _ratio(run: Run) -> float | None:
    """busbw / algbw of the fastest rows, whose two decimals matter least."""
    ratios = [
        measure.busbw / measure.algbw
        for row in run.rows
        for measure in row.measures
        if measure.algbw >= 1 and math.isfinite(measure.algbw) and math.isfinite(measure.busbw)
    ]
    return statistics.median(ratios[-8:]) if ratios else None
