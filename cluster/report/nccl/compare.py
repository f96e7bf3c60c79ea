"""A run beside earlier ones, and the logs of a folder beside each other."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from cluster.findings import Finding, Level
from cluster.report.nccl.log import NotALogError, read_file
from cluster.report.nccl.result import LARGE, Given, Result, Subject, Word, check, subject_of
from cluster.report.nccl.run import Log, Run, text_of
from cluster.report.plot import Curve

_CHANGE = 0.05
"""Share by which bandwidth has to differ: runs of the same nodes usually differ by less than 3 % at large sizes."""
_MOST_CURVES = 3


@dataclass(frozen=True)
class Saved:
    """An earlier run."""

    name: str
    run: Run
    subject: Subject
    time: datetime


@dataclass(frozen=True)
class Comparison:
    """A run and those that it is compared with, in order of time."""

    run: Run
    saved: tuple[Saved, ...]
    others: int
    """Logs that were left out: of another kind (Subject.kind), or cut short."""

    def ratios(self) -> dict[int, tuple[float, float]]:
        """Size -> median of the earlier runs in GB/s, and this run as a share of it."""
        earlier = [one.run.curve() for one in self.saved]
        found: dict[int, tuple[float, float]] = {}
        for size, busbw in self.run.curve().items():
            values = [curve[size] for curve in earlier if curve.get(size)]
            if values:
                found[size] = statistics.median(values), busbw / statistics.median(values)
        return found

    def lines(self) -> list[str]:
        """By size, then over time where there is more than one earlier run."""
        if not self.saved:
            return [f"Nothing to compare with: {self.others} logs, none of the same test on the same machines"]
        count = len(self.saved)
        found = [f"Compared with {count} earlier {'run' if count == 1 else 'runs'}{self._left_out()}"]
        found.append(f"{'size':>9}  {'earlier':>8}  {'this run':>8}  {'share':>6}")
        curve = self.run.curve()
        found += [
            f"{text_of(size):>9}  {median:8.2f}  {curve[size]:8.2f}  {share:6.0%}"
            for size, (median, share) in self.ratios().items()
        ]
        if count > 1:
            found += ["", f"{'date':16}  {'at large sizes':>14}  log"]
            found += [f"{one.time:%Y-%m-%d %H:%M}  {level(one.run):10.1f} GB/s  {one.name}" for one in self.saved[-20:]]
        return found

    def finding(self, where: str) -> Finding:
        """The change in words."""
        ratios = {size: share for size, (_, share) in self.ratios().items()}
        large = [share for size, share in ratios.items() if size >= LARGE] or list(ratios.values())
        change = statistics.fmean(large) - 1 if large else 0.0
        if not ratios:
            what, todo = "No earlier run of the same kind", "name a folder with logs of the same test on as many nodes"
        elif change <= -_CHANGE:
            what = (
                f"Slower: {-change:.0%} less bandwidth at large sizes than the median of {len(self.saved)} earlier runs"
            )
            since = _since([(one.name, one.time, level(one.run)) for one in self.saved])
            what += f". {since}" if since else ". The runs before were steady, so something changed since the last one"
            todo = "see what changed then: image, driver, plugin, nodes. Run it on pairs of nodes to see which are slow"
        elif change >= _CHANGE:
            what, todo = f"Faster: {change:.0%} more bandwidth at large sizes than before", "nothing"
        else:
            what, todo = f"No change: {1 + change:.0%} of the median of {len(self.saved)} earlier runs", "nothing"
        level_ = Level.WARNING if ratios and change <= -_CHANGE else Level.INFO
        return Finding(id="nccl-against", level=level_, at=where, what=what, todo=todo)

    def curves(self) -> list[Curve]:
        """The median of the earlier runs, or each where they are few."""
        if len(self.saved) <= _MOST_CURVES:
            return [Curve(one.name, list(one.run.curve().items())) for one in self.saved]
        return [Curve(f"median of {len(self.saved)}", [(size, median) for size, (median, _) in self.ratios().items()])]

    def document(self) -> dict[str, Any]:
        ratios = self.ratios()
        return {
            "runs": [{"file": one.name, "date": one.time.isoformat(), "busbw": level(one.run)} for one in self.saved],
            "left_out": self.others,
            "sizes": {str(size): {"earlier": earlier, "share": share} for size, (earlier, share) in ratios.items()},
        }

    def _left_out(self) -> str:
        return f"; {self.others} logs of other kinds are left out" if self.others else ""


def compare(run: Run, subject: Subject, logs: Sequence[tuple[Log, datetime]], given: Given | None = None) -> Comparison:
    """Compare with those of `logs` that are of the same kind. The date of a log is its header's, else the one given."""
    same: list[Saved] = []
    for log, modified in logs:
        other = log.last
        its = subject_of(other, given)
        if other.complete and other.rows and not other.mixed and its.kind == subject.kind:
            same.append(Saved(log.name, other, its, date_of(other) or modified))
    same.sort(key=lambda one: one.time)
    return Comparison(run, tuple(same), len(logs) - len(same))


def date_of(run: Run) -> datetime | None:
    """When a run began, by its header: UTC."""
    try:
        found = datetime.fromisoformat(run.facts.get("date", "").replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


def level(run: Run) -> float:
    """Average busbw out of place at large sizes, else at all."""
    curve = run.curve()
    return statistics.fmean([busbw for size, busbw in curve.items() if size >= LARGE] or list(curve.values()) or [0.0])


def _since(history: Sequence[tuple[str, datetime, float]]) -> str:
    """The step in a series of runs after which it stayed lower, in words; empty where it was steady."""
    steps: Iterator[tuple[float, int]] = (
        (statistics.fmean(value for *_, value in history[at:]) / statistics.fmean(v for *_, v in history[:at]), at)
        for at in range(1, len(history))
        if any(value for *_, value in history[:at])
    )
    ratio, at = min(steps, default=(1.0, 0))
    if ratio > 1 - _CHANGE:
        return ""
    name, time, _ = history[at]
    return f"It is so since {time:%Y-%m-%d %H:%M} ({name}): from there on {1 - ratio:.0%} less than before"


_SLOW = 0.9
"""Share of the median of its kind below which a run is slow."""
_MOST_HOSTS = 4


@dataclass(frozen=True)
class Entry:
    """One log of a folder."""

    log: Log
    result: Result

    @property
    def busbw(self) -> float:
        """Average at large sizes, GB/s."""
        return level(self.result.run)

    @property
    def kind(self) -> str:
        """What it measured, in words; Subject.kind is what is compared with each other."""
        subject = self.result.subject
        nodes = f"{subject.nodes} x " if subject.nodes else ""
        network = ", without NVLink" if subject.network_only else ""
        return f"{subject.collective or 'unknown'}, {nodes}{subject.machines or 'unknown machine type'}{network}"

    @property
    def detail(self) -> str:
        """What sets two kinds apart that have the same words."""
        subject = self.result.subject
        gpu = subject.gpu if subject.machine_type else ""
        parts = (gpu, f"{subject.ranks} ranks" if subject.ranks else "", subject.types)
        return ", ".join(one for one in parts if one)

    @property
    def hosts(self) -> str:
        """Its nodes, in order of their names; many are cut short."""
        hosts = sorted(self.result.run.hosts)
        more = f" and {len(hosts) - _MOST_HOSTS} more" if len(hosts) > _MOST_HOSTS else ""
        return ", ".join(hosts[:_MOST_HOSTS]) + more

    @property
    def reason(self) -> str:
        """The first thing that is wrong, in a few words."""
        ids = [one.id.removeprefix("nccl-") for one in self.result.findings if one.level is Level.ERROR]
        missed = [one.text for one in self.result.reasons if one.met is False]
        return "; ".join([*ids[:2], *missed[:1]])


@dataclass(frozen=True)
class Folder:
    """What a folder of logs has."""

    entries: tuple[Entry, ...]
    unread: tuple[Finding, ...]
    """Files that are no logs."""

    def lines(self) -> list[str]:
        """One line for each log, then each kind, each pair of nodes, and the slow nodes."""
        found = [f"{'result':10}  {'GB/s':>6}  {'log'}"]
        for one in self.entries:
            what = f"  ({one.reason})" if one.reason else ""
            found.append(f"{one.result.word.value:10}  {one.busbw:6.1f}  {one.log.name}  {one.kind}{what}")
        found += [f"{'no log':10}  {'':6}  {one.where}: {one.given}" for one in self.unread]
        found += ["", f"{'logs':>5}  {'pass':>5}  {'fail':>5}  {'median':>7}  {'least':>7}  {'most':>7}  GB/s of"]
        found += [_summary(kind, entries) for kind, entries in self._by_kind().items()]
        if len(by_nodes := self._by_nodes()) > 1:
            found += [
                "",
                f"{'logs':>5}  {'pass':>5}  {'fail':>5}  {'median':>7}  {'least':>7}  {'most':>7}  GB/s of nodes",
            ]
            found += [_summary(nodes, entries) for nodes, entries in by_nodes.items()]
        return found

    def findings(self) -> Iterator[Finding]:
        """Nodes that were slow with every partner, while the partners were fast with others."""
        for kind, entries in self._by_kind().items():
            shares = _shares(entries)
            fast = {host for one, share in shares if share >= _SLOW for host in one.result.run.hosts}
            slow = [(one, share) for one, share in shares if share < _SLOW]
            for host, runs in sorted(_by_host(slow).items()):
                if host in fast:
                    continue
                partners = {other for one, _ in runs for other in one.result.run.hosts} - {host}
                sure = partners <= fast
                share = statistics.median(share for _, share in runs)
                beside = " while its partners were fast with others" if partners and sure else ""
                yield Finding(
                    id="nccl-slow-node",
                    level=Level.ERROR if sure else Level.WARNING,
                    at=host,
                    what=f"{host}: {share:.0%} of the median in each of its {len(runs)} runs of {kind}{beside}",
                    todo=f"drain it (`./hpc nodes STACK drain {host} --reason nccl`) and check its NICs and GPUs"
                    if sure
                    else "run it with a node that was fast in another pair, to see which of the two is slow",
                )

    @property
    def word(self) -> Word:
        """Fail if one log fails or a node is slow, pass if one passes."""
        words = {one.result.word for one in self.entries}
        if any(one.level is Level.ERROR for one in self.findings()):
            return Word.FAIL
        return next((word for word in (Word.FAIL, Word.PASS) if word in words), Word.NONE)

    def document(self) -> dict[str, Any]:
        return {
            "result": self.word.value,
            "logs": [
                {
                    "file": one.log.name,
                    "result": one.result.word.value,
                    "busbw": one.busbw,
                    "kind": one.kind,
                    "hosts": list(one.result.run.hosts),
                    "findings": [finding.id for finding in one.result.findings],
                }
                for one in self.entries
            ],
            "kinds": {kind: _figures(entries) for kind, entries in self._by_kind().items()},
            "nodes": {nodes: _figures(entries) for nodes, entries in self._by_nodes().items()},
            "slow": [{"node": one.where, "what": one.what, "todo": one.todo} for one in self.findings()],
            "unread": [{"file": one.where, "given": one.given} for one in self.unread],
        }

    def _by_kind(self) -> Mapping[str, list[Entry]]:
        """Entries that can be compared with each other, by what they measured."""
        found: dict[tuple[object, ...], list[Entry]] = defaultdict(list)
        for one in self.entries:
            found[one.result.subject.kind].append(one)
        words = Counter(entries[0].kind for entries in found.values())
        groups: dict[str, list[Entry]] = {}
        for entries in found.values():
            one = entries[0]
            name = one.kind if words[one.kind] == 1 else f"{one.kind}, {one.detail}"
            groups.setdefault(name, []).extend(entries)
        return groups

    def _by_nodes(self) -> Mapping[str, list[Entry]]:
        """The slowest first."""
        found: dict[str, list[Entry]] = defaultdict(list)
        for one in self.entries:
            if one.hosts:
                found[one.hosts].append(one)
        return dict(sorted(found.items(), key=lambda pair: statistics.median(one.busbw for one in pair[1])))


def _shares(entries: Sequence[Entry]) -> list[tuple[Entry, float]]:
    """Each entry with its share of the median of its kind: at large sizes that most of them have, else at all such
    sizes. Those without one are left out."""
    curves = [one.result.run.curve() for one in entries]
    counts = Counter(size for curve in curves for size in curve)
    common = {size for size, count in counts.items() if 2 * count > len(entries)}
    common = {size for size in common if size >= LARGE} or common
    usual = {size: statistics.median(curve[size] for curve in curves if size in curve) for size in common}
    found: list[tuple[Entry, float]] = []
    for one, curve in zip(entries, curves, strict=True):
        if ratios := [busbw / usual[size] for size, busbw in curve.items() if usual.get(size)]:
            found.append((one, statistics.fmean(ratios)))
    return found


def _by_host(entries: Sequence[tuple[Entry, float]]) -> Mapping[str, list[tuple[Entry, float]]]:
    found: dict[str, list[tuple[Entry, float]]] = defaultdict(list)
    for one, share in entries:
        for host in one.result.run.hosts:
            found[host].append((one, share))
    return found


def _figures(entries: Sequence[Entry]) -> dict[str, float | int]:
    values = [one.busbw for one in entries]
    words = [one.result.word for one in entries]
    return {
        "logs": len(entries),
        "pass": words.count(Word.PASS),
        "fail": words.count(Word.FAIL),
        "median": statistics.median(values),
        "least": min(values),
        "most": max(values),
    }


def _summary(name: str, entries: Sequence[Entry]) -> str:
    one = _figures(entries)
    return (
        f"{one['logs']:5}  {one['pass']:5}  {one['fail']:5}  {one['median']:7.1f}  {one['least']:7.1f}  "
        f"{one['most']:7.1f}  {name}"
    )


_BESIDE = ("-warm-up.log", "-build.log")
"""What jobs of `./hpc nccl` write beside the log of a run."""


def logs_of(path: Path) -> list[Path]:
    """The log itself, or the files of a folder in order of their names, without those of warm-ups and builds."""
    if not path.is_dir():
        return [path]
    return sorted(one for one in path.iterdir() if one.is_file() and not one.name.endswith(_BESIDE))


def folder_of(paths: Iterable[Path], given: Given | None = None) -> Folder:
    """Every log with its result; files that are none, or can't be read, are kept apart."""
    entries: list[Entry] = []
    unread: list[Finding] = []
    for path in paths:
        try:
            log = read_file(path)
        except NotALogError as error:
            unread.append(error.finding)
        except OSError as error:
            given_ = f"a file that can't be read: {error.strerror or error}"
            unread.append(
                Finding(id="nccl-unreadable", at=str(path), given=given_, allowed="a log", todo="see its permissions")
            )
        else:
            entries.append(Entry(log, check(log, given)))
    return Folder(tuple(entries), tuple(unread))


def saved(paths: Iterable[Path]) -> list[tuple[Log, datetime]]:
    """Logs with the time of their last change; files that are no logs are left out."""
    found: list[tuple[Log, datetime]] = []
    for path in paths:
        try:
            found.append((read_file(path), datetime.fromtimestamp(path.stat().st_mtime, timezone.utc)))
        except (NotALogError, OSError):
            continue
    return found
