"""Events on a job's nodes: when they took no jobs, health checks that failed, and repairs."""

import shlex
from collections.abc import Collection, Iterable
from typing import Any

from .output import JOURNAL, parse_json_lines, split_reason, text_values
from .times import epoch

HISTORY = "/opt/apps/adm/hpc/health"  # NODE.jsonl, as health/outcome.py keeps it
BEFORE, AFTER = 600, 300
"""Seconds around a run that failed in which trouble on its nodes counts as its own: the window of arXiv 2410.21680."""
MAX_NODES = 2000
"""Nodes whose histories are read: more names would not fit into one command."""
Event = dict[str, Any]
"""`time`, `until` (the same for an event of one moment; None while it lasts), `node` and `what`."""


def script(hosts: str, names: Collection[str], since: float, until: float, mark: str) -> str:
    """Return the commands that print three sections for `parse`: states, results of checks, actions of the reconcile
    loop."""
    return f"""\
export SLURM_TIME_FORMAT=%s; hosts={shlex.quote(hosts)}
[ -z "$hosts" ] || timeout 30 sacctmgr --noheader --parsable2 --readonly show event nodes="$hosts" \\
start=uts{int(since)} end=uts{int(until) + 1} format=NodeName,Start,End,State,Reason 2>/dev/null
[ -z "$hosts" ] || timeout 20 sinfo --noheader --Node --nodes="$hosts" --states=drain,down,fail \\
--format='%N|%H||%T|%E' 2>/dev/null
echo {mark}-; for name in {shlex.join(sorted(names)[:MAX_NODES])}; do
file={HISTORY}/$name.jsonl; [ -f "$file" ] && [ ! -L "$file" ] && timeout 5 tail -c 20000 "$file"; done
echo {mark}-; [ -r {JOURNAL} ] && tail -c 2000000 {JOURNAL}
"""


def parse(states: str, history: str, journal: str, names: Collection[str]) -> list[Event]:
    """Return the events in the output of `script`, in the order of their times."""
    events = [*_state_events(states), *_check_events(history), *_repair_events(journal, names)]
    return sorted(events, key=lambda event: event["time"])


def of_run(events: Iterable[Event], run: dict[str, Any], nodes: Collection[str], *, failed: bool) -> list[Event]:
    """Return the events on the nodes of a run that overlap it; of one that failed, also those shortly before and after
    it, since a check finds a fault later than the job does."""
    since, until = run["started"], run["ended"] or float("inf")
    if failed:
        since, until = since - BEFORE, until + AFTER
    return [
        event
        for event in events
        if event["node"] in nodes and event["time"] <= until and (event["until"] is None or event["until"] >= since)
    ]


def _moment(time: float, node: str, what: str) -> Event:
    return {"time": time, "until": time, "node": node, "what": what}


def _state_events(text: str) -> list[Event]:
    """Return when nodes took no jobs. Rows of the database come first, then rows of sinfo, without an end: the database
    has no event for a node that drains while a job runs there."""
    events: list[Event] = []
    open_events: set[tuple[str, str]] = set()
    for line in text.splitlines():
        cells = line.split("|", 4)
        if len(cells) == 5 and cells[0] and (start := epoch(cells[1])):
            node, _, end, state, reason = cells
            why = split_reason(reason)[0] or "no reason given"
            until = epoch(end)
            if end or (node, why) not in open_events:
                events.append({"time": start, "until": until, "node": node, "what": f"{state.upper()}: {why}"})
            if not until:
                open_events.add((node, why))
    return events


def _check_events(text: str) -> list[Event]:
    """Return health checks that failed or warned, from their history."""
    events: list[Event] = []
    for row in parse_json_lines(text):
        results = {**text_values(row.get("warning")), **text_values(row.get("failed"))}
        what = "; ".join(f"{kind}: {message}" for kind, message in results.items())
        if what and isinstance(row.get("time"), (int, float)):
            events.append(_moment(row["time"], str(row.get("node")), f"health {what}"))
    return events


def _repair_events(text: str, names: Collection[str]) -> list[Event]:
    """Return the reconcile loop's actions on these nodes, from its journal."""
    events: list[Event] = []
    for row in parse_json_lines(text):
        nodes = row.get("nodes")
        if row.get("mode") == "act" and row.get("action") and isinstance(nodes, list):
            what = f"reconcile {row['action']}: {row.get('reason') or row.get('rule')}"
            events += [_moment(row["time"], str(node), what) for node in nodes if node in names]
    return events
