"""Refresh: ask the providers what is really there, and take it into the state."""

import time
from dataclasses import replace

from engine import values
from engine.core.diff import differences
from engine.core.run import Daemons, Run, explain, with_outputs
from engine.core.scope import Included
from engine.errors import Interrupted
from engine.events import StepDone, StepStarted
from engine.state.resource import Resource, now
from engine.values import plain


def refresh_all(run: Run) -> None:
    """Read all resources whose providers can tell, side by side. What is gone is dropped; dependents stay, and the
    next update creates it again. Before another run, only what differs is shown."""
    gone: set[str] = set()
    changed: dict[int, Resource] = {}
    included = Included(run.scope)
    customs = [r for r in run.state.olds if included(r) and r.custom]
    wanted = [r for r in customs if not r.delete and run.providers.of(r.type).readable]
    alone = run.kind == "refresh"
    for resource in customs if alone else ():
        if not resource.is_provider and (resource.delete or not run.providers.of(resource.type).readable):
            run.plan(resource, "same", reason="its provider can't tell")
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
    except Interrupted:
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
