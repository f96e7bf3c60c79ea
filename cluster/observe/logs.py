"""Logs of a cluster: their locations, the script that reads one on its machine, and the order of lines of several."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cluster.slurm.paths import LOGS
from scripts.node.interface import ROLES

EVERYWHERE: Final = ROLES
DEFAULT_LINES = 50


@dataclass(frozen=True, kw_only=True)
class Log:
    """A log: a file with its rotated predecessors, the journal of some units, or both."""

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
    # `up` runs the set-up of the other machines, and prints its output itself.
    "setup": Log(roles=("node",), units=("hpc-node", "hpc-watch")),
}
"""Logs by their names in `./hpc logs`."""

JOURNAL: Final = Log(roles=EVERYWHERE)
"""The whole journal of a machine."""

# Prints the lines from a time on, with lines without a time after them. For mawk, whose patterns have no {4}.
_FROM = """\
awk -v since="$since" '{ t = substr($0, 1, 20); sub(/^\\[/, "", t); t = substr(t, 1, 19); sub(/ /, "T", t);
if (t ~ /^[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T/) on = (t >= since); if (on) print }'"""


def script(log: Log, *, lines: int | None, since: str = "", follow: bool = False) -> str:
    """Return a script that prints the last `lines` of a log, from `since` on (a shell word of cluster.observe.moment).

    With `follow` it goes on until its standard input ends, also by a broken connection, and then ends its child
    processes. It reports missing files on standard error.
    """
    parts = [f"since={since}"] if since else []
    parts += _file(log.file, lines, since=bool(since)) if log.file else []
    journal = _journal(log.units, lines, since=bool(since)) if log.units or not log.file else ""
    if log.file and journal:
        # Lines of both begin with the time, which sorts once it has the same format.
        merge = "sed 's/^\\(....-..-..\\) /\\1T/' | sort --stable --key=1,1"
        parts.append(f"{{ older; {journal}; }} | {merge}" + ("" if lines is None else f" | tail --lines={lines}"))
    else:
        parts.append("older" if log.file else f"{journal}{' --follow &' if follow else ''}")
    if follow:
        if log.file:
            parts.append('tail --bytes=+$((size + 1)) --follow=name --retry "$file" 2>/dev/null &')
            if journal:
                parts.append(f"{_journal(log.units, 0, since=False)} --follow &")
        # `cat` returns at the end of the input, while `wait` would not.
        parts.append("cat >/dev/null; kill $(jobs -p) 2>/dev/null; true")
    # Only bash has a `jobs -p` that works in a script.
    return f"exec bash -c {shlex.quote(chr(10).join(parts))}"


def _file(path: str, lines: int | None, *, since: bool) -> list[str]:
    """Return lines that define `older`, which prints the present content of the file. Later content begins after $size
    bytes."""
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
# The offset is left out, as all of these are in the machine's local time.
_TIME = re.compile(r"\[?(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?")


@dataclass(frozen=True, order=True)
class Line:
    """A line of a log, ordered by time, then by position among the lines of its machine."""

    time: str
    place: int
    machine: str
    text: str


def parse_time(text: str) -> str:
    """Return the time at the beginning of a line, in a form that sorts; empty if there is none."""
    match = _TIME.match(text)
    return f"{match[1]}T{match[2]}.{(match[3] or '').ljust(6, '0')}" if match else ""


class LineClock:
    """Gives each line of one machine its time. A line without a time has that of the line before it."""

    def __init__(self, machine: str) -> None:
        self._machine, self._time, self._place = machine, "", 0

    def line(self, text: str) -> Line:
        # Never earlier than the line before, so that lines keep their order if the machine's clock was set back.
        self._time = max(self._time, parse_time(text))
        self._place += 1
        return Line(self._time, self._place, self._machine, text)
