"""Comparisons: a run with earlier ones, and the logs of a folder with each other."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from cluster.findings import Finding, Level
from cluster.printable import counted
from cluster.report.nccl_log import NotALogError, read_file
from cluster.report.nccl_result import LARGE, NcclResult, ReportOptions, ReportOutcome, Subject, check, describe_run
from cluster.report.nccl_run import NcclLog, ProgramRun, format_size
from cluster.report.plot import Curve

_CHANGE = 0.05
"""Smallest change of bandwidth. Runs of the same nodes usually differ by less than 3 % at large sizes."""
_SLOW = 0.9
"""Share of the median of its kind below which a run is slow."""
_MOST_CURVES = 3
_BESIDE = ("-warm-up.log", "-build.log")
"""Files that jobs of `./hpc nccl` write beside the log of a run."""


class EarlierRun(NamedTuple):
    """An earlier run, for a comparison."""

    name: str
    run: ProgramRun
    time: datetime


@dataclass(frozen=True)
class Comparison:
    """A run and earlier runs of the same kind, in order of time."""

    run: ProgramRun
    earlier: tuple[EarlierRun, ...]
    left_out: int
    """Number of logs of another kind (Subject), or cut short."""

    def ratios(self) -> dict[int, tuple[float, float]]:
        """Return by size the median of the earlier runs in GB/s, and this run's share of it."""
        curves = [earlier.run.curve() for earlier in self.earlier]
        found: dict[int, tuple[float, float]] = {}
        for size, busbw in self.run.curve().items():
            if values := [curve[size] for curve in curves if curve.get(size)]:
                found[size] = statistics.median(values), busbw / statistics.median(values)
        return found

    def lines(self) -> list[str]:
        """Return the comparison as text: by size, and over time if there are several earlier runs."""
        count = len(self.earlier)
        if not count:
            logs = counted(self.left_out, "log")
            return [f"Nothing to compare with: {logs}, none of the same test on the same machines"]
        left_out = f"; left out: {counted(self.left_out, 'log')} of other kinds" if self.left_out else ""
        curve = self.run.curve()
        found = [
            f"Compared with {counted(count, 'earlier run')}{left_out}",
            f"{'size':>9}  {'earlier':>8}  {'this run':>8}  {'share':>6}",
            *(
                f"{format_size(size):>9}  {median:8.2f}  {curve[size]:8.2f}  {share:6.0%}"
                for size, (median, share) in self.ratios().items()
            ),
        ]
        if count > 1:
            found += ["", f"{'date':16}  {'at large sizes':>14}  log"]
            found += [
                f"{time:%Y-%m-%d %H:%M}  {mean_busbw(run):10.1f} GB/s  {name}" for name, run, time in self.earlier[-20:]
            ]
        return found

    def finding(self, where: str) -> Finding:
        """Return the change as a finding."""
        shares, count = {size: share for size, (_, share) in self.ratios().items()}, len(self.earlier)
        change, earlier = _mean_at_large_sizes(shares) - 1, counted(count, "earlier run")
        level, todo = Level.INFO, "nothing"
        if not shares:
            what, todo = "No earlier run of the same kind", "name a folder with logs of the same test on as many nodes"
        elif change <= -_CHANGE:
            level = Level.WARNING
            since = _since(self.earlier) or "The runs before were steady, so something changed since the last one"
            what = f"Slower: {-change:.0%} less bandwidth at large sizes than the median of {earlier}. {since}"
            todo = "see what changed then: image, driver, plugin, nodes. Run it on pairs of nodes to see which are slow"
        elif change >= _CHANGE:
            what = f"Faster: {change:.0%} more bandwidth at large sizes than before"
        else:
            what = f"No change: {1 + change:.0%} of the median of {earlier}"
        return Finding(id="nccl-against", level=level, at=where, what=what, todo=todo)

    def curves(self) -> list[Curve]:
        """Return the curves of the earlier runs, or that of their median if there are many."""
        if len(self.earlier) <= _MOST_CURVES:
            return [Curve(earlier.name, list(earlier.run.curve().items())) for earlier in self.earlier]
        medians = [(size, median) for size, (median, _) in self.ratios().items()]
        return [Curve(f"median of {len(self.earlier)}", medians)]

    def document(self) -> dict[str, Any]:
        return {
            "runs": [
                {"file": name, "date": time.isoformat(), "busbw": mean_busbw(run)} for name, run, time in self.earlier
            ],
            "left_out": self.left_out,
            "sizes": {str(size): {"earlier": row[0], "share": row[1]} for size, row in self.ratios().items()},
        }


def compare(
    run: ProgramRun, subject: Subject, logs: Sequence[tuple[NcclLog, datetime]], given: ReportOptions | None = None
) -> Comparison:
    """Compare a run with the logs of the same kind. The date of a log is that of its header, else the given one."""
    same: list[EarlierRun] = []
    for log, modified in logs:
        other = log.last
        if other.complete and other.rows and not other.torn and describe_run(other, given) == subject:
            try:
                time = datetime.fromisoformat(other.facts.get("date", "").replace("Z", "+00:00"))
            except ValueError:
                time = modified
            same.append(EarlierRun(log.name, other, time if time.tzinfo else time.replace(tzinfo=timezone.utc)))
    same.sort(key=lambda earlier: earlier.time)
    return Comparison(run, tuple(same), len(logs) - len(same))


def mean_busbw(run: ProgramRun) -> float:
    """Return the average busbw out of place at large sizes, or at all sizes if there is no large one."""
    return _mean_at_large_sizes(run.curve())


def _mean_at_large_sizes(values: Mapping[int, float]) -> float:
    return statistics.fmean([value for size, value in values.items() if size >= LARGE] or values.values() or [0.0])


def _since(earlier: Sequence[EarlierRun]) -> str:
    """Return a sentence about the run since which bandwidth has been lower; empty if it was steady."""
    values = [mean_busbw(other.run) for other in earlier]
    steps = (
        (statistics.fmean(values[at:]) / statistics.fmean(values[:at]), at)
        for at in range(1, len(values))
        if any(values[:at])
    )
    ratio, at = min(steps, default=(1.0, 0))
    if ratio > 1 - _CHANGE:
        return ""
    name, _, time = earlier[at]
    return f"It is so since {time:%Y-%m-%d %H:%M} ({name}): from there on {1 - ratio:.0%} less than before"


@dataclass(frozen=True)
class Entry:
    """A log of a folder."""

    log: NcclLog
    result: NcclResult

    @property
    def busbw(self) -> float:
        """Average at large sizes, GB/s."""
        return mean_busbw(self.result.run)

    @property
    def kind(self) -> str:
        return str(self.result.subject) or "unknown"

    @property
    def failed(self) -> list[str]:
        """Ids of errors, and comparisons that failed."""
        ids = [finding.id.removeprefix("nccl-") for finding in self.result.findings if finding.level is Level.ERROR]
        return ids + [reason.text for reason in self.result.reasons if reason.met is False]


@dataclass(frozen=True)
class Folder:
    """The logs of a folder."""

    entries: tuple[Entry, ...]
    unread: tuple[Finding, ...]
    """Files that are no logs."""

    def lines(self) -> list[str]:
        """Return a line for each log."""
        found = [f"{'result':12}  {'GB/s':>6}  log"]
        for entry in self.entries:
            why = f"  ({'; '.join(entry.failed[:3])})" if entry.failed else ""
            found.append(f"{entry.result.outcome.value:12}  {entry.busbw:6.1f}  {entry.log.name}  {entry.kind}{why}")
        return found + [f"{'no log':12}  {'':6}  {finding.where}: {finding.given}" for finding in self.unread]

    def findings(self) -> Iterator[Finding]:
        """Yield nodes that were slow with every partner, while their partners were fast with others."""
        kinds: dict[Subject, list[Entry]] = defaultdict(list)
        for entry in self.entries:
            kinds[entry.result.subject].append(entry)
        for kind, entries in kinds.items():
            fast: set[str] = set()
            slow: dict[str, list[tuple[Entry, float]]] = defaultdict(list)
            for entry, share in _shares(entries):
                if share >= _SLOW:
                    fast.update(entry.result.run.hosts)
                else:
                    for host in entry.result.run.hosts:
                        slow[host].append((entry, share))
            for host, runs in sorted(slow.items()):
                if host not in fast:
                    yield _slow_node(host, kind, runs, fast)

    @property
    def outcome(self) -> ReportOutcome:
        """FAIL if a log fails or a node is slow, else PASS if a log passes."""
        outcomes = {entry.result.outcome for entry in self.entries}
        if any(finding.level is Level.ERROR for finding in self.findings()):
            return ReportOutcome.FAIL
        return next(
            (outcome for outcome in (ReportOutcome.FAIL, ReportOutcome.PASS) if outcome in outcomes), ReportOutcome.NONE
        )

    def document(self) -> dict[str, Any]:
        logs = [
            {
                "file": entry.log.name,
                "result": entry.result.outcome.value,
                "busbw": entry.busbw,
                "kind": entry.kind,
                "hosts": list(entry.result.run.hosts),
                "findings": [finding.id for finding in entry.result.findings],
            }
            for entry in self.entries
        ]
        slow = [{"node": finding.where, "what": finding.what, "todo": finding.todo} for finding in self.findings()]
        unread = [{"file": finding.where, "given": finding.given} for finding in self.unread]
        return {"result": self.outcome.value, "logs": logs, "slow": slow, "unread": unread}


def _slow_node(host: str, kind: Subject, runs: Sequence[tuple[Entry, float]], fast: set[str]) -> Finding:
    partners = {other for entry, _ in runs for other in entry.result.run.hosts} - {host}
    certain = partners <= fast
    share = statistics.median(share for _, share in runs)
    which = f"each of its {len(runs)} runs" if len(runs) > 1 else "its only run"
    others = " while its partners were fast with others" if partners and certain else ""
    return Finding(
        id="nccl-slow-node",
        level=Level.ERROR if certain else Level.WARNING,
        at=host,
        what=f"{host}: {share:.0%} of the median in {which} of {kind}{others}",
        todo=f"drain it (`./hpc nodes STACK drain {host} --reason nccl`) and check its NICs and GPUs"
        if certain
        else "run it with a node that was fast in another pair, to see which of the two is slow",
    )


def log_files(path: Path) -> list[Path]:
    """Return the log itself, or the files of a folder in order of their names, without those of warm-ups and builds."""
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.iterdir() if file.is_file() and not file.name.endswith(_BESIDE))


def read_folder(paths: Iterable[Path], given: ReportOptions | None = None) -> Folder:
    """Read logs and check each. Files that are no logs or can't be read are in Folder.unread."""
    entries: list[Entry] = []
    unread: list[Finding] = []
    for path in paths:
        try:
            log = read_file(path)
            entries.append(Entry(log, check(log, given)))
        except NotALogError as error:
            unread.append(error.finding)
        except OSError as error:
            what = f"a file that can't be read: {error.strerror or error}"
            unread.append(
                Finding(id="nccl-unreadable", at=str(path), given=what, allowed="a log", todo="see its permissions")
            )
    return Folder(tuple(entries), tuple(unread))


def read_dated_logs(paths: Iterable[Path]) -> list[tuple[NcclLog, datetime]]:
    """Read logs, with the time of their last change. Files that are no logs are left out."""
    found: list[tuple[NcclLog, datetime]] = []
    for path in paths:
        try:
            found.append((read_file(path), datetime.fromtimestamp(path.stat().st_mtime, timezone.utc)))
        except (NotALogError, OSError):
            continue
    return found


def _shares(entries: Sequence[Entry]) -> Iterator[tuple[Entry, float]]:
    """Yield each entry of a kind with its share of the median, at the large sizes that most entries have, or at all
    such sizes. Entries without any of these are left out."""
    curves = [entry.result.run.curve() for entry in entries]
    counts = Counter(size for curve in curves for size in curve)
    common = {size for size, count in counts.items() if 2 * count > len(entries)}
    common = {size for size in common if size >= LARGE} or common
    usual = {size: statistics.median(curve[size] for curve in curves if size in curve) for size in common}
    for entry, curve in zip(entries, curves, strict=True):
        if ratios := [busbw / usual[size] for size, busbw in curve.items() if usual.get(size)]:
            yield entry, statistics.fmean(ratios)
