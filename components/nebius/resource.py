"""A resource of Nebius's API, of any kind of the table `components.nebius.api.kinds`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, ResourceProvider, UpdateResult

from cluster.config import ClusterConfig
from cluster.platforms.nebius.section import Nebius
from components.dynamic import DynamicResource, changed, given, without_traceback
from components.nebius.api.client import NebiusError
from components.nebius.api.kinds import kind_of
from components.nebius.api.specs import differing, same

DELIVERED = "secret"
"""The output of an AccessKey that holds its secret."""
SECRET_KINDS = frozenset({"AccessKey"})
"""Kinds that have it."""
IN_PLACE = ("labels", "owner")
"""Inputs whose change is an update, beside the name and the spec."""


class NebiusProvider(ResourceProvider):
    """Creates, updates, finds again and deletes a resource.

    A run that was killed left nothing that is not found again: what it created has the stack's owner label, and the
    idempotency key of a creation is the same in the next run.
    """

    def create(self, props: dict[str, Any]) -> CreateResult:
        with without_traceback(NebiusError):
            found = _lifecycle().create(given(props))
        return CreateResult(found.id, _outputs(props, found))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Immutable fields replace it; the old one is deleted first where both would have one name."""
        kind = kind_of(_news["kind"])
        replaces = changed(_olds, _news, ("kind", "parent_id"))
        if differing(_olds.get("spec"), _news.get("spec"), kind.immutable):
            replaces.append("spec")
        renamed = bool(changed(_olds, _news, ("resource_name",)))
        if renamed and not kind.renamable:
            replaces.append("resource_name")
        spec = not same(_olds.get("spec"), _news.get("spec"))
        other = any(not same(_olds.get(name), _news.get(name)) for name in IN_PLACE)
        moved = _olds.get("endpoint", "") != _news.get("endpoint", "")
        if not kind.updatable and (spec or renamed) and not replaces:
            replaces.append("spec")
        return DiffResult(
            changes=bool(replaces or spec or renamed or other or moved),
            replaces=replaces,
            stables=[] if replaces else ["id"],
            # The identity of kinds without a unique name is part of what replaces them.
            delete_before_replace=not (renamed and kind.unique) and "parent_id" not in replaces,
        )

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        with without_traceback(NebiusError):
            found = _lifecycle().update(_id, given(_olds), given(_news))
        return UpdateResult(_outputs(_news, found))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """Return what it is now, by its id, else by its name; no id when it is gone."""
        with without_traceback(NebiusError):
            found = _lifecycle().read(id_, given(props))
        if found is None:
            return ReadResult("", given(props))
        return ReadResult(found.id, _outputs({**given(props), **found.inputs}, found))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Delete it, and wait until it is gone. One that is gone already is no error."""
        with without_traceback(NebiusError):
            _lifecycle().delete(_id, given(_props))


def _lifecycle() -> ModuleType:
    # The SDK takes a third of a second to import, and a preview does not need it: imported where Nebius is called.
    from components.nebius.api import lifecycle

    return lifecycle


def _outputs(props: Mapping[str, Any], found: Any) -> dict[str, Any]:  # noqa: ANN401
    secret = {DELIVERED: found.secret} if props["kind"] in SECRET_KINDS else {}
    return {**given(props), "status": found.status, **secret}


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
        `labels`. `endpoint`: host:port of a stand-in for the API. `timeout_seconds`: in place of the kind's. `pace`:
        seconds between polls.
        """
        self._resource_type_name = f"dynamic/nebius:{kind_of(kind).name}"  # pyrefly: ignore[read-only]
        props = {
            "kind": kind,
            "name": name,
            "resource_name": "",
            "labels": {},
            "endpoint": "",
            **inputs,
            "status": None,
        }
        if kind in SECRET_KINDS:
            props[DELIVERED] = None
            opts = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(additional_secret_outputs=[DELIVERED]))
        super().__init__(NebiusProvider(), name, props, opts)


CLUSTER_LABEL = "hpc-cluster"
NAME_LIMIT = 63
"""Characters of a resource's name in Nebius."""
PACE, REHEARSAL_PACE = 5.0, 0.3
"""Seconds between two looks at what is waited for; a rehearsal's stand-ins are fast."""


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """The place where the resources of one cluster are created."""

    config: ClusterConfig
    settings: Nebius
    owner: pulumi.Output[str]
    """Identifies the stack's state: Nebius has it as a label of each resource."""
    after: Sequence[pulumi.Resource] = field(default_factory=tuple)
    """Resources that every resource waits for."""

    @property
    def pace(self) -> float:
        """Seconds between two looks at what is waited for."""
        return REHEARSAL_PACE if self.settings.endpoint else PACE

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
        """A resource of a kind, in the project unless `parent_id` says otherwise.

        `name` is its name in the stack, `called` that in Nebius; the stack's name of it by default.
        """
        return NebiusResource(
            kind,
            name,
            parent_id=parent_id or self.settings.project,
            owner=self.owner,
            resource_name=called or shortened(name),
            labels={CLUSTER_LABEL: self.config.name},
            spec=spec,
            endpoint=self.settings.endpoint,
            **({"pace": self.pace} if self.settings.endpoint else {}),
            opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=list(self.after))),
        )


def shortened(name: str, suffix: str = "") -> str:
    """A name of at most 63 characters that keeps its `suffix`."""
    text = f"{name}-{suffix}" if suffix else name
    if len(text) <= NAME_LIMIT:
        return text
    kept = NAME_LIMIT - len(suffix) - 1 if suffix else NAME_LIMIT
    return f"{name[:kept].rstrip('-')}-{suffix}" if suffix else name[:kept].rstrip("-")
