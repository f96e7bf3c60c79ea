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
    """One half of a row: out of place or in place."""

    time_us: float
    algbw: float
    """GB/s."""
    busbw: float
    """GB/s."""
    wrong: int | None
    """Number of wrong elements; None if they were not checked (N/A)."""


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
class Run:
    """The output of one run of a program."""

    line: int
    """Line of the log where it begins."""
    task: str = ""
    """Label of the task that wrote it, if the log has labels (`srun --label`)."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Values of the line `# hpc:`."""
    program: str = ""
    """Name of the program, such as all_gather_perf; empty if its version does not print it."""
    settings: dict[str, str] = field(default_factory=dict)
    """Values of the line `# nThread`: iters, warmup iters, validation."""
    environment: dict[str, str] = field(default_factory=dict)
    """NCCL's variables, if NCCL_DEBUG=INFO printed them."""
    networks: set[str] = field(default_factory=set)
    """Names of the networks that NCCL uses by its own messages: Socket, IB, or a plugin's."""
    adapters: dict[str, int] = field(default_factory=dict)
    """Number of InfiniBand ports that NCCL found active, by host and by its own messages."""
    devices: list[Device] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    columns: tuple[bool, bool] | None = None
    """Whether the table has redop and root, before 2.13, when each test had its own header."""
    errors_counted: bool = True
    """True if the last column of a half counts wrong elements. Before 2.13 it was the largest difference."""
    out_of_bounds: int | None = None
    """The footer's number of wrong results; None without a footer."""
    average: float | None = None
    """The footer's average busbw of all rows, GB/s; None without a footer."""
    average_failed: bool = False
    """True if nccl-tests compared the average with NCCL_TESTS_MIN_BW and it was too low."""
    torn: list[Quote] = field(default_factory=list)
    """Lines that are no complete row, and lines that show that two programs wrote at once."""
    mixed: int = 0
    """First line with rows of two programs among each other; 0 if there is none."""
    unfinished: Quote | None = None
    """A row that the end of the log cut off."""
    complaints: list[Quote] = field(default_factory=list)
    """Warnings of NCCL and errors of Slurm, MPI and CUDA, each once."""

    @property
    def complete(self) -> bool:
        """True if the log has the footer."""
        return self.average is not None

    @property
    def hosts(self) -> tuple[str, ...]:
        """Machines, in order of their ranks."""
        return tuple(dict.fromkeys(device.host for device in self.devices))

    @property
    def nodes(self) -> int | None:
        """Number of machines, by the line `# hpc:`, else by its devices."""
        nodes = self.facts.get("nodes", "")
        return int(nodes) if re.fullmatch("[1-9][0-9]{0,6}", nodes) else len(self.hosts) or None

    @property
    def gpu(self) -> str:
        """Names of its GPUs; empty if the log does not have them."""
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
        """True if results were checked."""
        return (
            any(measure.wrong is not None for row in self.rows for measure in row.measures) or not self.errors_counted
        )

    @property
    def wrong(self) -> int:
        """Number of wrong elements in all rows."""
        return sum(measure.wrong or 0 for row in self.rows for measure in row.measures)

    def mean(self, sizes: Collection[int] | None = None) -> float | None:
        """Return the average busbw of rows of these sizes (None: of all) over both halves, as nccl-tests does."""
        return mean(
            measure.busbw for row in self.rows if sizes is None or row.size in sizes for measure in row.measures
        )

    def curve(self) -> dict[int, float]:
        """Return busbw by size: out of place, else in place; the average if a size was measured more than once."""
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
        """The run that the result is about: the last one with rows, else the last one."""
        return next((run for run in reversed(self.runs) if run.rows), self.runs[-1])


def mean(values: Iterable[float]) -> float | None:
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
    name = PurePath(program).name
    match = _PROGRAM.fullmatch(name)
    return match[1] if match else name


def possible_collectives(run: Run) -> tuple[str, ...]:
    """Return the collectives that a run can have measured, the likeliest first: by its program, the line `# hpc:`, else
    its columns."""
    if name := run.program or run.facts.get("collective"):
        return (collective_name(name),)
    by_columns = _by_columns(run) if run.rows else ()
    if run.columns is None:
        return by_columns
    by_header = _BY_HEADER[run.columns]
    return tuple(name for name in by_columns if name in by_header) or tuple(sorted(by_header))


def _by_columns(run: Run) -> tuple[str, ...]:
    """Return the possible collectives by root, operation, and the ratio busbw / algbw.

    The ratio is 2(n-1)/n for all_reduce, (n-1)/n if each rank keeps its own part, 1 if one rank has everything (GetBw
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
    """Return the number of ranks by the lines `# Rank`, else by the ratio of busbw and algbw; None if it is unknown."""
    if run.devices:
        return len({device.rank for device in run.devices})
    ratio = _ratio(run)
    factor = 2 if collective == "all_reduce" else 1
    if ratio is None or not factor - ratio > 1e-3 or collective not in {"all_reduce", "all_gather", "reduce_scatter"}:
        return None
    return round(factor / (factor - ratio))


def shows_nics(run: Run, collective: str) -> bool:
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


def _ratio(run: Run) -> float | None:
    """Return busbw / algbw of the fastest rows, which are affected least by rounding to two decimals."""
    ratios = [
        measure.busbw / measure.algbw
        for row in run.rows
        for measure in row.measures
        if measure.algbw >= 1 and math.isfinite(measure.algbw) and math.isfinite(measure.busbw)
    ]
    return statistics.median(ratios[-8:]) if ratios else None
