"""A stack's stored state, as far as no program is needed to deal with it."""

import re
import shutil
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from engine import urn as urns
from engine.errors import EngineError, UnknownResourceError
from engine.project import Project, salt_of
from engine.state import checkpoint
from engine.state.crypter import Crypter, Passphrase, reveal
from engine.state.lock import Holder, Locks
from engine.state.resource import Resource
from engine.state.state import State, salt_in
from engine.values import Value


class StoredStack:
    """The state of one stack, its copies, history and locks."""

    def __init__(self, project: Project, name: str, config_file: Path, folder: Path, passphrase: Passphrase) -> None:
        """`folder` is the backend's: `.pulumi`."""
        self.name, self.project, self.config_file = name, project, config_file
        self.folder, self.passphrase = folder, passphrase
        self.file = state_file(folder, project.name, name)

    def load(self, salt: str = "") -> State:
        """The stack's state, its secrets still encrypted. Raises DamagedStateError."""
        return State(self.file, self.name, self.project.name, self.passphrase, salt)

    @property
    def interrupted(self) -> bool:
        """True if a dead run left a journal, so that the state file alone is not complete."""
        return checkpoint.journal_file(self.file).exists() and not any(
            holder.alive() for holder in self._locks().holders()
        )

    def prepare_for_cli(self) -> None:
        """Let the Pulumi CLI go on with the stack: see that the passphrase fits the state's salt and the stack file's,
        and remove what a dead run of ours left behind.

        Raises StackLockedError, PassphraseError, DamagedStateError."""
        secrets = checkpoint.read(self.file).get("secrets_providers") or {}
        if secrets.get("type", "passphrase") != "passphrase":
            return  # the CLI's own affair
        salt = salt_of(self.config_file)
        if not self.file.exists() and not salt:
            return
        with self.hold():
            loaded = self.load(salt)
            if loaded.salted:
                loaded.unlock()
            loaded.load()
            loaded.fold()

    def outputs(self, *, show_secrets: bool = False, deployment: dict[str, Value] | None = None) -> dict[str, Value]:
        """The stack's outputs, secrets as "[secret]" unless they are asked for; from a deployment that was read
        before, where the caller has one. Raises EngineError if there is no such stack, PassphraseError,
        DamagedStateError."""
        row = self._existing() if deployment is None else deployment
        decrypt = Crypter(self.passphrase, salt_in(self.file, row)).decrypt if show_secrets else None
        return outputs_in(row.get("resources") or [], decrypt)

    def export_state(self) -> dict[str, Value]:
        """The state, as `pulumi stack export` shows it; secrets stay encrypted."""
        return {"version": 3, "deployment": self._existing()}

    def import_state(self, document: dict[str, Value]) -> None:
        """Put a state in place of the stack's, as `pulumi stack import` does: an export or, other than there, a copy
        of a state file. One in its place that can't be read is set aside. Raises EngineError."""
        document = document if isinstance(document, dict) else {}
        copied = document.get("checkpoint")
        deployment = copied.get("latest") if isinstance(copied, dict) else document.get("deployment")
        if not isinstance(deployment, dict) or document.get("version") != 3:
            raise EngineError("import: no deployment of version 3, as `pulumi stack export` writes it")
        prefix = f"urn:pulumi:{self.name}::{self.project.name}::"
        rows = deployment.get("resources") or []
        if not isinstance(rows, list) or not all(isinstance(r, dict) and r.get("urn") and r.get("type") for r in rows):
            raise EngineError("import: `resources` is no list of resources, each with its urn and type")
        others = [r["urn"] for r in rows if not r["urn"].startswith(prefix)]
        if others:
            raise EngineError(f"import: {others[0]} is not of stack {self.name} of project {self.project.name}")
        # An export may be of long ago; what a copy of ours says was under way is for the next run to see to.
        kept = {k: v for k, v in deployment.items() if copied or k != "pending_operations"}
        with self.hold():
            checkpoint.set_aside(self.file)
            self._write(kept)

    def edit(self, change: Callable[[list[dict[str, Value]]], list[dict[str, Value]]]) -> None:
        """Put what `change` makes of the state's resources in their place, secrets encrypted on both sides. Raises
        EngineError, StackLockedError, DamagedStateError, and what `change` raises."""
        with self.hold():
            deployment = self._existing()
            self._write({**deployment, "resources": change(deployment.get("resources") or [])})

    def _write(self, deployment: dict[str, Value]) -> None:
        checkpoint.write_state(self.file, f"organization/{self.project.name}/{self.name}", deployment)

    def hold(self) -> AbstractContextManager[None]:
        """Hold the stack as a run does, so that none changes what it made meanwhile. Raises StackLockedError."""
        return self._locks().hold()

    def forget(self) -> None:
        """Remove all that is kept of a stack that has no resources: state, copies, history. Raises EngineError,
        StackLockedError."""
        with self.hold():
            if self.file.exists() and checkpoint.read(self.file).get("resources"):
                raise EngineError(f"stack {self.name} still has resources: destroy it first")
            for file in (self.file, self.file.with_name(self.file.name + ".bak"), checkpoint.journal_file(self.file)):
                file.unlink(missing_ok=True)
            for kept in ("history", "backups"):
                shutil.rmtree(self.folder / kept / self.project.name / self.name, ignore_errors=True)

    def unlock(self) -> list[Holder]:
        """Remove the stack's locks, whoever holds them; who that was."""
        return self._locks().break_all()

    def _existing(self) -> dict[str, Value]:
        if not self.file.exists():
            raise EngineError(f"there is no stack {self.name}: {self.file} does not exist. `up` makes it")
        return checkpoint.read(self.file)

    def _locks(self) -> Locks:
        return Locks(self.folder / "locks" / "organization" / self.project.name / self.name, self.name)


def state_file(folder: Path, project: str, stack: str) -> Path:
    """Return where a backend keeps the state of a stack."""
    return folder / "stacks" / project / f"{stack}.json"


def outputs_in(rows: list[dict[str, Value]], decrypt: Callable[[str], str] | None = None) -> dict[str, Value]:
    """The outputs of a stack whose resources these are, secrets opened with `decrypt` or shown as "[secret]"."""
    outputs = next((r.get("outputs") or {} for r in rows if r.get("type") == urns.STACK_TYPE), {})
    return reveal(outputs, decrypt)


Row = dict[str, Value]


def unprotected(rows: Sequence[Row], wanted: Collection[str] | None) -> list[Row]:
    """The rows with resources protected no more; None stands for all. Raises EngineError."""
    _require(rows, wanted or ())
    return [
        {key: value for key, value in row.items() if key != "protect" or not (wanted is None or row["urn"] in wanted)}
        for row in rows
    ]


def without(rows: Sequence[Row], wanted: Collection[str], *, force: bool, dependents: bool) -> list[Row]:
    """The rows without some, which the state forgets and which stay where they are. With `dependents`, what needs them
    goes too; with `force`, also what is protected. Raises EngineError."""
    _require(rows, wanted)
    gone = set(wanted)
    for row in rows:  # each stands after what it needs
        resource = Resource.from_json(row)
        if row["urn"] in gone or not (needed := (resource.needs() | {*resource.replace_with}) & gone):
            continue
        if not dependents:
            raise EngineError(
                f"{row['urn']} needs {min(needed)}, which can't be forgotten alone: name it as well, or take in what "
                "depends on it with --target-dependents"
            )
        gone.add(row["urn"])
    if not force and (kept := [row["urn"] for row in rows if row["urn"] in gone and row.get("protect")]):
        raise EngineError(f"{kept[0]} is protected: unprotect it first, or forget it all the same with --force")
    return [row for row in rows if row["urn"] not in gone]


def renamed(rows: Sequence[Row], wanted: str, name: str) -> list[Row]:
    """The rows with a resource by another name, also where others refer to it. Raises EngineError."""
    _require(rows, [wanted])
    if not re.fullmatch(r"[^\s:]+(:[^\s:]+)*", name):
        raise EngineError(f"{name!r} is no resource's name: it has no spaces and no two colons on end")
    new = f"{wanted.rpartition('::')[0]}::{name}"
    if any(row["urn"] == new for row in rows):
        raise EngineError(f"there is a resource {new} already")

    def changed(row: Row) -> Row:
        found = Resource.from_json(row)
        now = found.renamed({wanted: new})
        now = replace(now, urn=new) if found.urn == wanted else now
        return row if now is found else now.to_json()

    return list(map(changed, rows))


def _require(rows: Sequence[Row], wanted: Collection[str]) -> None:
    known = {row["urn"] for row in rows}
    if missing := sorted(set(wanted) - known):
        raise UnknownResourceError(missing[0])
    if any(urns.type_of(urn) == urns.STACK_TYPE for urn in wanted):
        raise EngineError("the stack itself is no resource that can be edited")
