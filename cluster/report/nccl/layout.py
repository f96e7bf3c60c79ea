"""Columns of nccl-tests' table, which differ by version and by option.

| version | columns before the measures | measures of one half |
|---|---|---|
| 2017 | bytes N type op or root | time (ms) algbw busbw res |
| 2.0 to 2.12 | size count type, redop and root only where the test has them | time algbw busbw error |
| from 2.13 | size count type redop root | time algbw busbw #wrong |
| with copies beside (2.16 branch) | the same | time algbw busbw copybw #wrong |
| from 2.19, with -I 1 | the same | time algbw busbw #wrong i_min i_max i_p99 i_cv% |

Source: github.com/NVIDIA/nccl-tests, src/common.cu, from 2.17 on src/util.cu, and until 2.12 each test's own file.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from cluster.report.nccl.run import Measure, Row

_TIMES = ("time", "cputime")
_ROW = re.compile(r"\s*([0-9]{1,19})\s+([0-9]{1,19})\s+([a-z][a-z0-9_]*)(?=\s|$)(.*)", re.DOTALL)
_REDOP = re.compile(r"\s+([a-z]+)(?=\s|$)(.*)", re.DOTALL)
_ROOT = re.compile(r"\s+(-?[0-9]{1,9})(?=\s|$)(.*)", re.DOTALL)
_HEADER = re.compile(r"#\s*(size\s+count|bytes\s+N)\s+type\b")
TYPES = frozenset("int8 uint8 char int int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2".split())
"""Names of data types (src/common.cu, test_typenames)."""


class NotARowError(ValueError):
    """A line that should be a row, and is not."""


@dataclass(frozen=True)
class Layout:
    """Which columns a table has."""

    redop: bool = True
    root: bool = True
    half: tuple[str, ...] = ("time", "algbw", "busbw", "#wrong")
    halves: int = 2
    """Out of place and in place; broadcast of 2017 has the first only."""
    stamped: bool = False
    """Whether rows end with a date and a time."""
    scale: float = 1.0
    """Microseconds of one unit of its times."""

    @property
    def counts_errors(self) -> bool:
        return "#wrong" in self.half

    def measure(self, tokens: Sequence[str]) -> Measure:
        """One half of a row."""
        values = dict(zip(self.half, tokens, strict=True))
        try:
            time, algbw, busbw = (float(values[name]) for name in (self._time, "algbw", "busbw"))
            wrong = values.get("#wrong", "N/A")
            return Measure(time * self.scale, algbw, busbw, None if wrong == "N/A" else int(float(wrong)))
        except (ValueError, OverflowError) as error:
            raise NotARowError(" ".join(tokens)) from error

    @property
    def _time(self) -> str:
        return next(name for name in self.half if name in _TIMES)


def layout_of(line: str) -> Layout | None:
    """The layout that a table's header describes; None for another line, or a torn one."""
    if not _HEADER.match(line.lstrip()):
        return None
    names = line.replace("#", " ", 1).split()
    starts = [at for at, name in enumerate(names) if name in _TIMES]
    if not starts:
        return None
    starts.append(len(names) - (names[-1] == "timestamp"))
    halves = [tuple(names[one:other]) for one, other in pairwise(starts)]
    if len(set(halves)) > 1 or not {"algbw", "busbw"} <= set(halves[0]):  # a torn line
        return None
    before = names[: starts[0]]
    return Layout(
        redop="redop" in before or "op" in before,
        root="root" in before,
        half=halves[0],
        halves=len(halves),
        stamped=names[-1] == "timestamp",
        scale=1000.0 if before[0] == "bytes" else 1.0,
    )


@dataclass
class RowBegun:
    """A row whose measures may still be missing: other programs can write between the parts of a line."""

    size: int
    count: int
    type: str
    redop: str
    root: int
    line: int
    tokens: list[str]

    def missing(self, layout: Layout) -> int:
        """How many measures are still to come; negative where there are too many."""
        return layout.halves * len(layout.half) + 2 * layout.stamped - len(self.tokens)

    def row(self, layout: Layout) -> Row:
        """The row with the halves that are complete."""
        width = len(layout.half)
        whole = min(layout.halves, len(self.tokens) // width)
        halves = [layout.measure(self.tokens[at * width : (at + 1) * width]) for at in range(whole)]
        out_of_place, in_place, *_ = [*halves, None, None]
        return Row(self.size, self.count, self.type, self.redop, self.root, out_of_place, in_place, self.line)


def begin(text: str, layout: Layout, line: int) -> RowBegun | None:
    """The row that `text` begins, with what it has of it; None where it begins none."""
    if not (found := _ROW.fullmatch(text)) or found[3] not in TYPES:
        return None
    redop, root, rest = "none", -1, found[4]
    if layout.redop and (word := _REDOP.fullmatch(rest)):
        redop, rest = word[1], word[2]
    if layout.root and (number := _ROOT.fullmatch(rest)):
        root, rest = int(number[1]), number[2]
    return RowBegun(int(found[1]), int(found[2]), found[3], redop, root, line, rest.split())


def is_measures(tokens: Sequence[str]) -> bool:
    """Whether all tokens could be measures: numbers, N/A, and the date and time of a stamp."""
    return bool(tokens) and all(_is_number(one) or one == "N/A" or re.fullmatch(r"[0-9:-]+", one) for one in tokens)


def _is_number(token: str) -> bool:
    try:
        float(token)
    except ValueError:
        return False
    return True
