"""The budget of a month: the costs of the cluster since it began, and those at its end.

The price of an hour of what exists is added up from pass to pass, so that machines count for as long as they existed.
Months are of UTC, as those of `./hpc usage --money`.
"""

import calendar
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from interface import BudgetInput
from slurm.output import NO_MACHINE
from system.host import read_json, write

FILE = "spent.json"
SAVE_SECONDS = 60
_HOUR = 3600


class Spent(NamedTuple):
    """The costs of a month until now."""

    month: str  # as 2026-11
    since: float  # the time from which on it was added up
    at: float  # until when
    amount: float
    hour: float  # price of an hour of what existed then
    currency: str


def _span(now: float) -> tuple[str, float, float]:
    """Return the month of a time as text, its begin and its end."""
    year, month, *_ = time.gmtime(now)
    begin = calendar.timegm((year, month, 1, 0, 0, 0))
    return f"{year}-{month:02}", begin, calendar.timegm((year + month // 12, month % 12 + 1, 1, 0, 0, 0))


def price(budget: BudgetInput, machines: Mapping[str, int]) -> float:
    """Return the price of an hour with so many machines of elastic nodes, by nodeset."""
    return budget["hour"] + sum(budget["nodes"].get(name, 0) * count for name, count in machines.items())


def add(before: Spent | None, budget: BudgetInput, hour: float, now: float) -> Spent:
    """Return what the month has cost until now; `hour` is the price of what exists now, and until now that of the last
    time holds. What was spent in another currency is forgotten. A pure function."""
    month, begin, _ = _span(now)
    # A clock that was set back to an earlier month is no month of spending.
    if before is None or before.currency != budget["currency"] or before.month > month:
        return Spent(month, now, now, 0.0, hour, budget["currency"])
    if before.month != month:
        before = before._replace(month=month, since=begin, at=begin, amount=0.0)
    at = max(now, before.at)  # a clock that was set back adds nothing twice
    return before._replace(at=at, amount=before.amount + before.hour * (at - before.at) / _HOUR, hour=hour)


def state(budget: BudgetInput, spent: Spent, now: float) -> dict[str, Any]:
    """Return the budget, what is spent, and what will be at the end of the month: `least` if nothing but what is always
    on costs from now on, `expected` if all that exists now does. `refuses`: no elastic node is created. A pure
    function."""
    month, begin, end = _span(now)
    rest = (end - now) / _HOUR
    least = spent.amount + budget["hour"] * rest
    used = least >= budget["month"]
    return {
        "month": month,
        "budget": budget["month"],
        "currency": budget["currency"],
        "spent": spent.amount,
        "since": spent.since if spent.since > begin else None,
        "hour": spent.hour,
        "least": least,
        "expected": max(least, spent.amount + spent.hour * rest),
        "used": used,
        "refuses": used and budget["stop"],
        "unpriced": budget["unpriced"],
    }


def refusal(found: Mapping[str, Any]) -> str:
    """Return why no machine of an elastic node may be created; empty if it may. The reason is the same all month, as it
    is that of nodes."""
    if not found["refuses"]:
        return ""
    return f"{NO_MACHINE}: the budget of {found['budget']:,.0f} {found['currency']} for {found['month']} is used"


def read(folder: Path) -> Spent | None:
    """Return what was saved last; None if nothing was."""
    try:
        return Spent(**read_json(folder / FILE, None))
    except TypeError:
        return None


def save(folder: Path, spent: Spent) -> None:
    write(folder / FILE, json.dumps(spent._asdict()) + "\n", mode=0o600, quiet=True)
