"""Projects and their stacks: what the engine can be asked to do."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from engine import urn as urns
from engine.core.scope import Included, Scope
from engine.errors import EngineError, Interrupted, NotRunnable, ProgramError
from engine.events import Event, Finished, Kind, Result, Started
from engine.project import Project, salt_of
from engine.state import checkpoint, crypter
from engine.state.crypter import Passphrase
from engine.state.state import State
from engine.state.stored_stack import Kept, outputs_in, state_file
from engine.values import Props, Value

OnEvent = Callable[[Event], None]
WHOLE = Scope()


class Workspace:
    """A folder with a Pulumi.yaml, and the backend that keeps its stacks."""

    def __init__(self, root: Path, *, backend: str | None = None, passphrase: Passphrase | None = None) -> None:
        """`backend` is file://DIR; default: PULUMI_BACKEND_URL. `passphrase` is asked when a secret turns up; default:
        PULUMI_CONFIG_PASSPHRASE or PULUMI_CONFIG_PASSPHRASE_FILE. Raises EngineError."""
        url = backend or os.environ.get("PULUMI_BACKEND_URL", "")
        if not url.startswith("file://"):
            given = f"{url!r}" if url else "none"
            raise EngineError(f"backend: {given}: the embedded engine keeps its stacks in file://FOLDER")
        self.project = Project.read(root.resolve())
        self.folder = Path(url.removeprefix("file://")).expanduser().resolve() / ".pulumi"
        self.passphrase = passphrase or crypter.from_environment

    def stack(self, name: str, config_file: Path | None = None, *, message: str = "") -> Stack:
        """A stack, whether it exists yet or not; `message` goes into the history of its runs. Raises EngineError for
        what is no stack's name."""
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", name):
            raise EngineError(f"stack {name!r}: a name has up to 100 letters, digits, hyphens, underscores and dots")
        return Stack(self, name, config_file or self.project.root / f"Pulumi.{name}.yaml", message)

    def stacks(self) -> list[str]:
        """The names of the project's stacks that have a state."""
        return sorted(file.stem for file in (self.folder / "stacks" / self.project.name).glob("*.json"))

    def file(self, project: str, stack: str) -> Path:
        """The state file of a stack."""
        return state_file(self.folder, project, stack)


class Stack(Kept):
    """One stack. The runs return a Result whose `ok` is False if a step failed or Ctrl-C was pressed; all else that
    can go wrong is raised: StackLocked, WrongPassphrase, StateDamaged, NotRunnable, ProgramError, EngineError."""

    def __init__(self, workspace: Workspace, name: str, config_file: Path, message: str = "") -> None:
        super().__init__(workspace.project, name, config_file, workspace.folder, workspace.passphrase)
        self._workspace, self._message = workspace, message
        self._runnable = False

    def preview(
        self, on_event: OnEvent, *, parallel: int | None = None, scope: Scope = WHOLE, refresh: bool = False
    ) -> Result:
        """What `up` would do. Nothing is changed or locked."""
        return self._run("preview", on_event, parallel, scope, dry=True, refresh=refresh)

    def up(
        self, on_event: OnEvent, *, parallel: int | None = None, scope: Scope = WHOLE, refresh: bool = False
    ) -> Result:
        """Make what is there what the program says; `parallel` steps at a time. `scope` says of which resources;
        with `refresh`, what is really there is taken into the state first."""
        if not self._runnable:
            self._refuse_foreign()
        return self._run("up", on_event, parallel, scope, dry=False, refresh=refresh)

    def destroy(
        self, on_event: OnEvent, *, parallel: int | None = None, dry_run: bool = False, scope: Scope = WHOLE,
        refresh: bool = False,
    ) -> Result:  # fmt: skip
        """Delete all resources, by the state alone: the program is not run. With `dry_run`, only tell."""
        self._check_embedded("destroy")
        return self._run("destroy", on_event, parallel, scope, dry=dry_run, refresh=refresh)

    def refresh(
        self, on_event: OnEvent, *, parallel: int | None = None, dry_run: bool = False, scope: Scope = WHOLE
    ) -> Result:
        """Take into the state what is really there. With `dry_run`, only tell."""
        self._check_embedded("refresh")
        return self._run("refresh", on_event, parallel, scope, dry=dry_run, refresh=False)

    def _run(
        self, kind: Kind, on_event: OnEvent, parallel: int | None, scope: Scope, *, dry: bool, refresh: bool
    ) -> Result:
        if dry:
            return self._locked_run(kind, on_event, parallel, scope, dry=True, refresh=refresh)
        with self._locks().hold():
            return self._locked_run(kind, on_event, parallel, scope, dry=False, refresh=refresh)

    def _locked_run(
        self, kind: Kind, on_event: OnEvent, parallel: int | None, scope: Scope, *, dry: bool, refresh: bool
    ) -> Result:
        from engine.core import program  # noqa: PLC0415 - outputs, export and stacks do without
        from engine.core.run import Run  # noqa: PLC0415

        began = int(time.time())
        loaded = State(self.file, self.name, self._project.name, self._passphrase, salt_of(self._config_file))
        if not dry:
            loaded.unlock()
        loaded.load()
        if not dry:
            loaded.fold()
        config = self._project.config(self._config_file, self._passphrase)
        run = Run(
            kind=kind, project=self._project, stack=self.name, config=config, state=loaded, on_event=on_event,
            parallel=parallel, dry=dry, scope=scope,
        )  # fmt: skip
        run.emit(Started(kind, self.name, self._project.name))
        problem: EngineError | None = None
        with run.interruptible(), program.importable(self._project):
            try:
                try:
                    self._do(run, kind, refresh=refresh)
                except EngineError as error:
                    problem = error
                run.wait_idle()
            finally:
                run.providers.close()
        if not dry:
            if run.healthy and kind != "refresh":
                # All that was interrupted has been seen to, as far as this run was about it.
                included = Included(scope)
                loaded.pending = {key: r for key, r in loaded.pending.items() if not included(r)}
            loaded.save(finished=True)
        result = run.result(outputs_in([r.to_json() for r in loaded.resources()]))
        if problem and not run.stopped:
            result = replace(result, ok=False, summary=f"{result.summary}; {problem}")
        if not dry:
            try:
                self._folder.joinpath("meta.yaml").write_text("version: 1\n", encoding="utf-8")
                loaded.archive(self._folder, _history(result, began, self._message))
            except OSError as error:
                # The state itself is written.
                run.log("warning", f"the history of the stack misses this run: {error.filename}: {error.strerror}")
        run.emit(Finished(result))
        if problem and not run.stopped:
            if isinstance(problem, ProgramError):
                problem.result = result
            raise problem
        self._runnable = self._runnable or (kind == "preview" and result.ok and not result.foreign)
        return result

    def _do(self, run: Value, kind: Kind, *, refresh: bool) -> None:
        known = {r.urn for r in run.state.olds} if kind in ("destroy", "refresh") else ()
        if known:
            run.scope.require(known)
        if refresh or kind == "refresh":
            from engine.core.refresh import refresh_all  # noqa: PLC0415

            refresh_all(run)
        if kind != "refresh":
            from engine.core.interrupted import drop_stale  # noqa: PLC0415

            drop_stale(run)
        if kind == "destroy" and run.healthy:
            from engine.core.deletion import delete_all  # noqa: PLC0415

            delete_all(run, run.state.olds)
        elif kind in ("preview", "up") and run.healthy:
            self._apply(run)

    def _apply(self, run: Value) -> None:
        from engine.core import program  # noqa: PLC0415
        from engine.core.deletion import delete_all  # noqa: PLC0415
        from engine.core.monitor import Engine, Monitor  # noqa: PLC0415
        from engine.core.registration import Registrar  # noqa: PLC0415

        registrar = Registrar(run)
        monitor = Monitor(run, registrar, self._outputs_of)
        try:
            program.run(run, monitor, Engine(run))
        except BaseException:
            run.end()
            raise
        finally:
            registrar.finish(monitor.outputs)
        if run.healthy:
            run.scope.require(registrar.known)
            delete_all(run, run.state.olds)

    def _refuse_foreign(self) -> None:
        """Before the first step of a stack, see that the engine can do them all. Raises NotRunnable."""
        types = self._check_embedded("up")
        # A stack of which something stands has passed this before; what is added later is refused when it registers.
        if all(urns.is_provider(type_) for type_ in types):
            result = self._run("preview", lambda _event: None, None, WHOLE, dry=True, refresh=False)
            if result.foreign:
                raise NotRunnable(list(result.foreign), self.name)
            if result.interrupted:
                raise Interrupted("interrupted before the first step")

    def _check_embedded(self, kind: Kind) -> set[str]:
        """The types of the resources in the state, all of them embedded. Raises NotRunnable if some are not."""
        from engine.providers import Foreign, Providers  # noqa: PLC0415

        rows = checkpoint.read(self.file).get("resources") or []
        types = {r["type"] for r in rows if r.get("custom") and not r.get("external")}
        providers = Providers(self._project.root, {}, self._project.name)
        foreign = sorted(t for t in types - {urns.STACK_TYPE} if isinstance(providers.of(t), Foreign))
        if foreign:
            raise NotRunnable(foreign, self.name, kind)
        return types

    def _outputs_of(self, reference: str) -> Props:
        """The outputs of another stack, named as [[ORGANIZATION/]PROJECT/]STACK."""
        *_, project, stack = (self._project.name, *reference.split("/"))
        file = self._workspace.file(project, stack)
        if not file.exists():
            raise EngineError(f"stack reference {reference!r}: {file} does not exist: is that stack up?")
        other = State(file, stack, project, self._passphrase)
        other.load()
        return next((r.outputs for r in other.olds if r.type == urns.STACK_TYPE), {})


def _history(result: Result, began: int, message: str) -> dict[str, Value]:
    kind = {"up": "update"}.get(result.kind, result.kind)
    ended = "succeeded" if result.ok else "failed"
    return {
        "kind": kind, "startTime": began, "message": message, "environment": {"exec.kind": "embedded"},
        "config": {}, "version": 0, "result": ended, "endTime": int(time.time()), "resourceChanges": result.counts,
    }  # fmt: skip
