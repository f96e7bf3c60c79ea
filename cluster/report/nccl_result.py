"""The result of a log of nccl-tests: pass, fail, or not compared, with the reasons and findings."""

import difflib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

from cluster.catalog import MACHINE_TYPES, fabrics
from cluster.catalog.fabrics import Fabric, LineRate
from cluster.catalog.machine_types import MachineType
from cluster.catalog.nccl import REFERENCES, Minimum, Reference, reference, references_of
from cluster.findings import Finding, Level
from cluster.report.nccl_run import (
    Measure,
    NcclLog,
    Quote,
    Run,
    count_ranks,
    format_size,
    possible_collectives,
    shows_nics,
    uses_all_nics,
)
from cluster.report.plot import Curve

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
_ADVICE = {
    "nccl-average-differs": "compare the log with the program's own output",
    "nccl-average-failed": "correct the cause below, or NCCL_TESTS_MIN_BW where it is for another machine type",
    "nccl-collective-assumed": "name it with `--collective` if it was another one",
    "nccl-complaints": "read these lines in the log; the first one is the likeliest cause",
    "nccl-drop": "run it again while no other job uses these nodes; if it falls again, compare pairs of nodes",
    "nccl-fabric-inactive": "run again with `NCCL_DEBUG=INFO`: the line `Using network` names the network "
    "that NCCL takes",
    "nccl-nics-missing": "see which port is down on these nodes (`ibstat`, `ip link`), drain them and run it again",
    "nccl-nics-unproven": "measure `all_gather`, or `all_reduce` with NCCL_ALGO=Ring and NCCL_DEBUG=INFO",
    "nccl-mixed": "write each program's output to a file of its own (`srun --output=%t.log`), or label the lines "
    "(`srun --label`). If one test was meant, build nccl-tests with `make MPI=1`",
    "nccl-no-reference": "compare it with earlier runs: `--against FOLDER`",
    "nccl-no-rows": "report the program's own output",
    "nccl-nodes-differ": "name the right number with `--nodes`, or see why the job did not use all its nodes",
    "nccl-one-slow": "measure pairs of nodes, which names the slow one: `./hpc nccl run STACK --pairs`",
    "nccl-runs-by-task": "build nccl-tests with `make MPI=1`, and start it with `srun --mpi`: then only task 0 prints",
    "nccl-several-runs": "nothing, if the others are warm-ups",
    "nccl-small-only": "run sizes up to 8 GiB (`-b 8M -e 8G -f 2`) to measure the bandwidth",
    "nccl-torn": "write the output of each program to a file of its own, and run the test again",
    "nccl-truncated": "if the job still runs, wait for its end. Else see why it stopped: `sacct -j JOB -o "
    "State,ExitCode`, and the errors in this log",
    "nccl-unchecked": "run it once without `-c 0` to know that the results are right",
    "nccl-unsteady": "run it again, with more iterations (`-n 200`) and no other job on these nodes",
    "nccl-wrong-results": "drain the nodes, read the kernel's log for Xid and ECC errors (`dmesg | grep -i xid`), and "
    "run `dcgmi diag -r 3` on each; run the test on pairs of nodes to see which one it is",
}
"""Advice for each finding."""
_LEVELS = {
    **dict.fromkeys(("collective-assumed", "no-reference", "several-runs", "small-only", "unchecked"), Level.INFO),
    **dict.fromkeys(
        ("average-differs", "complaints", "drop", "nics-unproven", "no-rows", "one-slow", "unsteady"), Level.WARNING
    ),
}
"""Levels of findings that are usually no errors, by id without nccl-."""


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Options of a report, which override the log."""

    machine_type: str = ""
    nodes: int | None = None
    collective: str = ""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The circumstances of a run; empty or None if they are not known."""

    machine_type: str
    gpu: str
    """Names of its GPUs."""
    types: str
    """Data types of its rows."""
    nodes: int | None
    ranks: int | None
    collective: str
    possible: tuple[str, ...]
    """The possible collectives, several if the log does not name it."""
    network_only: bool
    """True if NVLink was not used."""
    shows_nics: bool
    """True if busbw between nodes is what their NICs carry."""
    reference: Reference | None

    @property
    def machines(self) -> str:
        """The machine type, else the GPUs."""
        return self.machine_type or self.gpu

    @property
    def kind(self) -> tuple[object, ...]:
        """The facts that must be equal for two runs to be compared."""
        return (
            self.collective,
            self.nodes,
            self.ranks,
            self.machine_type,
            self.gpu,
            self.types,
            self.network_only,
            self.shows_nics,
        )

    @property
    def machine(self) -> MachineType | None:
        return MACHINE_TYPES.get(self.machine_type)

    @property
    def fabric(self) -> Fabric:
        """The network between GPUs of different nodes; fabrics.NONE on one node."""
        return self.machine.family.fabric if self.machine and self.line_rate else fabrics.NONE

    @property
    def line_rate(self) -> LineRate | None:
        """The rate of a node's NICs for GPUs, if it has some and the run is on several nodes."""
        return self.machine.line_rate if self.machine and (self.nodes or 0) > 1 else None

    def __str__(self) -> str:
        nodes = "" if self.nodes is None else "1 node" if self.nodes == 1 else f"{self.nodes} nodes"
        ranks = "" if self.ranks is None else f"{self.ranks} ranks"
        network = "without NVLink" if self.network_only else ""
        return ", ".join(part for part in (self.collective, nodes, self.machines, ranks, network) if part)


class Outcome(str, Enum):
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

    outcome: Outcome
    reasons: tuple[NcclReason, ...]
    findings: tuple[Finding, ...]
    run: Run
    subject: Subject


def describe_run(run: Run, given: ReportOptions | None = None) -> Subject:
    """Return the circumstances of a run: by options, else by the line `# hpc:`, else by the output of nccl-tests."""
    given = given or ReportOptions()
    possible = (given.collective,) if given.collective else possible_collectives(run)
    collective = possible[0] if possible else ""
    machine_type = given.machine_type or run.facts.get("machine_type", "")
    nodes = given.nodes or run.nodes
    forced = all(run.environment.get(name) == "1" for name in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"))
    network_only = forced or run.facts.get("over") == "fabric"
    return Subject(
        machine_type=machine_type,
        gpu=run.gpu,
        types=run.types,
        nodes=nodes,
        ranks=count_ranks(run, collective),
        collective=collective,
        possible=possible,
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
    findings = (
        *_log_findings(log, run, subject, where),
        *_curve_findings(run, subject, where),
        *_unknown(subject, where),
    )
    failed = any(finding.level is Level.ERROR for finding in findings) or any(reason.met is False for reason in reasons)
    passed = any(reason.met for reason in reasons)
    outcome = Outcome.FAIL if failed else Outcome.PASS if passed else Outcome.NONE
    return NcclResult(outcome, reasons, findings, run, subject)


def _reasons(run: Run, subject: Subject) -> Iterator[NcclReason]:
    for minimum in subject.reference.minimums if subject.reference else ():
        what, busbw = _sizes_of(minimum), run.mean(minimum.sizes)
        if missing := minimum.sizes - set(run.sizes):
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


def _finding(name: str, where: str, what: str, *, todo: str = "", level: Level | None = None) -> Finding:
    level = level or _LEVELS.get(name.removeprefix("nccl-"), Level.ERROR)
    return Finding(id=name, level=level, at=where, what=what, todo=todo or _ADVICE[name])


def _log_findings(log: NcclLog, run: Run, subject: Subject, where: str) -> Iterator[Finding]:
    """Yield findings about the log: cut short, two programs in one file, wrong results."""
    yield from _other_runs(log, run, where)
    if lines := [run.mixed for run in log.runs if run.mixed]:
        what = "Rows of two programs stand among each other from this line on, so no row can be attributed"
        yield _finding("nccl-mixed", f"{log.name}:{min(lines)}", what)
    if run.torn:
        what = f"Torn lines, which were left out: {_cited(run.torn)}"
        yield _finding("nccl-torn", f"{log.name}:{run.torn[0].line}", what)
    yield from _end(log, run, where)
    if run.out_of_bounds or run.wrong:
        sizes = dict.fromkeys(
            format_size(row.size) for row in run.rows if any(measure.wrong for measure in row.measures)
        )
        wrong = f"{run.wrong} wrong elements{' at ' if sizes else ''}{', '.join(sizes)}"
        what = wrong if run.wrong else f"{run.out_of_bounds} values out of bounds"
        what = f"Wrong results: {what}. Data was corrupted on the way or in a GPU's memory"
        yield _finding("nccl-wrong-results", where, what)
    elif run.rows and not run.checked:
        what = "Results were not compared with what they should be (#wrong is N/A): the test ran with `-c 0`"
        yield _finding("nccl-unchecked", where, what)
    if run.average_failed:
        what = f"nccl-tests itself says FAILED: the average, {run.average:.1f} GB/s, is less than 90 % of "
        yield _finding("nccl-average-failed", where, f"{what}NCCL_TESTS_MIN_BW")
    hosts = len(run.hosts)
    if hosts and subject.nodes and hosts != subject.nodes:
        what = f"The ranks are on {hosts} nodes, and the run is compared as one of {subject.nodes}"
        # Fewer nodes are faster than the reference. More hosts may be containers with their own host names.
        level = Level.ERROR if hosts < subject.nodes else Level.WARNING
        yield _finding("nccl-nodes-differ", where, what, level=level)
    rate = subject.line_rate
    if rate and (few := {host: ports for host, ports in run.adapters.items() if ports < rate.nics}):
        which = ", ".join(f"{ports} on {host}" for host, ports in sorted(few.items()))
        what = f"NCCL found fewer active ports than the {rate.nics} of such a node: {which}"
        yield _finding("nccl-nics-missing", where, what)
    mean = run.mean()
    if run.average and mean and abs(run.average - mean) > 0.01 * max(run.average, mean) + 0.01:
        what = f"The footer's average is {run.average:.2f} GB/s, that of the rows {mean:.2f}: rows are missing"
        yield _finding("nccl-average-differs", where, what)
    if run.complaints:
        more = f"; and {len(run.complaints) - _MOST_LINES} more" if len(run.complaints) > _MOST_LINES else ""
        what = f"The log has warnings or errors: {_cited(run.complaints)}{more}"
        yield _finding("nccl-complaints", where, what)


def _other_runs(log: NcclLog, run: Run, where: str) -> Iterator[Finding]:
    if len(log.runs) == 1:
        return
    tasks = {run.task for run in log.runs if run.task}
    if len(tasks) > 1 and run.rows:
        what = f"{len(log.runs)} runs by {len(tasks)} tasks: each task ran a test of its own"
        yield _finding("nccl-runs-by-task", where, what)
        return
    lines = ", ".join(str(run.line) for run in log.runs)
    number = [other is run for other in log.runs].index(True) + 1
    what = f"{len(log.runs)} runs, which begin at lines {lines}. The result is about number {number}"
    yield _finding("nccl-several-runs", where, what)


def _end(log: NcclLog, run: Run, where: str) -> Iterator[Finding]:
    if run is not log.runs[-1] and run.rows and not log.runs[-1].rows:
        what = "The last run of the log ends before its first row. The result is about one before it"
        todo = "see why it stopped, in the lines that follow, or report the one before in a file of its own"
        yield _finding("nccl-truncated", f"{log.name}:{log.runs[-1].line}", what, todo=todo)
    if run.complete:
        if not run.rows:
            what = "The log has the footer of a test and no row of its table: somebody has shortened it"
            yield _finding("nccl-no-rows", where, what)
        return
    if not run.rows:
        what = "The log ends before the first row: the program stopped while it connected its ranks"
    else:
        last = run.unfinished.line if run.unfinished else run.rows[-1].line
        size = format_size(run.rows[-1].size)
        what = f"Truncated: the footer is missing. The last row, of {size}, begins at line {last}"
    yield _finding("nccl-truncated", where, what)


def _cited(quotes: list[Quote]) -> str:
    lines = (
        (quote.line, quote.text, f" ({quote.times} times)" if quote.times > 1 else "") for quote in quotes[:_MOST_LINES]
    )
    return "; ".join(f"line {line}: {text}{times}" for line, text, times in lines)


def _curve_findings(run: Run, subject: Subject, where: str) -> Iterator[Finding]:
    """Yield findings about bandwidth by message size, compared with a reference or the line rate."""
    curve = run.curve()
    if not curve:
        return
    if run.complete and (largest := max(curve)) < LARGE:
        what = f"Small messages only: the largest is {format_size(largest)}, so this is about latency, not bandwidth"
        yield _finding("nccl-small-only", where, what)
    if inactive := _inactive(run, subject, curve):
        todo = f"{subject.fabric.inactive}; {_ADVICE['nccl-fabric-inactive']}"
        yield _finding("nccl-fabric-inactive", where, f"{subject.fabric.short} not active: {inactive}", todo=todo)
    elif low := _plateau(subject, curve):
        what = f"{low}. A collective runs at the pace of its slowest member: one node slow, or one of its NICs, GPUs "
        # Without a reference curve this is a guess.
        level = Level.ERROR if subject.reference and subject.reference.busbw else Level.WARNING
        yield _finding("nccl-one-slow", where, f"{what}or links. The log does not say which", level=level)
    growing = [(size, busbw) for size, busbw in curve.items() if size >= _GROWS_FROM]
    drops = [
        f"from {busbw:.1f} GB/s at {format_size(size)} to {following:.1f} at {format_size(larger)}"
        for (size, busbw), (larger, following) in pairwise(growing)
        if following < busbw * (1 - _DROP)
    ]
    if drops:
        what = f"Bandwidth falls with the size: {'; '.join(drops)}. It should grow, up to a plateau"
        yield _finding("nccl-drop", where, what, level=Level.ERROR if subject.reference else None)
    apart = [format_size(row.size) for row in run.rows if row.size >= LARGE and row.spread > _SPREAD]
    if len(apart) >= 2:
        what = f"Out of place and in place differ by more than {_SPREAD:.0%} at {', '.join(apart)}: something else "
        what += "used the network or a GPU was throttled for a part of the run"
        yield _finding("nccl-unsteady", where, what)


def _inactive(run: Run, subject: Subject, curve: dict[int, float]) -> str:
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


def _unknown(subject: Subject, where: str) -> Iterator[Finding]:
    """Yield findings about an assumed collective, about one that does not show the NICs, and a missing reference."""
    if len(subject.possible) > 1:
        what = f"The log does not name its collective; its columns fit {', '.join(subject.possible)}. It is reported "
        yield _finding("nccl-collective-assumed", where, f"{what}as {subject.collective}")
    if subject.line_rate and not subject.shows_nics:
        what = f"{subject.collective or 'This collective'} does not show what the nodes' NICs carry: "
        what += (
            "NCCL adds in each node first, so a half of the NICs can reach the line rate"
            if uses_all_nics(subject.collective)
            else "each GPU sends for itself"
        )
        yield _finding("nccl-nics-unproven", where, what)
    if subject.reference:
        return
    named, todo = subject.machine_type, ""
    if named and named not in MACHINE_TYPES and not references_of(named):
        what = f"No reference: {named!r} is no machine type of the catalog"
        if near := difflib.get_close_matches(
            named, {*MACHINE_TYPES, *(row.machine_type for row in REFERENCES.values())}
        ):
            todo = f"write {' or '.join(near)} if that was meant"
    elif not (named and subject.nodes):
        unknown = [text for text, value in (("machine type", named), ("nodes", subject.nodes)) if not value]
        what = f"No reference: the log does not say {' and '.join(unknown)}"
        todo = "name them with `--machine-type` and `--nodes`; jobs of `./hpc nccl run` write both into their logs"
    else:
        what = f"No reference for {subject.collective or 'this collective'} on {subject.nodes} x {named}"
        if known := ", ".join(f"{row.collective} on {row.nodes}" for row in references_of(named)):
            todo = f"run one that has one ({known})"
    yield _finding("nccl-no-reference", where, what, todo=todo)


# -- a result as text, as a document for programs, and as curves -------------------------------------------------------

X_LABEL, Y_LABEL = "message size", "bus bandwidth (busbw), GB/s"
_HEADING = ("size", "time us", "algbw", "busbw", "#wrong", "time us", "algbw", "busbw", "#wrong")
_MARKS = {True: "met: ", False: "not met: ", None: ""}


def report_lines(log: NcclLog, result: NcclResult, given: ReportOptions | None = None) -> list[str]:
    """Return the report as text: a table for each run, the result with its reasons, and the findings."""
    found: list[str] = []
    for number, run in enumerate(log.runs, 1):
        subject = result.subject if run is result.run else describe_run(run, given)
        place = f"run {number} of {len(log.runs)}, " if len(log.runs) > 1 else ""
        found += [f"{log.name}: {place}{subject or 'unknown'}", *table_of(run, subject), _footer(run), ""]
    found.append(f"Result: {result.outcome.value}")
    found += [f"  {_MARKS[reason.met]}{reason.text}" for reason in result.reasons]
    for finding in result.findings:
        found += ["", *finding_lines(finding)]
    return found


def table_of(run: Run, subject: Subject) -> list[str]:
    """Return the table of a run: out of place, in place, and the share of the reference if there is one."""
    reference = subject.reference.busbw if subject.reference else {}
    heading = [*_HEADING, *(("reference", "share") if reference else ())]
    rows = [heading]
    for row in run.rows:
        cells = [format_size(row.size), *_cells(row.out_of_place), *_cells(row.in_place)]
        if reference:
            expected, busbw = reference.get(row.size), row.measures[0].busbw
            cells += [f"{expected:.1f}", f"{busbw / expected:.0%}"] if expected else ["", ""]
        rows.append(cells)
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(heading))]
    drawn = ["  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)) for cells in rows]
    half = sum(widths[1:5]) + 6
    above = f"{'':{widths[0]}}  {'out of place':^{half}}  {'in place':^{half}}".rstrip()
    return [above, *(line.rstrip() for line in drawn)] if run.rows else ["no rows"]


def finding_lines(finding: Finding) -> list[str]:
    """Return a finding with its level, and what to do on a second line."""
    level = "note" if finding.level is Level.INFO else finding.level.value
    return [f"{level}: {finding.what}. [{finding.id}, {finding.where}]", f"  to do: {finding.todo}"]


def report_curves(result: NcclResult, others: Iterable[Curve] = ()) -> tuple[list[Curve], dict[float, str]]:
    """Return the curves of a run (out of place), of others and of the reference, and texts for their sizes."""
    run, reference = result.run, result.subject.reference
    curves = [Curve("this run", list(run.curve().items())), *others]
    if reference and reference.busbw:
        curves.append(Curve("reference", list(reference.busbw.items()), reference=True))
    sizes = {x for curve in curves for x, _ in curve.points}
    return curves, {size: format_size(int(size)) for size in sorted(sizes)}


def report_document(log: NcclLog, result: NcclResult) -> dict[str, Any]:
    """Return the report for JSON. Numbers that are not finite are null."""
    subject, reference = result.subject, result.subject.reference
    return {
        "file": log.name,
        "result": result.outcome.value,
        "reasons": [{"text": reason.text, "met": reason.met, "source": reason.source} for reason in result.reasons],
        "findings": [
            {
                "id": finding.id,
                "level": finding.level.value,
                "where": finding.where,
                "what": finding.what,
                "todo": finding.todo,
            }
            for finding in result.findings
        ],
        "machine_type": subject.machine_type,
        "gpu": subject.gpu,
        "nodes": subject.nodes,
        "hosts": list(result.run.hosts),
        "ranks": subject.ranks,
        "collective": subject.collective,
        "network_only": subject.network_only,
        "reference": {str(size): busbw for size, busbw in reference.busbw.items()} if reference else None,
        "last": next(number for number, run in enumerate(log.runs) if run is result.run),
        "runs": [_document(run) for run in log.runs],
    }


def _document(run: Run) -> dict[str, Any]:
    return {
        "line": run.line,
        "program": run.program,
        "facts": dict(run.facts),
        "complete": run.complete,
        "average": _finite(run.average),
        "out_of_bounds": run.out_of_bounds,
        "rows": [
            {
                **{name: getattr(row, name) for name in ("size", "count", "type", "redop", "root")},
                "out_of_place": _half(row.out_of_place),
                "in_place": _half(row.in_place),
            }
            for row in run.rows
        ],
    }


def _half(measure: Measure | None) -> dict[str, float | int | None] | None:
    return {name: _finite(value) for name, value in measure._asdict().items()} if measure else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _cells(measure: Measure | None) -> Sequence[str]:
    if measure is None:
        return ("", "", "", "")
    wrong = "N/A" if measure.wrong is None else str(measure.wrong)
    return (f"{measure.time_us:.1f}", f"{measure.algbw:.2f}", f"{measure.busbw:.2f}", wrong)


def _footer(run: Run) -> str:
    if run.average is None:
        return "no footer"
    bounds = "" if run.out_of_bounds is None else f", {run.out_of_bounds} values out of bounds"
    return f"average busbw of all rows: {run.average:g} GB/s{bounds}"
