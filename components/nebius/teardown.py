"""Ends what Kubernetes holds in the cloud, before charts, nodes and the cluster are deleted.

Soperator would create again what is deleted, PodDisruptionBudgets would keep nodes from being drained, and a load
balancer or a volume's disk outlives the cluster that ordered it. Nothing here may stop a destroy: what does not end in
time is reported, and looked for again afterwards.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cluster.platforms.nebius.names import ACTIVE_CHECKS, OPERATOR_NAMESPACE
from components.dynamic import Action, ActionProvider, report, without_traceback
from components.nebius.api.client import NebiusError
from components.nebius.api.kinds import KINDS, Kind
from components.nebius.kubectl import Kubectl, KubectlError
from components.nebius.poll import Poll

REACH_SECONDS = 60
OPERATOR_SECONDS = 120
BALANCER_SECONDS = 300
"""Time in Nebius's own recipe."""
VOLUME_SECONDS = 120
REHEARSAL_SECONDS = 20
"""Time limit in place of each of these, where stand-ins do what is waited for."""
CSI_DRIVER = "compute.csi.nebius.com"


class TeardownProvider(ActionProvider):
    """Creates nothing: what it ends is ordered by Kubernetes."""

    ID = "{cluster_id}/{stage}"
    ACTED_ON = ("access", "cluster_id", "endpoint")
    LEAVES_NOTHING = False
    """False: the deletion is the resource's purpose, also after a creation that was interrupted."""

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """End it, as far as the API server answers; nothing where the cluster is gone."""
        from components.nebius.api import objects  # the SDK takes a third of a second to import

        with without_traceback(NebiusError):
            there = objects.exists("Cluster", _props["cluster_id"], _props["endpoint"])
        if there:
            with Kubectl(_props["access"]) as kubectl:
                most = REHEARSAL_SECONDS if _props["endpoint"] else BALANCER_SECONDS
                Ending(kubectl=kubectl, pace=_props["pace"], most=most).run(_props["stage"])


class Teardown(Action, module="nebius", name="Teardown"):
    """The end of what Kubernetes ordered; the resource depends on what is deleted after it.

    Inputs: `stage` (`charts` is deleted before the charts are, `volumes` after them and before the nodes), `access`,
    `cluster_id`, `endpoint`, `pace`.
    """

    PROVIDER = TeardownProvider


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The steps, in their order. None raises: what is left is reported."""

    kubectl: Kubectl
    pace: float
    most: float = BALANCER_SECONDS
    """Seconds that any step may wait."""

    def run(self, stage: str) -> None:
        """Run the steps of a stage."""
        if not self._within(REACH_SECONDS, self._answers):
            report(
                "Kubernetes' API server does not answer: load balancers and volumes are not removed by it. What is "
                "left of volumes is deleted after the cluster; look for load balancers in Nebius's console"
            )
            return
        steps: dict[str, Callable[[], None]] = {
            "the operator": self._stop_operator,
            "finalizers of active checks": self._free_checks,
            "PodDisruptionBudgets": lambda: self._delete("poddisruptionbudgets"),
            "load balancers": self._delete_balancers,
        }
        if stage == "volumes":
            steps["volumes"] = self._delete_volumes
        for what, step in steps.items():
            try:
                step()
            except KubectlError as error:
                report(f"{what} could not be removed, and the destroy goes on: {error}")

    def _answers(self) -> bool:
        try:
            self.kubectl.run("version", "--output=json", "--request-timeout=5s", seconds=15)
        except KubectlError:
            return False
        return True

    def _stop_operator(self) -> None:
        where = f"--namespace={OPERATOR_NAMESPACE}"
        if self.kubectl.items("deployments", where):
            self.kubectl.run("scale", "deployment", "--all", "--replicas=0", where)
            if not self._within(OPERATOR_SECONDS, lambda: not self._replicas(where)):
                report(f"Soperator's pods did not end within {OPERATOR_SECONDS} s; the destroy goes on")

    def _replicas(self, where: str) -> int:
        deployments = self.kubectl.items("deployments", where)
        return sum(deployment.get("status", {}).get("replicas") or 0 for deployment in deployments)

    def _free_checks(self) -> None:
        """Remove Soperator's finalizer: it would hold them, and the removal of their chart, for ever, as
        what removes it has been stopped."""
        freed = json.dumps({"metadata": {"finalizers": None}})
        for check in self.kubectl.items(ACTIVE_CHECKS):
            if check["metadata"].get("finalizers"):
                self.kubectl.run("patch", ACTIVE_CHECKS, check["metadata"]["name"], "--type=merge", f"--patch={freed}")

    def _delete(self, kind: str, *which: str) -> None:
        self.kubectl.run("delete", kind, *(which or ("--all",)), "--ignore-not-found", "--wait=false")

    def _balancers(self) -> list[str]:
        services = self.kubectl.items("services")
        return [row["metadata"]["name"] for row in services if row["spec"].get("type") == "LoadBalancer"]

    def _delete_balancers(self) -> None:
        """A Service of type LoadBalancer is only gone when its load balancer is: a finalizer holds it until then."""
        if names := self._balancers():
            self._delete("service", *names)
            if not self._within(BALANCER_SECONDS, lambda: not self._balancers()):
                report(
                    f"the load balancer of {', '.join(self._balancers())} is still there after {BALANCER_SECONDS} s; "
                    "the destroy goes on: look for it in Nebius's console"
                )

    def _volumes(self) -> list[str]:
        return [
            row["metadata"]["name"]
            for row in self.kubectl.items("persistentvolumes")
            if row["spec"].get("csi", {}).get("driver") == CSI_DRIVER
            and row["spec"].get("claimRef", {}).get("namespace") == self.kubectl.namespace
            and row["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
        ]

    def _delete_volumes(self) -> None:
        """Claims of the cluster's namespace, so that the CSI driver deletes their disks while it runs."""
        self._delete("persistentvolumeclaims")
        if not self._within(VOLUME_SECONDS, lambda: not self._volumes()):
            report(f"volumes {', '.join(self._volumes())} are still there; their disks are deleted after the cluster")

    def _within(self, seconds: float, test: Callable[[], bool]) -> bool:
        poll = Poll(min(seconds, self.most), self.pace)
        while not test():
            if poll.left < 0:
                return False
            poll.pause()
        return True


OWNER_LABEL = "hpc-owner"
VOLUME = "pvc-"
"""Prefix that the CSI driver puts before a volume's id in the name of its disk."""
NAMESPACE_LABEL = "kubernetes.io/created-for/pvc/namespace"
"""The label that the CSI driver gives to a disk: the namespace of its claim."""


class LeftoversProvider(ActionProvider):
    """Creates nothing: what it removes is created by other resources, and by Kubernetes."""

    ID = "{project}/{cluster}"
    ACTED_ON = ("namespaces", "keep", "existing", "endpoint")
    LEAVES_NOTHING = False
    """False: the deletion is the resource's purpose, also after a creation that was interrupted."""

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Delete what is left, and report what stays."""
        with without_traceback(NebiusError):
            _delete_owned(_props)
            _delete_disks(_props)
            for line in _kept(_props):
                report(line)


class Leftovers(Action, module="nebius", name="Leftovers"):
    """Registered before everything else of the cluster.

    Inputs: `tenant`, `project`, `cluster`, `owner`, `namespaces`, `endpoint`; `keep`: whether file systems and buckets
    stay; `existing`: ids by field of file systems of the user's own.
    """

    PROVIDER = LeftoversProvider


def _delete_owned(props: Mapping[str, Any]) -> None:
    """Delete what has this state's label: created by a run that was killed before it could record it.

    Those in clusters and groups first, whose kinds have lower numbers.
    """
    for kind in sorted(KINDS.values(), key=lambda kind: kind.order):
        for row in () if props["keep"] and kind.holds_data else _owned(kind, props):
            report(f"deleting {kind.name} {row['metadata'].get('name', '')}, which an interrupted run left")
            _delete(kind.name, row, props)


def _owned(kind: Kind, props: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Objects of this state, of the project, the tenant, or its own clusters and groups."""
    from components.nebius.api import objects  # the SDK takes a third of a second to import

    parents = {"Project": [props["project"]], "Tenant": [props["tenant"]]}.get(kind.parent)
    if parents is None:
        parents = [row["metadata"]["id"] for row in _owned(KINDS[kind.parent], props)]
    for row in (row for parent in parents for row in objects.objects_of(kind.name, parent, props["endpoint"])):
        state = (row.get("status") or {}).get("state")
        if (row["metadata"].get("labels") or {}).get(OWNER_LABEL) == props["owner"] and state not in kind.deleting:
            yield row


def _delete_disks(props: Mapping[str, Any]) -> None:
    """Disks of volumes that no machine has attached.

    A disk does not say which cluster it was created for: with another cluster in the project they are only listed.
    """
    from components.nebius.api import objects  # the SDK takes a third of a second to import

    found = [
        row
        for row in objects.objects_of("Disk", props["project"], props["endpoint"])
        if row["metadata"]["name"].startswith(VOLUME)
        and (row["metadata"].get("labels") or {}).get(NAMESPACE_LABEL) in props["namespaces"]
        and not (row.get("status") or {}).get("read_write_attachment")
        and not (row.get("status") or {}).get("read_only_attachments")
    ]
    others = objects.objects_of("Cluster", props["project"], props["endpoint"]) if found else []
    for row in found:
        name, id_ = row["metadata"]["name"], row["metadata"]["id"]
        if others:
            report(
                f"kept: disk {name} ({id_}), because the project has another cluster that it may be of. To delete it: "
                f"nebius compute disk delete --id {id_}"
            )
        else:
            report(f"deleting disk {name} ({id_}) of a volume")
            _delete("Disk", row, props)


def _delete(kind: str, row: Mapping[str, Any], props: Mapping[str, Any]) -> None:
    """Delete one object; its owner may be this state or nobody."""
    from components.nebius.api import lifecycle  # the SDK takes a third of a second to import

    metadata = row["metadata"]
    name, owner = metadata["name"], (metadata.get("labels") or {}).get(OWNER_LABEL, props["owner"])
    found = {"kind": kind, "name": name, "resource_name": name, "parent_id": metadata.get("parent_id", "")}
    lifecycle.delete(metadata["id"], {**found, "owner": owner, "endpoint": props["endpoint"]})


def _kept(props: Mapping[str, Any]) -> Iterator[str]:
    """Yield what stays, how it can be used again, and how it is deleted."""
    if props["keep"]:
        for kind in (kind for kind in KINDS.values() if kind.holds_data):
            for row in _owned(kind, props):
                name, id_ = row["metadata"]["name"], row["metadata"]["id"]
                command = "nebius storage bucket" if kind.name == "Bucket" else "nebius compute filesystem"
                size = (row.get("spec") or {}).get("size_gibibytes")
                again = "" if kind.name == "Bucket" else f"To use it again: `existing: {id_}` in nebius.filesystems. "
                yield (
                    f"kept: {kind.name} {name} ({id_}{f', {size} GiB' if size else ''}). {again}"
                    f"To delete it with its data: {command} delete --id {id_}"
                )
    for field, id_ in props["existing"].items():
        yield f"kept: file system {id_} of {field}, which was there before the stack"
