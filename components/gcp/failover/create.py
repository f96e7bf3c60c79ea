"""The controller's machine at Compute Engine, in whichever of its zones it is; imported only where Google is called."""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from google.cloud import compute_v1

from components.gcp.bake.compute import once
from components.gcp.bake.design import LOG_IN, BakeError, Complaint, advice, bake_error, refusal
from components.gcp.flex.design import wanted_of
from components.gcp.flex.start import FlexCompute


class ControllerCompute(FlexCompute):
    """The calls for the controller in one zone. All raise BakeError where Google refuses or does not answer."""

    def __init__(self, props: Mapping[str, Any], zone: str) -> None:
        """Raises BakeError where there are no credentials."""
        super().__init__(wanted_of({**props, "zone": zone}))
        self._body: str = props["body"]

    def ask(self) -> compute_v1.Operation | None:
        """Ask for the machine on its disks, without waiting. None where there is one of its name.

        The disks are not taken from another instance: one that has them is the controller.
        """
        body = json.loads(self._body.replace("{zone}", self.wanted.zone))
        for disk in body["disks"]:
            del disk["forceAttach"]
        instance = compute_v1.Instance.from_json(json.dumps(body))
        instance.labels, instance.metadata = dict(self.wanted.labels), self._metadata()
        request = {**self._zone, "instance_resource": instance, **once()}
        return self._ask(self.doing, self._instances.insert_unary, request, none_for=HTTPStatus.CONFLICT)

    def _refused(self, doing: str, complaints: Sequence[Complaint]) -> BakeError:
        return refusal(doing, complaints, advice(_ADVICE, complaints).format(wanted=self.wanted))


_ADVICE: Mapping[tuple[str, ...], str] = {
    ("in use", "inuse"): (
        "another instance has its disks or its address: delete it (its disks stay), then run again. "
        "`gcloud compute instances list --project {wanted.project} --filter name={wanted.name}`"
    ),
    ("resource_pool_exhausted", "stockout"): "run again to retry, or choose another `controller.machine_type`",
    ("autherror", "authentication credentials"): LOG_IN,
    ("forbidden", "permission"): (
        "who runs this needs roles/compute.admin in {wanted.project}, and roles/iam.serviceAccountUser on the "
        "controller's service account"
    ),
}


def current(props: Mapping[str, Any]) -> ControllerCompute:
    """The calls for the zone in which the controller is; where there is none, for its first zone. Raises BakeError
    where there are two."""
    found = [zone for zone in every(props) if zone.node() is not None]
    if len(found) > 1:
        zones = " and ".join(zone.wanted.zone for zone in found)
        raise bake_error(
            f"there are machines called {props['name']} in {zones}",
            "delete the one that does not have the controller's disks (Compute Engine shows them), then run again",
        )
    return found[0] if found else ControllerCompute(props, props["zones"][0])


def every(props: Mapping[str, Any]) -> list[ControllerCompute]:
    return [ControllerCompute(props, zone) for zone in props["zones"]]
