"""An operation on a stack, from reading its state to archiving the new one."""

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
from engine.core.resource_step import drop_stale, undo
from engine.core.run import Daemons, Run, StateChange, StepError, explain, with_outputs
from engine.core.scope import Included, Scope, allowed
from engine.errors import EngineError, NotRunnableError, RunInterruptedError
from engine.events import Event, Finished, Kind, ProgramError, Result, Started, StepDone, StepStarted
from engine.project import KubernetesTools, salt_of
from engine.providers import Foreign, Providers
from engine.providers.base import Context, Provider
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


def delete_all(run: Run, deleted: list[Resource]) -> None:
    """Delete resources, as far as the run is about them and they are neither protected nor needed by one that could not
    be deleted. They are given in the state's order: each after what it depends on. Raises EngineError."""
    everything = run.state.resources()
    living = {r.urn for r in everything if not r.delete}
    deleted = allowed(run.scope, deleted, everything)
    gone = {r.urn for r in deleted if r.delete or not r.protect}
    included = Included(run.scope)
    left = [r for (_, kind), r in run.state.pending.items() if kind == "creating" and included(r)]
    for resource in (*left, *reversed(deleted)):
        leftover = resource.delete and resource.urn in living
        if resource.custom and not resource.is_default_provider and not leftover:
            reason = "its creation was interrupted" if resource in left else ""
            run.plan(resource, "delete", reason=reason)
    for resource in deleted:
        if resource.protect and not resource.delete:
            run.fail(resource, "delete", "it is protected: set protect=False in the program and run up first")
    if run.dry:
        return
    needed: set[str] = set()
    for resource in left:
        try:
            undo(run, resource)
        except StepError:
            needed |= resource.needs()
    _in_order(run, _without(deleted, needed), gone)


def _without(deleted: list[Resource], needed: set[str]) -> list[Resource]:
    """Return those that may go although what needs `needed`, the URNs of some of them, could not be removed."""
    free: list[Resource] = []
    for resource in reversed(deleted):
        if resource.urn in needed:
            needed = needed | resource.needs()
        else:
            free.append(resource)
    return free[::-1]


def _in_order(run: Run, deleted: list[Resource], gone: set[str]) -> None:
    waits: list[int] = [0] * len(deleted)
    blocked: list[set[int]] = [set() for _ in deleted]
    places: dict[str, list[int]] = {}
    for i, resource in enumerate(deleted):
        # Only what comes before it can be meant: of two resources with one URN, one was replaced by the other.
        for j in {j for urn in resource.needs() for j in places.get(urn, [])}:
            blocked[i].add(j)
            waits[j] += 1
        places.setdefault(resource.urn, []).append(i)
    done: queue.SimpleQueue[tuple[int, BaseException | None]] = queue.SimpleQueue()
    pool = Daemons(run.places)

    def work(i: int) -> None:
        try:
            _delete(run, deleted[i], gone)
            done.put((i, None))
        except BaseException as error:  # noqa: BLE001 - it is raised again where it is waited for
            done.put((i, error))

    ready, running = [i for i, count in enumerate(waits) if not count], 0
    try:
        while ready or running:
            for i in ready:
                pool.submit(work, i)
            running += len(ready)
            i, error = done.get()
            running -= 1
            ready = []
            if error is None:
                for j in blocked[i]:
                    waits[j] -= 1
                ready = [j for j in blocked[i] if not waits[j]]
            elif not isinstance(error, (StepError, RunInterruptedError)):
                raise error
    finally:
        pool.shutdown()


def _delete(run: Run, resource: Resource, gone: set[str]) -> None:
    if resource.protect and not resource.delete:
        raise StepError("protected")
    state = run.state
    nothing = resource.external or resource.pending_replacement or resource.retain_on_delete
    if not resource.custom or nothing or resource.is_provider or resource.deleted_with in gone:
        # Nothing outside of the state: written with the next step, or at the end.
        state.drop(resource)
        return

    def work(provider: Provider, ctx: Context) -> StateChange:
        if isinstance(provider, Foreign):
            raise StepError(f"no provider for {resource.type} is embedded: delete it with the Pulumi CLI")
        provider.delete(ctx, resource.id, plain(resource.inputs), plain(resource.outputs))
        return lambda: state.drop(resource)

    run.step("delete-replaced" if resource.delete else "delete", "deleting", resource, work)
