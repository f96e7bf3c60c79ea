"""Asking for a node, and waiting for it: all of it again and again, or nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime

from google.cloud import compute_v1

from components.gcp.bake.design import CLUSTER_LABEL
from components.gcp.bake.errors import bake_error
from components.gcp.flex.compute import FlexCompute
from components.gcp.flex.design import MARGIN_SECONDS, TEMPLATE_KEY, WAIT_SECONDS, Wanted

RUNNING, PENDING = "RUNNING", "PENDING"
COMING = frozenset({PENDING, "PROVISIONING", "STAGING", RUNNING})
"""States of a machine that runs, or will."""

Report = Callable[[str], None]


def start(compute: FlexCompute, report: Report) -> compute_v1.Instance:
    """Have the node run. One that an interrupted run asked for is taken over: its name is the node's own, and Google
    makes no second one of that name.

    Raises BakeError where that can't be done; what was asked for is then either gone or taken over by the next run.
    """
    found, operation = compute.node(), None
    if found is not None:
        _ours(compute, found)
        if found.status not in COMING or _mark(found) != compute.wanted.mark:
            report(f"{compute.wanted.name}: deleting what an interrupted run left")
            compute.delete()
            found = None
    if found is None:
        operation = compute.ask()
    running = _wait(compute, operation, report)
    compute.set_metadata(running)
    return running


def ask_all(wanted: Sequence[Wanted], report: Report) -> None:
    """Ask for each node that is not there, and wait for none: Google queues all of them at the same time.

    Raises BakeError for the first that Google refuses; those before it are taken over by the next run.
    """
    first = FlexCompute(wanted[0])
    missing = [one for one in map(first.another, wanted) if one.node() is None]
    asked = [(one, one.ask()) for one in missing]
    if missing:
        report(f"{wanted[0].cluster}: asked for {len(missing)} nodes of flex start at once")
    for one, operation in asked:
        if operation is not None:
            _seen(one, operation)


def _seen(compute: FlexCompute, operation: compute_v1.Operation) -> None:
    """Wait until whoever looks for the machine finds it. Raises BakeError where there will be none."""
    ends = time.monotonic() + compute.wanted.pace.operation
    while time.monotonic() < ends and operation.status != compute_v1.Operation.Status.DONE and compute.node() is None:
        time.sleep(compute.wanted.pace.poll)
        operation = compute.look(operation)


def missing(wanted: Sequence[Wanted]) -> bool:
    """Whether one of the nodes is not there."""
    first = FlexCompute(wanted[0])
    return any(one.node() is None for one in map(first.another, wanted))


def ends(found: compute_v1.Instance) -> int:
    """When Google deletes it, in seconds since 1970; 0 where that is unknown."""
    began, seconds = found.last_start_timestamp or found.creation_timestamp, found.scheduling.max_run_duration.seconds
    return int(datetime.fromisoformat(began).timestamp()) + int(seconds) if began and seconds else 0


def remove(compute: FlexCompute) -> None:
    """Delete the node, if it is there and flex start's: a node with another kind of capacity may have replaced it."""
    found = compute.node()
    if found is not None and found.labels.get(CLUSTER_LABEL) == compute.wanted.cluster and _mark(found):
        compute.delete()


def _wait(compute: FlexCompute, operation: compute_v1.Operation | None, report: Report) -> compute_v1.Instance:
    """Look until it runs. Google may end the operation at once or when the machine has started; and deletes a machine
    that it found nothing for. The machine alone is asked after while it is there: many are waited for at a time."""
    name, done = compute.wanted.name, compute_v1.Operation.Status.DONE
    ends, last = time.monotonic() + WAIT_SECONDS + MARGIN_SECONDS, ""
    while True:
        found = compute.node()
        if found is None:
            if operation is not None and operation.status != done:
                operation = compute.look(operation)
            # What is not there when that is done will not come; but it may have come since the last look.
            if (operation is None or operation.status == done) and (found := compute.node()) is None:
                raise bake_error(
                    f"{name} is gone: Google found no capacity for it in {WAIT_SECONDS // 60} minutes, or it was "
                    "deleted manually",
                    "run again to retry, or choose another zone or another `capacity`",
                )
        if found is not None:
            _ours(compute, found)
            if found.status == RUNNING:
                return found
            if found.status not in COMING:
                raise bake_error(f"{name} has stopped before it ran ({found.status})", "run again to retry")
            if found.status != last:
                last = found.status
                report(f"{name}: {_progress(last)}")
        if time.monotonic() > ends:
            raise bake_error(f"{name} is still {last or 'not there'}", "run again later to continue waiting")
        time.sleep(compute.wanted.pace.poll)


def _progress(status: str) -> str:
    if status == PENDING:
        return f"waiting for capacity (flex start), for up to {WAIT_SECONDS // 60} minutes"
    return "there is capacity, and it starts"


def _ours(compute: FlexCompute, found: compute_v1.Instance) -> None:
    """Refuse to touch a machine of this name that the stack did not ask for."""
    wanted = compute.wanted
    if found.labels.get(CLUSTER_LABEL) != wanted.cluster or not _mark(found):
        raise bake_error(
            f"{wanted.project} has a machine called {wanted.name}, which this stack did not ask for "
            f"(label {CLUSTER_LABEL}: {found.labels.get(CLUSTER_LABEL) or 'none'}, metadata {TEMPLATE_KEY}: "
            f"{_mark(found) or 'none'})",
            "rename or delete it, or give the cluster or the nodeset another name",
        )


def _mark(found: compute_v1.Instance) -> str:
    return next((item.value for item in found.metadata.items if item.key == TEMPLATE_KEY), "")
