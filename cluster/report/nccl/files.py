"""Logs from files of any size, and from text."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from cluster.findings import Finding, show
from cluster.report.nccl.json_log import run_of
from cluster.report.nccl.reader import read_lines
from cluster.report.nccl.run import Log

_LONGEST_LINE = 2**16
_LARGEST_JSON = 256 * 2**20
_SAMPLE = 2**12
_ALLOWED = "output of nccl-tests: a table that begins with `#  size  count  type`, or the JSON that -J writes"
_BLOCK = 2**20
_LABELLED = re.compile(rb"[0-9]+: [A-Za-z]")


class NotALogError(Exception):
    """A file that has no run of nccl-tests; `finding` says what it has instead."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        super().__init__(str(finding))


def read_file(path: Path | str) -> Log:
    """Read a log; lines are read one at a time, so its size does not matter.

    Raises OSError where it can't be read, NotALogError where it has no run of nccl-tests.
    """
    path = Path(path)
    with path.open("rb") as file:
        sample = file.peek(_SAMPLE)[:_SAMPLE]  # a pipe has no way back
        return _read(file, sample, path.stat().st_size, str(path))


def read_text(text: str, name: str) -> Log:
    """Read a log that is in memory; `name` stands in findings. Raises NotALogError as read_file does."""
    if text.lstrip().startswith("{"):
        return _from_json(text, name)
    return _from_lines(((number, line) for number, line in enumerate(text.split("\n"), 1)), name, text[:_SAMPLE])


def _read(file: BinaryIO, sample: bytes, size: int, name: str) -> Log:
    if not sample:
        raise _not_a_log(name, "an empty file", todo="run it when the job has written something")
    if sample.startswith(b"\x1f\x8b"):
        raise _not_a_log(name, "a file compressed by gzip", todo=f"run `gunzip {name}`, then this command again")
    if sample.lstrip().startswith(b"{") and size <= _LARGEST_JSON:
        return _from_json(file.read().decode("utf-8", "replace"), name)
    return _from_lines(_lines(file), name, sample.decode("utf-8", "replace"))


def _lines(file: BinaryIO) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, without their ends; no empty ones, and of a very long one the beginning."""
    number, rest = 0, b""
    while block := file.read(_BLOCK):
        block = rest + block
        end = block.rfind(b"\n") + 1
        for raw in block[:end].split(b"\n")[:-1]:
            number += 1
            if raw and not (b" NCCL INFO " in raw and _is_chatter(raw)):
                yield number, raw[:_LONGEST_LINE].decode("utf-8", "replace")
        rest = block[end : end + _LONGEST_LINE]
    if rest:
        yield number + 1, rest.decode("utf-8", "replace")


def _is_chatter(raw: bytes) -> bool:
    """Whether a line of NCCL_DEBUG=INFO can be left out: they are most of a large log, and two kinds are read.

    A line that begins with a row of nccl-tests begins with a blank, after a label if there is one.
    """
    whole = raw[:1].isalpha() or _LABELLED.match(raw)
    return bool(whole) and b"Using network " not in raw and b"NCCL_" not in raw


def _from_lines(lines: Iterable[tuple[int, str]], name: str, sample: str) -> Log:
    # A carriage return in a line is a progress bar's: what follows it overwrites what was before.
    reader = read_lines((number, piece) for number, line in lines for piece in line.strip("\r\n").split("\r"))
    if not any(run.rows or run.devices or run.settings or run.complete for run in reader.runs):
        complaints = reader.ahead.complaints or [quote for run in reader.runs for quote in run.complaints]
        if complaints:
            first = complaints[0]
            given = f"no run of nccl-tests; line {first.line} has: {first.text}"
            raise _not_a_log(name, given, todo="correct what that line says, and run the test again")
        given = "binary data" if _is_binary(sample) else f"a file that begins with {show(sample)}"
        raise _not_a_log(name, given, todo="name the log of a job that `./hpc nccl run` started, or its number")
    return Log(name, tuple(reader.runs))


def _from_json(text: str, name: str) -> Log:
    try:
        document = json.loads(text)
        return Log(name, (run_of(document),))
    except json.JSONDecodeError as error:
        given = f"JSON that is not complete: {error.msg} in line {error.lineno}, column {error.colno}"
        raise _not_a_log(name, given, todo="report the text that the same run printed; it has every row") from error
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise _not_a_log(name, "JSON of another program", todo="name the file that -J wrote") from error


def _is_binary(sample: str) -> bool:
    unreadable = sum(one == "\ufffd" or (ord(one) < 32 and one not in "\t\r\n\x1b") for one in sample)
    return unreadable * 20 > len(sample)


def _not_a_log(name: str, given: str, *, todo: str) -> NotALogError:
    return NotALogError(Finding(id="nccl-no-log", at=name, given=given, allowed=_ALLOWED, todo=todo))
