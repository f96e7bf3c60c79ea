"""The state of a stack, in the file format of the Pulumi CLI's file backend, and how it changes during a run.

Every change is on disk before the next step begins: written beside the file, synced, renamed over it, the one before
kept as `.bak`; or, where it is large, added to its journal. What is about to be done stands in
`pending_operations`, so that a run killed in the middle of a step leaves a note of it. Secrets are encrypted one by
one.
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
from engine.state.checkpoint import PRIVATE, Journal
from engine.state.crypter import Crypter, Passphrase, seal, unseal
from engine.state.resource import Resource, now
from engine.values import Value
from hostfiles import write_atomically

# The CLI whose format this is; it is written to the manifest and decides nothing.
VERSION = "v3.272.0"
WHOLE = 1 << 18
"""Bytes up to which the file is written at each step: it takes milliseconds, and the file alone always shows
everything."""
LEAST = 1 << 16
"""Bytes of journal from which on it is folded into the file when it is as large as that."""


def salt_in(file: Path, row: dict[str, Value]) -> str:
    """The salt in a deployment. Raises EngineError if its secrets are not encrypted with a passphrase."""
    provider: Value = row.get("secrets_providers") or {"type": "passphrase"}
    if provider.get("type") != "passphrase":
        message = f"its secrets are kept by {provider.get('type')}; the embedded engine supports passphrases only"
        raise EngineError(f"{file}: {message}: use the CLI")
    return (provider.get("state") or {}).get("salt", "")


def _meant(row: dict[str, Value]) -> dict[str, Value]:
    """A deployment without its time, and with its resources by name: a run takes them in as they are registered."""
    resources = sorted(row.get("resources") or [], key=lambda r: (r["urn"], r.get("id") or ""))
    return {k: v for k, v in {**row, "resources": resources}.items() if v and k != "manifest"}


class State:
    """The state of a stack: `olds` is what the run found and has not come to yet; the rest it has dealt with."""

    def __init__(self, file: Path, stack: str, project: str, passphrase: Passphrase, salt: str = "") -> None:
        """`salt` is the `encryptionsalt` of the stack file, which rules if there is one. Raises DamagedStateError;
        secrets are not decrypted yet."""
        self.file = file
        self._name = f"organization/{project}/{stack}"
        self._stamp = checkpoint.stamp(file)
        self._text, self._row = checkpoint.text_and_deployment(file)
        self._journal = Journal(file)
        self._folded = checkpoint.entries(file) == []
        # The next write is of it all; and what has happened since the last one, resources by their numbers.
        self._whole = True
        self._ops: list[tuple[Value, ...]] = []
        self._numbers: dict[int, int] = {}
        self._next = self._done = 0
        self._io, self._lock = Lock(), RLock()
        self._version = self._saved = 0
        kept = ((self._row.get("secrets_providers") or {}).get("state") or {}).get("salt", "")
        self._kept, self._given = kept, salt
        self._old_crypter = Crypter(passphrase, kept)
        self.crypter = self._old_crypter if kept == salt or not salt else Crypter(passphrase, salt)
        # By identity, in order: taking one out of thousands must not look at them all.
        self._olds: dict[int, Resource] = {}
        self._news: dict[int, Resource] = {}
        self.pending: dict[tuple[str, str], Resource] = {}
        self.renamed: dict[str, str] = {}

    @property
    def salted(self) -> bool:
        """True if there is a salt already, which the passphrase has to fit."""
        return bool(self._kept or self._given)

    def begin_unlock(self) -> None:
        """Begin to make the keys that `unlock` and `load` need, and return at once."""
        # What is wrong is raised where a key is needed.
        with suppress(Exception):
            salt_in(self.file, self._row)
            for crypter in (self._old_crypter, self.crypter):
                crypter.begin()

    def unlock(self) -> None:
        """See that what is to be written can be read again: by the salt of the state, and by that of the stack file.
        Raises PassphraseError, which names the file, and EngineError."""
        salt_in(self.file, self._row)
        try:
            if self._kept:
                self._old_crypter.unlock()
        except PassphraseError as error:
            raise PassphraseError(f"{self.file}: {error}") from None
        try:
            self.crypter.unlock()
        except PassphraseError as error:
            raise PassphraseError(f"encryptionsalt of the stack file: {error}") from None

    @property
    def managed_types(self) -> set[str]:
        """The types of the resources that providers manage, as the file has them."""
        return {r["type"] for r in self._row.get("resources") or [] if r.get("custom") and not r.get("external")}

    @property
    def is_current(self) -> bool:
        """True if the file, and its journal, are still what was read."""
        return checkpoint.stamp(self.file) == self._stamp

    def load(self) -> None:
        """Decrypt what the file holds. Raises PassphraseError, which names the file, DamagedStateError, EngineError."""
        salt_in(self.file, self._row)
        decrypt = self._old_crypter.decrypt
        try:
            rows = unseal(self._row.get("resources") or [], decrypt)
            self._olds = {id(r): r for r in map(Resource.from_json, rows)}
            for op in unseal(self._row.get("pending_operations") or [], decrypt):
                resource = Resource.from_json(op["resource"])
                self.pending[resource.urn, op["type"]] = resource
        except PassphraseError as error:
            raise PassphraseError(f"{self.file}: {error}") from None
        except (TypeError, KeyError, ValueError) as error:
            why = f"a resource is incomplete: {error}"
            raise DamagedStateError(self.file, why, checkpoint.newest_backup(self.file)) from None
        self._renumber()
        self._whole = not self._folded or self.crypter is not self._old_crypter or not self._text

    # -- what a run does to it ---------------------------------------------------------------------------------

    def begin_step(self, kind: str, resource: Resource) -> None:
        """Note that a step is about to begin. kind: creating, updating, deleting, reading."""
        with self._lock:
            self.pending[resource.urn, kind] = resource
            self._ops.append(("begin", kind, resource))
            self._version += 1
        self.save()

    def end_step(
        self, kind: str, resource: Resource, change: Callable[[], None] | None = None, *, saved: bool = True
    ) -> None:
        """Note that a step has ended, with what it changed; not `saved`, it is written with the next save."""
        with self._lock:
            if self.pending.pop((resource.urn, kind), None):
                self._ops.append(("end", kind, resource.urn))
            if change:
                change()
            self._version += 1
        if saved:
            self.save()

    def put(self, new: Resource, old: Resource | None = None) -> None:
        """Take in a resource, instead of `old` if there is one. Written with the next save."""
        with self._lock:
            if old is not None and old.urn != new.urn:
                self.renamed[old.urn] = new.urn
            was = (self._numbers.pop(id(old), None), old.urn) if old is not None else (None, new.urn)
            self._olds.pop(id(old), None)
            self._news[id(new)] = new
            self._numbers[id(new)] = self._next
            self._ops.append(("put", self._next, new, *was))
            self._next += 1
            self._version += 1

    def mark(self, resource: Resource, **changes: Value) -> None:
        """Change what the state says of a resource. Written with the next save."""
        with self._lock:
            for name, value in changes.items():
                setattr(resource, name, value)
            if id(resource) in self._numbers:
                self._ops.append(("row", self._numbers[id(resource)], resource))
            self._version += 1

    def waits(self, resource: Resource) -> bool:
        """Return whether it was found and is not dealt with yet."""
        return id(resource) in self._olds

    def keep(self, resource: Resource) -> None:
        """Take over what was found, as it is."""
        with self._lock:
            if self._olds.pop(id(resource), None):
                self._news[id(resource)] = resource
                self._ops.append(("keep", self._numbers[id(resource)]))
                self._version += 1

    def refreshed(self, changed: dict[int, Resource], gone: set[str]) -> None:
        """Take in what was really found: other resources in the places of some (by `id()`), and URNs that are no more.
        Written with the next save."""
        with self._lock:
            found = (
                changed.get(key, r).without(gone) for key, r in self._olds.items() if r.urn not in gone or r.delete
            )
            self._olds = {id(r): r for r in found}
            self._renumber()
            self._whole = True
            self._version += 1

    def drop(self, resource: Resource) -> None:
        """Forget a resource that is gone. Written with the next save."""
        with self._lock:
            self._olds.pop(id(resource), None)
            self._news.pop(id(resource), None)
            if (number := self._numbers.pop(id(resource), None)) is not None:
                self._ops.append(("drop", number))
            self._version += 1

    @property
    def olds(self) -> list[Resource]:
        """The resources that were found and are not dealt with yet, each after what it depends on."""
        with self._lock:
            return list(self._olds.values())

    def resources(self) -> list[Resource]:
        """Return all there is, each after what it depends on."""
        with self._lock:
            return [*self._news.values(), *(r.renamed(self.renamed) for r in self._olds.values())]

    # -- on disk -----------------------------------------------------------------------------------------------

    def deployment(self) -> dict[str, Value]:
        """The state as the CLI's checkpoints and exports have it, secrets encrypted."""
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
        """Write, unless another thread has written this state already. A finished run is written only if the
        result differs from what the file holds. Raises StateWriteError."""
        wanted = self._version
        with self._io:
            if self._saved > wanted or (self._saved == wanted and not finished):
                return
            try:
                whole = self._whole or len(self._text) < WHOLE
                whole = whole or self._journal.size > max(len(self._text), LEAST)
                if finished or whole:
                    self._write(finished=finished)
                else:
                    self._add()
            except OSError as error:
                self._whole = True
                raise StateWriteError(self.file, error.strerror or str(error)) from None

    def fold(self) -> None:
        """Take what a killed run left in its journal into the file. To be called while the stack is held."""
        if not self._folded:
            self._journal.resume()
            self._version += 1
            self.save()
            self._folded = True

    def _add(self) -> None:
        """Write what has happened since the last write."""
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
        if not (untouched and _meant(row) == _meant(self._row)):
            text = checkpoint.text_of(self._name, row)
            if self._journal.begun:
                # Whoever finds the journal beside this text can rely on all of it being there.
                self._journal.append({"folded": checkpoint.digest(text)})
            checkpoint.write_text(self.file, text)
            self._journal.remove()
            self._row, self._text = row, text
        self._saved, self._whole = version, False

    def _renumber(self) -> None:
        """Number the resources by their places in the file."""
        everything = (*self._news.values(), *self._olds.values())
        self._numbers = {id(resource): number for number, resource in enumerate(everything)}
        self._next, self._done = len(everything), len(self._news)

    def archive(self, folder: Path, info: dict[str, Value]) -> None:
        """Keep a run in the history and its outcome among the backups, where `pulumi stack history` looks; one that
        changed nothing shares the copies of the one before. Raises OSError."""
        if not self._text:
            return
        project, stack = self._name.split("/")[1:]
        text, stamp = self._text, time.time_ns()
        history, backups = folder / "history" / project / stack, folder / "backups" / project / stack
        write_atomically(history / f"{stack}-{stamp}.history.json", json.dumps(info), mode=PRIVATE)
        kept = checkpoint.newest_outcome(self.file)
        if kept is None or kept.read_text(encoding="utf-8") != text:
            kept = backups / f"{stack}.{stamp}.json"
            write_atomically(kept, text, mode=PRIVATE)
        checkpoint.share(kept, history / f"{stack}-{stamp}.checkpoint.json")
