"""The deletion of a nodeset's elastic instances at Compute Engine; imported only where Google is called."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from google.cloud import compute_v1

from cluster.findings import listing
from cluster.platforms.gcp.names import MADE_BY_LABEL, NODESET_LABEL, RECONCILE
from components.gcp.bake.compute import Compute, all_pages, once
from components.gcp.bake.design import (
    CLUSTER_LABEL,
    LOG_IN,
    Bake,
    BakeError,
    Complaint,
    advice,
    bake_error,
    pace_of,
    refusal,
)

SHOWN = 8
"""Names that a message lists; the rest is a number."""

Report = Callable[[str], None]


class ElasticCompute(Compute):
    """The calls for one nodeset's elastic instances. All raise BakeError where Google refuses or does not answer."""

    def __init__(self, props: Mapping[str, Any]) -> None:
        """Raises BakeError where there are no credentials."""
        where = {name: props[name] for name in ("project", "zone", "endpoint")}
        super().__init__(Bake(**where, image="", pace=pace_of(props)))
        self._cluster, self._nodeset = props["cluster"], props["nodeset"]
        self._groups = compute_v1.InstanceGroupManagersClient(**self._given)

    def instances(self) -> list[str]:
        """Names of the instances that the reconcile loop created for the nodeset, whatever their status."""
        return sorted(machine.name for machine in self.instances_of(self._cluster) if self._ours(machine))

    def groups(self) -> list[str]:
        """Names of the nodeset's groups of flex start, which have no labels, but a description."""
        list_all = all_pages(self._groups.list)
        found = self._ask(f"look for instance groups in {self.bake.zone}", list_all, dict(self._zone))
        return sorted(group.name for group in found if self._is_own(group))

    def begin_delete_group(self, name: str) -> compute_v1.Operation | None:
        """Begin to delete a group with its resize request and its instances; None where there is none any more."""
        request = {**self._zone, "instance_group_manager": name, **once()}
        return self._found(f"delete {name}", self._groups.delete_unary, request)

    def _is_own(self, group: compute_v1.InstanceGroupManager) -> bool:
        try:
            mark = json.loads(group.description)
            return mark["hpc-cluster"] == self._cluster and mark["nodeset"] == self._nodeset
        except (ValueError, KeyError, TypeError):
            return False

    def begin_delete(self, name: str) -> compute_v1.Operation | None:
        """Begin to delete an instance with its disk. None where there is none of that name any more, or where what has
        the name now is not the nodeset's."""
        one = {**self._zone, "instance": name}
        found = self._found(f"look for {name}", self._instances.get, one)
        if found is None or not self._ours(found):
            return None
        return self._found(f"delete {name}", self._instances.delete_unary, {**one, **once()})

    def finish_delete(self, name: str, operation: compute_v1.Operation) -> None:
        """Wait until an instance is deleted."""
        self._finish(f"delete {name}", operation)

    def _ours(self, found: compute_v1.Instance) -> bool:
        wanted = {CLUSTER_LABEL: self._cluster, NODESET_LABEL: self._nodeset, MADE_BY_LABEL: RECONCILE}
        return all(found.labels.get(key) == value for key, value in wanted.items())

    def _refused(self, doing: str, complaints: Sequence[Complaint]) -> BakeError:
        return refusal(doing, complaints, advice(_ADVICE, complaints).format(bake=self.bake))


_ADVICE: Mapping[tuple[str, ...], str] = {
    ("deletion protection", "protected against deletion"): (
        "somebody protected the instance: `gcloud compute instances update NAME --no-deletion-protection "
        "--zone {bake.zone} --project {bake.project}`, then run again"
    ),
    ("autherror", "authentication credentials"): LOG_IN,
    ("forbidden", "permission"): "who runs this needs roles/compute.admin in {bake.project}",
}


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
