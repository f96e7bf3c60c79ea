"""Refresh: ask the providers what is really there, and take it into the state."""

from __future__ import annotations

import threading
from dataclasses import replace

from engine import values
from engine.diff import differences
from engine.resource import Resource, now
from engine.run import Run, StepError, finished
from engine.values import plain


def refresh_all(run: Run) -> None:
    """Read all resources whose providers can tell, side by side. What is gone is dropped; dependents stay, and the
    next update makes it anew."""
    gone: set[str] = set()
    wanted = [r for r in run.state.olds if r.custom and not r.delete and run.providers.of(r.type).readable]
    for resource in run.state.olds:
        if resource.custom and not resource.is_provider and resource not in wanted:
            run.plan(resource, "same", reason="its provider can't tell")
    threads = [threading.Thread(target=_read, args=(run, r, gone), daemon=True) for r in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.state.olds = [r.without(gone) for r in run.state.olds]


def _read(run: Run, resource: Resource, gone: set[str]) -> None:
    found: list[tuple[str, values.Props, values.Props] | None] = []

    def work(provider, ctx):  # noqa: ANN001, ANN202
        found.append(provider.read(ctx, resource.id, plain(resource.inputs), plain(resource.outputs)))
        return lambda: None

    try:
        run.step("refresh", "reading", resource, work)
    except StepError:
        return
    if found[0] is None:
        run.plan(resource, "delete", reason="it is gone")
        gone.add(resource.urn)
        run.state.drop(resource)
        return
    id_, inputs, outputs = found[0]
    new = finished(resource, id_, outputs, values.keep_secrets(inputs, resource.inputs))
    drift = differences(resource.outputs, new.outputs)
    run.plan(resource, "refresh" if drift else "same", drift, "what is there differs" if drift else "")
    if drift or not values.same(resource.inputs, new.inputs):
        changed = replace(new, modified=now())
        with run.lock:
            run.state.olds = [changed if r is resource else r for r in run.state.olds]
