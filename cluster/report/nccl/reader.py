"""Reads the output of nccl-tests line by line, with whatever else a job's log has.

What nccl-tests prints (src/common.cu, src/util.cu): `# nThread ...`, `# Using devices` and a line for each rank, the
table with its header, and a footer of two lines. A row is written in three parts, with a pause for the measurement
between them, so lines of others (NCCL's own, Slurm's) can stand inside a row.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from cluster.printable import one_line
from cluster.report.nccl import header
from cluster.report.nccl.collective import COLLECTIVES
from cluster.report.nccl.layout import Layout, NotARowError, RowBegun, begin, is_measures, layout_of
from cluster.report.nccl.run import Device, Quote, Run

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
"""The command that starts the test, as `set -x` or a transcript has it; `run_nccl_tests.sh -t NAME` is Google's gIB."""
_DEBUG = re.compile(r"(?:\[[^\]]*\] )?([^ ]+):[0-9]+:[0-9]+ \[-?[0-9]+\] (?:[^ ]+ ){0,2}NCCL ([A-Z]+) (.*)")
"""NCCL's own lines, with the place in its source for a warning (ncclDebugLog, src/debug.cc)."""
_NETWORK = re.compile(r"Using network (.+)")
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
"""Complaints and torn lines that are kept of a run; of more, the first ones say enough."""
_LONGEST = 300
_SMALL = 2**20
"""Sizes below can be rounded to the same number of bytes more than once (AllGatherGetCollByteCount)."""


class Reader:
    """Lines go in; `runs` has what was found."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.ahead = Run(line=0)
        """Complaints, networks and variables that come before the first line of a run."""
        self.echoed = ""
        """Program of the last command that the log has, until a run begins."""
        self._facts: dict[str, str] = {}
        self._tasks: dict[str, _Task] = {}

    def line(self, number: int, text: str) -> None:
        """Take one line, without its end."""
        labels: list[str] = []
        if "\x1b" in text:
            text = _COLOUR.sub("", text)
        for _ in range(4):  # a stamp, a pod's label, a rank's label and a stamp
            if (found := _STAMP.match(text)) and found[0].strip():
                text = text[found.end() :]
            elif len(labels) < 2 and (found := _LABEL.match(text)):
                labels.append(next(one for one in found.groups() if one))
                text = text[found.end() :]
            else:
                break
        label = " ".join(labels)
        if text.startswith(header.MARK):
            self._facts = {**self._facts, **header.parse(text)}
            return
        if (task := self._tasks.get(label)) is None:
            task = self._tasks[label] = _Task(label, self)
        task.line(number, text)

    def facts(self) -> dict[str, str]:
        return self._facts

    def finish(self) -> None:
        """No line follows."""
        for task in self._tasks.values():
            task.finish()
        self.runs.sort(key=lambda run: run.line)


class _Task:
    """Lines with one label, in their order."""

    def __init__(self, label: str, reader: Reader) -> None:
        self._label = label
        self._reader = reader
        self._run: Run | None = None
        self._layout = Layout()
        self._seen: set[str] = set()
        """Parts of the beginning that the current run has had."""
        self._begun: RowBegun | None = None
        self._last: dict[tuple[str, str, int], tuple[int, int]] = {}
        """First and latest size of a series of rows, by type, operation and root."""

    def line(self, number: int, text: str) -> None:
        debug = _DEBUG.search(text) if "NCCL " in text else None
        if debug:
            self._debug(number, debug[2], debug[3])
            # NCCL's line can stand directly after a word of a row: `floata3-0:4001:4100 [0] NCCL INFO`.
            host = next((one for one in (self._run.hosts if self._run else ()) if debug[1].endswith(one)), debug[1])
            text = text[: debug.end(1) - len(host) if host != debug[1] else debug.start()]
        if not text.strip():
            return
        if ("_perf" in text or "nccl_tests" in text) and (found := _ECHOED.search(text)):
            self._reader.echoed = found[1] or found[3]
        plain = text.lstrip()
        if plain[0] == "#" or plain[0].isalpha():
            self._words(number, plain)
        elif begun := begin(text, self._layout, number):
            self._begin(number, begun)
        elif is_measures(tokens := text.split()):
            self._measures(number, tokens)
        elif _COMPLAINT.search(text):
            self._complain(number, text)

    def finish(self) -> None:
        """No line follows for the current run: a row that has begun is cut off."""
        begun, self._begun = self._begun, None
        if begun and self._run:
            self._run.unfinished = _quote(begun.line, _text(begun))
            self._add(begun)

    def _words(self, number: int, text: str) -> None:
        if found := _START.match(text):
            run = self._start(number, found[0].split(":")[0].strip("# ")[:10])
            run.program = found[1] or run.program
            run.settings.update((name.rstrip(":"), value) for name, value in _SETTING.findall(text))
        elif found := _DEVICE.match(text):
            self._current(number).devices.append(Device(int(found[1]), found[2], found[3].strip()))
        elif layout := layout_of(text):
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
        if run.complete:  # two programs, one of which had ended
            run.mixed = run.mixed or number
            run.torn.append(_quote(number, text))
            return
        if self._begun:  # what began a row was followed by the end of the table
            self._tear(self._begun.line, _text(self._begun))
        run.average, run.average_failed = average, failed

    def _debug(self, number: int, level: str, message: str) -> None:
        if level == "INFO":
            if found := _NETWORK.search(message):
                self._noted().networks.add(one_line(found[1].strip()))
            elif found := _VARIABLE.search(message):
                self._noted().environment[found[1]] = one_line(found[2])
        elif level in ("WARN", "ABORT"):
            self._complain(number, f"NCCL {level} {message}")

    def _noted(self) -> Run:
        """The run that lines are about which are not nccl-tests' own."""
        return self._run or (self._reader.runs[-1] if self._reader.runs else self._reader.ahead)

    def _start(self, number: int, part: str) -> Run:
        """A line of the beginning: of the current run, or of a new one if that has had it or is over."""
        run = self._run
        if run is None or run.complete or run.rows or self._begun or part in self._seen:
            self.finish()
            self._seen, self._last, self._layout = set(), {}, Layout()
            run = self._run = replace(self._reader.ahead, line=number, task=self._label, facts=self._reader.facts())
            self._reader.ahead = Run(line=0)
            run.program, self._reader.echoed = self._reader.echoed, ""
            self._reader.runs.append(run)
        self._seen.add(part)
        return run

    def _current(self, number: int) -> Run:
        return self._run or self._start(number, "rows")

    def _begin(self, number: int, begun: RowBegun) -> None:
        run = self._current(number)
        if run.complete:  # rows after the footer: of another program, whose beginning came before it
            run = self._start(number, "rows")
            run.mixed = number
        if self._begun:
            self._tear(self._begun.line, _text(self._begun))
        self._begun = begun
        self._complete(number)

    def _measures(self, number: int, tokens: list[str]) -> None:
        if not self._begun:
            width = len(self._layout.half)
            if self._run and self._run.rows and not self._run.complete and len(tokens) in (width, 2 * width):
                self._tear(number, " ".join(tokens))
            return
        self._begun.tokens += tokens
        self._complete(number)

    def _complete(self, number: int) -> None:
        begun = self._begun
        if begun and (missing := begun.missing(self._layout)) <= 0:
            if missing < 0:
                self._tear(number, _text(begun))
            else:
                self._begun = None
                self._add(begun)

    def _add(self, begun: RowBegun) -> None:
        run = self._current(begun.line)
        try:
            row = begun.row(self._layout)
        except NotARowError:
            self._tear(begun.line, _text(begun))
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

    def _tear(self, number: int, text: str) -> None:
        self._begun = None
        run = self._current(number)
        if len(run.torn) < _MOST:
            run.torn.append(_quote(number, text))

    def _complain(self, number: int, text: str) -> None:
        complaints, quote = self._noted().complaints, _quote(number, text)
        for at, one in enumerate(complaints):
            if _same(one.text, quote.text):
                complaints[at] = one._replace(times=one.times + 1)
                return
        if len(complaints) < _MOST:
            complaints.append(quote)


def _text(begun: RowBegun) -> str:
    return " ".join([f"{begun.size} {begun.count} {begun.type} {begun.redop} {begun.root}", *begun.tokens])


def _quote(number: int, text: str) -> Quote:
    return Quote(number, one_line(text.strip()[:_LONGEST]))


def _same(one: str, other: str) -> bool:
    """Whether two lines say the same of different ranks: they differ in numbers only."""
    return one == other or re.sub("[0-9]+", "0", one) == re.sub("[0-9]+", "0", other)


def read_lines(lines: Iterable[tuple[int, str]]) -> Reader:
    """Read numbered lines to their end."""
    reader = Reader()
    for number, text in lines:
        reader.line(number, text)
    reader.finish()
    return reader
