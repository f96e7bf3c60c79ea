"""A state bucket in Nebius Object Storage, and who may write to it: the calls of Nebius's API, one by one.

Source of the steps: the recipe for Soperator (nebius/nebius-solutions-library, soperator/installations/example/.envrc).
"""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from components.nebius.api import client
from components.nebius.api.client import NebiusError, nebius_error
from components.nebius.api.kinds import KINDS, Kind
from components.nebius.api.lifecycle import Wait, retried, until_ended, until_ready
from components.nebius.api.objects import Wanted, find, get, list_all, start_create, start_delete, state_of

EDITORS = "editors"
"""The tenant's group whose members may change everything in its projects, buckets among it."""
_TAKEN = "ALREADY_EXISTS"
_PACE = 1.0
"""Seconds between polls: these operations take seconds."""

_ACCOUNT, _BUCKET = KINDS["ServiceAccount"], KINDS["Bucket"]
_KEY, _GROUP, _MEMBERSHIP = KINDS["AccessKey"], KINDS["Group"], KINDS["GroupMembership"]


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A bucket of the project."""

    id: str
    versioned: bool
    usable: bool
    """True if it is not deleted, or about to be."""
    purged: str
    """The time when a deleted one is purged; empty for all others."""
    region: str
    """Its region; empty if Nebius does not name it."""


@dataclass(frozen=True, kw_only=True)
class AccessKey:
    """An access key of a service account, without its secret."""

    id: str
    name: str
    state: str
    """ACTIVE, INACTIVE, EXPIRED, DELETING or DELETED."""


class StateBucket:
    """The calls for one project. All raise NebiusError."""

    def __init__(self, project: str, endpoint: str = "") -> None:
        """Raises NebiusError: there is no credential, or Nebius does not accept it."""
        self.project, self.endpoint = project, endpoint
        self._has_new_account = False
        client.sdk(endpoint)

    def bucket(self, name: str) -> Bucket | None:
        """The project's bucket of that name."""
        found = find(self._wanted(_BUCKET, self.project, name, {}))
        if found is None:
            return None
        return Bucket(
            id=found.metadata.id,
            versioned=found.spec.versioning_policy.name == "ENABLED",
            usable=state_of(found) not in _BUCKET.deleting,
            purged=found.status.purge_at.isoformat() if found.status and found.status.purge_at else "",
            region=found.status.region if found.status else "",
        )

    def create_bucket(self, name: str) -> bool:
        """Create a versioned bucket; False if the name is taken."""
        return self._created(self._wanted(_BUCKET, self.project, name, {"versioning_policy": "ENABLED"})) is not None

    def account(self, name: str) -> str | None:
        """Id of the service account of that name."""
        found = find(self._wanted(_ACCOUNT, self.project, name, {}))
        return found.metadata.id if found else None

    def create_account(self, name: str) -> str | None:
        """Create a service account; its id, or None if somebody else created it meanwhile."""
        spec = {"description": "Writes the state of Pulumi stacks"}
        self._has_new_account = True
        return self._created(self._wanted(_ACCOUNT, self.project, name, spec))

    def group(self, tenant: str, name: str = EDITORS) -> str:
        """Id of a group of the tenant."""
        found = find(self._wanted(_GROUP, tenant, name, {}))
        if found is None:
            todo = "check the id of the tenant: nebius iam tenant list"
            raise nebius_error(f"find the group {name}", [f"{tenant} has no such group that you may see"], todo)
        return found.metadata.id

    def is_member(self, group: str, account: str) -> bool:
        """Return whether an account is a member of a group."""
        return find(self._wanted(_MEMBERSHIP, group, "", {"member_id": account})) is not None

    def add_member(self, group: str, account: str) -> None:
        """Make it one; nothing happens if it is one already."""
        self._created(self._wanted(_MEMBERSHIP, group, "", {"member_id": account}))

    def keys(self, account: str) -> Iterator[AccessKey]:
        """The access keys of a service account."""
        for row in list_all(_KEY, self.project, self.endpoint):
            owner = row.spec.account.service_account if row.spec.account else None
            if owner is not None and owner.id == account:
                yield AccessKey(id=row.metadata.id, name=row.metadata.name, state=state_of(row))

    def create_key(self, account: str, name: str, expires: datetime) -> str:
        """Create an access key; its id. A second call with the same name gives the same key."""
        spec = {
            "account": {"service_account": {"id": account}},
            "expires_at": expires.isoformat().replace("+00:00", "Z"),
            "description": "State of Pulumi stacks",
            "secret_delivery_mode": "INLINE",
        }
        # Names of keys are used once, so a run that follows a killed one gets what that one created.
        found = self._created(self._wanted(_KEY, self.project, name, spec), f"hpc-state-{account}-{name}")
        if found is None:
            raise nebius_error(f"create the access key {name}", ["the name is taken"], "run it again")
        return found

    def secret(self, key: str) -> tuple[str, str]:
        """AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of a key; the secret is empty if it is not shown any more."""
        found = get(_KEY, key, self.endpoint)
        if found is None or found.status is None:
            return "", ""
        return found.status.aws_access_key_id, found.status.secret

    def delete_key(self, key: str) -> None:
        """Delete a key; one that is gone is no error."""
        operation = start_delete(_KEY, key, self.endpoint)
        if operation is not None:
            self._end(_KEY, f"delete the access key {key}", operation)

    def _wanted(self, kind: Kind, parent: str, name: str, spec: Mapping[str, Any]) -> Wanted:
        return Wanted(kind=kind, parent_id=parent, name=name, spec=spec, endpoint=self.endpoint)

    def _created(self, wanted: Wanted, key: str = "") -> str | None:
        """Id of the object, once it can be used; None if there is one of that name already. A second request with the
        same `key` creates nothing."""
        doing, used = f"create {wanted.title}", key or str(uuid.uuid4())
        fresh = wanted.kind.fresh_seconds if self._has_new_account else 0
        try:
            operation = retried(self._wait(wanted.kind, doing), lambda: start_create(wanted, used), fresh_seconds=fresh)
        except NebiusError as error:
            if error.code == _TAKEN or "resource_already_exists" in error.details:
                return None
            raise
        self._end(wanted.kind, doing, operation)
        until_ready(self._wait(wanted.kind, doing), wanted.kind, operation.resource_id, self.endpoint)
        return operation.resource_id

    def _end(self, kind: Kind, doing: str, operation: Any) -> None:  # noqa: ANN401 - the SDK's own
        until_ended(self._wait(kind, doing), kind, operation, self.endpoint)

    @staticmethod
    def _wait(kind: Kind, doing: str) -> Wait:
        return Wait(doing, kind.create_seconds, _PACE)
