"""The state of a stack, in the file format of the Pulumi CLI's file backend, and its changes during a run.

Every change is on disk before the next step begins: written beside the file, synced and renamed over it, with the old
file kept as `.bak`; or appended to the journal of a large state. A step that runs is in `pending_operations`, so that a
run that is killed leaves a record of it. Secrets are encrypted one by one.
"""

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock, RLock

from engine.errors import DamagedStateError, EngineError, PassphraseError, StateWriteError
from engine.state import checkpoint
from engine.state.checkpoint import PRIVATE, StateJournal
from engine.state.crypter import Crypter, Passphrase, seal, unseal
from engine.state.resource import Resource, now
from engine.values import Value
from scripts.hostfiles import write_atomically

# The CLI whose format this is. It is written to the manifest and has no effect.
VERSION = "v3.272.0"
LARGE_STATE = 1 << 18
"""Bytes from which on a state has a journal. A smaller file is written at each step, which takes milliseconds, and is
always complete by itself."""
LARGE_JOURNAL = 1 << 16
"""Bytes from which on a journal is folded into the file, once it is as large as the file."""


def salt_in(file: Path, row: dict[str, Value]) -> str:
    """Return the salt in a deployment. Raises EngineError if its secrets are not encrypted with a passphrase."""
    provider: Value = row.get("secrets_providers") or {"type": "passphrase"}
    if provider.get("type") != "passphrase":
        message = f"its secrets are kept by {provider.get('type')}; the embedded engine supports passphrases only"
        raise EngineError(f"{file}: {message}: use the CLI")
    return (provider.get("state") or {}).get("salt", "")


def _comparable(row: dict[str, Value]) -> dict[str, Value]:
    """Return a deployment without its time and with its resources sorted, since their order differs between runs."""
    resources = sorted(row.get("resources") or [], key=lambda r: (r["urn"], r.get("id") or ""))
    return {k: v for k, v in {**row, "resources": resources}.items() if v and k != "manifest"}


class State:
    """The state of a stack. `olds` are the resources of the file that the run has not handled yet."""

    def __init__(self, file: Path, stack: str, project: str, passphrase: Passphrase, salt: str = "") -> None:
        """`salt` is the `encryptionsalt` of the stack file, which has precedence over the state's. Secrets are not
        decrypted yet. Raises DamagedStateError."""
        self.file = file
        self._name = f"organization/{project}/{stack}"
        self._stamp = checkpoint.stamp(file)
        self._text, self._row, self._features = checkpoint.load(file)
        self._journal = StateJournal(file)
        self._folded = checkpoint.entries(file) == []
        self._rewrite = True  # the next write is of the whole file
        # The changes since the last write, and the numbers by which they refer to resources.
        self._ops: list[tuple[Value, ...]] = []
        self._numbers: dict[int, int] = {}
        self._next = self._done = 0
        self._io, self._lock = Lock(), RLock()
        self._version = self._saved = 0
        old_salt = ((self._row.get("secrets_providers") or {}).get("state") or {}).get("salt", "")
        self._state_salt, self._file_salt = old_salt, salt
        self._old_crypter = Crypter(passphrase, old_salt)
        self.crypter = self._old_crypter if old_salt == salt or not salt else Crypter(passphrase, salt)
        # By identity, in order: removing one of thousands must not search them all.
        self._olds: dict[int, Resource] = {}
        self._news: dict[int, Resource] = {}
        self.pending: dict[tuple[str, str], Resource] = {}
        self.renamed: dict[str, str] = {}

    @property
    def salted(self) -> bool:
        """True if there is a salt already, which the passphrase has to fit."""
        return bool(self._state_salt or self._file_salt)

    def begin_unlock(self) -> None:
        """Begin to derive the keys that `unlock` and `load` need, and return at once."""
        # Errors are raised where a key is needed.
        with suppress(Exception):
            salt_in(self.file, self._row)
            for crypter in (self._old_crypter, self.crypter):
                crypter.begin()

    def unlock(self) -> None:
        """Check that the passphrase fits the salt of the state and that of the stack file, so that what is written can
        be read again. Raises PassphraseError, whose text has the file, and EngineError."""
        salt_in(self.file, self._row)
        try:
            if self._state_salt:
                self._old_crypter.unlock()
        except PassphraseError as error:
            raise PassphraseError(f"{self.file}: {error}") from None
        try:
            self.crypter.unlock()
        except PassphraseError as error:
            raise PassphraseError(f"encryptionsalt of the stack file: {error}") from None

    def require_known(self) -> None:
        """Raise EngineError unless what is written has everything that the file has."""
        checkpoint.require_known(self._features)

    @property
    def managed_types(self) -> set[str]:
        """The types of the resources that providers manage, as the file has them."""
        return {r["type"] for r in self._row.get("resources") or [] if r.get("custom") and not r.get("external")}

    @property
    def is_current(self) -> bool:
        """True if the file and its journal were not written since they were read."""
        return checkpoint.stamp(self.file) == self._stamp

    def load(self) -> None:
        """Decrypt the resources of the file. Raises PassphraseError, whose text has the file, DamagedStateError,
        EngineError."""
        salt_in(self.file, self._row)
        decrypt = self._old_crypter.decrypt
        try:
            rows = unseal(self._row.get("resources") or [], decrypt)
            self._olds = {id(r): r for r in map(Resource.from_json, rows)}
            operations = checkpoint.newest(self._row.get("pending_operations") or []).values()
            for op in unseal(list(operations), decrypt):
                resource = Resource.from_json(op["resource"])
                self.pending[resource.urn, op["type"]] = resource
        except PassphraseError as error:
            raise PassphraseError(f"{self.file}: {error}") from None
        except (TypeError, KeyError, ValueError) as error:
            reason = f"a resource is incomplete: {error}"
            raise DamagedStateError(self.file, reason, checkpoint.newest_backup(self.file)) from None
        self._renumber()
        self._rewrite = not self._folded or self.crypter is not self._old_crypter or not self._text

    # -- changes of a run --------------------------------------------------------------------------------------

    def begin_step(self, kind: str, resource: Resource) -> None:
        """Record that a step begins, and write that. `kind` is creating, updating, deleting or reading."""
        with self._lock:
            self.pending[resource.urn, kind] = resource
            self._ops.append(("begin", kind, resource))
            self._version += 1
        self.save()

    def end_step(
        self, kind: str, resource: Resource, change: Callable[[], None] | None = None, *, saved: bool = True
    ) -> None:
        """Record that a step has ended, and its change. Unless `saved`, it is written with the next save."""
        with self._lock:
            if self.pending.pop((resource.urn, kind), None):
                self._ops.append(("end", kind, resource.urn))
            if change:
                change()
            self._version += 1
        if saved:
            self.save()

    def put(self, new: Resource, old: Resource | None = None) -> None:
        """Add a resource, in the place of `old` if there is one. Written with the next save."""
        with self._lock:
            if old is not None and old.urn != new.urn:
                self.renamed[old.urn] = new.urn
            number, urn = (self._numbers.pop(id(old), None), old.urn) if old is not None else (None, new.urn)
            self._olds.pop(id(old), None)
            self._news[id(new)] = new
            self._numbers[id(new)] = self._next
            self._ops.append(("put", self._next, new, number, urn))
            self._next += 1
            self._version += 1

    def mark(self, resource: Resource, **changes: Value) -> None:
        """Change fields of a resource. Written with the next save."""
        with self._lock:
            for name, value in changes.items():
                setattr(resource, name, value)
            if id(resource) in self._numbers:
                self._ops.append(("row", self._numbers[id(resource)], resource))
            self._version += 1

    def is_untouched(self, resource: Resource) -> bool:
        """Return whether a resource is of the file and was not handled yet."""
        return id(resource) in self._olds

    def keep(self, resource: Resource) -> None:
        """Keep a resource of the file as it is."""
        with self._lock:
            if self._olds.pop(id(resource), None):
                self._news[id(resource)] = resource
                self._ops.append(("keep", self._numbers[id(resource)]))
                self._version += 1

    def apply_refresh(self, changed: dict[int, Resource], missing: set[str]) -> None:
        """Replace resources that have changed (by the `id()` of the old ones), and remove the URNs that no longer
        exist. Written with the next save."""
        with self._lock:
            olds = (
                changed.get(key, r).without(missing)
                for key, r in self._olds.items()
                if r.urn not in missing or r.delete
            )
            self._olds = {id(r): r for r in olds}
            self._renumber()
            self._rewrite = True
            self._version += 1

    def drop(self, resource: Resource) -> None:
        """Remove a resource. Written with the next save."""
        with self._lock:
            self._olds.pop(id(resource), None)
            self._news.pop(id(resource), None)
            if (number := self._numbers.pop(id(resource), None)) is not None:
                self._ops.append(("drop", number))
            self._version += 1

    @property
    def olds(self) -> list[Resource]:
        """The resources of the file that were not handled yet, each after those that it depends on."""
        with self._lock:
            return list(self._olds.values())

    def resources(self) -> list[Resource]:
        """Return all resources, each after those that it depends on."""
        with self._lock:
            return [*self._news.values(), *(r.renamed(self.renamed) for r in self._olds.values())]

    # -- on disk -----------------------------------------------------------------------------------------------

    def deployment(self) -> dict[str, Value]:
        """Return the state in the form of the CLI's checkpoints and exports, with secrets encrypted."""
        with self._lock:
            resources = [r.to_json() for r in self.resources()]
            pending = [{"resource": r.to_json(), "type": kind} for (_, kind), r in self.pending.items()]
        sealed = {
            "resources": seal(resources, self.crypter.encrypt),
            "pending_operations": seal(pending, self.crypter.encrypt),
        }
        manifest = {"time": now(), "magic": hashlib.sha256(VERSION.encode()).hexdigest(), "version": VERSION}
        provider = {"type": "passphrase", "state": {"salt": self.crypter.salt}}
        rest = {k: v for k, v in self._row.items() if k not in ("resources", "pending_operations")}
        rest |= {"manifest": manifest, "secrets_providers": provider, "metadata": self._row.get("metadata") or {}}
        return {**rest, **{k: v for k, v in sealed.items() if v}}

    def save(self, *, finished: bool = False) -> None:
        """Write the state, unless another thread has written this version already. The result of a finished run is
        written only if it differs from the file. Raises StateWriteError."""
        version = self._version
        with self._io:
            if self._saved > version or (self._saved == version and not finished):
                return
            try:
                rewrite = self._rewrite or len(self._text) < LARGE_STATE
                if finished or rewrite or self._journal.size > max(len(self._text), LARGE_JOURNAL):
                    self._write(finished=finished)
                else:
                    self._append()
            except OSError as error:
                self._rewrite = True
                raise StateWriteError(self.file, error.strerror or str(error)) from None

    def fold(self) -> None:
        """Merge the journal of a killed run into the file. Call this while the stack is held."""
        if not self._folded:
            self.require_known()
            self._journal.resume()
            self._version += 1
            self.save()
            self._folded = True

    def _append(self) -> None:
        """Write the changes since the last write to the journal."""
        with self._lock:
            version, ops, self._ops = self._version, self._ops, []
            rows = [(*op[:2], op[2].to_json(), *op[3:]) if op[0] in ("put", "row", "begin") else op for op in ops]
        if not self._journal.begun:
            self._journal.begin(checkpoint.digest(self._text), self.crypter.salt, self._done)
        self._journal.append(seal([list(row) for row in rows], self.crypter.encrypt))
        self._saved = version

    def _write(self, *, finished: bool) -> None:
        with self._lock:
            version, self._ops = self._version, []
            row = self.deployment()
            self._renumber()
        untouched = finished and self._folded and not self._journal.begun
        if not (untouched and _comparable(row) == _comparable(self._row)):
            text = checkpoint.text_of(self._name, row)
            if self._journal.begun:
                # If a kill leaves the journal beside this file, it is known that the file has all of it.
                self._journal.append({"folded": checkpoint.digest(text)})
            checkpoint.write_text(self.file, text)
            self._journal.remove()
            self._row, self._text = row, text
        self._saved, self._rewrite = version, False

    def _renumber(self) -> None:
        """Number the resources by their positions in the file."""
        resources = (*self._news.values(), *self._olds.values())
        self._numbers = {id(resource): number for number, resource in enumerate(resources)}
        self._next, self._done = len(resources), len(self._news)

    def archive(self, folder: Path, info: dict[str, Value]) -> None:
        """Write a run to the history and the state to the backups, where `pulumi stack history` reads them. A run that
        changed nothing shares the copy of the run before. Raises OSError."""
        if not self._text:
            return
        project, stack = self._name.split("/")[1:]
        text, stamp = self._text, time.time_ns()
        history, backups = folder / "history" / project / stack, folder / "backups" / project / stack
        write_atomically(history / f"{stack}-{stamp}.history.json", json.dumps(info), mode=PRIVATE)
        copy = checkpoint.newest_outcome(self.file)
        if copy is None or copy.read_text(encoding="utf-8") != text:
            copy = backups / f"{stack}.{stamp}.json"
            write_atomically(copy, text, mode=PRIVATE)
        checkpoint.link_or_copy(copy, history / f"{stack}-{stamp}.checkpoint.json")
