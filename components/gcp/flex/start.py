"""Flex start: waiting for a node's machine at Compute Engine; imported only where Google is called."""

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus

from google.cloud import compute_v1

from components.gcp.bake.compute import Compute, of_operation, once
from components.gcp.bake.design import CLUSTER_LABEL, LOG_IN, Bake, BakeError, Complaint, advice, bake_error, refusal
from components.gcp.flex.design import MARGIN_SECONDS, TEMPLATE_KEY, WAIT_SECONDS, Wanted


class FlexCompute(Compute):
    """The calls for one node. All raise BakeError where Google refuses or does not answer."""

    def __init__(self, wanted: Wanted) -> None:
        """Raises BakeError where there are no credentials."""
        super().__init__(
            Bake(project=wanted.project, zone=wanted.zone, image="", endpoint=wanted.endpoint, pace=wanted.pace)
        )
        self.wanted = wanted

    @property
    def _node(self) -> dict[str, str]:
        return {**self._zone, "instance": self.wanted.name}

    def another(self, wanted: Wanted) -> "FlexCompute":
        """The calls for another node of the same zone, by the same connections."""
        other = copy.copy(self)
        other.wanted = wanted
        return other

    def node(self) -> compute_v1.Instance | None:
        return self._found(f"look for {self.wanted.name}", self._instances.get, self._node)

    def ask(self) -> compute_v1.Operation | None:
        """Ask for the machine, without waiting. None where Google has been asked already."""
        wanted = self.wanted
        instance = compute_v1.Instance(
            name=wanted.name,
            labels=dict(wanted.labels),
            metadata=self._metadata(),
            params=compute_v1.InstanceParams(request_valid_for_duration=compute_v1.Duration(seconds=WAIT_SECONDS)),
        )
        request = {**self._zone, "instance_resource": instance, "source_instance_template": wanted.template, **once()}
        return self._ask(self.doing, self._instances.insert_unary, request, none_for=HTTPStatus.CONFLICT)

    def look(self, operation: compute_v1.Operation) -> compute_v1.Operation:
        """Return how far it is. Raises BakeError for one that has failed."""
        found = self._poll(self.doing, operation)
        if found.status == compute_v1.Operation.Status.DONE and found.error.errors:
            raise self._refused(self.doing, of_operation(found.error))
        return found

    def delete(self) -> None:
        """Delete the machine with its disk, and wait until it is gone; none is fine."""
        self._delete(f"delete {self.wanted.name}", self._instances.delete_unary, self._node)

    def set_metadata(self, instance: compute_v1.Instance) -> None:
        """Give a machine that is there the metadata and the labels that it should have."""
        wanted = self.wanted
        if {item.key: item.value for item in instance.metadata.items} != wanted.all_metadata:
            doing, resource = f"set the metadata of {wanted.name}", self._metadata(instance.metadata.fingerprint)
            self._do(doing, self._instances.set_metadata_unary, {**self._node, "metadata_resource": resource})
        # Google and others have labels of their own there.
        labelled = {**instance.labels, **wanted.labels}
        if dict(instance.labels) != labelled:
            doing = f"set the labels of {wanted.name}"
            labels = compute_v1.InstancesSetLabelsRequest(labels=labelled, label_fingerprint=instance.label_fingerprint)
            request = {**self._node, "instances_set_labels_request_resource": labels}
            self._do(doing, self._instances.set_labels_unary, request)

    @property
    def doing(self) -> str:
        """Return what asking for it is called in errors."""
        return f"make {self.wanted.name}"

    def _metadata(self, fingerprint: str | None = None) -> compute_v1.Metadata:
        items = [compute_v1.Items(key=key, value=value) for key, value in sorted(self.wanted.all_metadata.items())]
        return compute_v1.Metadata(items=items, fingerprint=fingerprint)

    def _refused(self, doing: str, complaints: Sequence[Complaint]) -> BakeError:
        return refusal(doing, complaints, advice(_ADVICE, complaints).format(wanted=self.wanted))


_ADVICE: Mapping[tuple[str, ...], str] = {
    ("quota_exceeded", "quotaexceeded"): (
        "flex start takes the quota of preemptible GPUs: ask for more at "
        "https://console.cloud.google.com/iam-admin/quotas?project={wanted.project}, or set a smaller `count`"
    ),
    ("resource_pool_exhausted", "stockout"): (
        "Google found none in two hours: run again to retry, or choose another zone or another `capacity`"
    ),
    ("autherror", "authentication credentials"): LOG_IN,
    ("forbidden", "permission"): (
        "who runs this needs roles/compute.admin in {wanted.project}, and roles/iam.serviceAccountUser on the nodes' "
        "service account"
    ),
}


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
            report(f"{compute.wanted.name}: deleting the instance that there is, which has stopped or is another")
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
    missing = [node for node in map(first.another, wanted) if node.node() is None]
    asked = [(node, node.ask()) for node in missing]
    if missing:
        report(f"{wanted[0].cluster}: asked for {len(missing)} nodes of flex start at once")
    for node, operation in asked:
        if operation is not None:
            _seen(node, operation)


def _seen(compute: FlexCompute, operation: compute_v1.Operation) -> None:
    """Wait until whoever looks for the machine finds it. Raises BakeError where there will be none."""
    ends = time.monotonic() + compute.wanted.pace.operation
    while time.monotonic() < ends and operation.status != compute_v1.Operation.Status.DONE and compute.node() is None:
        time.sleep(compute.wanted.pace.poll)
        operation = compute.look(operation)


def missing(wanted: Sequence[Wanted]) -> bool:
    """Return whether one of the nodes is not there."""
    first = FlexCompute(wanted[0])
    return any(node.node() is None for node in map(first.another, wanted))


def ends(found: compute_v1.Instance) -> int:
    """Return when Google deletes it, in seconds since 1970; 0 where that is unknown."""
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
