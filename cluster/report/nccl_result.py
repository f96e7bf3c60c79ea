"""The result of a log of nccl-tests: pass, fail, or not compared, with the reasons and findings."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from cluster.catalog import MACHINE_TYPES, fabrics
from cluster.catalog.fabrics import Fabric, LineRate
from cluster.catalog.nccl import REFERENCES, Minimum, Reference, reference, references_of
from cluster.findings import Finding, Level
from cluster.printable import counted
from cluster.report.nccl_run import NcclLog, ProgramRun, Quote, format_size, shows_nics, uses_all_nics

LARGE = 256 * 2**20
"""Smallest size at which a transfer takes milliseconds, so that bandwidth matters and latency does not."""
FLOOR_NICS = 1.2
"""Bandwidth that TCP can reach, in NICs of a node: at or below it the network of the GPUs may not be in use. On A3 Mega
it is 30 GB/s, which Google's own test of the blueprint requires."""
_SLOW = 0.9
"""Share of the reference below which a plateau is too low: the guide's own rule for A3 Mega at 8 GiB."""
_SLOW_OF_LINE = 0.65
"""Share of the line rate below which bandwidth is too low. The three curves of the catalog reach 71 to 94 %."""
_MOST_OF_LINE = 1.02
"""Share of the line rate above which the NICs can't be what was measured; rounding stays below."""
_FLAT, _DROP, _SPREAD = 0.05, 0.05, 0.10
_GROWS_FROM = 8 * 2**20
"""Size below which bandwidth may fall, as NCCL uses different protocols for small sizes."""
_MOST_LINES = 5
_FINDINGS = {
    "nccl-average-differs": (Level.WARNING, "compare the log with the program's own output"),
    "nccl-average-failed": (Level.ERROR, "correct NCCL_TESTS_MIN_BW where it is for another machine type"),
    "nccl-complaints": (Level.WARNING, "read these lines in the log; the first one is the likeliest cause"),
    "nccl-drop": (Level.WARNING, "run it again while no other job uses these nodes; then compare pairs of nodes"),
    "nccl-fabric-inactive": (
        Level.ERROR, "run again with `NCCL_DEBUG=INFO`: the line `Using network` names the network that NCCL takes"),
    "nccl-nics-missing": (
        Level.ERROR, "see which port is down on these nodes (`ibstat`, `ip link`), drain them and run it again"),
    "nccl-nics-unproven": (
        Level.WARNING, "measure `all_gather`, or `all_reduce` with NCCL_ALGO=Ring and NCCL_DEBUG=INFO"),
    "nccl-no-reference": (Level.INFO, "compare it with earlier runs: `--against FOLDER`"),
    "nccl-nodes-differ": (
        Level.ERROR, "name the right number with `--nodes`, or build nccl-tests with `make MPI=1`"),
    "nccl-one-slow": (
        Level.WARNING, "measure pairs of nodes, which names the slow one: `./hpc nccl run STACK --pairs`"),
    "nccl-several-runs": (Level.INFO, "nothing, if the others are warm-ups"),
    "nccl-small-only": (Level.INFO, "run sizes up to 8 GiB (`-b 8M -e 8G -f 2`) to measure the bandwidth"),
    "nccl-torn": (
        Level.ERROR, "build nccl-tests with `make MPI=1`, or write each program's output to a file of its own"),
    "nccl-truncated": (
        Level.ERROR, "wait for the job's end, or see why it stopped: `sacct -j JOB -o State,ExitCode`, and this log"),
    "nccl-unchecked": (
        Level.INFO, "run it once with `./hpc nccl run STACK --check`, or elsewhere without `-c 0`"),
    "nccl-unsteady": (Level.WARNING, "run it again, with more iterations (`-n 200`) and no other job on these nodes"),
    "nccl-wrong-results": (
        Level.ERROR, "drain the nodes and run `dcgmi diag -r 3` on each; pairs of nodes show which one it is"),
}  # fmt: skip
"""Level and advice of each finding."""


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Options of a report, which override the log."""

    machine_type: str = ""
    nodes: int | None = None
    collective: str = ""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The circumstances of a run; empty or None if they are not known. Equal ones can be compared."""

    collective: str
    nodes: int | None
    machine_type: str
    gpu: str
    """Names of its GPUs."""
    ranks: int | None
    types: str
    """Data types of its rows."""
    network_only: bool
    """True if NVLink was not used."""
    shows_nics: bool
    """True if busbw between nodes is what their NICs carry."""
    reference: Reference | None = field(compare=False)

    @property
    def line_rate(self) -> LineRate | None:
        """The rate of a node's NICs for GPUs, if it has some and the run is on several nodes."""
        machine = MACHINE_TYPES.get(self.machine_type)
        return machine.line_rate if machine and (self.nodes or 0) > 1 else None

    @property
    def fabric(self) -> Fabric:
        """The network between GPUs of different nodes; fabrics.NONE on one node."""
        return MACHINE_TYPES[self.machine_type].family.fabric if self.line_rate else fabrics.NONE

    def __str__(self) -> str:
        nodes = "" if self.nodes is None else counted(self.nodes, "node")
        ranks = "" if self.ranks is None else counted(self.ranks, "rank")
        network = "without NVLink" if self.network_only else ""
        return ", ".join(filter(None, (self.collective, nodes, self.machine_type or self.gpu, ranks, network)))


class ReportOutcome(str, Enum):
    """The result of a report."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    NONE = "not compared"
    """A log without problems, and nothing to compare it with."""


@dataclass(frozen=True)
class NcclReason:
    """A reason for a result: a comparison or a fact."""

    text: str
    met: bool | None
    """Whether the comparison succeeded; None for a fact, and if it was not possible."""
    source: str = ""


@dataclass(frozen=True)
class NcclResult:
    """The result of a log, with reasons and findings."""

    outcome: ReportOutcome
    reasons: tuple[NcclReason, ...]
    findings: tuple[Finding, ...]
    run: ProgramRun
    subject: Subject


def describe_run(run: ProgramRun, given: ReportOptions | None = None) -> Subject:
    """Return the circumstances of a run: by options, else by the line `# hpc:`, else by the output of nccl-tests."""
    given = given or ReportOptions()
    collective = given.collective or run.collective
    machine_type = given.machine_type or run.facts.get("machine_type", "")
    nodes = given.nodes or run.nodes
    forced = all(run.environment.get(name) == "1" for name in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"))
    network_only = forced or run.facts.get("over") == "fabric"
    return Subject(
        collective=collective,
        nodes=nodes,
        machine_type=machine_type,
        gpu=run.gpu,
        ranks=run.ranks,
        types=run.types,
        network_only=network_only,
        shows_nics=shows_nics(run, collective),
        reference=reference(machine_type, collective, nodes, network_only=network_only) if nodes else None,
    )


def check(log: NcclLog, given: ReportOptions | None = None) -> NcclResult:
    """Compare the last run of a log with the reference of its machine type, collective and number of nodes."""
    run = log.last
    subject = describe_run(run, given)
    where = f"{log.name}:{run.line}"
    reasons = tuple(_reasons(run, subject))
    rows = [*_of_log(log, run), *_of_run(run, subject), *_of_curve(run, subject), *_unknown(subject)]
    findings = tuple(row.finding(where) for row in rows)
    failed = any(finding.level is Level.ERROR for finding in findings) or any(reason.met is False for reason in reasons)
    passed = any(reason.met for reason in reasons)
    outcome = ReportOutcome.FAIL if failed else ReportOutcome.PASS if passed else ReportOutcome.NONE
    return NcclResult(outcome, reasons, findings, run, subject)


class _Row(NamedTuple):
    """A finding, with a level or an advice other than those of its id."""

    id: str
    what: str
    level: Level | None = None
    todo: str = ""

    def finding(self, where: str) -> Finding:
        level, advice = _FINDINGS[self.id]
        return Finding(id=self.id, level=self.level or level, at=where, what=self.what, todo=self.todo or advice)


def _reasons(run: ProgramRun, subject: Subject) -> Iterator[NcclReason]:
    for minimum in subject.reference.minimums if subject.reference else ():
        what, busbw = _sizes_of(minimum), run.mean(minimum.sizes)
        if missing := minimum.sizes - set(run.curve()):
            which = (
                "" if missing == minimum.sizes else f" at {', '.join(format_size(size) for size in sorted(missing))}"
            )
            yield NcclReason(f"{what}: not measured{which}", None, minimum.source)
        elif busbw is not None:
            text = f"{what}: {busbw:.1f} GB/s, at least {minimum.busbw:g}"
            yield NcclReason(text, busbw >= minimum.busbw, minimum.source)
    if run.networks and subject.line_rate:
        yield NcclReason(f"network that NCCL uses: {', '.join(sorted(run.networks))}", None)
    top, rate = _best_large(run.curve()), subject.line_rate
    if top is None or rate is None or not subject.shows_nics:
        return
    share = top / rate.total
    text = f"the fastest size: {top:.1f} GB/s, {share:.0%} of the line rate of the GPUs' NICs ({rate.total:.0f} GB/s)"
    if share > _MOST_OF_LINE:
        # NVLink between machines of one rack, as GB300 has, or a wrong number of nodes.
        yield NcclReason(f"{text}: more than these carry, so something else carries it", None, rate.source)
    else:
        yield NcclReason(f"{text}, at least {_SLOW_OF_LINE:.0%}", share >= _SLOW_OF_LINE, rate.source)


def _sizes_of(minimum: Minimum) -> str:
    if minimum.low == minimum.high:
        return format_size(minimum.low)
    return f"average of {format_size(minimum.low)} to {format_size(minimum.high)}"


def _of_log(log: NcclLog, run: ProgramRun) -> Iterator[_Row]:
    """Yield findings about the log: several runs, parts of rows, an end that is missing."""
    if len(log.runs) > 1:
        lines = ", ".join(str(other.line) for other in log.runs)
        number = [other is run for other in log.runs].index(True) + 1
        yield _Row(
            "nccl-several-runs",
            f"{len(log.runs)} runs, which begin at lines {lines}. The result is about number {number}",
        )
    if run.torn:
        what = "Parts of rows, or rows of two programs among each other, so no row can be attributed"
        yield _Row("nccl-torn", f"{what}: {_cited(run.torn)}")
    if not log.runs[-1].rows:
        line = log.runs[-1].line
        yield _Row(
            "nccl-truncated", f"The last run of the log, from line {line} on, has no row: it stopped before the first"
        )
    elif not run.complete:
        last = run.rows[-1]
        what = f"the footer is missing. The last row, of {format_size(last.size)}, begins at line {last.line}"
        yield _Row("nccl-truncated", f"Truncated: {what}")
    if run.complaints:
        yield _Row("nccl-complaints", f"The log has warnings or errors: {_cited(run.complaints)}")


def _cited(quotes: list[Quote]) -> str:
    cited = (f"line {quote.line}: {quote.text}" + f" ({quote.times} times)" * (quote.times > 1) for quote in quotes)
    more = f"; and {len(quotes) - _MOST_LINES} more" if len(quotes) > _MOST_LINES else ""
    return "; ".join(list(cited)[:_MOST_LINES]) + more


def _of_run(run: ProgramRun, subject: Subject) -> Iterator[_Row]:
    """Yield findings about results, nodes and ports."""
    if run.out_of_bounds or run.wrong:
        sizes = dict.fromkeys(format_size(row.size) for row in run.rows if any(half.wrong for half in row.measures))
        what = f"{run.wrong or run.out_of_bounds} wrong elements{' at ' if sizes else ''}{', '.join(sizes)}"
        yield _Row("nccl-wrong-results", f"Wrong results: {what}. Data was corrupted on the way or in a GPU's memory")
    elif run.rows and not run.checked:
        what = "Results were not compared with what they should be (#wrong is N/A): the test ran with `-c 0`"
        yield _Row("nccl-unchecked", what)
    if run.average_failed:
        what = f"nccl-tests itself says FAILED: the average, {run.average:.1f} GB/s, is less than 90 % of "
        yield _Row("nccl-average-failed", f"{what}NCCL_TESTS_MIN_BW")
    hosts = len(run.hosts)
    # Of a run whose ranks are not all in the log, other nodes may have the rest.
    if hosts and subject.nodes and (hosts > subject.nodes or (hosts < subject.nodes and run.ranks)):
        what = f"The ranks are on {hosts} nodes, and the run is compared as one of {subject.nodes}"
        # Fewer nodes are faster than the reference. More hosts may be containers with their own host names.
        yield _Row("nccl-nodes-differ", what, Level.ERROR if hosts < subject.nodes else Level.WARNING)
    nics = subject.line_rate.nics if subject.line_rate else 0
    if few := [f"{ports} on {host}" for host, ports in sorted(run.adapters.items()) if ports < nics]:
        what = f"NCCL found fewer active ports than the {nics} of such a node: {', '.join(few)}"
        yield _Row("nccl-nics-missing", what)
    mean = run.mean()
    if run.average and mean and abs(run.average - mean) > 0.01 * max(run.average, mean) + 0.01:
        what = f"The footer's average is {run.average:.2f} GB/s, that of the rows {mean:.2f}: rows are missing"
        yield _Row("nccl-average-differs", what)


def _of_curve(run: ProgramRun, subject: Subject) -> Iterator[_Row]:
    """Yield findings about bandwidth by message size, compared with a reference or the line rate."""
    curve = run.curve()
    if run.complete and curve and (largest := max(curve)) < LARGE:
        what = f"the largest is {format_size(largest)}, so this is about latency, not bandwidth"
        yield _Row("nccl-small-only", f"Small messages only: {what}")
    if inactive := _inactive(run, subject, curve):
        todo = f"{subject.fabric.inactive}; {_FINDINGS['nccl-fabric-inactive'][1]}"
        yield _Row("nccl-fabric-inactive", f"{subject.fabric.short} not active: {inactive}", None, todo)
    elif low := _plateau(subject, curve):
        what = f"{low}. A collective runs at the pace of its slowest member: one node slow, or one of its NICs, GPUs "
        # Without a reference curve this is a guess.
        level = Level.ERROR if subject.reference and subject.reference.busbw else Level.WARNING
        yield _Row("nccl-one-slow", f"{what}or links. The log does not say which", level)
    drops = [
        f"from {busbw:.1f} GB/s at {format_size(size)} to {following:.1f} at {format_size(larger)}"
        for (size, busbw), (larger, following) in pairwise(curve.items())
        if size >= _GROWS_FROM and following < busbw * (1 - _DROP)
    ]
    if drops:
        what = f"Bandwidth falls with the size: {'; '.join(drops)}. It should grow, up to a plateau"
        yield _Row("nccl-drop", what, Level.ERROR if subject.reference else Level.WARNING)
    apart = [format_size(row.size) for row in run.rows if row.size >= LARGE and row.spread > _SPREAD]
    if len(apart) >= 2:
        what = f"Out of place and in place differ by more than {_SPREAD:.0%} at {', '.join(apart)}: something else "
        yield _Row("nccl-unsteady", f"{what}used the network or a GPU was throttled for a part of the run")


def _inactive(run: ProgramRun, subject: Subject, curve: dict[int, float]) -> str:
    """Return why the GPUs' network seems not to be in use; empty if there is no sign of that."""
    best, rate, known = _best_large(curve), subject.line_rate, subject.reference
    if rate is None:
        return ""
    if "Socket" in run.networks:
        return "NCCL says that it uses the network Socket, which is TCP through the kernel"
    if best is None:
        return ""
    if best <= FLOOR_NICS * rate.nic and uses_all_nics(subject.collective):
        beside = f"the reference has {max(known.busbw.values()):.0f} and " if known and known.busbw else ""
        return (
            f"at most {best:.1f} GB/s at large sizes, where {beside}the GPUs' NICs carry {rate.total:.0f}. "
            f"That is TCP's level ({rate.nic:.0f} GB/s by one NIC)"
        )
    if known and known.inactive and set(known.busbw) <= set(curve):
        average = run.mean(known.busbw)
        if average is not None and average < known.inactive:
            return (
                f"the average is {average:.1f} GB/s, below {known.inactive:.0f}. Large sizes are above what TCP "
                "reaches, so some NICs may be in use and others not"
            )
    return ""


def _best_large(curve: dict[int, float]) -> float | None:
    """Return the highest busbw at large sizes; None if none was measured."""
    return max((busbw for size, busbw in curve.items() if size >= LARGE), default=None)


def _plateau(subject: Subject, curve: dict[int, float]) -> str:
    """Return a sentence about a plateau that is too low; empty if there is none."""
    top = dict([(size, busbw) for size, busbw in curve.items() if size >= LARGE][-3:])
    if len(top) < 3:
        return ""
    flat = max(top.values()) - min(top.values()) <= _FLAT * max(top.values())
    level = sum(top.values()) / len(top)
    known = subject.reference.busbw if subject.reference else {}
    if common := [size for size in top if size in known]:
        share = sum(top[size] / known[size] for size in common) / len(common)
        if share < _SLOW:
            shape = "Plateau" if flat else "Large sizes are"
            return f"{shape} at {level:.0f} GB/s, {share:.0%} of the reference{_nics(share, subject)}"
    elif flat and not known and subject.line_rate and subject.shows_nics:
        share = level / subject.line_rate.total
        if share < _SLOW_OF_LINE:
            return f"Plateau at {level:.0f} GB/s, {share:.0%} of the line rate{_nics(share, subject)}"
    return ""


def _nics(share: float, subject: Subject) -> str:
    """Return the number of NICs with that share of the bandwidth; empty if it is not close to a whole number."""
    nics = subject.line_rate.nics if subject.line_rate else 0
    whole = round(share * nics)
    if nics < 2 or not 0 < whole < nics or abs(share * nics - whole) > 0.2:
        return ""
    return f", which is about what {whole} of {nics} NICs carry"


def _unknown(subject: Subject) -> Iterator[_Row]:
    """Yield findings about a collective that does not show the NICs, and a missing reference."""
    if subject.line_rate and subject.collective and not subject.shows_nics:
        why = "NCCL adds in each node first, so a half of the NICs can reach the line rate"
        why = why if uses_all_nics(subject.collective) else "each GPU sends for itself"
        yield _Row("nccl-nics-unproven", f"{subject.collective} does not show what the nodes' NICs carry: {why}")
    if subject.reference:
        return
    known = {"collective": subject.collective, "machine-type": subject.machine_type, "nodes": subject.nodes}
    if missing := [name for name, value in known.items() if not value]:
        what = f": the log does not say {' and '.join(name.replace('-', ' ') for name in missing)}"
        todo = (
            f"name it: {' '.join(f'--{name}' for name in missing)}; jobs of `./hpc nccl run` write it into their logs"
        )
    else:
        others = ", ".join(f"{row.collective} on {row.nodes}" for row in references_of(subject.machine_type))
        names = {*MACHINE_TYPES, *(row.machine_type for row in REFERENCES.values())}
        near = difflib.get_close_matches(subject.machine_type, names - {subject.machine_type})
        todo = f"run one that has one ({others})" if others else ""
        if subject.machine_type not in names and near:
            todo = f"write {' or '.join(near)} if that was meant"
        what = f" for {subject.collective} on {subject.nodes} x {subject.machine_type}"
    yield _Row("nccl-no-reference", f"No reference{what}", None, todo)
