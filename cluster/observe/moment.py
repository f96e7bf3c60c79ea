"""Points in time as users type them: `2h`, `yesterday`, `2026-11-21 05:00`.

The machine whose logs or records are read resolves them, as these are in its local time.
"""

import datetime as dt
import re

ALLOWED = (
    "a date (2026-11-21, 11/21/26), a time of today (05:30, 05:30:10), both (2026-11-21T05:30), how long ago "
    "(90s, 15m, 2h, 7d, 4w, '2 hours ago', now-2hours), or now, today, yesterday, noon, midnight"
)
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_WORDS = {
    "now": "now",
    "today": "today 00:00",
    "midnight": "today 00:00",
    "yesterday": "yesterday 00:00",
    "noon": "today 12:00",
}
_AGO = re.compile(
    r"(?:now\s*(?P<sign>[-+]))?\s*(?P<count>[0-9]{1,9})\s*"
    r"(?P<unit>s|sec|secs|seconds?|m|mins?|minutes?|h|hours?|d|days?|w|weeks?)?(?P<ago>\s+ago)?"
)
_FORMATS = ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%m/%d/%y", "%m/%d/%Y")
_CLOCKS = ("%H:%M", "%H:%M:%S")


class MomentError(ValueError):
    """A text is no point in time. The message lists what is allowed."""


def date_expression(given: str) -> str:
    """Return a point in time for `date --date=`, in letters, digits, blanks and `-:` only. Raises MomentError."""
    text = " ".join(given.split())
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    ago = _AGO.fullmatch(text.lower())
    # A number without a unit is ambiguous, but after `now-`, where sacct reads it as seconds.
    if ago and (ago["unit"] or ago["sign"]) and not (ago["sign"] and ago["ago"]):
        seconds = int(ago["count"]) * SECONDS[(ago["unit"] or "s")[0]]
        # No clock goes further back.
        if seconds < 100 * 365 * SECONDS["d"]:
            return f"{seconds} seconds" if ago["sign"] == "+" else f"{seconds} seconds ago"
    for format_ in _FORMATS:
        if moment := _parse(re.sub(r"(?<=\d) (?=\d)", "T", text.upper()), format_):
            return f"{moment:%Y-%m-%d %H:%M:%S}"
    for format_ in _CLOCKS:
        if moment := _parse(text, format_):
            return f"today {moment:%H:%M:%S}"
    raise MomentError(f"{given!r} is no point in time. Allowed: {ALLOWED}.")


def machine_time(given: str) -> str:
    """Return a shell word that expands to the moment in the machine's local time, `2026-11-21T05:30:00`. Raises
    MomentError."""
    return f'"$(date --date="{date_expression(given)}" +%Y-%m-%dT%H:%M:%S)"'


def parse_moment(given: str, now: dt.datetime) -> dt.datetime:
    """Return the moment for logs whose times are in the zone of `now`. Raises MomentError."""
    text = date_expression(given)
    if text == "now":
        return now
    if match := re.fullmatch(r"([0-9]+) seconds( ago)?", text):
        return now + dt.timedelta(seconds=int(match[1]) * (-1 if match[2] else 1))
    day, _, clock = text.partition(" ")
    date = {"today": now.date(), "yesterday": now.date() - dt.timedelta(days=1)}.get(day)
    when = dt.time.fromisoformat(clock)
    return dt.datetime.combine(date or dt.date.fromisoformat(day), when, tzinfo=now.tzinfo)


def _parse(text: str, format_: str) -> dt.datetime | None:
    try:
        return dt.datetime.strptime(text, format_)  # noqa: DTZ007 - the machine's own zone
    except ValueError:
        return None
