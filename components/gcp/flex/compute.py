"""Compute Engine, as far as a node of flex start needs it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from http import HTTPStatus

from google.cloud import compute_v1

from components.gcp.bake.compute import Compute, of_operation, once
from components.gcp.bake.design import Bake
from components.gcp.bake.errors import LOG_IN, BakeError, Complaint, advice, refusal
from components.gcp.flex.design import WAIT_SECONDS, Wanted


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

    def another(self, wanted: Wanted) -> FlexCompute:
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
        """How far it is. Raises BakeError for one that has failed."""
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
        """What asking for it is called in errors."""
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
