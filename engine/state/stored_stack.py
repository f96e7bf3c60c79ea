"""A stack's stored state, and the operations on it that need no program."""

import re
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
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
        """Read the stack's state, with its secrets still encrypted. Raises DamagedStateError."""
        return State(self.file, self.name, self.project.name, self.passphrase, salt)

    @property
    def exists(self) -> bool:
        """True if the stack has a state."""
        return checkpoint.stored(self.file) is not None

    @property
    def interrupted(self) -> bool:
        """True if a killed run left a journal, so that the state file alone is not complete."""
        return checkpoint.journal_file(self.file).exists() and not any(
            holder.alive() for holder in self._locks().holders()
        )

    def prepare_for_cli(self) -> None:
        """Prepare the stack for a run of the Pulumi CLI: check that the passphrase fits the salts of the state and of
        the stack file, merge the journal of a killed run, and remove its lock. Raises StackLockedError,
        PassphraseError, DamagedStateError."""
        secrets = checkpoint.read(self.file).get("secrets_providers") or {}
        if secrets.get("type", "passphrase") != "passphrase":
            return  # only the CLI can read them
        salt = salt_of(self.config_file)
        if not self.exists and not salt:
            return
        with self.hold():
            loaded = self.load(salt)
            if loaded.salted:
                loaded.unlock()
            loaded.load()
            loaded.fold()

    def outputs(self, *, show_secrets: bool = False, deployment: dict[str, Value] | None = None) -> dict[str, Value]:
        """Return the stack's outputs, with secrets as "[secret]" unless `show_secrets`. `deployment` is the stack's, if
        the caller has read it before. Raises EngineError if the stack does not exist, PassphraseError,
        DamagedStateError."""
        row = self._existing() if deployment is None else deployment
        decrypt = Crypter(self.passphrase, salt_in(self.file, row)).decrypt if show_secrets else None
        return outputs_in(row.get("resources") or [], decrypt)

    def export_state(self) -> dict[str, Value]:
        """Return the state as `pulumi stack export` prints it, with secrets encrypted."""
        row = self._existing()
        return {**checkpoint.versioned(row, checkpoint.load(self.file).features), "deployment": row}

    def import_state(self, document: dict[str, Value]) -> None:
        """Replace the stack's state, as `pulumi stack import` does, with an export or, unlike there, a copy of a state
        file. An old state that can't be read is renamed. Raises EngineError."""
        document = document if isinstance(document, dict) else {}
        checkpoint_ = document.get("checkpoint")
        deployment = checkpoint_.get("latest") if isinstance(checkpoint_, dict) else document.get("deployment")
        if not isinstance(deployment, dict) or "version" not in document:
            raise EngineError("import: no version and deployment, as `pulumi stack export` writes them")
        try:
            checkpoint.require_version(document)
            checkpoint.require_known(document.get("features") or [])
        except EngineError as error:
            raise EngineError(f"import: {error}") from None
        prefix = f"urn:pulumi:{self.name}::{self.project.name}::"
        rows = deployment.get("resources") or []
        if not isinstance(rows, list) or not all(isinstance(r, dict) and r.get("urn") and r.get("type") for r in rows):
            raise EngineError("import: `resources` is no list of resources, each with its urn and type")
        others = [r["urn"] for r in rows if not r["urn"].startswith(prefix)]
        if others:
            raise EngineError(f"import: {others[0]} is not of stack {self.name} of project {self.project.name}")
        # An export may be old, so its pending operations are dropped. Those of a copy are for the next run.
        kept = {k: v for k, v in deployment.items() if checkpoint_ or k != "pending_operations"}
        with self.hold():
            checkpoint.set_damaged_aside(self.file)
            self._write(kept)

    def edit(self, change: Callable[[list[dict[str, Value]]], list[dict[str, Value]]]) -> None:
        """Replace the state's resources with what `change` returns for them; secrets are encrypted in both. Raises
        EngineError, StackLockedError, DamagedStateError, and what `change` raises."""
        with self.hold():
            deployment = self._existing()
            checkpoint.require_known(checkpoint.load(self.file).features)
            self._write({**deployment, "resources": change(deployment.get("resources") or [])})

    def _write(self, deployment: dict[str, Value]) -> None:
        checkpoint.write_state(self.file, f"organization/{self.project.name}/{self.name}", deployment)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the stack as a run does, so that no run changes it at the same time. Raises StackLockedError."""
        with self._locks().hold():
            checkpoint.remove_attributes(self.file)
            yield

    def forget(self) -> None:
        """Remove all files of a stack without resources: state, copies and history. Raises EngineError,
        StackLockedError."""
        with self.hold():
            if checkpoint.read(self.file).get("resources"):
                raise EngineError(f"stack {self.name} still has resources: destroy it first")
            checkpoint.journal_file(self.file).unlink(missing_ok=True)
            for file in checkpoint.forms(self.file):
                file.unlink(missing_ok=True)
                file.with_name(file.name + ".bak").unlink(missing_ok=True)
            for folder in ("history", "backups"):
                shutil.rmtree(self.folder / folder / self.project.name / self.name, ignore_errors=True)

    def unlock(self) -> list[Holder]:
        """Remove the stack's locks, also those of running processes, and what a kill of the CLI can leave beside the
        state. Returns the locks' holders."""
        checkpoint.remove_attributes(self.file)
        return self._locks().break_all()

    def _existing(self) -> dict[str, Value]:
        if not self.exists:
            raise EngineError(f"there is no stack {self.name}: {self.file} does not exist. `up` makes it")
        return checkpoint.read(self.file)

    def _locks(self) -> Locks:
        return Locks(self.folder / "locks" / "organization" / self.project.name / self.name, self.name)


def state_file(folder: Path, project: str, stack: str) -> Path:
    """Return the path at which a backend keeps the state of a stack."""
    return folder / "stacks" / project / f"{stack}.json"


def stored_files(folder: Path, project: str = "*", stack: str = "*") -> list[tuple[str, Path]]:
    """Return the stacks that have a state in a backend, each with the path of a file with it."""
    files = (
        (file.name.removesuffix(f".json{ending}"), file)
        for ending in checkpoint.ENDINGS
        for file in (folder / "stacks").glob(f"{project}/{stack}.json{ending}")
    )
    return sorted(files)


def outputs_in(rows: list[dict[str, Value]], decrypt: Callable[[str], str] | None = None) -> dict[str, Value]:
    """Return the stack outputs among resources, with secrets decrypted, or as "[secret]" without `decrypt`."""
    outputs = next((r.get("outputs") or {} for r in rows if r.get("type") == urns.STACK_TYPE), {})
    return reveal(outputs, decrypt)


Row = dict[str, Value]


def unprotected(rows: Sequence[Row], chosen: Collection[str] | None) -> list[Row]:
    """Return the rows with the protection of some resources removed; None stands for all. Raises EngineError."""
    _require(rows, chosen or ())
    return [
        {key: value for key, value in row.items() if key != "protect" or not (chosen is None or row["urn"] in chosen)}
        for row in rows
    ]


def without(rows: Sequence[Row], chosen: Collection[str], *, force: bool, dependents: bool) -> list[Row]:
    """Return the rows without some resources, which are not deleted themselves. With `dependents`, the resources that
    depend on them are removed too; with `force`, also protected ones. Raises EngineError."""
    _require(rows, chosen)
    removed = set(chosen)
    for row in rows:  # each comes after those that it needs
        resource = Resource.from_json(row)
        if row["urn"] in removed or not (needed := (resource.needs() | {*resource.replace_with}) & removed):
            continue
        if not dependents:
            raise EngineError(
                f"{row['urn']} needs {min(needed)}, which can't be forgotten alone: name it as well, or take in what "
                "depends on it with --target-dependents"
            )
        removed.add(row["urn"])
    if not force and (protected := [row["urn"] for row in rows if row["urn"] in removed and row.get("protect")]):
        raise EngineError(f"{protected[0]} is protected: unprotect it first, or forget it all the same with --force")
    return [row for row in rows if row["urn"] not in removed]


def renamed(rows: Sequence[Row], chosen: str, name: str) -> list[Row]:
    """Return the rows with a resource and the references to it renamed. Raises EngineError."""
    _require(rows, [chosen])
    if not re.fullmatch(r"[^\s:]+(:[^\s:]+)*", name):
        raise EngineError(f"{name!r} is no resource's name: it has no spaces and no two colons on end")
    new = f"{chosen.rpartition('::')[0]}::{name}"
    if any(row["urn"] == new for row in rows):
        raise EngineError(f"there is a resource {new} already")

    def change(row: Row) -> Row:
        old = Resource.from_json(row)
        resource = old.renamed({chosen: new})
        resource = replace(resource, urn=new) if old.urn == chosen else resource
        return row if resource is old else resource.to_json()

    return list(map(change, rows))


def _require(rows: Sequence[Row], chosen: Collection[str]) -> None:
    """Raise EngineError unless all chosen URNs are of resources that can be edited."""
    if missing := sorted(set(chosen) - {row["urn"] for row in rows}):
        raise UnknownResourceError(missing[0])
    if any(urns.type_of(urn) == urns.STACK_TYPE for urn in chosen):
        raise EngineError("the stack itself is no resource that can be edited")
