"""The kept history of a node's health checks: a line for each change, and one a day where nothing changes.

It stands beside the last results, in the cluster state (health/NODE.jsonl), so it outlives the machine. `./hpc job`
shows what lies within the time of a job, `./hpc reliability` counts it.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurm.output import json_rows, moment
from system import cluster_state

MOST_BYTES = 1 << 16
"""Of one node: the oldest lines go. A year of days and a hundred faults are 40 kB."""
DAY = 86400
TEXT = 200
"""Characters of a check's text."""


def line_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's record as the history has it: when, what failed or warned, what was done. A pure function."""
    found: dict[str, Any] = {"time": round(record["time"], 1), "node": record["node"], "boot": record.get("boot", "")}
    for state in ("failed", "warning"):
        checks = record["checks"].items()
        if bad := {kind: one["text"][:TEXT] for kind, one in checks if one["state"] == state}:
            found[state] = bad
    if done := record.get("done"):
        found["done"] = done
    return found


def is_due(line: Mapping[str, Any], last: Mapping[str, Any]) -> bool:
    """Return whether a line says more than the one before it. A pure function.

    Figures change at every run, so kinds are compared; a Xid is found once, so its text is.
    """
    if not last or not isinstance(last.get("time"), (int, float)) or line["time"] - last["time"] >= DAY:
        return True
    return _kinds(line) != _kinds(last) or "done" in line


def _kinds(line: Mapping[str, Any]) -> tuple[object, ...]:
    found: list[object] = [line.get("boot")]
    for state in ("failed", "warning"):
        bad = line.get(state)
        found += [sorted(bad), bad.get("gpu-xid")] if isinstance(bad, dict) and bad else [None]
    return tuple(found)


def appended(text: str, line: Mapping[str, Any]) -> str:
    """The history with one line more, and without the oldest where it grows too long. A pure function."""
    text = f"{text.rstrip()}\n{json.dumps(line)}\n".lstrip()
    while len(text.encode()) > MOST_BYTES:
        text = text[text.index("\n", len(text) // 8) + 1 :]
    return text


def note(record: Mapping[str, Any]) -> None:
    """Add a run's record to the node's history, if it says anything new. Raises SetupError: it can't be written."""
    path = cluster_state.HEALTH / f"{record['node']}.jsonl"
    text = cluster_state.given_text(path)
    line = line_of(record)
    if is_due(line, last_of(text)):
        cluster_state.give(path, appended(text, line))


def last_of(text: str) -> dict[str, Any]:
    """The last whole line; empty where there is none."""
    return next(iter(parsed("\n".join(text.splitlines()[-1:]))), {})


def parsed(text: str) -> list[dict[str, Any]]:
    """The lines that are of a history: root of any node may have written others."""
    rows = json_rows(text)
    return [row for row in rows if moment(row.get("time")) is not None and isinstance(row.get("node"), str)]


def show(folder: Path = cluster_state.HEALTH) -> None:
    """Print the lines of every node, one JSON object each, that are not older than the time on standard input."""
    since = float(sys.stdin.readline().strip() or 0)
    for path in sorted(folder.glob("*.jsonl")) if folder.is_dir() else ():
        rows = parsed(cluster_state.given_text(path))
        # A file is of the node that it is named after, whatever it says.
        for row in rows:
            if row["node"] == path.stem and row["time"] >= since:
                sys.stdout.write(json.dumps(row) + "\n")
