"""Calls for the instances that this program itself creates or deletes: nodes of flex start,
and elastic nodes when their nodeset is deleted. It is imported only where Google is called."""

import copy
import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any, ClassVar

from google.cloud import compute_v1

from cluster.findings import listing
from cluster.platforms.gcp.names import MADE_BY_LABEL, NODESET_LABEL, RECONCILE
from cluster.printable import counted
from components.gcp.bake_design import (
    CLUSTER_LABEL,
    LOG_IN,
    TEMPLATE_KEY,
    Bake,
    ErrorRow,
    GoogleCloudError,
    Pace,
    advice,
    cloud_error,
    pace_of,
    refusal,
    template_mark,
)
from components.gcp.compute_engine import Compute, all_pages, operation_error_rows, request_id

WAIT_SECONDS = 7200
"""Time for which Google queues a machine: 90 s to two hours, by `params.requestValidForDuration`; without, it does not
wait at all (cloud.google.com/compute/docs/instances/about-flex-start-vms, .../instance-lifecycle: PENDING)."""
MARGIN_SECONDS = 1800.0
"""Time for the start of a machine, and for a queue that takes longer than requested."""
POLL_SECONDS = 15.0
"""Between two reads of a node: one call each, of 1500 reads a minute that a project has."""
RUNNING, PENDING = "RUNNING", "PENDING"
COMING = frozenset({PENDING, "PROVISIONING", "STAGING", RUNNING})
"""States of a machine that runs, or will."""
SHOWN_NAMES = 8
"""Names that a message lists; the others are counted."""

Report = Callable[[str], None]


class _InstanceCompute(Compute):
    """The calls for instances of a zone. All raise GoogleCloudError where Google refuses or does not answer."""

    ADVICE: ClassVar[Mapping[tuple[str, ...], str]]
    """Advice for Google's errors, by words that they contain. `bake` has project and zone."""
    name = ""

    def __init__(self, props: Mapping[str, Any], pace: Pace) -> None:
        """Raises GoogleCloudError where there are no credentials."""
        where = {name: props[name] for name in ("project", "zone", "endpoint")}
        super().__init__(Bake(**where, image="", pace=pace))

    def _refusal(self, doing: str, errors: Sequence[ErrorRow]) -> GoogleCloudError:
        return refusal(doing, errors, advice(self.ADVICE, errors).format(bake=self.bake, name=self.name))


class FlexCompute(_InstanceCompute):
    """The calls for one node of flex start, as a resource's inputs describe it."""

    ADVICE: ClassVar[Mapping[tuple[str, ...], str]] = {
        ("quota_exceeded", "quotaexceeded"): (
            "flex start takes the quota of preemptible GPUs: ask for more at "
            "https://console.cloud.google.com/iam-admin/quotas?project={bake.project}, or set a smaller `count`"
        ),
        ("resource_pool_exhausted", "stockout"): (
            "Google found none in two hours: run again to retry, or choose another zone or another `capacity`"
        ),
        ("autherror", "authentication credentials"): LOG_IN,
        ("forbidden", "permission"): (
            "who runs this needs roles/compute.admin in {bake.project}, and roles/iam.serviceAccountUser on the nodes' "
            "service account"
        ),
    }

    def __init__(self, props: Mapping[str, Any]) -> None:
        """Raises GoogleCloudError where there are no credentials."""
        super().__init__(props, pace_of(props) if props.get("pace") else Pace(poll=POLL_SECONDS))
        self.name, self.cluster = props["name"], props["cluster"]
        self._template = props.get("template") or ""
        self.mark = template_mark(self._template)
        self._labels = dict(props.get("labels") or {})
        self._items = {**(props.get("metadata") or {}), TEMPLATE_KEY: self.mark}

    @property
    def _node(self) -> dict[str, str]:
        return {**self._zone, "instance": self.name}

    def for_node(self, name: str) -> "FlexCompute":
        """Return the calls for another node with the same inputs, by the same connections."""
        other = copy.copy(self)
        other.name = name
        return other

    def node(self) -> compute_v1.Instance | None:
        return self._ask_or_none(f"look for {self.name}", self._instances.get, self._node)

    def insert(self) -> compute_v1.Operation | None:
        """Ask for the machine, without waiting. Returns None if an instance of its name exists already."""
        instance = compute_v1.Instance(
            name=self.name,
            labels=self._labels,
            metadata=self._metadata(),
            params=compute_v1.InstanceParams(request_valid_for_duration=compute_v1.Duration(seconds=WAIT_SECONDS)),
        )
        return self._insert(instance, source_instance_template=self._template)

    def _insert(self, instance: compute_v1.Instance, **more: str) -> compute_v1.Operation | None:
        request = {**self._zone, "instance_resource": instance, **more, **request_id()}
        return self._ask(self._doing, self._instances.insert_unary, request, none_for=HTTPStatus.CONFLICT)

    def refresh(self, operation: compute_v1.Operation) -> compute_v1.Operation:
        """Return the operation as it is now. Raises GoogleCloudError if it has failed."""
        operation = self._read_operation(self._doing, operation)
        if operation.status == compute_v1.Operation.Status.DONE and operation.error.errors:
            raise self._refusal(self._doing, operation_error_rows(operation.error))
        return operation

    def delete(self) -> None:
        """Delete the machine with its disk, and wait until it is gone; none is fine."""
        self._delete(f"delete {self.name}", self._instances.delete_unary, self._node)

    def set_metadata(self, instance: compute_v1.Instance) -> None:
        """Set the metadata and the labels of an existing machine, where they differ."""
        if {item.key: item.value for item in instance.metadata.items} != self._items:
            doing, resource = f"set the metadata of {self.name}", self._metadata(instance.metadata.fingerprint)
            self._operate(doing, self._instances.set_metadata_unary, {**self._node, "metadata_resource": resource})
        # Google and others add labels of their own.
        labelled = {**instance.labels, **self._labels}
        if dict(instance.labels) != labelled:
            doing = f"set the labels of {self.name}"
            labels = compute_v1.InstancesSetLabelsRequest(labels=labelled, label_fingerprint=instance.label_fingerprint)
            request = {**self._node, "instances_set_labels_request_resource": labels}
            self._operate(doing, self._instances.set_labels_unary, request)

    @property
    def _doing(self) -> str:
        return f"make {self.name}"

    def _metadata(self, fingerprint: str | None = None) -> compute_v1.Metadata:
        items = [compute_v1.Items(key=key, value=value) for key, value in sorted(self._items.items())]
        return compute_v1.Metadata(items=items, fingerprint=fingerprint)


def start(compute: FlexCompute, report: Report) -> compute_v1.Instance:
    """Create the node if it does not exist, and wait until it runs. A node that an interrupted run asked for is taken
    over: its name is the node's own, and Google creates no second instance of that name.

    Raises GoogleCloudError where that can't be done. A request that is still pending is taken over by the next run.
    """
    instance, operation = compute.node(), None
    if instance is not None:
        _require_own(compute, instance)
        if instance.status not in COMING or _mark(instance) != compute.mark:
            report(f"{compute.name}: deleting the instance that there is, which has stopped or is another")
            compute.delete()
            instance = None
    if instance is None:
        operation = compute.insert()
    instance = _wait_until_running(compute, operation, report)
    compute.set_metadata(instance)
    return instance


def ask_all(props: Mapping[str, Any], report: Report) -> None:
    """Ask for each missing node, and wait for none: Google queues all of them at the same time.

    Raises GoogleCloudError for the first that Google refuses; those before it are taken over by the next run.
    """
    requests = [(node, node.insert()) for node in missing_nodes(props)]
    if requests:
        report(f"{props['cluster']}: asked for {counted(len(requests), 'node')} of flex start at once")
    for node, operation in requests:
        if operation is not None:
            _wait_until_listed(node, operation)


def missing_nodes(props: Mapping[str, Any]) -> list[FlexCompute]:
    """Return the nodes of a queue that do not exist."""
    first = FlexCompute({**props, "name": props["names"][0]})
    return [node for node in map(first.for_node, props["names"]) if node.node() is None]


def _wait_until_listed(compute: FlexCompute, operation: compute_v1.Operation) -> None:
    """Wait until Google lists the requested machine. Raises GoogleCloudError if the request fails."""
    done, deadline = compute_v1.Operation.Status.DONE, time.monotonic() + compute.bake.pace.operation
    while time.monotonic() < deadline and operation.status != done and compute.node() is None:
        time.sleep(compute.bake.pace.poll)
        operation = compute.refresh(operation)


def end_time(instance: compute_v1.Instance) -> int:
    """Return when Google deletes the instance, in seconds since 1970; 0 where that is unknown."""
    start, seconds = instance.last_start_timestamp or instance.creation_timestamp, instance.scheduling.max_run_duration
    return int(datetime.fromisoformat(start).timestamp()) + int(seconds.seconds) if start and seconds.seconds else 0


def delete_node(compute: FlexCompute) -> None:
    """Delete the node if it exists and has flex start's mark: a node with other capacity may have replaced it."""
    instance = compute.node()
    if instance is not None and instance.labels.get(CLUSTER_LABEL) == compute.cluster and _mark(instance):
        compute.delete()


def _wait_until_running(
    compute: FlexCompute, operation: compute_v1.Operation | None, report: Report
) -> compute_v1.Instance:
    """Poll until the node runs. Google may end the operation at once or when the machine has started, and deletes a
    machine for which it found no capacity. While the machine exists only the machine is read, not the operation: a run
    waits for many machines at a time."""
    name, done = compute.name, compute_v1.Operation.Status.DONE
    deadline, last = time.monotonic() + WAIT_SECONDS + MARGIN_SECONDS, ""
    while True:
        instance = compute.node()
        if instance is None:
            if operation is not None and operation.status != done:
                operation = compute.refresh(operation)
            # A machine that is missing when its operation is done will not come. It may have come since the read above.
            if (operation is None or operation.status == done) and (instance := compute.node()) is None:
                raise cloud_error(
                    f"{name} is gone: Google found no capacity for it in {WAIT_SECONDS // 60} minutes, or it was "
                    "deleted manually",
                    "run again to retry, or choose another zone or another `capacity`",
                )
        if instance is not None:
            _require_own(compute, instance)
            if instance.status == RUNNING:
                return instance
            if instance.status not in COMING:
                raise cloud_error(f"{name} has stopped before it ran ({instance.status})", "run again to retry")
            if instance.status != last:
                last = instance.status
                waiting = f"waiting for capacity (flex start), for up to {WAIT_SECONDS // 60} minutes"
                report(f"{name}: {waiting if last == PENDING else 'there is capacity, and it starts'}")
        if time.monotonic() > deadline:
            raise cloud_error(f"{name} is still {last or 'not there'}", "run again later to continue waiting")
        time.sleep(compute.bake.pace.poll)


def _require_own(compute: FlexCompute, instance: compute_v1.Instance) -> None:
    """Raise GoogleCloudError if the stack did not request the machine of this name."""
    if instance.labels.get(CLUSTER_LABEL) != compute.cluster or not _mark(instance):
        raise cloud_error(
            f"{compute.bake.project} has a machine called {compute.name}, which this stack did not ask for "
            f"(label {CLUSTER_LABEL}: {instance.labels.get(CLUSTER_LABEL) or 'none'}, metadata {TEMPLATE_KEY}: "
            f"{_mark(instance) or 'none'})",
            "rename or delete it, or give the cluster or the nodeset another name",
        )


def _mark(instance: compute_v1.Instance) -> str:
    return next((item.value for item in instance.metadata.items if item.key == TEMPLATE_KEY), "")


class ElasticCompute(_InstanceCompute):
    """The calls for one nodeset's elastic instances."""

    ADVICE: ClassVar[Mapping[tuple[str, ...], str]] = {
        ("deletion protection", "protected against deletion"): (
            "somebody protected the instance: `gcloud compute instances update NAME --no-deletion-protection "
            "--zone {bake.zone} --project {bake.project}`, then run again"
        ),
        ("autherror", "authentication credentials"): LOG_IN,
        ("forbidden", "permission"): "who runs this needs roles/compute.admin in {bake.project}",
    }

    def __init__(self, props: Mapping[str, Any]) -> None:
        """Raises GoogleCloudError where there are no credentials."""
        super().__init__(props, pace_of(props))
        self._cluster, self._nodeset = props["cluster"], props["nodeset"]
        self._groups = compute_v1.InstanceGroupManagersClient(**self._client_args)

    def instances(self) -> list[str]:
        """Return the names of the instances that the reconcile loop created for the nodeset, whatever their status."""
        return sorted(machine.name for machine in self.instances_of(self._cluster) if self._owns(machine))

    def groups(self) -> list[str]:
        """Return the names of the nodeset's groups of flex start, which have no labels, but a description."""
        list_all = all_pages(self._groups.list)
        groups = self._ask(f"look for instance groups in {self.bake.zone}", list_all, dict(self._zone))
        return sorted(group.name for group in groups if self._owns_group(group))

    def begin_delete_group(self, name: str) -> compute_v1.Operation | None:
        """Begin to delete a group with its resize request and its instances. Returns None if it is gone."""
        request = {**self._zone, "instance_group_manager": name, **request_id()}
        return self._ask_or_none(f"delete {name}", self._groups.delete_unary, request)

    def _owns_group(self, group: compute_v1.InstanceGroupManager) -> bool:
        try:
            mark = json.loads(group.description)
            return mark["hpc-cluster"] == self._cluster and mark["nodeset"] == self._nodeset
        except (ValueError, KeyError, TypeError):
            return False

    def begin_delete(self, name: str) -> compute_v1.Operation | None:
        """Begin to delete an instance with its disk. Returns None if it is gone, or if the instance that has the name
        now is not the nodeset's."""
        path = {**self._zone, "instance": name}
        instance = self._ask_or_none(f"look for {name}", self._instances.get, path)
        if instance is None or not self._owns(instance):
            return None
        return self._ask_or_none(f"delete {name}", self._instances.delete_unary, {**path, **request_id()})

    def finish_delete(self, name: str, operation: compute_v1.Operation) -> None:
        """Wait until an instance or a group is deleted."""
        self._wait_for(f"delete {name}", operation)

    def _owns(self, instance: compute_v1.Instance) -> bool:
        labels = {CLUSTER_LABEL: self._cluster, NODESET_LABEL: self._nodeset, MADE_BY_LABEL: RECONCILE}
        return all(instance.labels.get(key) == value for key, value in labels.items())


def delete_instances(props: Mapping[str, Any], report: Report) -> None:
    """Delete the elastic instances of a nodeset, all at the same time, until Google lists none.

    The groups of flex start are deleted first, with their instances: their queued machines would come otherwise.

    Raises GoogleCloudError where that can't be done, or where new instances keep coming.
    """
    compute = ElasticCompute(props)
    deadline = time.monotonic() + compute.bake.pace.operation
    while True:
        begin = compute.begin_delete_group
        if not (names := compute.groups()):
            begin, names = compute.begin_delete, compute.instances()
        if not names:
            return
        if time.monotonic() > deadline:
            raise cloud_error(
                f"nodeset {props['nodeset']} of {props['cluster']} still has instances for its elastic nodes: "
                f"{listing(names, SHOWN_NAMES)}",
                "something creates them again: stop the service hpc-reconcile on the controller, then run again",
            )
        report(f"deleting the elastic nodes of nodeset {props['nodeset']}: {listing(names, SHOWN_NAMES)}")
        operations = [(name, begin(name)) for name in names]
        for name, operation in operations:
            if operation is not None:
                compute.finish_delete(name, operation)
        time.sleep(compute.bake.pace.poll)
