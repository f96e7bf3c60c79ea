"""Logs as nccl-tests prints them, by version: written from the formats of its sources, with any values.

Formats: NVIDIA/nccl-tests, src/common.cu of v2.13.11 and src/util.cu of v2.19.6.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

MIB, GIB = 2**20, 2**30
SIZES = tuple(8 * MIB << number for number in range(11))
GUIDE = (22.52, 39.24, 70.85, 86.62, 112.26, 142.56, 175.01, 181.72, 185.34, 187.19, 188.23)


class Kind(NamedTuple):
    """What a test prints beside its measures."""

    redop: str
    root: int
    shares: bool
    """Whether a row counts the elements of one rank: size / ranks."""
    factor: int
    """busbw / algbw is factor - factor / ranks, or 1 if this is 0."""
    in_place_checked: bool = True


KINDS = {
    "all_gather": Kind("none", -1, True, 1),
    "all_reduce": Kind("sum", -1, False, 2),
    "alltoall": Kind("none", -1, True, 1, in_place_checked=False),
    "broadcast": Kind("none", 0, False, 0),
    "gather": Kind("none", 0, True, 1),
    "hypercube": Kind("", -1, True, 0),
    "reduce": Kind("sum", 0, False, 0),
    "reduce_scatter": Kind("sum", -1, True, 1),
    "scatter": Kind("none", 0, True, 1),
    "sendrecv": Kind("sum", -1, False, 0, in_place_checked=False),
}


@dataclass(frozen=True)
class Cell:
    """One half of a row."""

    time: float
    algbw: float
    busbw: float
    wrong: int | None = 0


@dataclass(frozen=True)
class Line:
    """One row."""

    size: int
    count: int
    out: Cell
    inside: Cell
    type: str = "float"
    redop: str = "none"
    root: int = -1


@dataclass(frozen=True)
class Format:
    """How a version prints; `era` is middle (2.13 to 2.16) or new."""

    name: str
    era: str = "middle"
    copies: bool = False
    """With a column copybw, as the branch with copies beside has it."""
    per_iteration: bool = False
    stamped: bool = False

    def time(self, value: float) -> str:
        if self.era == "new":
            return narrow(value, 7)
        return f"{value:7.0f}" if value >= 10000 else f"{value:7.1f}" if value >= 100 else f"{value:7.2f}"

    def bandwidth(self, value: float) -> str:
        return narrow(value, 6) if self.era == "new" else f"{value:6.2f}"

    def cell(self, cell: Cell) -> str:
        if self.era == "new":
            wrong = f"{'N/A':>5}" if cell.wrong is None else f"{cell.wrong:6g}"
        else:
            wrong = f"{'N/A':>5}" if cell.wrong is None else f"{cell.wrong:5g}"
        beside = "  " + f"{12.5:6.2f}" if self.copies else ""
        gap = " " if self.copies else "  "
        more = "  ".join(["", *(f"{value:7.2f}" for value in (1.0, 2.0, 1.5, 3.25))]) if self.per_iteration else ""
        text = f"  {self.time(cell.time)}  {self.bandwidth(cell.algbw)}  {self.bandwidth(cell.busbw)}"
        return f"{text}{beside}{gap}{wrong}{more}"

    def before(self, line: Line) -> str:
        return f"{line.size:12d}  {line.count:12d}  {line.type:>8}  {line.redop:>6}  {line.root:6d}"

    def row(self, line: Line) -> str:
        stamp = f"{'2026-11-22 09:00:00':>21}" if self.stamped else ""
        return self.before(line) + self.cell(line.out) + self.cell(line.inside) + stamp

    def heading(self) -> list[str]:
        half = [
            "time",
            "algbw",
            "busbw",
            *(["copybw"] if self.copies else []),
            "#wrong",
        ]
        half += ["i_min", "i_max", "i_p99", "i_cv%"] if self.per_iteration else []
        names = ["size", "count", "type", "redop", "root", *half, *half, *(["timestamp"] if self.stamped else [])]
        units = f"# {'(B)':>10}  {'(elements)':>12}"
        return [
            "#",
            f"#{'out-of-place':>74}{'in-place':>31}",
            "# " + "  ".join(f"{name:>7}" for name in names),
            units,
        ]

    def beginning(self, collective: str, hosts: Sequence[str], per_host: int, *, check: bool) -> list[str]:
        lines = ["# nccl-tests version 2.19.6 nccl-headers=22807 nccl-library=22807"] if self.era == "new" else []
        lines += [f"# Collective test starting: {collective}_perf"] if self.era == "new" else []
        settings = "nThread 1 nGpus 1 minBytes 8388608 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 200"
        lines += [f"# {settings} agg iters: 1 validation: {int(check)} graph: 0 ", "#", "# Using devices"]
        ranks = [(host, device) for host in hosts for device in range(per_host)]
        lines += [
            f"#  Rank {rank:2d} Group  0 Pid {4000 + rank:6d} on {host:>10} device {device:2d} [0x{device:02x}] H100"
            for rank, (host, device) in enumerate(ranks)
        ]
        return lines

    def ending(self, collective: str, average: float, wrong: int) -> list[str]:
        result = "FAILED" if wrong else "OK"
        lines = [f"# Out of bounds values : {wrong} {result}", f"# Avg bus bandwidth    : {average:g} ", "#"]
        return [*lines, *([f"# Collective test concluded: {collective}_perf"] if self.era == "new" else []), ""]


FORMATS = (
    Format("2.13"),
    Format("2.16 with copies", copies=True),
    Format("2.18", era="new"),
    Format("2.18 with timestamps", era="new", stamped=True),
    Format("2.19 per iteration", era="new", per_iteration=True),
)
PLAIN = FORMATS[0]


def narrow(value: float, width: int) -> str:
    """getFloatStr of src/util.cu: as many decimals as the width has room for."""
    for decimals in (2, 1, 0):
        if len(text := f"{value:{width}.{decimals}f}") <= width:
            return text
    return f"{value:{width}.{1 if width >= 7 else 0}e}"


def measured(
    collective: str = "all_gather",
    busbw: Sequence[float] = GUIDE,
    *,
    first: int = SIZES[0],
    ranks: int = 16,
    check: bool = True,
    in_place: float = 1.0,
) -> list[Line]:
    """Rows for sizes that double, with times and algbw that fit busbw."""
    kind = KINDS[collective]
    factor = kind.factor - kind.factor / ranks if kind.factor else 1.0
    lines = []
    for number, value in enumerate(busbw):
        size = first << number
        algbw = value / factor
        cell = Cell(size / algbw / 1e3 if algbw else 0.0, algbw, value, 0 if check else None)
        inside = replace(cell, time=cell.time / in_place, algbw=cell.algbw * in_place, busbw=cell.busbw * in_place)
        if not kind.in_place_checked:
            inside = replace(inside, wrong=None)
        count = size // 4 // (ranks if kind.shares else 1)
        lines.append(Line(size, count, cell, inside, redop=kind.redop, root=kind.root))
    return lines


def log(
    collective: str = "all_gather",
    lines: Sequence[Line] | None = None,
    *,
    form: Format = PLAIN,
    hosts: Sequence[str] = ("a3-0", "a3-1"),
    per_host: int = 8,
    check: bool = True,
    facts: str = "",
) -> str:
    """A whole log."""
    lines = measured(collective, ranks=len(hosts) * per_host, check=check) if lines is None else lines
    cells = [cell for line in lines for cell in (line.out, line.inside)]
    average = sum(cell.busbw for cell in cells) / max(1, len(cells))
    wrong = sum(cell.wrong or 0 for cell in cells)
    return "\n".join(
        [
            *([f"# hpc: {facts}"] if facts else []),
            *form.beginning(collective, hosts, per_host, check=check),
            *form.heading(),
            *(form.row(line) for line in lines),
            *form.ending(collective, average, wrong),
        ]
    )


A3_MEGA = "machine_type=a3-megagpu-8g nodes=2 collective=all_gather"
