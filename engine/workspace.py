"""Projects, their stacks, and the operations on a stack."""

import os
import re
from collections.abc import Callable
from pathlib import Path

from engine.core.scope import Scope
from engine.errors import EngineError
from engine.events import Event, Kind, Result
from engine.project import Project, salt_of
from engine.state import crypter
from engine.state.crypter import Passphrase
from engine.state.stored_stack import StoredStack, stored_files

OnEvent = Callable[[Event], None]
WHOLE_STACK = Scope()


class Workspace:
    """A folder with a Pulumi.yaml, and the backend that keeps its stacks."""

    def __init__(self, root: Path, *, backend: str | None = None, passphrase: Passphrase | None = None) -> None:
        """`backend` is file://DIR; default: PULUMI_BACKEND_URL. `passphrase` is called when a secret is first needed;
        default: PULUMI_CONFIG_PASSPHRASE or PULUMI_CONFIG_PASSPHRASE_FILE. Raises EngineError."""
        url = backend or os.environ.get("PULUMI_BACKEND_URL", "")
        if not url.startswith("file://"):
            given = f"{url!r}" if url else "none"
            raise EngineError(f"backend: {given}: the embedded engine keeps its stacks in file://FOLDER")
        self.project = Project.read(root.resolve())
        self.folder = Path(url.removeprefix("file://")).expanduser().resolve() / ".pulumi"
        self.passphrase = passphrase or crypter.from_environment

    def stack(self, name: str, config_file: Path | None = None, *, message: str = "") -> "Stack":
        """Return a stack, which need not exist yet; `message` goes into the history of its runs. Raises EngineError
        if the name is not valid."""
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", name):
            raise EngineError(f"stack {name!r}: a name has up to 100 letters, digits, hyphens, underscores and dots")
        return Stack(self, name, config_file or self.project.root / f"Pulumi.{name}.yaml", message)

    def stacks(self) -> list[str]:
        """Return the names of the project's stacks that have a state."""
        return sorted({name for name, _ in stored_files(self.folder, self.project.name)})


class Stack(StoredStack):
    """A stack. The runs return a Result whose `ok` is False if a step failed or Ctrl-C was pressed. Other failures
    are raised: StackLockedError, PassphraseError, DamagedStateError, NotRunnableError, ProgramError, EngineError."""

    def __init__(self, workspace: Workspace, name: str, config_file: Path, message: str = "") -> None:
        super().__init__(workspace.project, name, config_file, workspace.folder, workspace.passphrase)
        self._message = message
        self._runnable = False

    def preview(
        self, on_event: OnEvent, *, parallel: int | None = None, scope: Scope = WHOLE_STACK, refresh: bool = False
    ) -> Result:
        """Return what `up` would do. Nothing is changed or locked."""
        return self._run("preview", on_event, parallel, scope, dry=True, refresh=refresh)

    def up(
        self, on_event: OnEvent, *, parallel: int | None = None, scope: Scope = WHOLE_STACK, refresh: bool = False
    ) -> Result:
        """Create, update, replace and delete resources as the program declares them, `parallel` steps at a time.
        `scope` limits the run to some resources. With `refresh`, the resources are read into the state first."""
        return self._run("up", on_event, parallel, scope, dry=False, refresh=refresh)

    def destroy(
        self, on_event: OnEvent, *, parallel: int | None = None, dry_run: bool = False, scope: Scope = WHOLE_STACK,
        refresh: bool = False,
    ) -> Result:  # fmt: skip
        """Delete all resources that the state has. The program is not run. With `dry_run`, only report."""
        return self._run("destroy", on_event, parallel, scope, dry=dry_run, refresh=refresh)

    def refresh(
        self, on_event: OnEvent, *, parallel: int | None = None, dry_run: bool = False, scope: Scope = WHOLE_STACK
    ) -> Result:
        """Read the resources into the state. With `dry_run`, only report."""
        return self._run("refresh", on_event, parallel, scope, dry=dry_run)

    def _run(
        self, kind: Kind, on_event: OnEvent, parallel: int | None, scope: Scope, *, dry: bool, refresh: bool = False
    ) -> Result:
        state = self.load(salt_of(self.config_file))
        if state.salted or not dry:
            state.begin_unlock()
        # It imports the SDK, which takes a second. Commands that only read the state don't need it.
        from engine.core.operation import Operation  # noqa: PLC0415

        operation = Operation(
            stack=self, kind=kind, on_event=on_event, parallel=parallel, scope=scope, dry=dry, refresh=refresh,
            message=self._message,
        )  # fmt: skip
        if kind == "preview":
            result = operation.run(state)
            self._runnable = self._runnable or (result.ok and not result.foreign)
            return result
        operation.require_embedded(state, previewed=self._runnable)
        if dry:
            return operation.run(state)
        with self.hold():
            return operation.run(state if state.is_current else self.load(salt_of(self.config_file)))
