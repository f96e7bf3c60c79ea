"""State files: the Pulumi CLI's checkpoints, their copies, and the journal beside each."""

import contextlib
import functools
import gzip
import hashlib
import json
import os
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from engine.errors import DamagedStateError, EngineError
from engine.state.resource import Resource, now
from engine.values import Value
from scripts.hostfiles import write_atomically

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, EOFError, gzip.BadGzipFile, zlib.error)
"""Exceptions from reading a file that is not a state."""
ENDINGS = ("", ".gz", ".zst")
"""Endings that a state file's name may have after STACK.json: the CLI compresses it with PULUMI_DIY_BACKEND_GZIP or
_ZSTD (sdk/go/common/env/env.go and encoding/marshal.go of pulumi v3.274.1)."""
FEATURES = {"replaceWith": "replaceWith", "taint": "taint"}
"""Features that this engine keeps, each with the key of a resource that uses it. With one of them a state is of version
4, which older CLIs refuse; else of version 3 (pkg/resource/stack/deployment.go of pulumi v3.274.1)."""
PRIVATE = 0o600
"""File mode of states and their copies: even encrypted, they are for their owner only."""


class StoredState(NamedTuple):
    """The content of a state file: its text, the deployment in it (with the changes of its journal), and the features
    that the CLI wrote."""

    text: str
    deployment: dict[str, Value]
    features: Sequence[str] = ()


def parse(text: str) -> StoredState:
    """Parse the text of a state file. Raises one of UNREADABLE, and EngineError for a version that only the CLI has."""
    document = json.loads(text)
    row = document["checkpoint"].get("latest") or {}
    require_version(document)
    for resource in row.get("resources") or []:
        if not (resource["urn"] and resource["type"]):
            raise ValueError("a resource without a URN or type")
    return StoredState(text, row, document.get("features") or [])


def require_version(document: dict[str, Value]) -> None:
    """Raise EngineError unless this engine reads the version of a state or an export."""
    if document.get("version") not in (3, 4):
        raise EngineError(
            f"state of version {document.get('version')!r}: this program reads 3 and 4. Use `pulumi` itself"
        )


def require_known(features: Sequence[str]) -> None:
    """Raise EngineError unless this engine keeps these features of a state, which it is to write."""
    if unknown := _unknown(features):
        raise EngineError(
            f"the state uses {', '.join(unknown)}, which the embedded engine does not know: it would be lost. Use the "
            "Pulumi CLI: --engine pulumi"
        )


def _unknown(features: Sequence[str]) -> list[str]:
    return sorted({*features} - {*FEATURES})


def versioned(row: dict[str, Value], features: Sequence[str] = ()) -> dict[str, Value]:
    """Return the keys `version` and `features` of a document with this deployment, which was read with `features`."""
    resources = row.get("resources") or []
    known = [name for name, key in FEATURES.items() if any(resource.get(key) for resource in resources)]
    used = sorted([*known, *_unknown(features)])
    return {"version": 4, "features": used} if used else {"version": 3}


def stored(file: Path) -> Path | None:
    """Return the path of the file with a state: STACK.json, or a compressed one beside it; None if there is none. Of
    several the one that was written last counts (stackPath in pkg/backend/diy/state.go of pulumi v3.274.1)."""
    found: list[tuple[int, Path]] = []
    for path in forms(file):
        with contextlib.suppress(OSError):
            found.append((path.stat().st_mtime_ns, path))
    return max(found)[1] if found else None


def forms(file: Path) -> list[Path]:
    """Return the paths that a state may have: STACK.json, and those of its compressed forms."""
    return [file.with_name(file.name + ending) for ending in ENDINGS]


def attributes_file(file: Path) -> Path:
    """Return the path at which the CLI's file store keeps attributes of a file, which may be missing (setAttrs and
    getAttrs in blob/fileblob/attrs.go of gocloud.dev v0.46.1)."""
    return file.with_name(file.name + ".attrs")


def remove_attributes(file: Path) -> None:
    """Remove the attributes of a state. The CLI creates them at each write, and then writes them: a kill in between
    leaves an empty file, at which it ends with `failed to load checkpoint: EOF`."""
    for form in forms(file):
        attributes_file(form).unlink(missing_ok=True)


def _read_text(path: Path) -> str:
    """Return the text of a state file or a copy. Raises OSError, one of UNREADABLE, and EngineError if it is compressed
    with Zstandard, for which Python has no module."""
    data = path.read_bytes()
    if path.suffix == ".zst":
        raise EngineError(
            f"{path}: compressed with Zstandard, which only the Pulumi CLI reads.\n"
            f"Unset PULUMI_DIY_BACKEND_ZSTD, and run: zstd -d --rm {path}"
        )
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def read(file: Path) -> dict[str, Value]:
    """Return the deployment in a state file and its journal; empty if there is no file. Raises DamagedStateError."""
    return load(file).deployment


def load(file: Path) -> StoredState:
    """Read a state file and its journal; without a file all is empty. Raises DamagedStateError."""
    return _load(file, stamp(file))


def stamp(file: Path) -> tuple[tuple[int, int, int] | None, ...]:
    """Return numbers that change when the state file or its journal is written."""
    numbers: list[tuple[int, int, int] | None] = []
    for path in (stored(file) or file, journal_file(file)):
        try:
            status = path.stat()
            numbers.append((status.st_ino, status.st_mtime_ns, status.st_size))
        except OSError:
            numbers.append(None)
    return tuple(numbers)


@functools.lru_cache(maxsize=1)
def _load(file: Path, _stamp: object) -> StoredState:
    # Cached because a run reads the state three times, and a large one has tens of megabytes.
    path = stored(file)
    if path is None:
        return StoredState("", {})
    try:
        found = parse(_read_text(path))
        row = replayed(file, found.text, found.deployment) or found.deployment
        return found._replace(deployment=without_finished_creations(file, row))
    except FileNotFoundError:
        return StoredState("", {})
    except UNREADABLE as error:
        raise DamagedStateError(path, f"{type(error).__name__}: {error}", newest_backup(file)) from None


def newest_backup(file: Path) -> Path | None:
    """Return the newest readable copy of a state: its .bak, or the one kept after a run; None if there is none."""
    for candidate in (file.with_name(file.name + ".bak"), *_outcomes(file)):
        try:
            parse(candidate.read_text(encoding="utf-8"))
        except (*UNREADABLE, OSError, EngineError):
            continue
        return candidate
    return None


def newest_outcome(file: Path) -> Path | None:
    """Return the copy that was kept after the newest run; None if there is none."""
    return next(iter(_outcomes(file)), None)


def _outcomes(file: Path) -> list[Path]:
    project, stack = file.parent.name, file.stem
    return sorted((file.parents[2] / "backups" / project / stack).glob(f"{stack}.*.json"), reverse=True)


def states_after_runs(file: Path) -> Iterator[tuple[int, dict[str, Value]]]:
    """Yield what runs of either engine left as the stack's state, the newest first: its time in nanoseconds, and the
    deployment. The CLI copies it to the history after each run (addToHistory in pkg/backend/diy/state.go of pulumi
    v3.274.1), compressed if the user chose that. A copy that can't be read is left out."""
    history = file.parents[2] / "history" / file.parent.name / file.stem
    stamped: list[tuple[int, Path]] = []
    for copy in history.glob("*.checkpoint.json*"):
        stamp_ = copy.name.rpartition("-")[2].partition(".")[0]
        if stamp_.isdecimal():
            stamped.append((int(stamp_), copy))
    for time_, copy in sorted(stamped, reverse=True):
        with contextlib.suppress(*UNREADABLE, OSError, EngineError):
            yield time_, parse(_read_text(copy)).deployment


def link_or_copy(file: Path, other: Path) -> None:
    """Make a hard link to a file, which takes no room on the disk, or a copy where that is not possible."""
    try:
        os.link(file, other)
    except OSError:
        write_atomically(other, file.read_text(encoding="utf-8"), mode=PRIVATE)


def set_damaged_aside(file: Path) -> None:
    """Rename a state file that can't be read, so that it does not become the .bak."""
    try:
        read(file)
    except DamagedStateError as error:
        error.file.replace(error.file.with_name(f"{error.file.name}.damaged-{time.time_ns()}"))


def text_of(name: str, row: dict[str, Value]) -> str:
    """Return the text of a state file, for a stack named as organization/PROJECT/STACK."""
    checkpoint = {**versioned(row), "checkpoint": {"stack": name, "latest": row}}
    return json.dumps(checkpoint, separators=(",", ":"), ensure_ascii=False)


def write_state(file: Path, name: str, row: dict[str, Value]) -> None:
    """Replace a stack's deployment and discard its journal. The old file is kept as `.bak`."""
    write_text(file, text_of(name, row))
    set_journal_aside(file)


def write_text(file: Path, text: str) -> None:
    """Write a state file. The old one is kept as `.bak`, a compressed one too."""
    if file.exists():
        backup = file.with_name(file.name + ".bak")
        backup.unlink(missing_ok=True)
        os.link(file, backup)
    write_atomically(file, text, mode=PRIVATE, sync=True)
    for compressed in forms(file)[1:]:
        if compressed.exists():
            compressed.replace(compressed.with_name(compressed.name + ".bak"))


def journal_file(file: Path) -> Path:
    """Return the path of a state file's journal. The CLI ignores files whose names do not end in .json."""
    return file.with_name(file.name + ".journal")


def digest(text: str) -> str:
    """Return the digest by which a journal refers to the state that it continues."""
    return hashlib.sha256(text.encode()).hexdigest()


class StateJournal:
    """The changes of a state since its file was written, so that a step does not write the whole file of thousands of
    resources.

    The first line of STACK.json.journal has the digest of the state that it continues; each further line is one write.
    It is merged into the state file when it is large, and at the end of each run. So only a run that was killed leaves
    a journal, with its lock, which keeps the Pulumi CLI from running. All that read the state read the journal too.
    Entries refer to a resource by number: its position in the file, or the next free number for a new one."""

    def __init__(self, file: Path) -> None:
        self._file = journal_file(file)
        self._out: int | None = None
        self.size = 0

    def begin(self, of: str, salt: str, done: int) -> None:
        """Start a new journal on the state with the digest `of`, of whose resources this run has handled the
        first `done`. Raises OSError."""
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
        """Write an entry and sync it to the disk. Raises OSError."""
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
        """Remove the journal, which was merged into the state file."""
        self.close()
        self._file.unlink(missing_ok=True)


def entries(file: Path) -> list[Value]:
    """Return the complete lines of a state's journal; none if there is no journal. A partial line is skipped: its write
    had not returned, so no step depends on it."""
    try:
        lines = journal_file(file).read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    rows: list[Value] = []
    for line in lines:
        with contextlib.suppress(ValueError):
            rows.append(json.loads(line))
    return rows


def replayed(file: Path, text: str, deployment: dict[str, Value]) -> dict[str, Value] | None:
    """Return a deployment, read from `text`, with the changes of its journal; None if there are none.

    If another program has written the state since, resources that only the journal has are added as pending creations,
    which the next run resumes or undoes."""
    header, *rest = entries(file) or [None]
    if not isinstance(header, dict):
        return None
    current = digest(text)
    if any(isinstance(entry, dict) and entry.get("folded") == current for entry in rest):
        return None
    ops = [op for entry in rest if isinstance(entry, list) for op in entry]
    if header.get("of") != current:
        return _with_pending_creations(file, header, deployment, ops)
    return _applied(header.get("done") or 0, deployment, ops) if ops else None


def set_journal_aside(file: Path) -> None:
    """Rename the journal of a state that was replaced."""
    if journal_file(file).exists():
        journal_file(file).replace(file.with_name(f"{file.name}.journal-{time.time_ns()}"))


def without_finished_creations(file: Path, deployment: dict[str, Value]) -> dict[str, Value]:
    """Return a deployment without the pending creations that a later run of the CLI has finished, of resources that are
    deleted since.

    The CLI neither resumes a pending creation nor removes one (Snap in pkg/backend/snapshot.go of pulumi v3.274.1). So
    the state after each later run has it, and beside it the resource, once a run has created that. If a creation is
    interrupted again, the CLI adds one of the same resource, and this engine one with another time."""
    operations = deployment.get("pending_operations") or []
    counts, existing = _creations(operations), _created(deployment)
    open_, finished = {key for key in counts if key[0] not in existing}, set[_Creation]()
    for _, copy in states_after_runs(file) if open_ else ():
        then = _creations(copy.get("pending_operations") or [])
        open_ = {key for key in open_ if then[key] == counts[key]}
        if not open_:
            break
        created = _created(copy)
        finished |= {key for key in open_ if key[0] in created}
    kept = [op for op in operations if op["type"] != "creating" or _creation(op) not in finished]
    return {**deployment, "pending_operations": kept} if finished else deployment


_Creation = tuple[str, str]
"""A pending creation: the URN without its stack, and the time that this engine has recorded for it."""


def _creation(operation: Value) -> _Creation:
    return _without_stack(operation["resource"]["urn"]), operation["resource"].get("created") or ""


def _creations(operations: list[Value]) -> Counter[_Creation]:
    return Counter(_creation(op) for op in operations if op["type"] == "creating")


def _created(deployment: dict[str, Value]) -> set[str]:
    """Return the URNs of the resources that exist, without their stack."""
    rows = deployment.get("resources") or []
    return {_without_stack(row["urn"]) for row in rows if row.get("id") and not row.get("delete")}


def _without_stack(urn: str) -> str:
    """Return a URN without the stack and project, which `pulumi stack rename` changes in the state only."""
    return urn.split("::", 2)[-1]


def _applied(done: int, deployment: dict[str, Value], ops: list[Value]) -> dict[str, Value]:
    rows = deployment.get("resources") or []
    news: dict[int, Value] = dict(enumerate(rows[:done]))
    olds: dict[int, Value] = dict(enumerate(rows[done:], done))
    pending = newest(deployment.get("pending_operations") or [])
    renamed: dict[str, str] = {}
    for op, *args in ops:
        if op == "put":
            number, row, old_number, old_urn = args
            olds.pop(old_number, None)
            news[number] = row
            renamed |= {old_urn: row["urn"]} if old_urn != row["urn"] else {}
        elif op == "keep" and args[0] in olds:
            news[args[0]] = olds.pop(args[0])
        elif op == "drop":
            olds.pop(args[0], None)
            news.pop(args[0], None)
        elif op == "row":
            resources = news if args[0] in news else olds
            if args[0] in resources:
                resources[args[0]] = args[1]
        elif op == "begin":
            pending[args[0], args[1]["urn"]] = {"resource": args[1], "type": args[0]}
        elif op == "end":
            pending.pop((args[0], args[1]), None)
    untouched = [Resource.from_json(row).renamed(renamed).to_json() if renamed else row for row in olds.values()]
    return {**deployment, "resources": [*news.values(), *untouched], "pending_operations": list(pending.values())}


def _with_pending_creations(
    file: Path, header: dict[str, Value], deployment: dict[str, Value], ops: list[Value]
) -> dict[str, Value] | None:
    salt = ((deployment.get("secrets_providers") or {}).get("state") or {}).get("salt")
    if header.get("salt") != salt:
        return None
    urns = {row["urn"] for row in deployment.get("resources") or []}
    rows: dict[Value, Value] = {}  # by number, or by URN while the creation is pending
    for op, *args in ops:
        if op == "put" or (op == "begin" and args[0] == "creating"):
            rows[args[0] if op == "put" else args[1]["urn"]] = args[1]
        elif op in ("drop", "end"):
            rows.pop(args[0] if op == "drop" else args[1], None)
    created = [row for row in rows.values() if row.get("custom") and row["urn"] not in urns]
    if created:
        # What a later run of the CLI has created and another one deleted is not pending.
        ended = journal_file(file).stat().st_mtime_ns
        later = (copy for time_, copy in states_after_runs(file) if time_ > ended)
        finished = set[str]().union(*map(_created, later))
        created = [row for row in created if _without_stack(row["urn"]) not in finished]
    pending = {_key("creating", row): {"resource": row, "type": "creating"} for row in created}
    pending |= newest(deployment.get("pending_operations") or [])
    return {**deployment, "pending_operations": list(pending.values())} if created else None


def newest(operations: list[Value]) -> dict[tuple[str, str], Value]:
    """Return pending operations by type and URN. Of several, the CLI writes the newest first, which gets a time: it may
    be pending while the others are finished."""
    rows: dict[tuple[str, str], Value] = {}
    for op in reversed(operations):
        key, resource = _key(op["type"], op["resource"]), op["resource"]
        rows[key] = {**op, "resource": {**resource, "created": resource.get("created") or now()}} if key in rows else op
    return rows


def _key(kind: str, row: dict[str, Value]) -> tuple[str, str]:
    return kind, row["urn"]
