"""Logs of nccl-tests 2.13 and newer: reads its output among other lines of a job's log.

nccl-tests prints (src/common.cu, from 2.17 on src/util.cu; read at v2.13.11 and v2.19.6) a header that begins with its
version or `# nThread`, `# Using devices` and a line for each rank, the table with its header, and a footer. A row is
written in three parts, with the measurement between them, so lines of other programs (NCCL, Slurm) can be inside a row.

A job of this program writes a line before these, with facts that nccl-tests does not print. A later one adds to it:

    # hpc: machine_type=a3-megagpu-8g nodes=2 collective=all_gather job=17 date=2026-11-22T09:00:00Z

A report reads `machine_type`, `nodes`, `collective`, `over` (`fabric` if NVLink was not to be used) and `date` (UTC,
ISO 8601).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from cluster.findings import Finding, show
from cluster.printable import one_line
from cluster.report.nccl_run import Device, Measure, NcclLog, ProgramRun, Quote, SizeRow

_FACTS = re.compile(r"# hpc:(.*)")
_FACT = re.compile(r"([a-z_]+)=(\S+)")
_PREFIX = re.compile(
    r"(?:\[pod/\S+\] ?)?(?:[0-9-]{10}T[0-9:.]+Z )?(?: *[0-9]{1,6}: ?|\[[0-9]+,[0-9]+\]<std(?:out|err)>: ?)?"
)
"""A line begins with this under `kubectl logs --prefix --timestamps`, `srun --label` and `mpirun --tag-output`."""
_TYPES = "int8|uint8|char|int|int32|uint32|int64|uint64|half|float|double|bfloat16|f8e4m3|f8e5m2"
"""Names of data types (src/common.cu, test_typenames)."""
_ROW = re.compile(rf"\s*([0-9]{{1,19}})\s+([0-9]{{1,19}})\s+({_TYPES})\s+([a-z]+\s+)?(-?[0-9]{{1,9}})(?=\s|$)(.*)")
"""The beginning of a row. hypercube has no operation."""
_MEASURE = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf|nan)|N/A|[0-9:-]+")
"""A number, N/A, or the date or time of a stamp."""
_HEADER = re.compile(r"#\s+size\s+count\s+type\s+redop\s+root\s+(.*)")
_DEBUG = re.compile(r"(?:\[[^\]]*\] )?([^ ]+):[0-9]+:[0-9]+ \[-?[0-9]+\] (?:[^ ]+ ){0,2}NCCL ([A-Z]+) (.*)")
"""A line of NCCL; warnings also have file and line of its source (ncclDebugLog, src/debug.cc)."""
_NETWORK = re.compile(r"Using network (.+)")
_ADAPTERS = re.compile(r"NET/IB : Using ((?:\[[0-9]+\]\S+ ?)+)")
"""The active ports of a host, each as [0]mlx5_0:1/IB; a port that is down is left out (NVIDIA/nccl v2.30.7-1,
src/transport/net_ib/init.cc; the same form since v2.4)."""
_VARIABLE = re.compile(r"(NCCL_[A-Z0-9_]+) set by environment to (.*?)\.?$")
_IRRELEVANT = re.compile(rb"(?:[0-9]+: )?[A-Za-z][^ ]*:[0-9]+:[0-9]+ \S+ NCCL INFO (?!.*(?:Using|NCCL_))")
"""Most lines of a large log. A line that begins with a part of a row is none of them."""
_START = re.compile(r"# (nccl-tests version|Collective test starting|nThread|Using devices)(?:: (\S+))?")
_END = re.compile(r"# Collective test concluded: (\S+)")
_DEVICE = re.compile(
    r"# +Rank +([0-9]{1,9})(?: +Group +[0-9]+)? +Pid +[0-9]+ on +(\S+) device +[0-9]+ \[[^\]]*\] *(.*)"
)
_BOUNDS = re.compile(r"# Out of bounds values *: +([0-9]{1,19})")
_AVERAGE = re.compile(r"# Avg bus bandwidth *: +([0-9.]+(?:e[+-][0-9]+)?|-?nan|inf)(?: +(FAILED|OK))?$")
_COMPLAINT = re.compile(
    r"Test (?:NCCL|CUDA) failure|: Test failure |Test timeout|^# error: |srun: error:|slurmstepd(?:-\S+)?: error:|"
    r"CANCELLED|MPI_ABORT|[Ss]egmentation fault|[Bb]us error|out of memory|Out Of Memory|oom.kill|"
    r"Invalid number of GPUs|error while loading shared libraries|command not found|No such file or directory"
)
_MOST, _LONGEST, _LONGEST_LINE = 20, 300, 2**16
"""Complaints and torn lines that are kept of a run, and characters of each; bytes of a line that are read."""
_SMALL = 2**20
"""Smaller sizes can be rounded to the same number of bytes repeatedly (AllGatherGetCollByteCount)."""


class NotALogError(Exception):
    """A file has no run of nccl-tests; `finding` describes what it is."""

    def __init__(self, name: str, given: str, todo: str) -> None:
        allowed = "output of nccl-tests: a table that begins with `#  size  count  type`"
        self.finding = Finding(id="nccl-no-log", at=name, given=given, allowed=allowed, todo=todo)
        super().__init__(str(self.finding))


def read_file(path: Path | str) -> NcclLog:
    """Read a log, line by line, so that it may be large.

    Raises OSError if it can't be read, NotALogError if it has no run of nccl-tests.
    """
    with Path(path).open("rb") as file:
        if file.peek(1).startswith(b"\x1f\x8b"):  # a pipe can't be read twice
            raise NotALogError(str(path), "a file compressed by gzip", f"run `gunzip {path}`, then this command again")
        kept = ((at, raw[:_LONGEST_LINE]) for at, raw in enumerate(file, 1) if not _IRRELEVANT.match(raw))
        return _from_lines(((at, raw.decode("utf-8", "replace")) for at, raw in kept), str(path))


def read_text(text: str, name: str) -> NcclLog:
    """Read a log from a text; `name` is used in findings. Raises NotALogError."""
    return _from_lines(enumerate(text.split("\n"), 1), name)


def _from_lines(lines: Iterable[tuple[int, str]], name: str) -> NcclLog:
    reader = _Reader()
    first = ""
    for number, line in lines:
        first = first or line.strip()
        reader.line(number, line.rstrip("\r\n"))
    reader.end()
    if any(run.rows or run.devices or run.complete for run in reader.runs):
        return NcclLog(name, tuple(reader.runs))
    if complaints := [quote for run in (reader.ahead, *reader.runs) for quote in run.complaints]:
        given = f"no run of nccl-tests; line {complaints[0].line} has: {complaints[0].text}"
        raise NotALogError(name, given, "correct what that line says, and run the test again")
    given = f"a file that begins with {show(first[:_LONGEST])}" if first else "an empty file"
    todo = "name the text that nccl-tests printed, not the JSON of -J" if first.startswith("{") else "name another log"
    raise NotALogError(name, given, f"{todo}; of a job, its log or its number")


class _Reader:
    """Reads lines into `runs`. All tasks of a job are read as one: rank 0 prints for all of them."""

    def __init__(self) -> None:
        self.runs: list[ProgramRun] = []
        self.ahead = ProgramRun(line=0)
        """Complaints, networks and variables before the first line of a run."""
        self._facts: dict[str, str] = {}
        self._layout = _Layout()
        self._parts: set[str] = set()
        """Parts of the header that the current run has."""
        self._begun: _PartialRow | None = None
        """A row whose measures are not complete."""
        self._sizes: dict[tuple[str, str, int], list[int]] = {}
        """Sizes of a series of rows, by type, operation and root."""

    def line(self, number: int, text: str) -> None:
        text = _PREFIX.sub("", text, count=1)
        if debug := _DEBUG.search(text):
            self._note(number, *debug.groups())
            # A line of NCCL can follow a word of a row without a blank: `-1a3-0:4001:4100 [0] NCCL INFO`.
            hosts = self.runs[-1].hosts if self.runs else ()
            host = next((host for host in hosts if debug[1].endswith(host)), "")
            text = text[: debug.end(1) - len(host)] if host and host != debug[1] else text[: debug.start()]
        plain = text.strip()
        tokens = plain.split()
        if self._is_elision(plain):
            self.runs[-1].elided = True
        elif plain.startswith("# "):
            self._marked(number, plain)
        elif begun := _ROW.fullmatch(text):
            self._begin(number, begun)
        elif self._begun and tokens and all(map(_MEASURE.fullmatch, tokens)):
            self._begun.tokens += tokens
            self._complete()
        elif _COMPLAINT.search(plain):
            self._complain(number, plain)

    def _is_elision(self, text: str) -> bool:
        """Return whether dots stand for lines of ranks: a person's, or those with which nccl-tests ends the 2 KiB of a
        process with many GPUs (writeDeviceReport, src/util.cu at v2.19.6)."""
        among_ranks = "Using devices" in self._parts and "table" not in self._parts
        dots = "..." in text or "…" in text
        return among_ranks and dots and (text.startswith("#") or not any(map(str.isalnum, text)))

    def _marked(self, number: int, text: str) -> None:
        """Read a line that begins with #."""
        if facts := _FACTS.match(text):
            self._facts = {**self._facts, **dict(_FACT.findall(facts[1]))}
        elif found := _START.match(text):
            run = self._start(number, found[1])  # a run prints each such line once
            run.program = found[2] or run.program
        elif layout := _layout_of(text):
            self._start(number, "table")
            self._layout = layout
        elif found := _DEVICE.match(text):
            self._current(number).devices.append(Device(int(found[1]), found[2], found[3]))
        elif found := _BOUNDS.match(text):
            self._current(number).out_of_bounds = int(found[1])
        elif found := _AVERAGE.match(text):
            self._footer(number, found)
        elif found := _END.match(text):
            run = self._current(number)
            run.program = run.program or found[1]
        elif _COMPLAINT.search(text):
            self._complain(number, text)

    def _footer(self, number: int, found: "re.Match[str]") -> None:
        run = self._current(number)
        self._tear_begun()
        if run.complete:  # a second footer is of another program
            self._tear(number, found[0])
        else:
            run.average, run.average_failed = float(found[1]), found[2] == "FAILED"

    def _start(self, number: int, part: str) -> ProgramRun:
        """Return the run of a header line: the current one, or a new one if the current one has that part or rows."""
        run = self.runs[-1] if self.runs else None
        if run is None or run.complete or run.rows or self._begun or part in self._parts:
            self.end()
            self._parts, self._sizes, self._layout = set(), {}, _Layout()
            run = replace(self.ahead, line=number, facts=self._facts)
            self.ahead = ProgramRun(line=0)
            self.runs.append(run)
        self._parts.add(part)
        return run

    def _current(self, number: int) -> ProgramRun:
        return self.runs[-1] if self.runs else self._start(number, "rows")

    def _begin(self, number: int, begun: "re.Match[str]") -> None:
        if self._current(number).complete:  # rows after the footer are of another program, whose header came before it
            self._tear(number, begun[0])
            return
        self._tear_begun()
        row = SizeRow(
            int(begun[1]), int(begun[2]), begun[3], (begun[4] or "").strip(), int(begun[5]), None, None, number
        )
        self._begun = _PartialRow(self._layout, row, begun[6].split())
        self._complete()

    def _complete(self) -> None:
        if self._begun and self._begun.missing <= 0:
            self.end()

    def end(self) -> None:
        """Add the row that has begun, with the halves that are complete: the end of a log can cut one off."""
        begun, self._begun = self._begun, None
        if begun is None:
            return
        try:
            row = begun.finish()
        except (ValueError, OverflowError):
            self._tear(begun.row.line, begun.text)
            return
        if not row.measures:
            return
        sizes = self._sizes.setdefault((row.type, row.redop, row.root), [])
        repeated = bool(sizes) and row.size == sizes[-1] and row.size < _SMALL
        # Sizes grow, and begin again with the first one where the test repeats them (-N). Others are of two programs.
        if sizes and row.size <= sizes[-1] and row.size != sizes[0] and not repeated:
            self._tear(row.line, begun.text)
        sizes.append(row.size)
        self.runs[-1].rows.append(row)

    def _tear_begun(self) -> None:
        if self._begun:
            self._tear(self._begun.row.line, self._begun.text)
            self._begun = None

    def _tear(self, number: int, text: str) -> None:
        torn = self._current(number).torn
        torn += [_quote(number, text)][: _MOST - len(torn)]

    def _note(self, number: int, host: str, level: str, message: str) -> None:
        """Note what a line of NCCL says of its network and its environment."""
        run = self.runs[-1] if self.runs else self.ahead
        if level in ("WARN", "ABORT"):
            self._complain(number, f"NCCL {level} {message}")
        elif found := _NETWORK.search(message):
            run.networks.add(one_line(found[1].strip()))
        elif found := _ADAPTERS.match(message):
            run.adapters[host] = len(found[1].split())
        elif found := _VARIABLE.search(message):
            run.environment[found[1]] = one_line(found[2])

    def _complain(self, number: int, text: str) -> None:
        complaints = (self.runs[-1] if self.runs else self.ahead).complaints
        quote = _quote(number, text)
        plain = re.sub("[0-9]+", "0", quote.text)
        for at, other in enumerate(complaints):
            if re.sub("[0-9]+", "0", other.text) == plain:  # lines of different ranks only differ in numbers
                complaints[at] = other._replace(times=other.times + 1)
                return
        complaints += [quote][: _MOST - len(complaints)]


def _quote(number: int, text: str) -> Quote:
    return Quote(number, one_line(text.strip()[:_LONGEST]))


@dataclass(frozen=True)
class _Layout:
    """The columns after `root`, which depend on version and options: both halves have the same.

    | version | one half |
    |---|---|
    | from 2.13 | time algbw busbw #wrong; with -C cputime for time |
    | with copies beside (2.16 branch) | time algbw busbw copybw #wrong |
    | from 2.19, with -I 1 | time algbw busbw #wrong i_min i_max i_p99 i_cv% |

    With -S 1, from 2.17 on, a row ends with a date and a time.
    """

    half: tuple[str, ...] = ("time", "algbw", "busbw", "#wrong")
    stamped: bool = False

    def measure(self, tokens: list[str]) -> Measure:
        """Parse one half of a row. Raises ValueError, OverflowError."""
        values = dict(zip(self.half, tokens, strict=True))
        wrong = None if values["#wrong"] == "N/A" else int(float(values["#wrong"]))
        return Measure(float(tokens[0]), float(values["algbw"]), float(values["busbw"]), wrong)


def _layout_of(line: str) -> _Layout | None:
    """Return the layout of a table's header; None for any other line, and for a torn one."""
    names = tuple(header[1].split()) if (header := _HEADER.match(line)) else ()
    stamped = names[-1:] == ("timestamp",)
    names = names[: len(names) - stamped]
    half = names[: len(names) // 2]
    known = {"algbw", "busbw", "#wrong"} <= set(half) and names == half * 2
    return _Layout(half, stamped) if known else None


@dataclass
class _PartialRow:
    """A row whose measures may follow on later lines, as other programs can write between the parts of a line."""

    layout: _Layout
    row: SizeRow
    tokens: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return " ".join([f"{self.row.size} {self.row.count} {self.row.type}", *self.tokens])

    @property
    def missing(self) -> int:
        """The number of missing measures; negative if there are too many."""
        return 2 * (len(self.layout.half) + self.layout.stamped) - len(self.tokens)

    def finish(self) -> SizeRow:
        """Return the row with its complete halves. Raises ValueError, OverflowError: it is none."""
        if self.missing < 0:
            raise ValueError(self.text)
        width = len(self.layout.half)
        whole = [at for at in (0, width) if at + width <= len(self.tokens)]
        halves = [self.layout.measure(self.tokens[at : at + width]) for at in whole]
        out_of_place, in_place, *_ = [*halves, None, None]
        return replace(self.row, out_of_place=out_of_place, in_place=in_place)
