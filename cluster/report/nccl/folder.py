"""Many logs: one line each, and a summary by kind of run and by node."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.findings import Finding, Level
from cluster.report.nccl.against import level
from cluster.report.nccl.curve_findings import LARGE
from cluster.report.nccl.result import Result, Word
from cluster.report.nccl.run import Log

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
