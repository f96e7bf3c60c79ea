"""Logs of a cluster: where they are, the script that reads one on its machine, and the lines of several in order."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cluster.slurm.paths import LOGS
from scripts.node.interface import ROLES

EVERYWHERE: Final = ROLES
DEFAULT_LINES = 50


@dataclass(frozen=True, kw_only=True)
class Log:
    """A kind of log: a file with its rotated older ones, the journal of some units, or both."""

    roles: tuple[str, ...]
    """Machines that have it."""
    file: str = ""
    units: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The log's location, as text."""
        journal = f"the journal of {' and '.join(self.units)}" if self.units else "the journal"
        return f"{self.file} and {journal}" if self.file and self.units else self.file or journal


LOGS_BY_NAME: Final[Mapping[str, Log]] = {
    "slurmctld": Log(roles=("controller",), file=f"{LOGS}/slurmctld.log"),
    "slurmdbd": Log(roles=("controller",), file=f"{LOGS}/slurmdbd.log"),
    "slurmd": Log(roles=("node",), file=f"{LOGS}/slurmd.log"),
    "prolog": Log(roles=("node",), file=f"{LOGS}/prolog.log"),
    "epilog": Log(roles=("node",), file=f"{LOGS}/epilog.log"),
    # munged logs bad credentials in its own file; systemd logs its starts and stops in the journal.
    "munge": Log(roles=EVERYWHERE, file="/var/log/munge/munged.log", units=("munge",)),
    "slurmrestd": Log(roles=("controller",), units=("slurmrestd",)),
    "reconcile": Log(roles=("controller",), units=("hpc-reconcile",)),
    "topology": Log(roles=("controller",), units=("hpc-topology",)),
    "prometheus": Log(
        roles=("controller", "monitoring"), units=("prometheus", "prometheus-alertmanager", "hpc-metrics")
    ),
    "mariadb": Log(roles=("controller",), units=("mariadb",)),
    # The set-up of the other machines runs under `up`, which prints what it says.
    "setup": Log(roles=("node",), units=("hpc-node", "hpc-watch")),
}
"""Logs by the name that `logs` takes."""

JOURNAL: Final = Log(roles=EVERYWHERE)
"""The whole journal of a machine."""

# Keeps the lines from a moment on, and those without a time that follow one of these. For mawk, which counts no {4}.
_FROM = """\
awk -v since="$since" '{ t = substr($0, 1, 20); sub(/^\\[/, "", t); t = substr(t, 1, 19); sub(/ /, "T", t);
if (t ~ /^[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T/) on = (t >= since); if (on) print }'"""


def script(log: Log, *, lines: int | None, since: str = "", follow: bool = False) -> str:
    """Script that prints the log: its last `lines`, from `since` on (a shell word, see cluster.observe.moment).

    With `follow` it goes on until its standard input ends, and leaves nothing running then: a connection that breaks
    ends it too. What is missing is said on standard error.
    """
    parts = [f"since={since}"] if since else []
    parts += _file(log.file, lines, since=bool(since)) if log.file else []
    journal = _journal(log.units, lines, since=bool(since)) if log.units or not log.file else ""
    # Both kinds begin with the time, which sorts once it is written alike.
    both = "sed 's/^\\(....-..-..\\) /\\1T/' | sort --stable --key=1,1"
    if log.file and journal:
        parts.append(f"{{ older; {journal}; }} | {both}" + ("" if lines is None else f" | tail --lines={lines}"))
    else:
        parts.append("older" if log.file else f"{journal}{' --follow &' if follow else ''}")
    if follow:
        if log.file:
            parts.append('tail --bytes=+$((size + 1)) --follow=name --retry "$file" 2>/dev/null &')
            if journal:
                parts.append(f"{_journal(log.units, 0, since=False)} --follow &")
        # Not `wait`: it is the end of the input that ends them.
        parts.append("cat >/dev/null; kill $(jobs -p) 2>/dev/null; true")
    # In bash, whose `jobs -p` works in a script.
    return f"exec bash -c {shlex.quote(chr(10).join(parts))}"


def _file(path: str, lines: int | None, *, since: bool) -> list[str]:
    """Define `older`, which prints what is in the file now: what comes later begins behind $size bytes."""
    limit = "cat" if lines is None else f"tail --lines={lines}"
    if since:
        rotated = (
            'find "$(dirname "$file")" -maxdepth 1 -name "$(basename "$file").*" -newermt "$since" '
            "-printf '%T@ %p\\n' | sort -n | cut -d' ' -f2- | while read -r one; do zcat -f \"$one\"; done"
        )
        kept = f"{_FROM} | {limit}"
    else:
        rotated, kept = f'[ ! -e "$file.1" ] || {limit} "$file.1"', limit
    return [
        f"file={shlex.quote(path)}",
        'size=$(stat --dereference --format=%s "$file" 2>/dev/null) || size=',
        '[ -n "$size" ] || { echo "there is no $file" >&2; size=0; }',
        '[ "$size" != 0 ] || [ ! -e "$file" ] || echo "$file is empty" >&2',
        f'older() {{ {{ {rotated}; [ ! -e "$file" ] || head --bytes="$size" "$file"; }} | {kept}; }}',
    ]


def _journal(units: tuple[str, ...], lines: int | None, *, since: bool) -> str:
    words = ["journalctl", "--no-pager", "--quiet", "--output=short-iso-precise"]
    words += [f"--unit={unit}" for unit in units]
    words += [] if lines is None else [f"--lines={lines}"]
    words += ['--since="${since/T/ }"'] if since else []
    return " ".join(words)


# Slurm writes [2026-11-21T05:43:25.538], the journal 2026-11-21T05:43:26.796289+0000, MUNGE 2026-11-21 05:43:24 +0000.
# Cut to the second's fraction: all of them stand in the machine's own time.
_TIME = re.compile(r"\[?(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?")


@dataclass(frozen=True, order=True)
class Line:
    """A line of a log; ordered by its time, then by its place among those of its machine."""

    time: str
    place: int
    machine: str
    text: str


def parse_time(text: str) -> str:
    """The time that a line begins with, in a form that sorts; empty if it begins with none."""
    match = _TIME.match(text)
    return f"{match[1]}T{match[2]}.{(match[3] or '').ljust(6, '0')}" if match else ""


class LineClock:
    """Gives the lines of one machine their times: one without any belongs to the line before it."""

    def __init__(self, machine: str) -> None:
        self._machine, self._time, self._place = machine, "", 0

    def line(self, text: str) -> Line:
        # Never back: what a machine wrote later stays later, also where its clock was set.
        self._time = max(self._time, parse_time(text))
        self._place += 1
        return Line(self._time, self._place, self._machine, text)


def merge_logs(logs: Mapping[str, Iterable[str]]) -> list[Line]:
    """The lines of several machines in one order; those of each keep theirs."""

    def lines() -> Iterator[Line]:
        for machine, texts in logs.items():
            clock = LineClock(machine)
            yield from (clock.line(text) for text in texts)

    return sorted(lines())
