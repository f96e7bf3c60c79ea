"""What a destroyed cluster would leave on Nebius: disks of volumes, and what killed runs created without a record.

Everything else depends on this resource, so it is deleted last.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult

from components.dynamic import ActionProvider, DynamicResource, changed, given, report, without_traceback
from components.nebius.api.errors import NebiusError
from components.nebius.api.kinds import KINDS, Kind

OWNER_LABEL = "hpc-owner"
VOLUME = "pvc-"
"""What the CSI driver puts in front of a volume's id, for the name of its disk."""
NAMESPACE_LABEL = "kubernetes.io/created-for/pvc/namespace"
"""The label that the CSI driver gives to a disk: the namespace of its claim."""


class LeftoversProvider(ActionProvider):
    """Creates nothing: what it removes is created by other resources, and by Kubernetes."""

    LEAVES_NOTHING = False
    """Its deletion is what it is for, also after a creation that was interrupted."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Nothing is to be done."""
        return CreateResult(f"{props['project']}/{props['cluster']}", given(props))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """What is kept may change in place."""
        return DiffResult(changes=bool(changed(_olds, _news, ("namespaces", "keep", "existing", "endpoint"))))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Delete what is left, and report what stays."""
        with without_traceback(NebiusError):
            _delete_owned(_props)
            _delete_volumes(_props)
            for line in _kept(_props):
                report(line)


class Leftovers(DynamicResource, module="nebius", name="Leftovers"):
    """Registered before everything else of the cluster."""

    def __init__(
        self, name: str, *, tenant: str, project: str, cluster: str, owner: pulumi.Input[str], namespaces: list[str],
        keep: bool, existing: Mapping[str, str], endpoint: str, opts: pulumi.ResourceOptions | None = None,
    ) -> None:  # fmt: skip
        """`keep`: whether file systems and buckets stay. `existing`: ids by field of file systems of the user's own."""
        props: dict[str, Any] = {
            "tenant": tenant, "project": project, "cluster": cluster, "owner": owner, "namespaces": namespaces,
            "keep": keep, "existing": dict(existing), "endpoint": endpoint,
        }  # fmt: skip
        super().__init__(LeftoversProvider(), name, props, opts)


def _delete_owned(props: Mapping[str, Any]) -> None:
    """What has this state's label: created by a run that was killed before it could record it.

    Those in clusters and groups first, whose kinds have lower numbers.
    """
    from components.nebius.api import lifecycle  # the SDK takes a third of a second to import

    for kind in sorted(KINDS.values(), key=lambda kind: kind.order):
        if props["keep"] and kind.holds_data:
            continue
        for row in _owned(kind, props):
            report(f"deleting {kind.name} {row['metadata'].get('name', '')}, which an interrupted run left")
            _delete(lifecycle, kind.name, row, props)


def _parents(kind: Kind, props: Mapping[str, Any]) -> list[str]:
    """Ids of what has objects of a kind: the project, the tenant, or this state's own clusters and groups."""
    of = {"Project": props["project"], "Tenant": props["tenant"]}
    if kind.parent in of:
        return [of[kind.parent]]
    return [row["metadata"]["id"] for row in _owned(KINDS[kind.parent], props)]


def _owned(kind: Kind, props: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    from components.nebius.api import lookups  # the SDK takes a third of a second to import

    for parent in _parents(kind, props):
        for row in lookups.objects_of(kind.name, parent, props["endpoint"]):
            state = (row.get("status") or {}).get("state")
            if (row["metadata"].get("labels") or {}).get(OWNER_LABEL) == props["owner"] and state not in kind.deleting:
                yield row


def _delete_volumes(props: Mapping[str, Any]) -> None:
    """Disks of volumes that no machine has attached.

    A disk does not say which cluster it was created for: with another cluster in the project they are only listed.
    """
    from components.nebius.api import lifecycle, lookups  # the SDK takes a third of a second to import

    found = [
        row
        for row in lookups.objects_of("Disk", props["project"], props["endpoint"])
        if row["metadata"]["name"].startswith(VOLUME)
        and (row["metadata"].get("labels") or {}).get(NAMESPACE_LABEL) in props["namespaces"]
        and not (row.get("status") or {}).get("read_write_attachment")
        and not (row.get("status") or {}).get("read_only_attachments")
    ]
    others = lookups.objects_of("Cluster", props["project"], props["endpoint"]) if found else []
    for row in found:
        name, id_ = row["metadata"]["name"], row["metadata"]["id"]
        if others:
            report(
                f"kept: disk {name} ({id_}), because the project has another cluster that it may be of. To delete it: "
                f"nebius compute disk delete --id {id_}"
            )
        else:
            report(f"deleting disk {name} ({id_}) of a volume")
            _delete(lifecycle, "Disk", row, props)


def _delete(lifecycle: Any, kind: str, row: Mapping[str, Any], props: Mapping[str, Any]) -> None:  # noqa: ANN401
    """Delete one object; its owner may be this state or nobody."""
    labels = row["metadata"].get("labels") or {}
    found = {
        "kind": kind, "name": row["metadata"]["name"], "parent_id": row["metadata"].get("parent_id", ""), "spec": {},
        "resource_name": row["metadata"]["name"], "owner": labels.get(OWNER_LABEL, props["owner"]),
        "endpoint": props["endpoint"], "labels": {},
    }  # fmt: skip
    lifecycle.delete(row["metadata"]["id"], found)


def _kept(props: Mapping[str, Any]) -> Iterator[str]:
    """What stays, how it can be used again, and how it is deleted."""
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
