"""Refresh: ask the providers what is really there, and take it into the state."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from engine import values
from engine.diff import differences
from engine.errors import Interrupted
from engine.events import StepDone, StepStarted
from engine.resource import Resource, now
from engine.run import Run, explain, finished
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
    try:
        with run.slot():
            run.emit(StepStarted(resource.urn, "refresh"))
            began = time.monotonic()
            provider, ctx = run.providers.of(resource.type), run.context(resource)
            found = provider.read(ctx, resource.id, plain(resource.inputs), plain(resource.outputs))
            run.emit(StepDone(resource.urn, "refresh", time.monotonic() - began))
    except Interrupted:
        return
    except Exception as error:  # noqa: BLE001 - providers are other people's code
        run.fail(resource, "refresh", explain(error))
        return
    if found is None:
        run.plan(resource, "delete", reason="it is gone")
        gone.add(resource.urn)
        run.state.drop(resource)
        return
    id_, inputs, outputs = found
    new = finished(resource, id_, outputs, values.keep_secrets(inputs, resource.inputs))
    drift = differences(resource.outputs, new.outputs)
    run.plan(resource, "refresh" if drift else "same", drift, "what is there differs" if drift else "")
    if drift or not values.same(resource.inputs, new.inputs):
        changed = replace(new, modified=now())
        with run.lock:
            run.state.olds = [changed if r is resource else r for r in run.state.olds]
