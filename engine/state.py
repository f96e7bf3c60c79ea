"""The state of a stack, in the file format of the Pulumi CLI's file backend, and how it changes during a run.

Every change is on disk before the next step begins: written beside the file, synced, renamed over it, the one before
kept as `.bak`. What is about to be done stands in `pending_operations`, so that a run killed in the middle of a step
leaves a note of it. Secrets are encrypted one by one.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock, RLock

from engine.crypter import Crypter, Passphrase
from engine.errors import EngineError, StateDamaged, WrongPassphrase
from engine.form import renewed
from engine.resource import Resource, now
from engine.values import SECRET, SIG, Value, is_secret, plain

# The CLI whose format this is; it is written to the manifest and decides nothing.
VERSION = "v3.272.0"
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)
"""What reading a file raises that is no state."""


class State:
    """One stack's state: `olds` is what the run found and has not come to yet; the rest it has dealt with."""

    def __init__(self, file: Path, stack: str, project: str, passphrase: Passphrase, salt: str = "") -> None:
        """`salt` is the `encryptionsalt` of the stack file, which rules if there is one.
        Raises StateDamaged; secrets are not decrypted yet."""
        self.file = file
        self._name = f"organization/{project}/{stack}"
        self._row = self.read(file)
        self._io, self._lock = Lock(), RLock()
        self._version = self._saved = 0
        kept = ((self._row.get("secrets_providers") or {}).get("state") or {}).get("salt", "")
        kind = (self._row.get("secrets_providers") or {"type": "passphrase"}).get("type")
        if kind != "passphrase":
            message = f"{file}: its secrets are kept by {kind}; the embedded engine knows passphrases only: use the CLI"
            raise EngineError(message)
        self._kept, self._given = kept, salt
        self._old_crypter = Crypter(passphrase, kept)
        self.crypter = self._old_crypter if kept == salt or not salt else Crypter(passphrase, salt)
        self.renewed = False
        # By identity, in order: taking one out of thousands must not look at them all.
        self._olds: dict[int, Resource] = {}
        self._news: dict[int, Resource] = {}
        self.pending: dict[tuple[str, str], Resource] = {}
        self.renamed: dict[str, str] = {}

    @staticmethod
    def read(file: Path) -> dict[str, Value]:
        """The deployment in a state file, as it stands there; empty if there is no file. Raises StateDamaged."""
        try:
            return _deployment(file)
        except FileNotFoundError:
            return {}
        except _UNREADABLE as error:
            raise StateDamaged(file, f"{type(error).__name__}: {error}", newest_backup(file)) from None

    @property
    def salted(self) -> bool:
        """Whether there is a salt already, which the passphrase has to fit."""
        return bool(self._kept or self._given)

    def unlock(self) -> None:
        """See that what is to be written can be read again: by the salt of the state, and by that of the stack file.
        Raises WrongPassphrase, which names the file."""
        try:
            if self._kept:
                self._old_crypter.unlock()
        except WrongPassphrase as error:
            raise WrongPassphrase(f"{self.file}: {error}") from None
        try:
            self.crypter.unlock()
        except WrongPassphrase as error:
            raise WrongPassphrase(f"encryptionsalt of the stack file: {error}") from None

    def load(self) -> None:
        """Decrypt what the file holds. Raises WrongPassphrase, which names the file, and StateDamaged."""
        decrypt = self._old_crypter.decrypt
        try:
            rows = unseal(self._row.get("resources") or [], decrypt)
            self._olds = {id(r): r for r in map(Resource.from_json, rows)}
            # Each of them, not only up to the first that differs.
            self.renewed = sum(map(renewed, self._olds.values())) > 0
            for op in unseal(self._row.get("pending_operations") or [], decrypt):
                resource = Resource.from_json(op["resource"])
                self.pending[resource.urn, op["type"]] = resource
        except WrongPassphrase as error:
            raise WrongPassphrase(f"{self.file}: {error}") from None
        except (TypeError, KeyError, ValueError) as error:
            why = f"a resource is incomplete: {error}"
            raise StateDamaged(self.file, why, newest_backup(self.file)) from None

    # -- what a run does to it ---------------------------------------------------------------------------------

    def begin(self, kind: str, resource: Resource) -> None:
        """Note that a step is about to begin. kind: creating, updating, deleting, reading."""
        with self._lock:
            self.pending[resource.urn, kind] = resource
            self._version += 1
        self.save()

    def settle(
        self, kind: str, resource: Resource, change: Callable[[], None] | None = None, *, saved: bool = True
    ) -> None:
        """Note that a step has ended, with what it changed; not `saved`, it is written with the next save."""
        with self._lock:
            self.pending.pop((resource.urn, kind), None)
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
            self._olds.pop(id(old), None)
            self._news[id(new)] = new
            self._version += 1

    def waits(self, resource: Resource) -> bool:
        """Whether it was found and is not dealt with yet."""
        return id(resource) in self._olds

    def keep(self, resource: Resource) -> None:
        """Take over what was found, as it is."""
        with self._lock:
            if self._olds.pop(id(resource), None):
                self._news[id(resource)] = resource
                self._version += 1

    def refreshed(self, changed: dict[int, Resource], gone: set[str]) -> None:
        """Take in what was really found: other resources in the places of some (by `id()`), and URNs that are no more.
        Written with the next save."""
        with self._lock:
            found = (
                changed.get(key, r).without(gone) for key, r in self._olds.items() if r.urn not in gone or r.delete
            )
            self._olds = {id(r): r for r in found}
            self._version += 1

    def drop(self, resource: Resource) -> None:
        """Forget a resource that is gone. Written with the next save."""
        with self._lock:
            self._olds.pop(id(resource), None)
            self._news.pop(id(resource), None)
            self._version += 1

    @property
    def olds(self) -> list[Resource]:
        """What was found and is not dealt with yet, each after what it depends on."""
        with self._lock:
            return list(self._olds.values())

    def resources(self) -> list[Resource]:
        """All there is, each after what it depends on."""
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
        result differs from what the file holds."""
        wanted = self._version
        with self._io:
            if self._saved > wanted or (self._saved == wanted and not finished):
                return
            self._saved = self._version
            row = self.deployment()
            keys = {*row, *self._row} - {"manifest"}
            if finished and all((row.get(k) or None) == (self._row.get(k) or None) for k in keys):
                return
            write_state(self.file, self._name, row)
            self._row = row

    def archive(self, folder: Path, info: dict[str, Value]) -> None:
        """Keep a run in the history and its outcome among the backups, where `pulumi stack history` looks."""
        if not self.file.exists():
            return
        project, stack = self._name.split("/")[1:]
        text, stamp = self.file.read_text(encoding="utf-8"), time.time_ns()
        history, backups = folder / "history" / project / stack, folder / "backups" / project / stack
        write_file(history / f"{stack}-{stamp}.history.json", json.dumps(info))
        write_file(history / f"{stack}-{stamp}.checkpoint.json", text)
        write_file(backups / f"{stack}.{stamp}.json", text)


def _deployment(file: Path) -> dict[str, Value]:
    """The deployment in a state file. Raises one of _UNREADABLE, FileNotFoundError."""
    row = json.loads(file.read_text(encoding="utf-8"))["checkpoint"].get("latest") or {}
    for resource in row.get("resources") or []:
        if not (resource["urn"] and resource["type"]):
            raise ValueError("a resource without a URN or type")
    return row


def newest_backup(file: Path) -> Path | None:
    """The newest state before `file` that can be read: its .bak, or the outcome of a run; None if there is none."""
    project, stack = file.parent.name, file.stem
    outcomes = (file.parents[2] / "backups" / project / stack).glob(f"{stack}.*.json")
    for candidate in (file.with_name(file.name + ".bak"), *sorted(outcomes, reverse=True)):
        try:
            _deployment(candidate)
        except (*_UNREADABLE, OSError):
            continue
        return candidate
    return None


def set_aside(file: Path) -> Path | None:
    """Move a state file that can't be read out of the way, so that it does not become the .bak; where it is then."""
    try:
        State.read(file)
    except StateDamaged:
        return file.replace(file.with_name(f"{file.name}.damaged-{time.time_ns()}"))
    return None


def write_state(file: Path, name: str, deployment: dict[str, Value]) -> None:
    """Write a checkpoint, keeping the one before as `.bak`."""
    if file.exists():
        backup = file.with_name(file.name + ".bak")
        backup.unlink(missing_ok=True)
        os.link(file, backup)
    checkpoint = {"version": 3, "checkpoint": {"stack": name, "latest": deployment}}
    write_file(file, json.dumps(checkpoint, separators=(",", ":"), ensure_ascii=False), sync=True)


def write_file(file: Path, text: str, *, sync: bool = False) -> None:
    """Write a whole file or nothing. It is readable by its owner only: even encrypted, states are private."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
        out.write(text)
        if sync:
            out.flush()
            os.fsync(out.fileno())
    temporary.replace(file)


def seal(value: Value, encrypt: Callable[[str], str]) -> Value:
    """Encrypt all secrets in a value. One inside another is only marked, as the CLI does: the outer one hides it."""
    if is_secret(value):
        text = json.dumps(seal(value["value"], str), separators=(",", ":"), ensure_ascii=False)
        return {SIG: SECRET, "ciphertext": encrypt(text)}
    if isinstance(value, dict):
        return {k: seal(v, encrypt) for k, v in value.items()}
    return [seal(v, encrypt) for v in value] if isinstance(value, list) else value


def unseal(value: Value, decrypt: Callable[[str], str]) -> Value:
    """Undo `seal`. Also reads secrets that an export shows in plain text."""
    if is_secret(value):
        text = value["plaintext"] if "plaintext" in value else decrypt(value["ciphertext"])
        return {SIG: SECRET, "value": unseal(json.loads(text), str)}
    if isinstance(value, dict):
        return {k: unseal(v, decrypt) for k, v in value.items()}
    return [unseal(v, decrypt) for v in value] if isinstance(value, list) else value


def reveal(value: Value, decrypt: Callable[[str], str] | None) -> Value:
    """Sealed values for a person's eyes: secrets opened with `decrypt`, or shown as "[secret]" without."""
    if is_secret(value):
        return plain(unseal(value, decrypt)) if decrypt else "[secret]"
    if isinstance(value, dict):
        return {k: reveal(v, decrypt) for k, v in value.items()}
    return [reveal(v, decrypt) for v in value] if isinstance(value, list) else value
