"""Ends what Kubernetes holds in the cloud, before charts, nodes and the cluster are deleted.

Soperator would create again what is deleted, PodDisruptionBudgets would keep nodes from being drained, and a load
balancer or a volume's disk outlives the cluster that ordered it. Nothing here may stop a destroy: what does not end in
time is reported, and looked for again afterwards.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, ResourceProvider, UpdateResult

from components.dynamic import DynamicResource, changed, given, report, without_traceback
from components.nebius.api.errors import NebiusError
from components.nebius.kubernetes.kubectl import Kubectl, KubectlError

OPERATOR_NAMESPACE = "soperator-system"
"""Where Soperator itself runs."""
REACH_SECONDS = 60
OPERATOR_SECONDS = 120
BALANCER_SECONDS = 300
"""As Nebius's own recipe waits for it."""
VOLUME_SECONDS = 120
CSI_DRIVER = "compute.csi.nebius.com"
STAGES = ("charts", "volumes")
"""`charts` is deleted before the charts are, `volumes` after them and before the nodes."""


class TeardownProvider(ResourceProvider):
    """Creates nothing: what it ends is ordered by Kubernetes."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Nothing is to be done."""
        return CreateResult(f"{props['cluster_id']}/{props['stage']}", given(props))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """What has to be known to end it may change."""
        return DiffResult(changes=bool(changed(_olds, _news, ("access", "cluster_id", "endpoint"))))

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        return UpdateResult(given(_news))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        return ReadResult(id_, given(props))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """End it, as far as the API server answers; nothing where the cluster is gone."""
        from components.nebius.api import lookups  # the SDK takes a third of a second to import

        with without_traceback(NebiusError):
            there = lookups.exists("Cluster", _props["cluster_id"], _props["endpoint"])
        if there:
            with Kubectl(_props["access"]) as kubectl:
                tear_down(kubectl, _props["stage"], pace=_props["pace"])


class Teardown(DynamicResource, module="nebius", name="Teardown"):
    """It depends on what is deleted after it."""

    def __init__(
        self, name: str, *, stage: str, access: pulumi.Input[Mapping[str, Any]], cluster_id: pulumi.Input[str],
        endpoint: str, pace: float, opts: pulumi.ResourceOptions | None = None,
    ) -> None:  # fmt: skip
        """`stage` is one of STAGES."""
        props: dict[str, Any] = {
            "stage": stage, "access": access, "cluster_id": cluster_id, "endpoint": endpoint, "pace": pace
        }  # fmt: skip
        super().__init__(TeardownProvider(), name, props, opts)


def tear_down(kubectl: Kubectl, stage: str, *, pace: float) -> None:
    """Run the steps of a stage."""
    if not _within(REACH_SECONDS, pace, lambda: _answers(kubectl)):
        report(
            "Kubernetes' API server does not answer: load balancers and volumes are not removed by it. What is left of "
            "volumes is deleted after the cluster; look for load balancers in Nebius's console"
        )
        return
    steps: dict[str, Callable[[Kubectl, float], None]] = {
        "the operator": _stop_operator,
        "PodDisruptionBudgets": _delete_budgets,
        "load balancers": _delete_balancers,
    }
    if stage == "volumes":
        steps = {**steps, "volumes": _delete_volumes}
    for what, step in steps.items():
        try:
            step(kubectl, pace)
        except KubectlError as error:
            report(f"{what} could not be removed, and the destroy goes on: {error}")


def _answers(kubectl: Kubectl) -> bool:
    try:
        kubectl.run("version", "--output=json", "--request-timeout=5s", seconds=15)
    except KubectlError:
        return False
    return True


def _stop_operator(kubectl: Kubectl, pace: float) -> None:
    """Nothing is created again from here on."""
    where = f"--namespace={OPERATOR_NAMESPACE}"
    if not kubectl.items("deployments", where):
        return
    kubectl.run("scale", "deployment", "--all", "--replicas=0", where)
    stopped = _within(
        OPERATOR_SECONDS,
        pace,
        lambda: not any(one.get("status", {}).get("replicas") for one in kubectl.items("deployments", where)),
    )
    if not stopped:
        report(f"Soperator's pods did not end within {OPERATOR_SECONDS} s; the destroy goes on")


def _delete_budgets(kubectl: Kubectl, _pace: float) -> None:
    kubectl.run("delete", "poddisruptionbudgets", "--all", "--ignore-not-found", "--wait=false")


def _delete_balancers(kubectl: Kubectl, pace: float) -> None:
    """A Service of type LoadBalancer is only gone when its load balancer is: a finalizer holds it until then."""

    def left() -> list[str]:
        return [
            one["metadata"]["name"] for one in kubectl.items("services") if one["spec"].get("type") == "LoadBalancer"
        ]

    names = left()
    if not names:
        return
    kubectl.run("delete", "service", *names, "--ignore-not-found", "--wait=false")
    if not _within(BALANCER_SECONDS, pace, lambda: not left()):
        report(
            f"the load balancer of {', '.join(left())} is still there after {BALANCER_SECONDS} s; the destroy goes on: "
            "look for it in Nebius's console"
        )


def _delete_volumes(kubectl: Kubectl, pace: float) -> None:
    """Claims of the cluster's namespace, so that the CSI driver deletes their disks while it runs."""

    def left() -> list[str]:
        return [
            one["metadata"]["name"]
            for one in kubectl.items("persistentvolumes")
            if one["spec"].get("csi", {}).get("driver") == CSI_DRIVER
            and one["spec"].get("claimRef", {}).get("namespace") == kubectl.namespace
            and one["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
        ]

    kubectl.run("delete", "persistentvolumeclaims", "--all", "--ignore-not-found", "--wait=false")
    if not _within(VOLUME_SECONDS, pace, lambda: not left()):
        report(f"volumes {', '.join(left())} are still there; their disks are deleted after the cluster")


def _within(seconds: float, pace: float, test: Callable[[], bool]) -> bool:
    """Whether `test` came true in time."""
    end = time.monotonic() + seconds
    while not test():
        if time.monotonic() > end:
            return False
        time.sleep(pace)
    return True
