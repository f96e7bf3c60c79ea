"""Which collective a run is about: nccl-tests print it from July 2025 on, and before that the columns allow a few."""

import math
import re
import statistics
from pathlib import PurePath

from cluster.report.nccl.run import Run

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
"""By the columns redop and root of tables before 2.13 (github.com/NVIDIA/nccl-tests at 8274cb4, each test's file)."""
_RING = {"all_gather", "reduce_scatter", "broadcast", "reduce"}
_PROGRAM = re.compile(r"(.+?)_perf(?:_.*)?(?:\.exe)?")


def collective_of(program: str) -> str:
    """`all_gather` of all_gather_perf or /usr/bin/all_gather_perf_mpi; the name itself of another program."""
    name = PurePath(program).name
    found = _PROGRAM.fullmatch(name)
    return found[1] if found else name


def candidates(run: Run) -> tuple[str, ...]:
    """Collectives that a run can be about, the likeliest first: by its program, the log's header, else its columns."""
    if named := run.program or run.facts.get("collective"):
        return (collective_of(named),)
    found = _by_columns(run) if run.rows else ()
    if run.columns is None:
        return found
    had = _BY_HEADER[run.columns]
    return tuple(one for one in found if one in had) or tuple(sorted(had))


def _by_columns(run: Run) -> tuple[str, ...]:
    """By root, operation, and busbw / algbw.

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


def ranks_of(run: Run, collective: str) -> int | None:
    """Number of ranks: of the lines `# Rank`, else by the ratio of busbw and algbw; None if neither says it."""
    if run.devices:
        return len({one.rank for one in run.devices})
    ratio = _ratio(run)
    factor = 2 if collective == "all_reduce" else 1
    if ratio is None or not factor - ratio > 1e-3 or collective not in {"all_reduce", "all_gather", "reduce_scatter"}:
        return None
    return round(factor / (factor - ratio))


def is_ring(collective: str) -> bool:
    """Whether its busbw can't be above what a node's NICs carry; trees and NVLink SHARP can be in all_reduce."""
    return collective in _RING


def is_of_nodes(collective: str) -> bool:
    """Whether its busbw is what all NICs of a node carry together. In the others each GPU sends for itself: their busbw
    comes down to one NIC's, and that is what a node without the GPUs' network reaches as well."""
    return is_ring(collective) or collective == "all_reduce"


def _ratio(run: Run) -> float | None:
    """busbw / algbw of the fastest rows, whose two decimals matter least."""
    ratios = [
        one.busbw / one.algbw
        for row in run.rows
        for one in row.measures
        if one.algbw >= 1 and math.isfinite(one.algbw) and math.isfinite(one.busbw)
    ]
    return statistics.median(ratios[-8:]) if ratios else None
