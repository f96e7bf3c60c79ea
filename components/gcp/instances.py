"""Instances that the program itself creates or deletes at Compute Engine: nodes of flex start, a controller in two
zones, and elastic nodes when their nodeset ends. Imported only where Google is called."""

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
from components.gcp.bake.compute import Compute, all_pages, of_operation, once
from components.gcp.bake.design import (
    CLUSTER_LABEL,
    LOG_IN,
    TEMPLATE_KEY,
    Bake,
    BakeError,
    Complaint,
    Pace,
    advice,
    bake_error,
    mark_of,
    pace_of,
    refusal,
)

WAIT_SECONDS = 7200
"""Time for which Google queues a machine: 90 s to two hours, by `params.requestValidForDuration`; without, it does not
wait at all (cloud.google.com/compute/docs/instances/about-flex-start-vms, .../instance-lifecycle: PENDING)."""
MARGIN_SECONDS = 1800.0
"""Time for its start, and for what Google takes longer than it was asked to."""
POLL_SECONDS = 15.0
"""Between two reads of a node: one call each, of 1500 reads a minute that a project has."""
RUNNING, PENDING = "RUNNING", "PENDING"
COMING = frozenset({PENDING, "PROVISIONING", "STAGING", RUNNING})
"""States of a machine that runs, or will."""
SHOWN = 8
"""Names that a message lists; the rest is a number."""

Report = Callable[[str], None]


class _InstanceCompute(Compute):
    """The calls for instances of a zone. All raise BakeError where Google refuses or does not answer."""

    ADVICE: ClassVar[Mapping[tuple[str, ...], str]]
    """Advice on Google's errors, by words that they contain. `bake` has project and zone."""
    name = ""

    def __init__(self, props: Mapping[str, Any], pace: Pace) -> None:
        """Raises BakeError where there are no credentials."""
        where = {name: props[name] for name in ("project", "zone", "endpoint")}
        super().__init__(Bake(**where, image="", pace=pace))

    def _refused(self, doing: str, complaints: Sequence[Complaint]) -> BakeError:
        return refusal(doing, complaints, advice(self.ADVICE, complaints).format(bake=self.bake, name=self.name))


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
        """Raises BakeError where there are no credentials."""
        super().__init__(props, pace_of(props) if props.get("pace") else Pace(poll=POLL_SECONDS))
        self.name, self.cluster = props["name"], props["cluster"]
        self._template = props.get("template") or ""
        self.mark = mark_of(self._template)
        self._labels = dict(props.get("labels") or {})
        self._items = {**(props.get("metadata") or {}), TEMPLATE_KEY: self.mark}

    @property
    def _node(self) -> dict[str, str]:
        return {**self._zone, "instance": self.name}

    def another(self, name: str) -> "FlexCompute":
        """The calls for another node with the same inputs, by the same connections."""
        other = copy.copy(self)
        other.name = name
        return other

    def node(self) -> compute_v1.Instance | None:
        return self._found(f"look for {self.name}", self._instances.get, self._node)

    def ask(self) -> compute_v1.Operation | None:
        """Ask for the machine, without waiting. None where Google has been asked already."""
        instance = compute_v1.Instance(
            name=self.name,
            labels=self._labels,
            metadata=self._metadata(),
            params=compute_v1.InstanceParams(request_valid_for_duration=compute_v1.Duration(seconds=WAIT_SECONDS)),
        )
        return self._insert(instance, source_instance_template=self._template)

    def _insert(self, instance: compute_v1.Instance, **more: str) -> compute_v1.Operation | None:
        request = {**self._zone, "instance_resource": instance, **more, **once()}
        return self._ask(self._doing, self._instances.insert_unary, request, none_for=HTTPStatus.CONFLICT)

    def look(self, operation: compute_v1.Operation) -> compute_v1.Operation:
        """Read an operation again. Raises BakeError if it has failed."""
        found = self._poll(self._doing, operation)
        if found.status == compute_v1.Operation.Status.DONE and found.error.errors:
            raise self._refused(self._doing, of_operation(found.error))
        return found

    def delete(self) -> None:
        """Delete the machine with its disk, and wait until it is gone; none is fine."""
        self._delete(f"delete {self.name}", self._instances.delete_unary, self._node)

    def set_metadata(self, instance: compute_v1.Instance) -> None:
        """Give a machine that is there the metadata and the labels that it should have."""
        if {item.key: item.value for item in instance.metadata.items} != self._items:
            doing, resource = f"set the metadata of {self.name}", self._metadata(instance.metadata.fingerprint)
            self._do(doing, self._instances.set_metadata_unary, {**self._node, "metadata_resource": resource})
        # Google and others have labels of their own there.
        labelled = {**instance.labels, **self._labels}
        if dict(instance.labels) != labelled:
            doing = f"set the labels of {self.name}"
            labels = compute_v1.InstancesSetLabelsRequest(labels=labelled, label_fingerprint=instance.label_fingerprint)
            request = {**self._node, "instances_set_labels_request_resource": labels}
            self._do(doing, self._instances.set_labels_unary, request)

    @property
    def _doing(self) -> str:
        return f"make {self.name}"

    def _metadata(self, fingerprint: str | None = None) -> compute_v1.Metadata:
        items = [compute_v1.Items(key=key, value=value) for key, value in sorted(self._items.items())]
        return compute_v1.Metadata(items=items, fingerprint=fingerprint)


def start(compute: FlexCompute, report: Report) -> compute_v1.Instance:
    """Have the node run. One that an interrupted run asked for is taken over: its name is the node's own, and Google
    makes no second one of that name.

    Raises BakeError where that can't be done; what was asked for is then either gone or taken over by the next run.
    """
    found, operation = compute.node(), None
    if found is not None:
        _ours(compute, found)
        if found.status not in COMING or _mark(found) != compute.mark:
            report(f"{compute.name}: deleting the instance that there is, which has stopped or is another")
            compute.delete()
            found = None
    if found is None:
        operation = compute.ask()
    running = _wait(compute, operation, report)
    compute.set_metadata(running)
    return running


def ask_all(props: Mapping[str, Any], report: Report) -> None:
    """Ask for each node that is not there, and wait for none: Google queues all of them at the same time.

    Raises BakeError for the first that Google refuses; those before it are taken over by the next run.
    """
    asked = [(node, node.ask()) for node in _missing(props)]
    if asked:
        report(f"{props['cluster']}: asked for {len(asked)} nodes of flex start at once")
    for node, operation in asked:
        if operation is not None:
            _seen(node, operation)


def _missing(props: Mapping[str, Any]) -> list[FlexCompute]:
    """The nodes of a queue that are not there."""
    first = FlexCompute({**props, "name": props["names"][0]})
    return [node for node in map(first.another, props["names"]) if node.node() is None]


def _seen(compute: FlexCompute, operation: compute_v1.Operation) -> None:
    """Wait until Google lists the machine that was asked for. Raises BakeError where there will be none."""
    ends = time.monotonic() + compute.bake.pace.operation
    while time.monotonic() < ends and operation.status != compute_v1.Operation.Status.DONE and compute.node() is None:
        time.sleep(compute.bake.pace.poll)
        operation = compute.look(operation)


def missing(props: Mapping[str, Any]) -> bool:
    """Return whether one of a queue's nodes is not there."""
    return bool(_missing(props))


def ends(found: compute_v1.Instance) -> int:
    """Return when Google deletes it, in seconds since 1970; 0 where that is unknown."""
    began, seconds = found.last_start_timestamp or found.creation_timestamp, found.scheduling.max_run_duration.seconds
    return int(datetime.fromisoformat(began).timestamp()) + int(seconds) if began and seconds else 0


def remove(compute: FlexCompute) -> None:
    """Delete the node, if it is there and flex start's: a node with another kind of capacity may have replaced it."""
    found = compute.node()
    if found is not None and found.labels.get(CLUSTER_LABEL) == compute.cluster and _mark(found):
        compute.delete()


def _wait(compute: FlexCompute, operation: compute_v1.Operation | None, report: Report) -> compute_v1.Instance:
    """Look until it runs. Google may end the operation at once or when the machine has started; and deletes a machine
    that it found nothing for. The machine alone is asked after while it is there: many are waited for at a time."""
    name, done = compute.name, compute_v1.Operation.Status.DONE
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
        time.sleep(compute.bake.pace.poll)


def _progress(status: str) -> str:
    if status == PENDING:
        return f"waiting for capacity (flex start), for up to {WAIT_SECONDS // 60} minutes"
    return "there is capacity, and it starts"


def _ours(compute: FlexCompute, found: compute_v1.Instance) -> None:
    """Refuse to touch a machine of this name that the stack did not ask for."""
    if found.labels.get(CLUSTER_LABEL) != compute.cluster or not _mark(found):
        raise bake_error(
            f"{compute.bake.project} has a machine called {compute.name}, which this stack did not ask for "
            f"(label {CLUSTER_LABEL}: {found.labels.get(CLUSTER_LABEL) or 'none'}, metadata {TEMPLATE_KEY}: "
            f"{_mark(found) or 'none'})",
            "rename or delete it, or give the cluster or the nodeset another name",
        )


def _mark(found: compute_v1.Instance) -> str:
    return next((item.value for item in found.metadata.items if item.key == TEMPLATE_KEY), "")


class ControllerCompute(FlexCompute):
    """The calls for the controller in one of its zones."""

    ADVICE: ClassVar[Mapping[tuple[str, ...], str]] = {
        ("in use", "inuse"): (
            "another instance has its disks or its address: delete it (its disks stay), then run again. "
            "`gcloud compute instances list --project {bake.project} --filter name={name}`"
        ),
        ("resource_pool_exhausted", "stockout"): "run again to retry, or choose another `controller.machine_type`",
        ("autherror", "authentication credentials"): LOG_IN,
        ("forbidden", "permission"): (
            "who runs this needs roles/compute.admin in {bake.project}, and roles/iam.serviceAccountUser on the "
            "controller's service account"
        ),
    }

    def __init__(self, props: Mapping[str, Any], zone: str) -> None:
        """Raises BakeError where there are no credentials."""
        super().__init__({**props, "zone": zone})
        self.zone = zone
        self._body: str = props["body"]

    def ask(self) -> compute_v1.Operation | None:
        """Ask for the machine on its disks, without waiting. None where there is one of its name.

        The disks are not taken from another instance: one that has them is the controller.
        """
        body = json.loads(self._body.replace("{zone}", self.zone))
        for disk in body["disks"]:
            del disk["forceAttach"]
        instance: Any = compute_v1.Instance.from_json(json.dumps(body))
        instance.labels, instance.metadata = self._labels, self._metadata()
        return self._insert(instance)


def controller(props: Mapping[str, Any]) -> ControllerCompute:
    """The calls for the zone in which the controller is; where there is none, for its first zone. Raises BakeError
    where there are two."""
    zones = controllers(props)
    found = [compute for compute in zones if compute.node() is not None]
    if len(found) > 1:
        raise bake_error(
            f"there are machines called {props['name']} in {' and '.join(compute.zone for compute in found)}",
            "delete the one that does not have the controller's disks (Compute Engine shows them), then run again",
        )
    return (found or zones)[0]


def controllers(props: Mapping[str, Any]) -> list[ControllerCompute]:
    """The calls for each zone in which the controller may be."""
    return [ControllerCompute(props, zone) for zone in props["zones"]]


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
        """Raises BakeError where there are no credentials."""
        super().__init__(props, pace_of(props))
        self._cluster, self._nodeset = props["cluster"], props["nodeset"]
        self._groups = compute_v1.InstanceGroupManagersClient(**self._given)

    def instances(self) -> list[str]:
        """Names of the instances that the reconcile loop created for the nodeset, whatever their status."""
        return sorted(machine.name for machine in self.instances_of(self._cluster) if self._owns(machine))

    def groups(self) -> list[str]:
        """Names of the nodeset's groups of flex start, which have no labels, but a description."""
        list_all = all_pages(self._groups.list)
        found = self._ask(f"look for instance groups in {self.bake.zone}", list_all, dict(self._zone))
        return sorted(group.name for group in found if self._owns_group(group))

    def begin_delete_group(self, name: str) -> compute_v1.Operation | None:
        """Begin to delete a group with its resize request and its instances; None where there is none any more."""
        request = {**self._zone, "instance_group_manager": name, **once()}
        return self._found(f"delete {name}", self._groups.delete_unary, request)

    def _owns_group(self, group: compute_v1.InstanceGroupManager) -> bool:
        try:
            mark = json.loads(group.description)
            return mark["hpc-cluster"] == self._cluster and mark["nodeset"] == self._nodeset
        except (ValueError, KeyError, TypeError):
            return False

    def begin_delete(self, name: str) -> compute_v1.Operation | None:
        """Begin to delete an instance with its disk. None where there is none of that name any more, or where what has
        the name now is not the nodeset's."""
        instance = {**self._zone, "instance": name}
        found = self._found(f"look for {name}", self._instances.get, instance)
        if found is None or not self._owns(found):
            return None
        return self._found(f"delete {name}", self._instances.delete_unary, {**instance, **once()})

    def finish_delete(self, name: str, operation: compute_v1.Operation) -> None:
        """Wait until an instance is deleted."""
        self._finish(f"delete {name}", operation)

    def _owns(self, found: compute_v1.Instance) -> bool:
        wanted = {CLUSTER_LABEL: self._cluster, NODESET_LABEL: self._nodeset, MADE_BY_LABEL: RECONCILE}
        return all(found.labels.get(key) == value for key, value in wanted.items())


def delete_instances(props: Mapping[str, Any], report: Report) -> None:
    """Delete the elastic instances of a nodeset, all at the same time, until Google lists none: first the groups of
    flex start, whose queued machines would come, and whose instances go with them.

    Raises BakeError where that can't be done, or where new ones keep coming.
    """
    compute = ElasticCompute(props)
    ends = time.monotonic() + compute.bake.pace.operation
    while True:
        begin = compute.begin_delete_group
        if not (found := compute.groups()):
            begin, found = compute.begin_delete, compute.instances()
        if not found:
            return
        if time.monotonic() > ends:
            raise bake_error(
                f"nodeset {props['nodeset']} of {props['cluster']} still has instances for its elastic nodes: "
                f"{listing(found, SHOWN)}",
                "something creates them again: stop the service hpc-reconcile on the controller, then run again",
            )
        report(f"deleting the elastic nodes of nodeset {props['nodeset']}: {listing(found, SHOWN)}")
        begun = [(name, begin(name)) for name in found]
        for name, operation in begun:
            if operation is not None:
                compute.finish_delete(name, operation)
        time.sleep(compute.bake.pace.poll)
