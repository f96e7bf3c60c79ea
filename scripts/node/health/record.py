"""The last result of this node's checks: on its own disk, and in the cluster state, where `./hpc health` reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from side_by_side import side_by_side
from system import cluster_state
from system.host import read_json, write

LAST = Path("/var/lib/hpc/health.json")
RESULTS = cluster_state.HEALTH
MEASURED = cluster_state.FOLDER / "measured"  # one file a node, by the controller
SECONDS = 5
RECENT = 3600  # seconds


def last() -> dict[str, Any]:
    """The last result; empty where there is none."""
    found = read_json(LAST, {})
    return found if isinstance(found, dict) else {}


def keep(record: dict[str, Any]) -> None:
    """Store a result. One that can't be published is published by the next run: the shared file system may be what is
    broken."""
    LAST.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    write(LAST, json.dumps(record) + "\n", quiet=True)
    text = json.dumps({name: value for name, value in record.items() if name != "places"}) + "\n"
    side_by_side({"publish": lambda: _publish(record["node"], text)}, seconds=SECONDS)


def _publish(name: str, text: str) -> bool:
    # Where /opt/apps is not mounted there is no such folder.
    if RESULTS.is_dir():
        cluster_state.give(RESULTS / f"{name}.json", text)
    return True


def common(name: str, kind: str) -> bool:
    """Whether more than half of the other nodes fail this check as well, by their results of the last hour: its cause
    is then none of theirs, and draining them all would stop the cluster."""
    found = side_by_side({"common": lambda: _common(name, kind)}, seconds=SECONDS)
    return found["common"] is True


def _common(name: str, kind: str) -> bool:
    # Times of the files, which are one file server's: nodes' own clocks may be what is wrong.
    files = {path: path.lstat().st_mtime for path in RESULTS.glob("*.json") if path.stem != name}
    newest = max(files.values(), default=0.0)
    recent = [cluster_state.given(path) for path, time in files.items() if time > newest - RECENT]
    failing = [one for one in recent if one.get("checks", {}).get(kind, {}).get("state") == "failed"]
    return len(failing) * 2 > len(recent)


def results() -> dict[str, Any]:
    """Every node's last result and last measurements, by name, for phase `health-results`."""
    found: dict[str, Any] = {}
    for path in sorted(RESULTS.glob("*.json")) if RESULTS.is_dir() else ():
        found[path.stem] = cluster_state.given(path)
    for path in sorted(MEASURED.glob("*.json")) if MEASURED.is_dir() else ():
        found.setdefault(path.stem, {})["measured"] = read_json(path, {})
    return found
