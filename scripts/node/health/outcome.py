"""The outcome of a check, the record of a node's last run, and its history: a line per change, and one per day.

Record and history are in the cluster state (health/NODE.json and .jsonl), so that they outlive the machine. `./hpc job`
shows the history during a job, `./hpc reliability` counts it.
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
from system.host import SetupError, read_json, side_by_side, write
from system.locks import LOCKS, take_lock

RUN = LOCKS / "health"  # locks of checks that have not ended; for root only
CONTAINER = Path("/run/systemd/container")  # systemd's container interface: the file exists in a container
BUSY = "another run asks just now"
ENDING = 5  # seconds that a killed program may take to end


class _Outcome(TypedDict):
    state: str
    text: str


class Outcome(_Outcome, total=False):
    """`state` is ok, failed, warning or skipped; `text` has the figures, or why it was skipped. `unsure`: the fault may
    end in a moment, as during the restart of a file server: the node is drained if two runs in a row find it.
    `certain`: the machine must not be used before a repair (drain_unhealthy.py). `place`: counters or a position that
    the next run needs to find only what is new; the record has it beside the outcomes."""

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
    """Return an outcome that is reported, and for which no node is drained."""
    return {"state": "warning", "text": text}


def skipped(text: str) -> Outcome:
    return {"state": "skipped", "text": text}


OutcomeOf = Callable[[str], Outcome]
WORST_FIRST: tuple[OutcomeOf, ...] = (certain, failed, unsure, warned)
"""Functions that make the outcome of a finding, the worst first."""
Finding = tuple[OutcomeOf, str]


def combine(findings: list[Finding], *, most: int = 8) -> Outcome | None:
    """Return the outcome of a check with these findings, the worst `most` of them; None without any.

    A check that fails does not name its warnings.
    """
    ordered = sorted(findings, key=lambda finding: WORST_FIRST.index(finding[0]))
    if not ordered:
        return None
    worst = ordered[0][0]
    texts = dict.fromkeys(text for made_by, text in ordered if (made_by is warned) == (worst is warned))
    return worst(", ".join(list(texts)[:most]))


def in_container() -> bool:
    """Return whether this machine is a container without hardware of its own, as in a rehearsal."""
    return CONTAINER.exists()


def unless_running(name: str, check: Callable[[], Any], *, seconds: float) -> Callable[[], Any]:
    """Return the check with a lock, so that it does not start while an earlier run of it has not ended.

    A process that waits for a dead device or file server can't be killed, and another one at every interval would fill
    the machine. The check raises SetupError: with BUSY if the earlier run began less than `seconds` ago, since it is
    then the epilog of another job or somebody's `hpc-health now`; else with the text that it hangs.
    """

    def run() -> Any:  # noqa: ANN401 - what the check returns
        RUN.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(RUN / f"{name.replace('/', '_')}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not take_lock(lock):
            hangs = time.monotonic() - _locked_since(lock) > seconds + ENDING
            raise SetupError("an earlier check still waits for its answer" if hangs else BUSY)
        os.pwrite(lock, f"{time.monotonic():024.3f}".encode(), 0)
        os.set_inheritable(lock, True)  # noqa: FBT003 - of the standard library. Programs that hang keep the lock.
        return check()

    return run


def _locked_since(lock: int) -> float:
    """Return the monotonic time when the holder took the lock; now if it has not written that yet."""
    try:
        return float(os.pread(lock, 24, 0))
    except ValueError:
        return time.monotonic()


def run_program(*command: str) -> tuple[int, str]:
    """Run a program; return its exit code and its output, errors included. The caller bounds the time.

    The program inherits the lock of `unless_running`, and holds it until it ends.
    """
    try:
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(command, close_fds=False, check=False, **streams)
    except OSError as error:
        raise SetupError(f"{command[0]} can't be run: {error.strerror}") from None
    return done.returncode, done.stdout.decode(errors="replace")


LAST = Path("/var/lib/hpc/health.json")
RESULTS = cluster_state.HEALTH
MEASURED = cluster_state.FOLDER / "measured"  # one file per node, written by the controller
PUBLISH_SECONDS = 5
RECENT = 3600  # seconds


def last_record() -> dict[str, Any]:
    """Return the record of the last run; empty if there is none."""
    record = read_json(LAST, {})
    return record if isinstance(record, dict) else {}


def keep_record(record: dict[str, Any]) -> None:
    """Store a record and publish it. If the shared file system fails, the next run publishes its own record."""
    LAST.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    write(LAST, json.dumps(record) + "\n", quiet=True)
    text = json.dumps({name: value for name, value in record.items() if name != "places"}) + "\n"
    side_by_side({"publish": lambda: _publish(record, text)}, seconds=PUBLISH_SECONDS)


def _publish(record: dict[str, Any], text: str) -> bool:
    # The folder does not exist while /opt/apps is not mounted.
    if RESULTS.is_dir():
        cluster_state.write_as_slurm(RESULTS / f"{record['node']}.json", text)
        add_to_history(record)
    return True


def is_common(name: str, kind: str) -> bool:
    """Return whether more than half of the other nodes fail this check too, by their records of the last hour.

    The cause is then none of the nodes, and draining them all would stop the cluster.
    """
    answers = side_by_side({"common": lambda: _is_common(name, kind)}, seconds=PUBLISH_SECONDS)
    return answers["common"] is True


def _is_common(name: str, kind: str) -> bool:
    # The file server's times, since the clocks of the nodes may be wrong.
    files = {path: path.lstat().st_mtime for path in RESULTS.glob("*.json") if path.stem != name}
    newest = max(files.values(), default=0.0)
    recent = [cluster_state.read_object(path) for path, time in files.items() if time > newest - RECENT]
    failing = [result for result in recent if check_of(result, kind).get("state") == "failed"]
    return len(failing) * 2 > len(recent)


def check_of(result: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the outcome of a check in a node's record; empty if root of the node has written anything else there."""
    checks = result.get("checks")
    check = checks.get(kind) if isinstance(checks, dict) else None
    return check if isinstance(check, dict) else {}


def results() -> dict[str, Any]:
    """Return the last record and the last measurements of every node, by name, for phase `health-results`."""
    records: dict[str, Any] = {path.stem: cluster_state.read_object(path) for path in sorted(RESULTS.glob("*.json"))}
    for path in sorted(MEASURED.glob("*.json")):
        records.setdefault(path.stem, {})["measured"] = read_json(path, {})
    return records


MOST_BYTES = 1 << 16
"""Largest size of one node's history: the oldest lines are removed. A year with a hundred faults has 40 kB."""
DAY = 86400
TEXT = 200
"""Characters of a check's text."""


def line_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of the history for a record: time, failures, warnings and the action. A pure function."""
    line: dict[str, Any] = {"time": round(record["time"], 1), "node": record["node"], "boot": record.get("boot", "")}
    for state in ("failed", "warning"):
        checks = record["checks"].items()
        if texts := {kind: check["text"][:TEXT] for kind, check in checks if check["state"] == state}:
            line[state] = texts
    if done := record.get("done"):
        line["done"] = done
    return line


def is_due(line: Mapping[str, Any], last: Mapping[str, Any]) -> bool:
    """Return whether a line differs from the one before it, or a day has passed. A pure function.

    It compares kinds, since figures change at every run, and the text of a Xid, since each Xid is found once.
    """
    if not last or not isinstance(last.get("time"), (int, float)) or line["time"] - last["time"] >= DAY:
        return True
    return _kinds(line) != _kinds(last) or "done" in line


def _kinds(line: Mapping[str, Any]) -> tuple[object, ...]:
    compared: list[object] = [line.get("boot")]
    for state in ("failed", "warning"):
        texts = line.get(state)
        compared += [sorted(texts), texts.get("gpu-xid")] if isinstance(texts, dict) and texts else [None]
    return tuple(compared)


def append_line(text: str, line: Mapping[str, Any]) -> str:
    """Return the history with another line, without its oldest ones if it exceeds MOST_BYTES. A pure function."""
    text = f"{text.rstrip()}\n{json.dumps(line)}\n".lstrip()
    while len(text.encode()) > MOST_BYTES:
        text = text[text.index("\n", len(text) // 8) + 1 :]
    return text


def add_to_history(record: Mapping[str, Any]) -> None:
    """Add a record to the node's history if it has anything new. Raises SetupError if it can't be written."""
    path = RESULTS / f"{record['node']}.jsonl"
    text = cluster_state.read_text(path)
    line = line_of(record)
    last = next(iter(parse_history("\n".join(text.splitlines()[-1:]))), {})
    if is_due(line, last):
        cluster_state.write_as_slurm(path, append_line(text, line))


def parse_history(text: str) -> list[dict[str, Any]]:
    """Return the valid lines of a history: root of any node may have written others."""
    rows = parse_json_lines(text)
    return [row for row in rows if valid_time(row.get("time")) is not None and isinstance(row.get("node"), str)]


def show_history() -> None:
    """Print the lines of all nodes since the time on standard input, each as a JSON object."""
    since = float(sys.stdin.readline().strip() or 0)
    for path in sorted(RESULTS.glob("*.jsonl")):
        for row in parse_history(cluster_state.read_text(path)):
            # The name of the file says whose it is. A node may write another name into it.
            if row["node"] == path.stem and row["time"] >= since:
                sys.stdout.write(json.dumps(row) + "\n")
