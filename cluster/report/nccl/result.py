"""Pass, fail, or not compared, with the reasons."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from cluster.catalog import MACHINE_TYPES
from cluster.catalog.nccl_references import REFERENCES, Minimum, references_of
from cluster.findings import Finding, Level
from cluster.report.nccl.collective import is_of_nodes
from cluster.report.nccl.curve_findings import FLOOR_NICS, SLOW_OF_LINE, best_large, curve_findings
from cluster.report.nccl.log_findings import log_findings
from cluster.report.nccl.run import Log, Run, text_of
from cluster.report.nccl.subject import Given, Subject, subject_of


class Word(str, Enum):
    """What a report ends with."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    NONE = "not compared"
    """Nothing is wrong in the log, and there is nothing to compare it with."""


@dataclass(frozen=True)
class Reason:
    """One comparison."""

    text: str
    met: bool | None
    """None where it can't be compared, or is only a fact."""
    source: str = ""


@dataclass(frozen=True)
class Result:
    """The answer to one log."""

    word: Word
    reasons: tuple[Reason, ...]
    findings: tuple[Finding, ...]
    run: Run
    subject: Subject


def check(log: Log, given: Given | None = None) -> Result:
    """Compare the last run of a log with the reference of its machine type, collective and number of nodes."""
    run = log.last
    subject = subject_of(run, given)
    where = f"{log.name}:{run.line}"
    reasons = tuple(_reasons(run, subject))
    findings = [
        *log_findings(log, run, subject),
        *curve_findings(run, subject, where),
        *_unknown(subject, where),
    ]
    failed = any(one.level is Level.ERROR for one in findings) or any(one.met is False for one in reasons)
    passed = any(one.met for one in reasons)
    word = Word.FAIL if failed else Word.PASS if passed else Word.NONE
    return Result(word, reasons, tuple(findings), run, subject)


def _reasons(run: Run, subject: Subject) -> Iterator[Reason]:
    sizes, compared = run.sizes, False
    for minimum in subject.reference.minimums if subject.reference else ():
        what = _what(minimum)
        if missing := minimum.sizes - set(sizes):
            which = "" if missing == minimum.sizes else f" at {', '.join(text_of(one) for one in sorted(missing))}"
            yield Reason(f"{what}: not measured{which}", None, minimum.source)
        elif (busbw := run.mean(minimum.sizes)) is not None:
            compared = True
            yield Reason(
                f"{what}: {busbw:.1f} GB/s, at least {minimum.busbw:g}", busbw >= minimum.busbw, minimum.source
            )
    if run.networks and subject.line_rate:
        yield Reason(f"network that NCCL uses: {', '.join(sorted(run.networks))}", None)
    top, rate = best_large(run.curve()), subject.line_rate
    if top is None or rate is None or not is_of_nodes(subject.collective):
        return
    share = top / rate.total
    text = f"most: {top:.1f} GB/s, {share:.0%} of the line rate of the GPUs' NICs ({rate.total:.0f} GB/s)"
    # A minimum decides where there is one. Else what is fast enough for most NICs passes, what one NIC carries fails,
    # and nothing is known of what is between.
    met = True if share >= SLOW_OF_LINE else False if top <= FLOOR_NICS * rate.nic else None
    yield (
        Reason(text, None, rate.source)
        if compared
        else Reason(f"{text}, at least {SLOW_OF_LINE:.0%}", met, rate.source)
    )


def _what(minimum: Minimum) -> str:
    if minimum.low == minimum.high:
        return text_of(minimum.low)
    return f"average of {text_of(minimum.low)} to {text_of(minimum.high)}"


def _unknown(subject: Subject, where: str) -> Iterator[Finding]:
    """What would have to be known to compare, and what was assumed."""
    if len(subject.possible) > 1:
        yield Finding(
            id="nccl-collective-assumed",
            level=Level.INFO,
            at=where,
            what=f"The log does not name its collective; its columns fit {', '.join(subject.possible)}. It is reported "
            f"as {subject.collective}",
            todo="name it with `--collective` if it was another one",
        )
    if subject.reference:
        return
    named = subject.machine_type
    if named and named not in MACHINE_TYPES and not references_of(named):
        near = difflib.get_close_matches(named, {*MACHINE_TYPES, *(row.machine_type for row in REFERENCES.values())})
        what = f"No reference: {named!r} is no machine type of the catalog"
        todo = (
            f"write {' or '.join(near)} if that was meant"
            if near
            else "compare it with earlier runs: `--against FOLDER`"
        )
    elif not (named and subject.nodes):
        unknown = [name for name, one in (("machine type", subject.machine_type), ("nodes", subject.nodes)) if not one]
        what = f"No reference: the log does not say {' and '.join(unknown)}"
        todo = "name them with `--machine-type` and `--nodes`; jobs of `./hpc nccl run` write both into their logs"
    else:
        known = ", ".join(f"{one.collective} on {one.nodes}" for one in references_of(subject.machine_type))
        what = f"No reference for {subject.collective or 'this collective'} on {subject.nodes} x {subject.machine_type}"
        todo = f"run one that has one ({known})" if known else "compare it with earlier runs: `--against FOLDER`"
    yield Finding(id="nccl-no-reference", level=Level.INFO, at=where, what=what, todo=todo)
