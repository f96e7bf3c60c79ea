"""Deleting resources: dependents first, independent ones side by side."""

import queue

from engine.core.resource_step import undo
from engine.core.run import Daemons, Run, StateChange, StepError
from engine.core.scope import Included, allowed
from engine.errors import RunInterruptedError
from engine.providers.base import Context, Foreign, Provider
from engine.state.resource import Resource
from engine.values import plain


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
