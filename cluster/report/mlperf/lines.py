"""Finds the lines of a log that a report needs, fast: most of a log is output of NCCL and of the framework.

An event is `:::MLLOG` and a JSON object (github.com/mlcommons/logging, mlperf_logging/mllog/mllog.py). It need not
start its line: `srun --label` puts the task in front, and ranks that share a log write into each other's lines.
"""

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import BinaryIO, NamedTuple

MARK = b":::MLLOG"
RESULT = b"RESULT,"
"""`RESULT,stable_diffusion,SECONDS,USER,START`: the last line of a run (run_and_time.sh of the benchmark)."""
MEMBER = b" MEMBER: "
"""`Initializing distributed: GLOBAL_RANK: 3, MEMBER: 4/16`: a line of PyTorch Lightning, with the number of ranks."""
ITERATION = b" elapsed time per iteration (ms): "
"""A line of Megatron-LM for each iteration, where its events have only the beginning and the end of training."""
PATTERNS = (MARK, RESULT, MEMBER, ITERATION)

KEYS = frozenset(
    "block_start block_stop cache_clear epoch_start epoch_stop eval_accuracy eval_start eval_stop global_batch_size "
    "init_start max_sequence_length run_start run_stop status submission_benchmark submission_platform tracked_stats "
    "trained_samples".split()
)
"""Keys of the events that a report reads; the others are not parsed."""

_CHUNK = 4 * 1024 * 1024
_LONGEST = 64 * 1024
"""Bytes of a line that are looked at: events are below 1 KiB."""
_NEAR = 250
"""Bytes of an event up to its key."""
_LINE_FEED = 10
_LATEST_MS = 10**14
_NOTHING: Mapping[str, object] = MappingProxyType({})


class Event(NamedTuple):
    """One event."""

    line: int
    task: int | None
    """Number of the task, where `srun --label` wrote it."""
    time_ms: int
    key: str
    value: object
    metadata: Mapping[str, object]


class Text(NamedTuple):
    """A line that is no event, and is used nevertheless."""

    line: int
    task: int | None
    kind: bytes
    """RESULT, MEMBER or ITERATION."""
    text: str
    """For ITERATION the whole line, else what follows."""


class Unreadable(NamedTuple):
    """An event that can't be read."""

    line: int
    reason: str


def scan(log: BinaryIO) -> Iterator[Event | Text | Unreadable]:
    """Events and other lines of use, in the order of the file. Reads in pieces of a few MiB."""
    line, rest = 1, b""
    while piece := log.read(_CHUNK):
        piece = rest + piece
        end = piece.rfind(b"\n") + 1
        if end == 0:
            # A line of several MiB is no log line; a mark that is cut here is lost with it.
            end = len(piece) - _LONGEST if len(piece) > 2 * _CHUNK else 0
        rest, piece = piece[end:], piece[:end]
        yield from _scan(piece, line)
        line += piece.count(b"\n")
    yield from _scan(rest, line)


def _scan(piece: bytes, line: int) -> Iterator[Event | Text | Unreadable]:
    counted = 0
    for at, pattern in _found(piece):
        line += piece.count(b"\n", counted, at)
        counted = at
        after, end = at + len(pattern), _end_of_line(piece, at)
        starts_line = at == 0 or piece[at - 1] == _LINE_FEED
        begin = at if starts_line else piece.rfind(b"\n", max(0, at - _LONGEST), at) + 1
        task = None if starts_line else _task(piece[begin:at])
        if pattern is MARK:
            yield _event(line, task, piece[after:end].decode("utf-8", "replace"))
        else:
            text = piece[begin if pattern is ITERATION else after : end]
            yield Text(line, task, pattern, text.decode("utf-8", "replace").strip())


def _end_of_line(piece: bytes, at: int) -> int:
    end = piece.find(b"\n", at, at + _LONGEST)
    return min(len(piece), at + _LONGEST) if end < 0 else end


def _found(piece: bytes) -> list[tuple[int, bytes]]:
    """Where lines are that have a pattern. Searching for each is many times faster than for all in one expression."""
    found = []
    for pattern in PATTERNS:
        at = piece.find(pattern)
        while at >= 0:
            if pattern is not MARK or _is_wanted(piece, at):
                found.append((at, pattern))
            at = piece.find(pattern, at + 1)
    found.sort()
    return found


_KEY = b'"key": "'
_WANTED = frozenset(key.encode() for key in KEYS)


def _is_wanted(piece: bytes, at: int) -> bool:
    """Whether an event has a key of KEYS, or is one of which only a parser can say so."""
    key = piece.find(_KEY, at, at + _NEAR)
    close = piece.find(b'"', key + len(_KEY), at + _NEAR)
    if key < 0 or close < 0:
        return True
    return piece[key + len(_KEY) : close] in _WANTED or piece.find(b"\n", at, key) >= 0


def _task(before: bytes) -> int | None:
    """The task that `srun --label` wrote in front of a line: `12: ` or ` 3: `."""
    label, colon, _ = before[:16].partition(b":")
    label = label.strip()
    return int(label) if colon and label.isdigit() and len(label) < 8 else None


_DECODER = json.JSONDecoder()


def _event(line: int, task: int | None, text: str) -> Event | Unreadable:
    text = text.lstrip()
    try:
        found, _ = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        reason = "is cut short" if text.startswith("{") else "has no JSON object"
        return Unreadable(line, f"{MARK.decode()} {reason}")
    if not isinstance(found, dict) or not isinstance(found.get("key"), str):
        return Unreadable(line, f"{MARK.decode()} has no key")
    time_ms = found.get("time_ms")
    if isinstance(time_ms, bool) or not isinstance(time_ms, int | float) or not 0 <= time_ms < _LATEST_MS:
        return Unreadable(line, f"{MARK.decode()} has no time_ms")
    metadata = found.get("metadata")
    return Event(
        line, task, int(time_ms), found["key"], found.get("value"), metadata if isinstance(metadata, dict) else _NOTHING
    )
