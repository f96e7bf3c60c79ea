"""A resource of Nebius's API, of any kind of the table `components.nebius.api.kinds`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, ResourceProvider, UpdateResult

from cluster.config import ClusterConfig
from cluster.platforms.nebius.names import shortened
from cluster.platforms.nebius.stack_file_fields import Nebius, name_at_nebius
from components.dynamic import DynamicResource, changed, given, without_traceback
from components.nebius.api import lifecycle
from components.nebius.api.client import NebiusError
from components.nebius.api.kinds import KINDS
from components.nebius.api.specs import differing_paths, same


class NebiusProvider(ResourceProvider):
    """Creates, updates, reads and deletes a resource.

    The next run finds what a killed one created: it has the stack's owner label, and the idempotency key of a creation
    is the same in each run.
    """

    def create(self, props: dict[str, Any]) -> CreateResult:
        with without_traceback(NebiusError):
            result = lifecycle.create(given(props))
        return CreateResult(result.id, _outputs(props, result))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Replace the resource if an immutable field changes; delete the old one first if both would have one name."""
        kind = KINDS[_news["kind"]]
        replaces = changed(_olds, _news, ("kind", "parent_id"))
        if differing_paths(_olds.get("spec"), _news.get("spec"), kind.immutable):
            replaces.append("spec")
        renamed = bool(changed(_olds, _news, ("resource_name",)))
        if renamed and not kind.renamable:
            replaces.append("resource_name")
        spec = not same(_olds.get("spec"), _news.get("spec"))
        other = any(not same(_olds.get(name), _news.get(name)) for name in ("labels", "owner"))
        if not kind.updatable and (spec or renamed) and not replaces:
            replaces.append("spec")
        return DiffResult(
            changes=bool(replaces or spec or renamed or other),
            replaces=replaces,
            stables=[] if replaces else ["id"],
            # The identity of kinds without a unique name is part of what replaces them.
            delete_before_replace=not (renamed and kind.unique) and "parent_id" not in replaces,
        )

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        with without_traceback(NebiusError):
            result = lifecycle.update(_id, given(_olds), given(_news))
        return UpdateResult(_outputs(_news, result))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """Return the resource by its id, else by its name; no id if it is gone."""
        with without_traceback(NebiusError):
            result = lifecycle.read(id_, given(props))
        if result is None:
            return ReadResult("", given(props))
        return ReadResult(result.id, _outputs({**given(props), **result.inputs}, result))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Delete it, and wait until it is gone. One that is gone already is no error."""
        with without_traceback(NebiusError):
            lifecycle.delete(_id, given(_props))


def _outputs(props: Mapping[str, Any], result: lifecycle.ReturnedObject) -> dict[str, Any]:
    secret = {"secret": result.secret} if props["kind"] == "AccessKey" else {}
    return {**given(props), "status": result.status, **secret}


class NebiusResource(DynamicResource, module="nebius", name="Resource"):
    """A resource of Nebius's API; its type in the state has the kind's name."""

    status: pulumi.Output[dict[str, Any]]
    """The API's JSON of its status, with snake_case names and 64-bit integers as int; without secrets."""
    secret: pulumi.Output[str | None]
    """Secret of an AccessKey that was created with `secret_delivery_mode: INLINE`; other kinds have none."""

    def __init__(
        self, kind: str, name: str, *, opts: pulumi.ResourceOptions | None = None, **inputs: pulumi.Input[Any]
    ) -> None:
        """Register it.

        `kind` is a name of `KINDS`, such as "NodeGroup", `name` its name in the stack. Inputs: `parent_id` is the id of
        the project, of the mk8s cluster (NodeGroup) or of the group (GroupMembership, AccessPermit). `resource_name` is
        its name in Nebius. `spec` is its spec in the API's JSON form with snake_case names: enums by name, durations
        as "600s", times in RFC 3339; its values may be outputs. `owner` identifies the state (a random id that the
        stack keeps): Nebius has it as the label `hpc-owner`, and only a resource with the same one is taken over.
        `labels`. `timeout_seconds`: in place of the kind's. `pace`: seconds between polls.
        """
        self._resource_type_name = f"dynamic/nebius:{kind}"  # pyrefly: ignore[read-only]
        props = {
            "kind": kind,
            "name": name,
            "resource_name": "",
            "labels": {},
            **inputs,
            "status": None,
        }
        if kind == "AccessKey":
            props["secret"] = None
            opts = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(additional_secret_outputs=["secret"]))
        super().__init__(NebiusProvider(), name, props, opts)


CLUSTER_LABEL = "hpc-cluster"


@dataclass(frozen=True, kw_only=True)
class NebiusPlace:
    """The place where the resources of one cluster are created."""

    config: ClusterConfig
    settings: Nebius
    owner: pulumi.Output[str]
    """Identifies the stack's state: Nebius has it as a label of each resource."""
    after: Sequence[pulumi.Resource]
    """Resources that every resource waits for."""

    @property
    def name(self) -> str:
        """The cluster's name among those of the project: `nebius.prefix` stands in front of it."""
        return name_at_nebius(self.config, self.settings)

    def resource(
        self,
        kind: str,
        name: str,
        spec: Mapping[str, Any],
        *,
        called: pulumi.Input[str] = "",
        parent_id: pulumi.Input[str] = "",
        opts: pulumi.ResourceOptions | None = None,
    ) -> NebiusResource:
        """Register a resource of a kind, in the project unless `parent_id` names another parent.

        `name` is its name in the stack, `called` its name in Nebius, which is the same by default.
        """
        return NebiusResource(
            kind,
            name,
            parent_id=parent_id or self.settings.project,
            owner=self.owner,
            resource_name=called or shortened(name),
            labels={CLUSTER_LABEL: self.name},
            spec=spec,
            opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=list(self.after))),
        )
