"""An operation on a stack, from reading its state to writing the new one and the history."""

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from engine import urn as urns
from engine import values
from engine.core import program
from engine.core.diff import differences
from engine.core.program import Engine, Monitor
from engine.core.registration import Registrar
from engine.core.resource_step import drop_stale, undo_creation
from engine.core.run import DaemonExecutor, Run, StateChange, StepError, error_text, with_outputs
from engine.core.scope import Scope, ScopeFilter, deletable
from engine.errors import EngineError, NotRunnableError, RunInterruptedError
from engine.events import Event, Finished, Kind, ProgramError, Result, Started, StepDone, StepStarted
from engine.project import salt_of
from engine.providers import Foreign, Providers
from engine.providers.base import Context, Provider
from engine.state import checkpoint
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

    def run(self, state: State) -> Result:
        """Run the operation on the stack's state. Raises DamagedStateError, PassphraseError, NotRunnableError,
        ProgramError, EngineError."""
        began = int(time.time())
        stack, project = self.stack, self.stack.project
        state.require_known()
        if not self.dry:
            state.unlock()
        state.load()
        if not self.dry:
            state.fold()
        run = Run(
            kind=self.kind, project=project, stack=stack.name, state=state, on_event=self.on_event,
            config=project.config(stack.config_file, stack.passphrase), parallel=self.parallel, dry=self.dry,
            scope=self.scope,
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
                # The run has resumed or undone the pending steps of resources in scope.
                in_scope = ScopeFilter(self.scope)
                state.pending = {key: r for key, r in state.pending.items() if not in_scope(r)}
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
        """Raise NotRunnableError, before the first step, if the provider of a resource is not embedded."""
        types = state.managed_types
        providers = Providers(self.stack.project.root, {}, self.stack.project.name)
        foreign = sorted(t for t in types - {urns.STACK_TYPE} if isinstance(providers.of(t), Foreign))
        if foreign:
            raise NotRunnableError(foreign, self.stack.name, self.kind)
        # A stack that has resources has passed this before. New resources are refused when they are registered.
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
            program.run_program(run, monitor, Engine(run))
        except BaseException:
            run.stop_steps()
            raise
        finally:
            registrar.finish(monitor.outputs)
        if run.healthy:
            run.scope.require(registrar.urns)

    def _outputs_of(self, reference: str) -> Props:
        """Return the outputs of another stack, named as [[ORGANIZATION/]PROJECT/]STACK."""
        *_, project, name = (self.stack.project.name, *reference.split("/"))
        file = state_file(self.stack.folder, project, name)
        if checkpoint.stored(file) is None:
            raise EngineError(f"stack reference {reference!r}: {file} does not exist: is that stack up?")
        other = State(file, name, project, self.stack.passphrase)
        other.load()
        return next((r.outputs for r in other.olds if r.type == urns.STACK_TYPE), {})

    def _archive(self, run: Run, result: Result, began: int) -> None:
        try:
            self.stack.folder.joinpath("meta.yaml").write_text("version: 1\n", encoding="utf-8")
            run.state.archive(self.stack.folder, _history(result, began, self.message))
        except OSError as error:
            # A warning is enough, because the state itself is written.
            run.log("warning", f"the history of the stack misses this run: {error.filename}: {error.strerror}")


def _history(result: Result, began: int, message: str) -> dict[str, Value]:
    kind = {"up": "update"}.get(result.kind, result.kind)
    ended = "succeeded" if result.ok else "failed"
    return {
        "kind": kind, "startTime": began, "message": message, "environment": {"exec.kind": "embedded"},
        "config": {}, "version": 0, "result": ended, "endTime": int(time.time()), "resourceChanges": result.counts,
    }  # fmt: skip


def refresh_all(run: Run) -> None:
    """Read all resources whose providers can read them, in parallel. Those that no longer exist are removed from the
    state; their dependents stay, and the next update creates them again. If the refresh precedes another operation,
    only resources that differ are shown."""
    missing: set[str] = set()
    changed: dict[int, Resource] = {}
    in_scope = ScopeFilter(run.scope)
    customs = [r for r in run.state.olds if in_scope(r) and r.custom]
    readable = [r for r in customs if not r.delete and run.providers.of(r.type).readable]
    for resource in customs if run.kind == "refresh" else ():
        if not resource.is_provider and (resource.delete or not run.providers.of(resource.type).readable):
            run.plan(resource, "same", reason="its provider can't read it")
    pool = DaemonExecutor(run.max_steps)
    for future in [pool.submit(_read, run, resource, missing, changed) for resource in readable]:
        future.result()
    pool.shutdown()
    run.state.apply_refresh(changed, missing)


def _read(run: Run, resource: Resource, missing: set[str], changed: dict[int, Resource]) -> None:
    """Read one resource, and add it to `missing` (by URN) or to `changed` (by `id()`)."""
    try:
        with run.slot():
            run.emit(StepStarted(resource.urn, "refresh"))
            began = time.monotonic()
            provider, ctx = run.providers.of(resource.type), run.context(resource)
            response = provider.read(ctx, resource.id, plain(resource.inputs), plain(resource.outputs))
            run.emit(StepDone(resource.urn, "refresh", time.monotonic() - began))
    except RunInterruptedError:
        return
    except Exception as error:  # noqa: BLE001 - providers are other people's code
        run.fail(resource, "refresh", error_text(error))
        return
    if response is None:
        run.plan(resource, "delete", reason="it is gone")
        missing.add(resource.urn)
        return
    id_, inputs, outputs = response
    new = with_outputs(resource, id_, outputs, values.keep_secrets(inputs, resource.inputs))
    drift = differences(resource.outputs, new.outputs)
    if drift or run.kind == "refresh":
        run.plan(resource, "refresh" if drift else "same", drift, "what is there differs" if drift else "")
    if drift or not values.same(resource.inputs, new.inputs):
        changed[id(resource)] = replace(new, modified=now())


def delete_all(run: Run, deleted: list[Resource]) -> None:
    """Delete resources that are in scope, not protected, and not needed by one that could not be deleted. They are
    given in the state's order, each after those that it depends on. Raises EngineError."""
    resources = run.state.resources()
    current = {r.urn for r in resources if not r.delete}
    deleted = deletable(run.scope, deleted, resources)
    deleted_urns = {r.urn for r in deleted if r.delete or not r.protect}
    in_scope = ScopeFilter(run.scope)
    interrupted = [r for (_, kind), r in run.state.pending.items() if kind == "creating" and in_scope(r)]
    for resource in (*interrupted, *reversed(deleted)):
        was_replaced = resource.delete and resource.urn in current
        if resource.custom and not resource.is_default_provider and not was_replaced:
            reason = "its creation was interrupted" if resource in interrupted else ""
            run.plan(resource, "delete", reason=reason)
    for resource in deleted:
        if resource.protect and not resource.delete:
            run.fail(resource, "delete", "it is protected: set protect=False in the program and run up first")
    if run.dry:
        return
    needed: set[str] = set()
    for resource in interrupted:
        try:
            undo_creation(run, resource)
        except StepError:
            needed |= resource.needs()
    _delete_in_order(run, _without_needed(deleted, needed), deleted_urns)


def _without_needed(deleted: list[Resource], needed: set[str]) -> list[Resource]:
    """Return the resources that are not needed, directly or not, by one that stays and needs the URNs `needed`."""
    free: list[Resource] = []
    for resource in reversed(deleted):
        if resource.urn in needed:
            needed = needed | resource.needs()
        else:
            free.append(resource)
    return free[::-1]


def _delete_in_order(run: Run, deleted: list[Resource], deleted_urns: set[str]) -> None:
    """Delete each resource after its dependents, otherwise in parallel."""
    dependents: list[int] = [0] * len(deleted)  # number of those that are not deleted yet
    needed: list[set[int]] = [set() for _ in deleted]
    indexes: dict[str, list[int]] = {}
    for i, resource in enumerate(deleted):
        # It can only need resources before it: of two with one URN, one was replaced by the other.
        for j in {j for urn in resource.needs() for j in indexes.get(urn, [])}:
            needed[i].add(j)
            dependents[j] += 1
        indexes.setdefault(resource.urn, []).append(i)
    done: queue.SimpleQueue[tuple[int, BaseException | None]] = queue.SimpleQueue()
    pool = DaemonExecutor(run.max_steps)

    def work(i: int) -> None:
        try:
            _delete(run, deleted[i], deleted_urns)
            done.put((i, None))
        except BaseException as error:  # noqa: BLE001 - raised again below
            done.put((i, error))

    ready, running = [i for i, count in enumerate(dependents) if not count], 0
    try:
        while ready or running:
            for i in ready:
                pool.submit(work, i)
            running += len(ready)
            i, error = done.get()
            running -= 1
            ready = []
            if error is None:
                for j in needed[i]:
                    dependents[j] -= 1
                ready = [j for j in needed[i] if not dependents[j]]
            elif not isinstance(error, (StepError, RunInterruptedError)):
                raise error
    finally:
        pool.shutdown()


def _delete(run: Run, resource: Resource, deleted_urns: set[str]) -> None:
    if resource.protect and not resource.delete:
        raise StepError("protected")
    state = run.state
    stays = resource.external or resource.pending_replacement or resource.retain_on_delete
    if not resource.custom or stays or resource.is_provider or resource.deleted_with in deleted_urns:
        # Only the state changes, which is written with the next step or at the end.
        state.drop(resource)
        return

    def work(provider: Provider, ctx: Context) -> StateChange:
        if isinstance(provider, Foreign):
            raise StepError(f"no provider for {resource.type} is embedded: delete it with the Pulumi CLI")
        provider.delete(ctx, resource.id, plain(resource.inputs), plain(resource.outputs))
        return lambda: state.drop(resource)

    run.step("delete-replaced" if resource.delete else "delete", "deleting", resource, work)
