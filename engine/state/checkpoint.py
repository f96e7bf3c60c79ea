"""State files as they lie on disk: the Pulumi CLI's checkpoints, their copies, and the journal beside each."""

import functools
import hashlib
import json
import os
import time
from pathlib import Path

from engine.errors import DamagedStateError
from engine.state.resource import Resource
from engine.values import Value
from hostfiles import write_atomically

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError)
"""Exceptions of reading a file that is no state."""
PRIVATE = 0o600
"""Mode of states and their copies: even encrypted, they are for their owner only."""


def deployment(text: str) -> dict[str, Value]:
    """The deployment in the text of a state file. Raises one of UNREADABLE."""
    row = json.loads(text)["checkpoint"].get("latest") or {}
    for resource in row.get("resources") or []:
        if not (resource["urn"] and resource["type"]):
            raise ValueError("a resource without a URN or type")
    return row


def read(file: Path) -> dict[str, Value]:
    """The deployment in a state file, as it stands there and in its journal; empty if there is no file.
    Raises DamagedStateError."""
    return text_and_deployment(file)[1]


def text_and_deployment(file: Path) -> tuple[str, dict[str, Value]]:
    """Return the same, with the text of the file itself; "" if there is none. Raises DamagedStateError."""
    return _read(file, stamp(file))


def stamp(file: Path) -> tuple[tuple[int, int, int] | None, ...]:
    """Numbers that change when the state file, or its journal, is written."""
    found: list[tuple[int, int, int] | None] = []
    for path in (file, journal_file(file)):
        try:
            row = path.stat()
            found.append((row.st_ino, row.st_mtime_ns, row.st_size))
        except OSError:
            found.append(None)
    return tuple(found)


@functools.lru_cache(maxsize=1)
def _read(file: Path, _stamp: object) -> tuple[str, dict[str, Value]]:
    # A run comes here three times, and a large state has tens of megabytes.
    try:
        text = file.read_text(encoding="utf-8")
        found = deployment(text)
        return text, replayed(file, text, found) or found
    except FileNotFoundError:
        return "", {}
    except UNREADABLE as error:
        raise DamagedStateError(file, f"{type(error).__name__}: {error}", newest_backup(file)) from None


def newest_backup(file: Path) -> Path | None:
    """The newest state before `file` that can be read: its .bak, or the outcome of a run; None if there is none."""
    for candidate in (file.with_name(file.name + ".bak"), *_outcomes(file)):
        try:
            deployment(candidate.read_text(encoding="utf-8"))
        except (*UNREADABLE, OSError):
            continue
        return candidate
    return None


def newest_outcome(file: Path) -> Path | None:
    """The state after the newest run of those that are kept."""
    return next(iter(_outcomes(file)), None)


def _outcomes(file: Path) -> list[Path]:
    project, stack = file.parent.name, file.stem
    return sorted((file.parents[2] / "backups" / project / stack).glob(f"{stack}.*.json"), reverse=True)


def share(file: Path, other: Path) -> None:
    """Let a copy of a file stand at another place, without its room on the disk where that can be."""
    try:
        os.link(file, other)
    except OSError:
        write_atomically(other, file.read_text(encoding="utf-8"), mode=PRIVATE)


def set_aside(file: Path) -> Path | None:
    """Move a state file that can't be read out of the way, so that it does not become the .bak; where it is then."""
    try:
        read(file)
    except DamagedStateError:
        return file.replace(file.with_name(f"{file.name}.damaged-{time.time_ns()}"))
    return None


def text_of(name: str, row: dict[str, Value]) -> str:
    """The text of the state file of a stack, named as organization/PROJECT/STACK."""
    checkpoint = {"version": 3, "checkpoint": {"stack": name, "latest": row}}
    return json.dumps(checkpoint, separators=(",", ":"), ensure_ascii=False)


def write_state(file: Path, name: str, row: dict[str, Value]) -> None:
    """Put a deployment in place of a stack's, whatever its journal says, keeping the one before as `.bak`."""
    write_text(file, text_of(name, row))
    set_journal_aside(file)


def write_text(file: Path, text: str) -> None:
    """Write a state file, keeping the one before as `.bak`."""
    if file.exists():
        backup = file.with_name(file.name + ".bak")
        backup.unlink(missing_ok=True)
        os.link(file, backup)
    write_atomically(file, text, mode=PRIVATE, sync=True)


def journal_file(file: Path) -> Path:
    """Path of the journal of a state file. (The CLI ignores files whose names do not end in .json.)"""
    return file.with_name(file.name + ".journal")


def digest(text: str) -> str:
    """The digest by which a journal names the state that it continues."""
    return hashlib.sha256(text.encode()).hexdigest()


class Journal:
    """The changes of a state since its file was written, so that one step among thousands does not write the whole
    file.

    The first line of STACK.json.journal has the digest of the state that it continues; each further line is one write.
    It is merged into the state file when it is large and at the end of each run. So only a run that was killed leaves a
    journal, with its lock, which keeps the Pulumi CLI away. Whoever reads the state reads the journal too. Entries name
    a resource by number: its position in the file, or the next free number for a new one."""

    def __init__(self, file: Path) -> None:
        self._file = journal_file(file)
        self._out: int | None = None
        self.size = 0

    def begin(self, of: str, salt: str, done: int) -> None:
        """Start a new journal on the state with the digest `of`, whose first `done` resources the run has dealt with.
        Raises OSError."""
        self.close()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        self._out, self.size = os.open(self._file, flags, 0o600), 0
        self.append({"of": of, "salt": salt, "done": done})

    def resume(self) -> None:
        """Append to the existing journal, whose last line may be partial. Raises OSError."""
        self._out = os.open(self._file, os.O_WRONLY | os.O_APPEND)
        os.write(self._out, b"\n")

    @property
    def begun(self) -> bool:
        return self._out is not None

    def append(self, entry: Value) -> None:
        """Write an entry, on disk when this returns. Raises OSError."""
        if self._out is None:
            return
        line = json.dumps(entry, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        written = 0
        while written < len(line):
            written += os.write(self._out, line[written:])
        os.fsync(self._out)
        self.size += len(line)

    def close(self) -> None:
        if self._out is not None:
            os.close(self._out)
            self._out = None

    def remove(self) -> None:
        """Remove the journal, after all of it was merged into the state file."""
        self.close()
        self._file.unlink(missing_ok=True)


def entries(file: Path) -> list[Value]:
    """The complete lines of a state's journal; none if there is no journal. A partial line is skipped: its write
    had not returned, so no step relied on it."""
    try:
        lines = journal_file(file).read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    found: list[Value] = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def replayed(file: Path, text: str, deployment: dict[str, Value]) -> dict[str, Value] | None:
    """A deployment, read from `text`, with the changes of its journal; None if there are none.

    If another program has written the state since, resources that only the journal has are added as pending creations:
    the next run takes them over or removes them."""
    header, *rest = entries(file) or [None]
    if not isinstance(header, dict):
        return None
    at = digest(text)
    folded = [i for i, entry in enumerate(rest) if isinstance(entry, dict) and entry.get("folded") == at]
    if folded:
        return None
    ops = [op for entry in rest if isinstance(entry, list) for op in entry]
    if header.get("of") != at:
        return _with_pending_creations(header, deployment, ops)
    return _applied(header.get("done") or 0, deployment, ops) if ops else None


def set_journal_aside(file: Path) -> None:
    """Rename the journal of a state that was replaced."""
    if journal_file(file).exists():
        journal_file(file).replace(file.with_name(f"{file.name}.journal-{time.time_ns()}"))


def _applied(done: int, deployment: dict[str, Value], ops: list[Value]) -> dict[str, Value]:
    rows = deployment.get("resources") or []
    news: dict[int, Value] = dict(enumerate(rows[:done]))
    olds: dict[int, Value] = dict(enumerate(rows[done:], done))
    pending = {_key(op["type"], op["resource"]): op for op in deployment.get("pending_operations") or []}
    renamed: dict[str, str] = {}
    for what, *args in ops:
        if what == "put":
            number, row, instead, was = args
            olds.pop(instead, None)
            news[number] = row
            renamed |= {was: row["urn"]} if was != row["urn"] else {}
        elif what == "keep" and args[0] in olds:
            news[args[0]] = olds.pop(args[0])
        elif what == "drop":
            olds.pop(args[0], None)
            news.pop(args[0], None)
        elif what == "row":
            place = news if args[0] in news else olds
            if args[0] in place:
                place[args[0]] = args[1]
        elif what == "begin":
            pending[args[0], args[1]["urn"]] = {"resource": args[1], "type": args[0]}
        elif what == "end":
            pending.pop((args[0], args[1]), None)
    left = [Resource.from_json(row).renamed(renamed).to_json() if renamed else row for row in olds.values()]
    return {**deployment, "resources": [*news.values(), *left], "pending_operations": list(pending.values())}


def _with_pending_creations(
    header: dict[str, Value], deployment: dict[str, Value], ops: list[Value]
) -> dict[str, Value] | None:
    kept = ((deployment.get("secrets_providers") or {}).get("state") or {}).get("salt")
    if header.get("salt") != kept:
        return None
    known = {row["urn"] for row in deployment.get("resources") or []}
    there: dict[Value, Value] = {}
    for what, *args in ops:
        if what == "put" or (what == "begin" and args[0] == "creating"):
            there[args[0] if what == "put" else args[1]["urn"]] = args[1]
        elif what in ("drop", "end"):
            there.pop(args[0] if what == "drop" else args[1], None)
    made = [row for row in there.values() if row.get("custom") and row["urn"] not in known]
    pending = {_key("creating", row): {"resource": row, "type": "creating"} for row in made}
    pending |= {_key(op["type"], op["resource"]): op for op in deployment.get("pending_operations") or []}
    return {**deployment, "pending_operations": list(pending.values())} if made else None


def _key(kind: str, row: dict[str, Value]) -> tuple[str, str]:
    return kind, row["urn"]
