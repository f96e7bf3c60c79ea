"""One run of a test, as its log has it."""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Measure(NamedTuple):
    """One half of a row: out of place, or in place."""

    time_us: float
    algbw: float
    """GB/s."""
    busbw: float
    """GB/s."""
    wrong: int | None
    """Wrong elements; None where the check was not run (N/A)."""


@dataclass(frozen=True)
class Row:
    """One message size of a run."""

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
        return tuple(one for one in (self.out_of_place, self.in_place) if one)


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
    """What one program wrote."""

    line: int
    """Line of the log where it begins."""
    task: str = ""
    """Label of the task that wrote it, where the log has labels (`srun --label`)."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Keys of the log's own header."""
    program: str = ""
    """Name of the program, such as all_gather_perf; empty where its version does not print it."""
    settings: dict[str, str] = field(default_factory=dict)
    """What the line `# nThread` has: iters, warmup iters, validation."""
    environment: dict[str, str] = field(default_factory=dict)
    """NCCL's variables, where NCCL_DEBUG=INFO printed them."""
    networks: set[str] = field(default_factory=set)
    """Names of the networks that NCCL said it uses: Socket, IB, or a plugin's."""
    devices: list[Device] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    columns: tuple[bool, bool] | None = None
    """Whether the table has redop and root, where each test has a header of its own: before 2.13."""
    errors_counted: bool = True
    """Whether the last column of a half counts wrong elements. Before 2.13 it was the largest difference."""
    out_of_bounds: int | None = None
    """From the footer: how many results were wrong. None without a footer."""
    average: float | None = None
    """From the footer: average busbw of all rows, GB/s. None without a footer."""
    average_failed: bool = False
    """Whether nccl-tests compared the average with NCCL_TESTS_MIN_BW and it was too low."""
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
        """Whether its footer is there."""
        return self.average is not None

    @property
    def hosts(self) -> tuple[str, ...]:
        """Machines, in order of their ranks."""
        return tuple(dict.fromkeys(one.host for one in self.devices))

    @property
    def nodes(self) -> int | None:
        """Number of machines, by its own header, else by its devices."""
        given = self.facts.get("nodes", "")
        return int(given) if re.fullmatch("[1-9][0-9]{0,6}", given) else len(self.hosts) or None

    @property
    def gpu(self) -> str:
        """Names of its GPUs; empty where the log does not have them."""
        return ", ".join(sorted({one.name for one in self.devices if one.name}))

    @property
    def types(self) -> str:
        """Data types of its rows."""
        return ", ".join(sorted({row.type for row in self.rows}))

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(sorted({row.size for row in self.rows if row.size > 0}))

    @property
    def checked(self) -> bool:
        """Whether any result was compared with what it should be."""
        return any(one.wrong is not None for row in self.rows for one in row.measures) or not self.errors_counted

    @property
    def wrong(self) -> int:
        """Wrong elements in all rows."""
        return sum(one.wrong or 0 for row in self.rows for one in row.measures)

    def mean(self, sizes: Collection[int] | None = None) -> float | None:
        """Average busbw of rows of these sizes (None: of all), both halves, as nccl-tests averages."""
        return mean(one.busbw for row in self.rows if sizes is None or row.size in sizes for one in row.measures)

    def curve(self) -> dict[int, float]:
        """Size -> busbw: out of place, else in place; the average where a size was measured more than once."""
        found: dict[int, list[float]] = {}
        for row in self.rows:
            if row.size > 0 and row.measures and math.isfinite(row.measures[0].busbw):
                found.setdefault(row.size, []).append(row.measures[0].busbw)
        return {size: sum(values) / len(values) for size, values in sorted(found.items())}


@dataclass(frozen=True)
class Log:
    """All runs of a log, in the order in which they begin."""

    name: str
    runs: tuple[Run, ...]

    @property
    def last(self) -> Run:
        """The run that a result is about: the last one with rows, else the last one."""
        return next((run for run in reversed(self.runs) if run.rows), self.runs[-1])


def mean(values: Iterable[float]) -> float | None:
    """Average of the finite ones."""
    finite = [one for one in values if math.isfinite(one)]
    return sum(finite) / len(finite) if finite else None


def text_of(size: int) -> str:
    """A size as nccl-tests' options have it, in binary units: 8 MiB."""
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return _rounded(size)


def _rounded(size: int) -> str:
    """A size that is no whole number of a unit, with one decimal."""
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.1f} {unit}"
    return f"{size} B"
