"""The result of a check (ok, failed with figures, skipped with the reason), the record of a node's last run, and the
history of a node: a line for each change, and one a day where nothing changes.

Record and history are in the cluster state (health/NODE.json and .jsonl), so they outlive the machine. `./hpc job`
shows what the history has of the time of a job, `./hpc reliability` counts it.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict

from slurm.output import parse_json_lines, valid_time
from system import cluster_state
from system.host import SetupError, read_json, side_by_side, take_lock, write

RUN = Path("/run/hpc/health")  # root's; locks of checks that have not ended
CONTAINER = Path("/run/systemd/container")  # systemd's container interface: what kind of container, if it is one
BUSY = "another run asks just now"
ENDING = 5  # seconds that a program may take to be gone once it is killed


class _Outcome(TypedDict):
    state: str
    text: str


class Outcome(_Outcome, total=False):
    """`state` is ok, failed, warning or skipped; `text` has the figures, or why it was skipped. `unsure`: it may be
    over in a moment, as a file server that is restarted, so a node is drained when two runs in a row find it.
    `certain`: the machine is not to be used before it is repaired (drain.py). `place`: what the next run needs to look
    at what is new alone; it is kept beside the results."""

    unsure: bool
    certain: bool
    place: dict[str, Any]


def ok(text: str = "") -> Outcome:
    return {"state": "ok", "text": text}


def failed(text: str) -> Outcome:
    return {"state": "failed", "text": text}


def certain(text: str) -> Outcome:
    return {"state": "failed", "text": text, "certain": True}


def unsure(text: str) -> Outcome:
    return {"state": "failed", "text": text, "unsure": True}


def warned(text: str) -> Outcome:
    """Something to know of; no node is drained for it."""
    return {"state": "warning", "text": text}


def skipped(text: str) -> Outcome:
    return {"state": "skipped", "text": text}


def in_container() -> bool:
    """Return whether this machine is a container, as machines of a rehearsal are: it has no hardware of its own."""
    return CONTAINER.exists()


def unless_running(name: str, check: Callable[[], Any], *, seconds: float) -> Callable[[], Any]:
    """The check, unless an earlier run of it has not ended: a process that waits for a dead device or file server can't
    be killed, and one more at every interval would fill the machine.

    Raises SetupError: BUSY while the earlier one has had less than `seconds`, since then it is the epilog of another
    job, or a person's `hpc-health now`, and its answer is its own; else that it hangs.
    """

    def run() -> Any:  # noqa: ANN401 - what the check returns
        RUN.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(RUN / f"{name.replace('/', '_')}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not take_lock(lock):
            hangs = time.monotonic() - _since(lock) > seconds + ENDING
            raise SetupError("an earlier check still waits for its answer" if hangs else BUSY)
        os.pwrite(lock, f"{time.monotonic():024.3f}".encode(), 0)
        os.set_inheritable(lock, True)  # noqa: FBT003 - of the standard library; programs that hang hold it too
        return check()

    return run


def _since(lock: int) -> float:
    """Return when the holder of a lock took it, by the monotonic clock; now, where it has not said so yet."""
    try:
        return float(os.pread(lock, 24, 0))
    except ValueError:
        return time.monotonic()


def run_program(*command: str) -> tuple[int, str]:
    """Exit code and output of a program, errors included; whoever calls bounds the time. It holds the lock of `once`
    for as long as it lives."""
    try:
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(command, close_fds=False, check=False, **streams)
    except OSError as error:
        raise SetupError(f"{command[0]} can't be run: {error.strerror}") from None
    return done.returncode, done.stdout.decode(errors="replace")


LAST = Path("/var/lib/hpc/health.json")
RESULTS = cluster_state.HEALTH
MEASURED = cluster_state.FOLDER / "measured"  # one file a node, by the controller
PUBLISH_SECONDS = 5
RECENT = 3600  # seconds


def last_record() -> dict[str, Any]:
    """The last result; empty where there is none."""
    found = read_json(LAST, {})
    return found if isinstance(found, dict) else {}


def keep_record(record: dict[str, Any]) -> None:
    """Store a result. One that can't be published is published by the next run: the shared file system may be what is
    broken."""
    LAST.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    write(LAST, json.dumps(record) + "\n", quiet=True)
    text = json.dumps({name: value for name, value in record.items() if name != "places"}) + "\n"
    side_by_side({"publish": lambda: _publish(record, text)}, seconds=PUBLISH_SECONDS)


def _publish(record: dict[str, Any], text: str) -> bool:
    # Where /opt/apps is not mounted there is no such folder.
    if RESULTS.is_dir():
        cluster_state.write_as_slurm(RESULTS / f"{record['node']}.json", text)
        add_to_history(record)
    return True


def is_common(name: str, kind: str) -> bool:
    """Return whether more than half of the other nodes fail this check as well, by their results of the last hour: its
    cause is then none of theirs, and draining them all would stop the cluster."""
    found = side_by_side({"common": lambda: _is_common(name, kind)}, seconds=PUBLISH_SECONDS)
    return found["common"] is True


def _is_common(name: str, kind: str) -> bool:
    # Times of the files, which are one file server's: nodes' own clocks may be what is wrong.
    files = {path: path.lstat().st_mtime for path in RESULTS.glob("*.json") if path.stem != name}
    newest = max(files.values(), default=0.0)
    recent = [cluster_state.read_object(path) for path, time in files.items() if time > newest - RECENT]
    failing = [result for result in recent if check_of(result, kind).get("state") == "failed"]
    return len(failing) * 2 > len(recent)


def check_of(result: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return what a node's result has of a check; empty for anything else that root of the node has written there."""
    checks = result.get("checks")
    found = checks.get(kind) if isinstance(checks, dict) else None
    return found if isinstance(found, dict) else {}


def results() -> dict[str, Any]:
    """Every node's last result and last measurements, by name, for phase `health-results`."""
    found: dict[str, Any] = {}
    for path in sorted(RESULTS.glob("*.json")) if RESULTS.is_dir() else ():
        found[path.stem] = cluster_state.read_object(path)
    for path in sorted(MEASURED.glob("*.json")) if MEASURED.is_dir() else ():
        found.setdefault(path.stem, {})["measured"] = read_json(path, {})
    return found


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


def add_to_history(record: Mapping[str, Any]) -> None:
    """Add a run's record to the node's history, if it says anything new. Raises SetupError: it can't be written."""
    path = RESULTS / f"{record['node']}.jsonl"
    text = cluster_state.read_text(path)
    line = line_of(record)
    if is_due(line, last_of(text)):
        cluster_state.write_as_slurm(path, appended(text, line))


def last_of(text: str) -> dict[str, Any]:
    """The last whole line; empty where there is none."""
    return next(iter(parsed("\n".join(text.splitlines()[-1:]))), {})


def parsed(text: str) -> list[dict[str, Any]]:
    """The lines that are of a history: root of any node may have written others."""
    rows = parse_json_lines(text)
    return [row for row in rows if valid_time(row.get("time")) is not None and isinstance(row.get("node"), str)]


def show_history(folder: Path = RESULTS) -> None:
    """Print the lines of every node, one JSON object each, that are not older than the time on standard input."""
    since = float(sys.stdin.readline().strip() or 0)
    for path in sorted(folder.glob("*.jsonl")) if folder.is_dir() else ():
        rows = parsed(cluster_state.read_text(path))
        # A file is of the node that it is named after, whatever it says.
        for row in rows:
            if row["node"] == path.stem and row["time"] >= since:
                sys.stdout.write(json.dumps(row) + "\n")
