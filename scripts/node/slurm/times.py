"""Times and durations as Slurm prints and takes them. Pure functions, which `./hpc` uses too."""

import math
import re
import time
from calendar import timegm

FORMAT = "%Y-%m-%dT%H:%M:%S"
"""A time without its zone (slurm_make_time_str, src/common/parse_time.c)."""
_SPAN = re.compile(r"^(?:(?P<d>[0-9]+)-)?(?P<a>[0-9]+)(?::(?P<b>[0-9]+))?(?::(?P<c>[0-9]+))?$")
_CLOCK = re.compile(r"(?:(?P<d>[0-9]+)-)?(?:(?P<h>[0-9]+):)?(?P<m>[0-9]+):(?P<s>[0-9]+(?:\.[0-9]+)?)")


def epoch(text: str) -> float | None:
    """Return a time that Slurm printed with SLURM_TIME_FORMAT=%s; None for other texts."""
    return float(text) if re.fullmatch(r"[0-9]{5,}", text.strip()) else None


def utc_seconds(text: str) -> float | None:
    """Return a time that Slurm printed with TZ=UTC, in seconds since the epoch; None for `None`, `Unknown`, `N/A`."""
    try:
        return float(timegm(time.strptime(text, FORMAT)))
    except ValueError:
        return None


def local_seconds(text: str) -> float:
    """Return a time in this machine's zone in seconds since the epoch; infinite for `N/A` and `Unknown`, as squeue
    prints the end of a job without a limit."""
    try:
        return time.mktime(time.strptime(text, FORMAT))
    except (ValueError, OverflowError):
        return math.inf


def seconds_of(text: str) -> int | None:
    """Return the seconds of a number or a time as Slurm writes it ([days-]hours:minutes:seconds); None for other
    texts."""
    match = _SPAN.match(text)
    if not match:
        return None
    days, a, b, c = (int(digits or 0) for digits in match.groups())
    if match["d"] is not None:
        return ((days * 24 + a) * 60 + b) * 60 + c
    if match["c"] is not None:
        return (a * 60 + b) * 60 + c
    return a * 60 + b if match["b"] is not None else a


def minutes_limit(text: str) -> int | None:
    """Return the seconds of a time limit as sacctmgr takes it, where a lone number is minutes; None for other texts."""
    return int(text) * 60 if text.isdigit() else seconds_of(text)


def cpu_seconds(text: str) -> float:
    """Return the seconds of a CPU time as sacct prints it: `1-02:03:04`, `02:03:04`, `00:04.005`; 0 for other texts."""
    match = _CLOCK.fullmatch(text.strip())
    if not match:
        return 0.0
    return (int(match["d"] or 0) * 24 + int(match["h"] or 0)) * 3600 + int(match["m"]) * 60 + float(match["s"])


def span(seconds: float) -> str:
    """Return a duration as Slurm's options take it: 1-02:03:04, 02:03:04."""
    days, rest = divmod(round(seconds), 86400)
    text = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text
