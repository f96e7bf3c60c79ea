"""An operation on a stack, from reading its state to archiving the new one."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from engine import urn as urns
from engine import values
from engine.core import program
from engine.core.deletion import delete_all
from engine.core.diff import differences
from engine.core.program import Engine, Monitor
from engine.core.registration import Registrar
from engine.core.resource_step import drop_stale
from engine.core.run import Daemons, Run, explain, with_outputs
from engine.core.scope import Included, Scope
from engine.errors import EngineError, NotRunnableError, RunInterruptedError
from engine.events import Event, Finished, Kind, ProgramError, Result, Started, StepDone, StepStarted
from engine.project import KubernetesTools, salt_of
from engine.providers import Foreign, Providers
from engine.state.resource import Resource, now
from engine.state.state import State
from engine.state.stored_stack import StoredStack, outputs_in, state_file
from engine.values import Props, Value, plain


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A preview, up, destroy or refresh of one stack. The caller holds the stack's lock, unless it is `dry`."""

    stack: StoredStack
    kind: Kind
    on_event: Callable[[Event], None]
    parallel: int | None
    scope: Scope
    dry: bool
    refresh: bool
    message: str
    kubernetes: KubernetesTools | None

    def run(self, state: State) -> Result:
        """Run on the stack's state, as it was read. Raises DamagedStateError, PassphraseError, NotRunnableError,
        ProgramError, EngineError."""
        began = int(time.time())
        stack, project = self.stack, self.stack.project
        if not self.dry:
            state.unlock()
        state.load()
        if not self.dry:
            state.fold()
        run = Run(
            kind=self.kind, project=project, stack=stack.name, state=state, on_event=self.on_event,
            config=project.config(stack.config_file, stack.passphrase), parallel=self.parallel, dry=self.dry,
            scope=self.scope, kubernetes=self.kubernetes,
        )  # fmt: skip
        run.emit(Started(self.kind, stack.name, project.name))
        problem: EngineError | None = None
        with run.interruptible(), program.importable(project):
            try:
                try:
                    self._execute(run)
                except EngineError as error:
                    problem = error
                run.wait_idle()
            finally:
                run.providers.close()
        if not self.dry:
            if run.healthy and self.kind != "refresh":
                # Interrupted steps are dealt with, as far as they are in scope.
                included = Included(self.scope)
                state.pending = {key: r for key, r in state.pending.items() if not included(r)}
            state.save(finished=True)
        problem = None if run.stopped else problem
        result = run.result(outputs_in([r.to_json() for r in state.resources()]))
        if problem:
            result = replace(result, ok=False, summary=f"{result.summary}; {problem}")
        if not self.dry:
            self._archive(run, result, began)
        run.emit(Finished(result))
        if problem:
            if isinstance(problem, ProgramError):
                problem.result = result
            raise problem
        return result

    def require_embedded(self, state: State, *, previewed: bool) -> None:
        """Before the first step: raise NotRunnableError if the engine does not have the providers of all resources."""
        types = state.managed_types
        providers = Providers(self.stack.project.root, {}, self.stack.project.name, self.kubernetes)
        foreign = sorted(t for t in types - {urns.STACK_TYPE} if isinstance(providers.of(t), Foreign))
        if foreign:
            raise NotRunnableError(foreign, self.stack.name, self.kind)
        # A stack that has resources has passed this before. A resource that is new is refused when it registers.
        if self.kind == "up" and not previewed and all(urns.is_provider(type_) for type_ in types):
            preview = replace(
                self, kind="preview", on_event=lambda _: None, parallel=None, scope=Scope(), dry=True, refresh=False
            )
            result = preview.run(self.stack.load(salt_of(self.stack.config_file)))
            if result.foreign:
                raise NotRunnableError(list(result.foreign), self.stack.name)
            if result.interrupted:
                raise RunInterruptedError("interrupted before the first step")

    def _execute(self, run: Run) -> None:
        if self.kind in ("destroy", "refresh") and run.state.olds:
            run.scope.require({r.urn for r in run.state.olds})
        if self.refresh or self.kind == "refresh":
            refresh_all(run)
        if self.kind == "refresh":
            return
        drop_stale(run)
        if not run.healthy:
            return
        if self.kind != "destroy":
            self._run_program(run)
        if run.healthy:
            delete_all(run, run.state.olds)

    def _run_program(self, run: Run) -> None:
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

    def _outputs_of(self, reference: str) -> Props:
        """The outputs of another stack, named as [[ORGANIZATION/]PROJECT/]STACK."""
        *_, project, name = (self.stack.project.name, *reference.split("/"))
        file = state_file(self.stack.folder, project, name)
        if not file.exists():
            raise EngineError(f"stack reference {reference!r}: {file} does not exist: is that stack up?")
        other = State(file, name, project, self.stack.passphrase)
        other.load()
        return next((r.outputs for r in other.olds if r.type == urns.STACK_TYPE), {})

    def _archive(self, run: Run, result: Result, began: int) -> None:
        try:
            self.stack.folder.joinpath("meta.yaml").write_text("version: 1\n", encoding="utf-8")
            run.state.archive(self.stack.folder, _history(result, began, self.message))
        except OSError as error:
            # The state itself is written.
            run.log("warning", f"the history of the stack misses this run: {error.filename}: {error.strerror}")


def _history(result: Result, began: int, message: str) -> dict[str, Value]:
    kind = {"up": "update"}.get(result.kind, result.kind)
    ended = "succeeded" if result.ok else "failed"
    return {
        "kind": kind, "startTime": began, "message": message, "environment": {"exec.kind": "embedded"},
        "config": {}, "version": 0, "result": ended, "endTime": int(time.time()), "resourceChanges": result.counts,
    }  # fmt: skip


def refresh_all(run: Run) -> None:
    """Read all resources whose providers can read them, side by side. What is gone is dropped; dependents stay, and the
    next update creates it again. Before another run, only what differs is shown."""
    gone: set[str] = set()
    changed: dict[int, Resource] = {}
    included = Included(run.scope)
    customs = [r for r in run.state.olds if included(r) and r.custom]
    wanted = [r for r in customs if not r.delete and run.providers.of(r.type).readable]
    alone = run.kind == "refresh"
    for resource in customs if alone else ():
        if not resource.is_provider and (resource.delete or not run.providers.of(resource.type).readable):
            run.plan(resource, "same", reason="its provider can't read it")
    pool = Daemons(run.places)
    for reading in [pool.submit(_read, run, resource, gone, changed) for resource in wanted]:
        reading.result()
    pool.shutdown()
    run.state.refreshed(changed, gone)


def _read(run: Run, resource: Resource, gone: set[str], changed: dict[int, Resource]) -> None:
    try:
        with run.slot():
            run.emit(StepStarted(resource.urn, "refresh"))
            began = time.monotonic()
            provider, ctx = run.providers.of(resource.type), run.context(resource)
            found = provider.read(ctx, resource.id, plain(resource.inputs), plain(resource.outputs))
            run.emit(StepDone(resource.urn, "refresh", time.monotonic() - began))
    except RunInterruptedError:
        return
    except Exception as error:  # noqa: BLE001 - providers are other people's code
        run.fail(resource, "refresh", explain(error))
        return
    if found is None:
        run.plan(resource, "delete", reason="it is gone")
        gone.add(resource.urn)
        return
    id_, inputs, outputs = found
    new = with_outputs(resource, id_, outputs, values.keep_secrets(inputs, resource.inputs))
    drift = differences(resource.outputs, new.outputs)
    if drift or run.kind == "refresh":
        run.plan(resource, "refresh" if drift else "same", drift, "what is there differs" if drift else "")
    if drift or not values.same(resource.inputs, new.inputs):
        changed[id(resource)] = replace(new, modified=now())
