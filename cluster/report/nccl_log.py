"""Logs of nccl-tests: reads its output, as text or JSON, among other lines of a job's log.

nccl-tests prints (src/common.cu, src/util.cu) `# nThread ...`, `# Using devices` and a line for each rank, the table
with its header, and a footer of two lines. A row is written in three parts, with the measurement between them, so lines
of other programs (NCCL, Slurm) can be inside a row.

A job of this program writes a line before these, with facts that nccl-tests does not print. A later one adds to it:

    # hpc: machine_type=a3-megagpu-8g nodes=2 collective=all_gather job=17 date=2026-11-22T09:00:00Z

A report reads `machine_type`, `nodes`, `collective`, `over` (`fabric` if NVLink was not to be used) and `date` (UTC,
ISO 8601).
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from cluster.findings import Finding, show
from cluster.printable import one_line
from cluster.report.nccl_run import COLLECTIVES, Device, Measure, NcclLog, Quote, Row, Run

_MARK = "# hpc:"
_FACT = re.compile(r"([a-z_]+)=(\S+)")
_TIMES = ("time", "cputime")
_ROW = re.compile(r"\s*([0-9]{1,19})\s+([0-9]{1,19})\s+([a-z][a-z0-9_]*)(?=\s|$)(.*)", re.DOTALL)
_REDOP = re.compile(r"\s+([a-z]+)(?=\s|$)(.*)", re.DOTALL)
_ROOT = re.compile(r"\s+(-?[0-9]{1,9})(?=\s|$)(.*)", re.DOTALL)
_HEADER = re.compile(r"#\s*(size\s+count|bytes\s+N)\s+type\b")
_TYPES = frozenset("int8 uint8 char int int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2".split())
"""Names of data types (src/common.cu, test_typenames)."""
_STAMP = re.compile(
    r"\s?(?:\[?[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:]{8}(?:[.,][0-9]+)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?\]?:?|"
    r"\[[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?\])(?: |$)"
)
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\\\)")
_LABEL = re.compile(
    r" *([0-9]{1,6}): ?|\[(?:[^\]\s@]+@)?[0-9]+,([0-9]+)\]<std(?:out|err)>: ?|\[([0-9]{1,6})\] |"
    r"\[(pod/[^\]\s]+)\] ?|([A-Za-z0-9][A-Za-z0-9_.-]*): (?=[ #]|$)"
)
"""`srun --label`; `--tag-output` of Open MPI and of PRRTE (Open MPI 5); Hydra's `-prepend-rank` (MPICH, Intel MPI);
`kubectl logs --prefix`; pdsh."""
_ECHOED = re.compile(
    rf"(?:^|[\s/'\"])(({'|'.join(COLLECTIVES)})_perf\w*)['\"]?\s+-|nccl_tests\S*.*?\s-t ({'|'.join(COLLECTIVES)})\b"
)
"""The command that starts the test, in output of `set -x` or a transcript; `run_nccl_tests.sh -t NAME` is of gIB."""
_DEBUG = re.compile(r"(?:\[[^\]]*\] )?([^ ]+):[0-9]+:[0-9]+ \[-?[0-9]+\] (?:[^ ]+ ){0,2}NCCL ([A-Z]+) (.*)")
"""A line of NCCL; warnings also have file and line of its source (ncclDebugLog, src/debug.cc)."""
_NETWORK = re.compile(r"Using network (.+)")
_ADAPTERS = re.compile(r"NET/IB : Using ((?:\[[0-9]+\]\S+ ?)+)")
"""The active ports of a host, each as [0]mlx5_0:1/IB; a port that is down is left out (NVIDIA/nccl v2.30.7-1,
src/transport/net_ib/init.cc; the same form since v2.4)."""
_VARIABLE = re.compile(r"(NCCL_[A-Z0-9_]+) set by environment to (.*?)\.?$")
_START = re.compile(r"#? ?nccl-tests version|# Collective test starting: (\S+)|#? ?nThread [0-9]|# *Using devices")
_SETTING = re.compile(r"(nThread|nGpus|minBytes|maxBytes|warmup iters:|agg iters:|iters:|validation:) *([0-9]+)")
_DEVICE = re.compile(
    r"# +Rank +([0-9]{1,9})(?: +Group +[0-9]+)?(?: +Pid +[0-9]+)? on +(\S+) device +[0-9]+ \[[^\]]*\] *(.*)"
)
_BOUNDS = re.compile(r"#? ?Out of bounds values *: +([0-9]{1,19})")
_AVERAGE = re.compile(r"#? ?Avg bus bandwidth *: +(\S+)(?: +(FAILED|OK))?")
_COMPLAINT = re.compile(
    r"Test (?:NCCL|CUDA) failure|: Test failure |Test timeout|^# error: |srun: error:|slurmstepd(?:-\S+)?: error:|"
    r"CANCELLED|MPI_ABORT|[Ss]egmentation fault|[Bb]us error|out of memory|Out Of Memory|oom.kill|"
    r"Invalid number of GPUs|error while loading shared libraries|command not found|No such file or directory"
)
_MOST = 20
"""Complaints and torn lines that are kept of a run; further ones are left out."""
_LONGEST = 300
_SMALL = 2**20
"""Smaller sizes can be rounded to the same number of bytes repeatedly (AllGatherGetCollByteCount)."""
_LONGEST_LINE = 2**16
_LARGEST_JSON = 256 * 2**20
_SAMPLE = 2**12
_ALLOWED = "output of nccl-tests: a table that begins with `#  size  count  type`, or the JSON that -J writes"
_BLOCK = 2**20
_LABELLED = re.compile(rb"[0-9]+: [A-Za-z]")
_MEASURE = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf|nan)|N/A|[0-9:-]+")
"""A number, N/A, or the date or time of a stamp."""


class NotALogError(Exception):
    """A file has no run of nccl-tests; `finding` describes what it is."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        super().__init__(str(finding))


def read_file(path: Path | str) -> NcclLog:
    """Read a log, line by line, so that it may be large.

    Raises OSError if it can't be read, NotALogError if it has no run of nccl-tests.
    """
    path, name = Path(path), str(path)
    with path.open("rb") as file:
        sample = file.peek(_SAMPLE)[:_SAMPLE]  # a pipe can't be read twice
        if not sample:
            raise _not_a_log(name, "an empty file", todo="run it when the job has written something")
        if sample.startswith(b"\x1f\x8b"):
            raise _not_a_log(name, "a file compressed by gzip", todo=f"run `gunzip {name}`, then this command again")
        if sample.lstrip().startswith(b"{") and path.stat().st_size <= _LARGEST_JSON:
            return _from_json(file.read().decode("utf-8", "replace"), name)
        return _from_lines(_lines(file), name, sample.decode("utf-8", "replace"))


def read_text(text: str, name: str) -> NcclLog:
    """Read a log from a text; `name` is used in findings. Raises NotALogError."""
    if text.lstrip().startswith("{"):
        return _from_json(text, name)
    return _from_lines(enumerate(text.split("\n"), 1), name, text[:_SAMPLE])


def _lines(file: BinaryIO) -> Iterator[tuple[int, str]]:
    """Yield numbered lines without their ends. Empty lines are left out, and very long ones are cut."""
    number = 1
    while block := file.read(_BLOCK) + file.readline(_BLOCK):
        for at, raw in enumerate(block.split(b"\n"), number):
            if raw and not (b" NCCL INFO " in raw and _is_irrelevant(raw)):
                yield at, raw[:_LONGEST_LINE].decode("utf-8", "replace")
        number += block.count(b"\n")


def _is_irrelevant(raw: bytes) -> bool:
    """Return whether a line of NCCL_DEBUG=INFO can be left out. They are most of a large log, and two kinds are read.

    A line that begins with a row of nccl-tests begins with a blank, after a label if there is one.
    """
    whole = raw[:1].isalpha() or _LABELLED.match(raw)
    return bool(whole) and b"Using network " not in raw and b"NCCL_" not in raw


def _from_lines(lines: Iterable[tuple[int, str]], name: str, sample: str) -> NcclLog:
    # A carriage return in a line is of a progress bar, whose text overwrites itself.
    reader = _Reader()
    reader.read((number, piece) for number, line in lines for piece in line.strip("\r\n").split("\r"))
    if not any(run.rows or run.devices or run.settings or run.complete for run in reader.runs):
        complaints = reader.ahead.complaints or [quote for run in reader.runs for quote in run.complaints]
        if complaints:
            first = complaints[0]
            given = f"no run of nccl-tests; line {first.line} has: {first.text}"
            raise _not_a_log(name, given, todo="correct what that line says, and run the test again")
        unreadable = sum(char == "\ufffd" or (ord(char) < 32 and char not in "\t\r\n\x1b") for char in sample)
        given = "binary data" if unreadable * 20 > len(sample) else f"a file that begins with {show(sample)}"
        raise _not_a_log(name, given, todo="name the log of a job that `./hpc nccl run` started, or its number")
    return NcclLog(name, tuple(reader.runs))


def _from_json(text: str, name: str) -> NcclLog:
    try:
        document = json.loads(text)
        return NcclLog(name, (_run_of(document),))
    except json.JSONDecodeError as error:
        given = f"JSON that is not complete: {error.msg} in line {error.lineno}, column {error.colno}"
        raise _not_a_log(name, given, todo="report the text that the same run printed; it has every row") from error
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise _not_a_log(name, "JSON of another program", todo="name the file that -J wrote") from error


def _not_a_log(name: str, given: str, *, todo: str) -> NotALogError:
    return NotALogError(Finding(id="nccl-no-log", at=name, given=given, allowed=_ALLOWED, todo=todo))


class _Reader:
    """Reads lines into `runs`."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.ahead = Run(line=0)
        """Complaints, networks and variables before the first line of a run."""
        self.echoed = ""
        """Program of the last echoed command before a run."""
        self.facts: dict[str, str] = {}
        self._tasks: dict[str, _Task] = {}

    def read(self, lines: Iterable[tuple[int, str]]) -> None:
        for number, text in lines:
            self._line(number, text)
        for task in self._tasks.values():
            task.finish()
        self.runs.sort(key=lambda run: run.line)

    def _line(self, number: int, text: str) -> None:
        labels: list[str] = []
        if "\x1b" in text:
            text = _COLOUR.sub("", text)
        for _ in range(4):  # a stamp, a pod's label, a rank's label and a stamp
            if (match := _STAMP.match(text)) and match[0].strip():
                text = text[match.end() :]
            elif len(labels) < 2 and (match := _LABEL.match(text)):
                labels.append(next(label for label in match.groups() if label))
                text = text[match.end() :]
            else:
                break
        if text.startswith(_MARK):
            self.facts = {**self.facts, **dict(_FACT.findall(text[len(_MARK) :]))}
            return
        label = " ".join(labels)
        if (task := self._tasks.get(label)) is None:
            task = self._tasks[label] = _Task(label, self)
        task.line(number, text)


class _Task:
    """Reads the lines of one task, which have the same label."""

    def __init__(self, label: str, reader: _Reader) -> None:
        self._label = label
        self._reader = reader
        self._run: Run | None = None
        self._layout = _Layout()
        self._parts: set[str] = set()
        """Parts of the header that the current run has."""
        self._begun: _PartialRow | None = None
        """A row whose measures are not complete."""
        self._last: dict[tuple[str, str, int], tuple[int, int]] = {}
        """First and latest size of a series of rows, by type, operation and root."""

    def line(self, number: int, text: str) -> None:
        debug = _DEBUG.search(text) if "NCCL " in text else None
        if debug:
            self._debug(number, debug[1], debug[2], debug[3])
            # A line of NCCL can follow a word of a row without a blank: `floata3-0:4001:4100 [0] NCCL INFO`.
            host = next((host for host in (self._run.hosts if self._run else ()) if debug[1].endswith(host)), debug[1])
            text = text[: debug.end(1) - len(host) if host != debug[1] else debug.start()]
        if not text.strip():
            return
        if ("_perf" in text or "nccl_tests" in text) and (found := _ECHOED.search(text)):
            self._reader.echoed = found[1] or found[3]
        plain = text.lstrip()
        if plain[0] == "#" or plain[0].isalpha():
            self._words(number, plain)
        elif begun := _begin(text, self._layout, number):
            self._begin(number, begun)
        elif all(map(_MEASURE.fullmatch, tokens := text.split())):
            self._measures(number, tokens)
        elif _COMPLAINT.search(text):
            self._complain(number, text)

    def finish(self) -> None:
        """End the current run. A row that is not complete was cut off."""
        begun, self._begun = self._begun, None
        if begun and self._run:
            self._run.unfinished = _quote(begun.line, begun.text)
            self._add(begun)

    def _words(self, number: int, text: str) -> None:
        if found := _START.match(text):
            run = self._start(number, found[0].split(":")[0].strip("# ")[:10])
            run.program = found[1] or run.program
            run.settings.update((name.rstrip(":"), value) for name, value in _SETTING.findall(text))
        elif found := _DEVICE.match(text):
            self._current(number).devices.append(Device(int(found[1]), found[2], found[3].strip()))
        elif layout := _layout_of(text):
            run = self._start(number, "table")
            self._layout, run.errors_counted = layout, layout.counts_errors
            run.columns = None if layout.counts_errors else (layout.redop, layout.root)
        elif found := _BOUNDS.match(text):
            self._current(number).out_of_bounds = int(found[1])
        elif found := _AVERAGE.match(text):
            self._footer(number, text, found[1], failed=found[2] == "FAILED")
        elif _COMPLAINT.search(text):
            self._complain(number, text)

    def _footer(self, number: int, text: str, value: str, *, failed: bool) -> None:
        run = self._current(number)
        try:
            average = float(value)
        except ValueError:
            run.torn.append(_quote(number, text))
            return
        if run.complete:  # a second footer is of another program
            run.mixed = run.mixed or number
            run.torn.append(_quote(number, text))
            return
        self._tear_begun()  # the table ended within a row
        run.average, run.average_failed = average, failed

    def _debug(self, number: int, host: str, level: str, message: str) -> None:
        run = self._noted()
        if level in ("WARN", "ABORT"):
            self._complain(number, f"NCCL {level} {message}")
        elif level == "INFO" and (found := _NETWORK.search(message)):
            run.networks.add(one_line(found[1].strip()))
        elif level == "INFO" and (found := _ADAPTERS.match(message)):
            run.adapters[host] = len(found[1].split())
        elif level == "INFO" and (found := _VARIABLE.search(message)):
            run.environment[found[1]] = one_line(found[2])

    def _noted(self) -> Run:
        """Return the run for lines of other programs."""
        return self._run or (self._reader.runs[-1] if self._reader.runs else self._reader.ahead)

    def _start(self, number: int, part: str) -> Run:
        """Return the run of a header line: the current one, or a new one if the current one has that part or rows."""
        run = self._run
        if run is None or run.complete or run.rows or self._begun or part in self._parts:
            self.finish()
            self._parts, self._last, self._layout = set(), {}, _Layout()
            run = self._run = replace(self._reader.ahead, line=number, task=self._label, facts=self._reader.facts)
            self._reader.ahead = Run(line=0)
            run.program, self._reader.echoed = self._reader.echoed, ""
            self._reader.runs.append(run)
        self._parts.add(part)
        return run

    def _current(self, number: int) -> Run:
        return self._run or self._start(number, "rows")

    def _begin(self, number: int, begun: "_PartialRow") -> None:
        run = self._current(number)
        if run.complete:  # rows after the footer are of another program, whose header came before the footer
            run = self._start(number, "rows")
            run.mixed = number
        self._tear_begun()
        self._begun = begun
        self._complete(number)

    def _measures(self, number: int, tokens: list[str]) -> None:
        if self._begun:
            self._begun.tokens += tokens
            self._complete(number)
            return
        width, run = len(self._layout.half), self._run
        if run and run.rows and not run.complete and len(tokens) in (width, 2 * width):
            self._tear(number, " ".join(tokens))

    def _complete(self, number: int) -> None:
        begun = self._begun
        if begun and begun.missing < 0:
            self._tear(number, begun.text)
        elif begun and begun.missing == 0:
            self._begun = None
            self._add(begun)

    def _add(self, begun: "_PartialRow") -> None:
        run = self._current(begun.line)
        try:
            row = begun.row()
        except _NotARowError:
            self._tear(begun.line, begun.text)
            return
        if not row.measures:
            return
        key = row.type, row.redop, row.root
        first, last = self._last.get(key, (row.size, -1))
        repeated = row.size == last and row.size < _SMALL
        if row.size <= last and row.size != first and not repeated:
            run.mixed = run.mixed or row.line
        self._last[key] = first, row.size
        run.rows.append(row)

    def _tear_begun(self) -> None:
        if self._begun:
            self._tear(self._begun.line, self._begun.text)

    def _tear(self, number: int, text: str) -> None:
        self._begun = None
        run = self._current(number)
        if len(run.torn) < _MOST:
            run.torn.append(_quote(number, text))

    def _complain(self, number: int, text: str) -> None:
        run, quote = self._noted(), _quote(number, text)
        plain = re.sub("[0-9]+", "0", quote.text)
        for at, other in enumerate(run.complaints):
            if re.sub("[0-9]+", "0", other.text) == plain:  # lines of different ranks only differ in numbers
                run.complaints[at] = other._replace(times=other.times + 1)
                return
        if len(run.complaints) < _MOST:
            run.complaints.append(quote)


def _quote(number: int, text: str) -> Quote:
    return Quote(number, one_line(text.strip()[:_LONGEST]))


class _NotARowError(ValueError):
    """A line is not a valid row."""


@dataclass(frozen=True)
class _Layout:
    """The columns of nccl-tests' table, which depend on version and options.

    | version | columns before the measures | measures of one half |
    |---|---|---|
    | 2017 | bytes N type op or root | time (ms) algbw busbw res |
    | 2.0 to 2.12 | size count type, redop and root only where the test has them | time algbw busbw error |
    | from 2.13 | size count type redop root | time algbw busbw #wrong |
    | with copies beside (2.16 branch) | the same | time algbw busbw copybw #wrong |
    | from 2.19, with -I 1 | the same | time algbw busbw #wrong i_min i_max i_p99 i_cv% |

    Source: github.com/NVIDIA/nccl-tests, src/common.cu, from 2.17 on src/util.cu, and until 2.12 each test's own file.
    """

    redop: bool = True
    root: bool = True
    half: tuple[str, ...] = ("time", "algbw", "busbw", "#wrong")
    halves: int = 2
    """Out of place and in place; broadcast of 2017 has the first only."""
    stamped: bool = False
    """True if rows end with a date and a time."""
    scale: float = 1.0
    """Microseconds in a unit of the times."""

    @property
    def counts_errors(self) -> bool:
        return "#wrong" in self.half

    def measure(self, tokens: Sequence[str]) -> Measure:
        """Parse one half of a row."""
        values = dict(zip(self.half, tokens, strict=True))
        try:
            time = float(next(values[name] for name in _TIMES if name in values))
            wrong = values.get("#wrong", "N/A")
            count = None if wrong == "N/A" else int(float(wrong))
            return Measure(time * self.scale, float(values["algbw"]), float(values["busbw"]), count)
        except (ValueError, OverflowError) as error:
            raise _NotARowError(" ".join(tokens)) from error


def _layout_of(line: str) -> _Layout | None:
    """Return the layout of a table's header; None for any other line, and for a torn one."""
    if not _HEADER.match(line.lstrip()):
        return None
    names = line.replace("#", " ", 1).split()
    starts = [number for number, name in enumerate(names) if name in _TIMES]
    if not starts:
        return None
    starts.append(len(names) - (names[-1] == "timestamp"))
    halves = [tuple(names[start:end]) for start, end in pairwise(starts)]
    if len(set(halves)) > 1 or not {"algbw", "busbw"} <= set(halves[0]):  # a torn line
        return None
    before = names[: starts[0]]
    return _Layout(
        redop="redop" in before or "op" in before,
        root="root" in before,
        half=halves[0],
        halves=len(halves),
        stamped=names[-1] == "timestamp",
        scale=1000.0 if before[0] == "bytes" else 1.0,
    )


@dataclass
class _PartialRow:
    """A row whose measures may follow on later lines, as other programs can write between the parts of a line."""

    layout: _Layout
    size: int
    count: int
    type: str
    redop: str
    root: int
    line: int
    tokens: list[str]

    @property
    def text(self) -> str:
        return " ".join([f"{self.size} {self.count} {self.type} {self.redop} {self.root}", *self.tokens])

    @property
    def missing(self) -> int:
        """The number of missing measures; negative if there are too many."""
        return self.layout.halves * len(self.layout.half) + 2 * self.layout.stamped - len(self.tokens)

    def row(self) -> Row:
        """Return the row with its complete halves."""
        width = len(self.layout.half)
        whole = min(self.layout.halves, len(self.tokens) // width)
        halves = [self.layout.measure(self.tokens[at * width : (at + 1) * width]) for at in range(whole)]
        out_of_place, in_place, *_ = [*halves, None, None]
        return Row(self.size, self.count, self.type, self.redop, self.root, out_of_place, in_place, self.line)


def _begin(text: str, layout: _Layout, line: int) -> _PartialRow | None:
    """Return the row that begins with `text`; None if none does."""
    if not (found := _ROW.fullmatch(text)) or found[3] not in _TYPES:
        return None
    redop, root, rest = "none", -1, found[4]
    if layout.redop and (word := _REDOP.fullmatch(rest)):
        redop, rest = word[1], word[2]
    if layout.root and (number := _ROOT.fullmatch(rest)):
        root, rest = int(number[1]), number[2]
    return _PartialRow(layout, int(found[1]), int(found[2]), found[3], redop, root, line, rest.split())


def _run_of(document: Mapping[str, Any]) -> Run:
    """Return the run of the JSON that -J writes (from 2.17 on; src/util.cu, JSON_FILE_VERSION). Raises KeyError,
    TypeError or ValueError for JSON of another program."""
    config = document.get("config") or {}
    bounds, average = document.get("out_of_bounds"), document.get("average_bus_bandwidth")
    run = Run(
        line=1,
        program=PurePath(str(document["args"][0])).name,
        settings={
            "iters": str(config.get("iterations", "")),
            "warmup iters": str(config.get("warmup_iters", "")),
            "validation": str(config.get("validation", "")),
        },
        # The document has the whole environment, from which only NCCL's variables are read.
        environment=dict(re.findall(r"(?m)^(NCCL_[A-Z0-9_]+)=(.*)$", "\n".join(map(str, document.get("env") or ())))),
        devices=[
            Device(int(row["rank"]), str(row["hostname"]), str(row["device_info"])) for row in config.get("devices", ())
        ],
        rows=[_json_row(row) for row in document["results"]],
        out_of_bounds=int(bounds["count"]) if bounds else None,
        average=float(average["bandwidth"]) if average else None,
        average_failed=bool(average) and average["okay"] == "false",
    )
    run.complaints = [Quote(1, str(error)) for error in document.get("errors") or () if error]
    return run


def _json_row(row: Mapping[str, Any]) -> Row:
    return Row(
        size=int(row["size"]),
        count=int(row["count"]),
        type=str(row["type"]),
        redop=str(row["redop"]),
        root=int(str(row["root"]).strip()),
        out_of_place=_json_measure(row.get("out_of_place")),
        in_place=_json_measure(row.get("in_place")),
    )


def _json_measure(half: Mapping[str, Any] | None) -> Measure | None:
    if not half:
        return None
    time = half["time"] if "time" in half else half["cpu_time"]
    wrong = math.nan if half.get("nwrong") is None else float(half["nwrong"])  # "nan" stands as a text
    return Measure(float(time), float(half["alg_bw"]), float(half["bus_bw"]), None if math.isnan(wrong) else int(wrong))
