"""Teardown of a cluster: what Kubernetes created in the cloud is deleted before charts, nodes and the cluster.

Soperator would create again what is deleted, PodDisruptionBudgets would keep nodes from being drained, and a load
balancer or a volume's disk outlives its cluster. Nothing here may stop a destroy: what is not deleted in time is
reported, and LeftoversProvider looks for it again.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cluster.platforms.nebius.names import ACTIVE_CHECKS, OPERATOR_NAMESPACE
from components.dynamic import ActionProvider, ActionResource, report, without_traceback
from components.nebius.api import lifecycle, objects
from components.nebius.api.client import NebiusError
from components.nebius.api.kinds import KINDS, ResourceKind
from components.nebius.api.objects import list_all, owner_of, state_of
from components.nebius.api.specs import Message
from components.nebius.kubectl import Kubectl, KubectlError
from components.nebius.poll import Poll

REACH_SECONDS = 60
OPERATOR_SECONDS = 120
BALANCER_SECONDS = 300
"""The limit of Nebius's own recipe."""
VOLUME_SECONDS = 120
CSI_DRIVER = "compute.csi.nebius.com"


class TeardownProvider(ActionProvider):
    """Creates nothing; its deletion removes what Kubernetes created in the cloud."""

    ID = "{cluster_id}/{stage}"
    ACTED_ON = ("access", "cluster_id")
    LEAVES_NOTHING = False
    """False: the deletion is the resource's purpose, also after a creation that was interrupted."""

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Remove it, as far as the API server answers; do nothing if the cluster is gone."""
        with without_traceback(NebiusError):
            exists = objects.exists("Cluster", _props["cluster_id"])
        if exists:
            with Kubectl(_props["access"]) as kubectl:
                TeardownSteps(kubectl=kubectl, pace=_props["pace"]).run(_props["stage"])


class Teardown(ActionResource, module="nebius", name="Teardown"):
    """The removal of what Kubernetes created in the cloud; it depends on the resources that are deleted after it.

    Inputs: `stage` (`charts` is deleted before the charts are, `volumes` after them and before the nodes), `access`,
    `cluster_id`, `pace`.
    """

    PROVIDER = TeardownProvider


@dataclass(frozen=True, kw_only=True)
class TeardownSteps:
    """The steps of a teardown, each of which kubectl waits for. None raises: what is not removed is reported."""

    kubectl: Kubectl
    pace: float
    reach: float = REACH_SECONDS
    """Seconds for the API server to answer."""

    def run(self, stage: str) -> None:
        """Run the steps of a stage in their order."""
        if not self._api_answers():
            report(
                "Kubernetes' API server does not answer: load balancers and volumes are not removed by it. What is "
                "left of volumes is deleted after the cluster; look for load balancers in Nebius's console"
            )
            return
        steps: dict[str, Callable[[], None]] = {
            "Soperator's pods": self._stop_operator,
            "finalizers of active checks": self._remove_finalizers,
            "PodDisruptionBudgets": lambda: self._run("delete", "poddisruptionbudgets", "--all", "--wait=false"),
            "load balancers (look for them in Nebius's console)": self._delete_balancers,
        }
        if stage == "volumes":
            steps["volumes (their disks are deleted after the cluster)"] = self._delete_volumes
        for what, step in steps.items():
            try:
                step()
            except KubectlError as error:
                report(f"{what} could not be removed, and the destroy goes on: {error}")

    def _api_answers(self) -> bool:
        poll = Poll(self.reach, self.pace)
        while poll.left > 0:
            try:
                self.kubectl.run("version", "--output=json", "--request-timeout=5s", seconds=15)
            except KubectlError:
                poll.pause()
            else:
                return True
        return False

    def _run(self, *words: str, seconds: int = REACH_SECONDS) -> None:
        self.kubectl.run(*words, f"--timeout={seconds}s", seconds=seconds + REACH_SECONDS)

    def _stop_operator(self) -> None:
        namespace = f"--namespace={OPERATOR_NAMESPACE}"
        if self.kubectl.items("deployments", namespace):
            self._run("scale", "deployment", "--all", "--replicas=0", namespace, seconds=OPERATOR_SECONDS)

    def _remove_finalizers(self) -> None:
        """Remove Soperator's finalizers of active checks: the stopped operator would never do so, and the removal of
        their chart would wait for it."""
        patch = json.dumps({"metadata": {"finalizers": None}})
        for check in self.kubectl.items(ACTIVE_CHECKS):
            if check["metadata"].get("finalizers"):
                self.kubectl.run("patch", ACTIVE_CHECKS, check["metadata"]["name"], "--type=merge", f"--patch={patch}")

    def _delete_balancers(self) -> None:
        """Delete Services of type LoadBalancer; a finalizer keeps each until its load balancer is deleted."""
        services = self.kubectl.items("services")
        if names := [row["metadata"]["name"] for row in services if row["spec"].get("type") == "LoadBalancer"]:
            self._run("delete", "service", *names, "--ignore-not-found", seconds=BALANCER_SECONDS)

    def _delete_volumes(self) -> None:
        """Delete claims of the cluster's namespace, so that the CSI driver deletes their disks while it runs."""
        volumes = [
            f"persistentvolume/{row['metadata']['name']}"
            for row in self.kubectl.items("persistentvolumes")
            if row["spec"].get("csi", {}).get("driver") == CSI_DRIVER
            and row["spec"].get("claimRef", {}).get("namespace") == self.kubectl.namespace
            and row["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
        ]
        self._run("delete", "persistentvolumeclaims", "--all", "--wait=false")
        if volumes:
            self._run("wait", "--for=delete", *volumes, seconds=VOLUME_SECONDS)


class NebiusLeftoversProvider(ActionProvider):
    """Creates nothing; its deletion removes what killed runs and Kubernetes have left."""

    ID = "{project}/{cluster}"
    ACTED_ON = ("namespaces", "keep", "existing")
    LEAVES_NOTHING = False
    """False: the deletion is the resource's purpose, also after a creation that was interrupted."""

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Delete leftovers, and report what is kept."""
        with without_traceback(NebiusError):
            _delete_owned(_props)
            _delete_disks(_props)
            for line in _kept(_props):
                report(line)


class Leftovers(ActionResource, module="nebius", name="Leftovers"):
    """The leftovers of a cluster; registered before, and so deleted after, all its other resources.

    Inputs: `tenant`, `project`, `cluster`, `owner`, `namespaces`; `keep`: whether file systems and buckets
    stay; `existing`: ids by field of file systems of the user's own.
    """

    PROVIDER = NebiusLeftoversProvider


def _delete_owned(props: Mapping[str, Any]) -> None:
    """Delete objects with this state's label, which a run created that was killed before it could record them."""
    for kind in sorted(KINDS.values(), key=lambda kind: kind.order):
        for row in () if props["keep"] and kind.holds_data else _owned(kind, props):
            report(f"deleting {kind.name} {row.metadata.name}, which an interrupted run left")
            _delete(kind.name, row, props)


def _owned(kind: ResourceKind, props: Mapping[str, Any]) -> Iterator[Message]:
    """Yield this state's objects of a kind in the project, the tenant, or its own clusters and groups."""
    parents = {"Project": [props["project"]], "Tenant": [props["tenant"]]}.get(kind.parent)
    if parents is None:
        parents = [row.metadata.id for row in _owned(KINDS[kind.parent], props)]
    for row in (row for parent in parents for row in list(list_all(kind, parent))):
        if owner_of(row) == props["owner"] and state_of(row) not in kind.deleting:
            yield row


def _delete_disks(props: Mapping[str, Any]) -> None:
    """Delete disks of volumes that no machine has attached.

    A disk has no label of its cluster, so with another cluster in the project disks are only reported. The CSI driver
    names a disk after its volume, and labels it with the namespace of the claim.
    """
    label = "kubernetes.io/created-for/pvc/namespace"
    disks = [
        row
        for row in list_all(KINDS["Disk"], props["project"])
        if row.metadata.name.startswith("pvc-")
        and dict(row.metadata.labels).get(label) in props["namespaces"]
        and not (row.status and (row.status.read_write_attachment or row.status.read_only_attachments))
    ]
    others = list(list_all(KINDS["Cluster"], props["project"])) if disks else []
    for row in disks:
        name, id_ = row.metadata.name, row.metadata.id
        if others:
            report(
                f"kept: disk {name} ({id_}), because the project has another cluster that it may be of. To delete it: "
                f"nebius compute disk delete --id {id_}"
            )
        else:
            report(f"deleting disk {name} ({id_}) of a volume")
            _delete("Disk", row, props)


def _delete(kind: str, row: Message, props: Mapping[str, Any]) -> None:
    """Delete one object, which has this state's label of the owner or none."""
    metadata, owner = row.metadata, owner_of(row) or props["owner"]
    given = {"kind": kind, "resource_name": metadata.name, "parent_id": metadata.parent_id, "owner": owner}
    lifecycle.delete(metadata.id, given)


def _kept(props: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each object that is kept: how to use it again, and how to delete it."""
    if props["keep"]:
        for kind in (kind for kind in KINDS.values() if kind.holds_data):
            for row in _owned(kind, props):
                name, id_ = row.metadata.name, row.metadata.id
                command = "nebius storage bucket" if kind.name == "Bucket" else "nebius compute filesystem"
                size = getattr(row.spec, "size_gibibytes", 0)
                reuse = "" if kind.name == "Bucket" else f"To use it again: `existing: {id_}` in nebius.filesystems. "
                yield (
                    f"kept: {kind.name} {name} ({id_}{f', {size} GiB' if size else ''}). {reuse}"
                    f"To delete it with its data: {command} delete --id {id_}"
                )
    for field, id_ in props["existing"].items():
        yield f"kept: file system {id_} of {field}, which was there before the stack"
