"""State buckets in Nebius Object Storage, and who may write to them.

Source of the steps: the recipe for Soperator (nebius/nebius-solutions-library, soperator/installations/example/.envrc).
"""

import hashlib
import os
import re
import secrets
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from cluster.config import ClusterConfig
from cluster.findings import RefusedError
from cluster.platforms.nebius.section import Nebius, ProjectId, TenantId
from components import state_bucket
from components.nebius.api import client
from components.nebius.api.client import NebiusError, nebius_error
from components.nebius.api.kinds import KINDS, Kind
from components.nebius.api.lifecycle import Wait, retried, until_ended, until_ready
from components.nebius.api.objects import Wanted, find, get, list_all, start_create, start_delete, state_of
from components.state_bucket import Backend, Done, Environment, Key, Record, StateBucketError, Step, Version, now

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
        return find(self._wanted(_MEMBERSHIP, group, "", {"member_id": account})) is not None

    def add_member(self, group: str, account: str) -> None:
        """Make an account a member of a group, unless it is one."""
        self._created(self._wanted(_MEMBERSHIP, group, "", {"member_id": account}))

    def keys(self, account: str) -> Iterator[AccessKey]:
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


PREFIX = "pulumi-slurm-"
"""Begins the default name. The recipe's `tfstate-slurm-k8s-` is for Terraform's state; --name takes such a name too."""
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{1,61})[a-z0-9]")
REGION = "eu-north1"


def default_name(tenant: str, project: str) -> str:
    """The name of a project's bucket: the recipe's hash of both ids, so that it is the same on every machine."""
    return PREFIX + hashlib.md5(f"{tenant}-{project}".encode(), usedforsecurity=False).hexdigest()


def endpoint(region: str) -> str:
    """Address of a region's Object Storage."""
    return f"https://storage.{region}.nebius.cloud:443"


def backend_url(bucket: str, region: str, cli: Version) -> str:
    """The URL for PULUMI_BACKEND_URL, as that version of the Pulumi CLI reads it."""
    return state_bucket.backend_url(bucket, region, endpoint(region), cli)


def record(
    config: ClusterConfig | None,
    *,
    tenant: str | None,
    project: str | None,
    region: str | None,
    name: str | None,
    account: str,
    lifetime: timedelta,
    known: Callable[[str], Record | None],
) -> Record:
    """The record of a bucket that may not exist yet; what is not given is the stack's own. The key of the
    record that is `known` by the bucket's name is used again.

    Raises StateBucketError: an id is missing or none, or the name can't be a bucket's.
    """
    where = config.section(Nebius) if config else None
    tenant = _id("--tenant", TenantId, tenant or (where.tenant if where else None))
    project = _id("--project", ProjectId, project or (where.project if where else None))
    name = name or default_name(tenant, project)
    if not NAME.fullmatch(name):
        raise StateBucketError(f"--name\n  given: {name!r}\n  allowed: 3 to 63 of a-z, 0-9 and -, no - first or last")
    settings = {
        "tenant": tenant,
        "region": region or (where.region if where else REGION),
        "account": account,
        "lifetime_hours": str(int(lifetime / timedelta(hours=1))),
        "endpoint": where.endpoint if where else "",
    }
    before = known(name)
    key = before.key if before and (before.kind, before.project) == ("nebius", project) else None
    return Record(kind="nebius", bucket=name, project=project, settings=settings, key=key)


def _id(option: str, kind: Any, given: str | None) -> str:  # noqa: ANN401 - a type with its validator
    if not given:
        raise StateBucketError(f"{option} is missing, and no stack on Nebius is given that has one (--stack).")
    try:
        return kind.__metadata__[0].func(given)
    except RefusedError as refused:
        message = f"{option}\n  given: {given!r}\n  allowed: {refused.allowed}\n  to do: {refused.todo}"
        raise StateBucketError(message) from None


class ObjectStorage(Backend):
    """A bucket, and a service account with an access key for it. Errors of the API are NebiusError."""

    kind = "nebius"
    title = "Nebius Object Storage"

    def prepare(self, *, dry_run: bool) -> Iterator[Step]:
        """The bucket first: if it can't be had, no account and no key is created."""
        api = StateBucket(self.record.project, self.record.settings["endpoint"])
        yield self._bucket(api, dry_run=dry_run)
        account, step = self._account(api, dry_run=dry_run)
        yield step
        yield self._membership(api, account, dry_run=dry_run)
        keys = list(api.keys(account)) if account else []
        for key in keys:
            if key.state == "EXPIRED":
                if not dry_run:
                    api.delete_key(key.id)
                done = Done.TO_DELETE if dry_run else Done.DELETED
                yield Step(what=f"access key {key.name or key.id}", done=done, detail="it had expired")
        yield self._key(api, account, keys, dry_run=dry_run)

    def renew(self) -> str:
        """Create an access key if the kept one has expired or is in the last tenth of its time."""
        if self.record.key and self.record.key.usable(now()):
            return ""
        steps = list(self.prepare(dry_run=False))
        return "; ".join(f"{step.done.value} {step.what} ({step.detail})" for step in steps if step.changes)

    def environment(self, cli: Version) -> Environment:
        """URL, key, and how checksums are sent."""
        url = backend_url(self.record.bucket, self.record.settings["region"], cli)
        variables = {"PULUMI_BACKEND_URL": url, **state_bucket.variables(cli)}
        if (key := self.record.key) and key.complete:
            variables |= {"AWS_ACCESS_KEY_ID": key.access_key_id, "AWS_SECRET_ACCESS_KEY": key.secret}
        session = "AWS_SESSION_TOKEN"
        notes = [state_bucket.defect(cli), f"{session} is set, and Nebius does not know it: unset {session}"]
        notes = notes if os.environ.get(session) else notes[:1]
        secret = frozenset({"AWS_SECRET_ACCESS_KEY"} & variables.keys())
        return Environment(variables=variables, secret=secret, notes=[note for note in notes if note])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the bucket and of its key."""
        return (*super().names, *state_bucket.VARIABLES, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")

    def _bucket(self, api: StateBucket, *, dry_run: bool) -> Step:
        name, what, done = self.record.bucket, f"bucket {self.record.bucket}", Done.FOUND
        found = api.bucket(name)
        if found is None and dry_run:
            return Step(what=what, done=Done.TO_CREATE, detail="with versioning")
        if found is None:
            done = Done.CREATED if api.create_bucket(name) else Done.FOUND
            found = api.bucket(name)  # another run may have created it meanwhile
        if found is None:
            raise StateBucketError(
                f"the bucket {name} belongs to another project, or was deleted there and is not purged yet.\n"
                "  to do: choose another name with --name"
            )
        if not found.usable:
            raise StateBucketError(
                f"the bucket {name} ({found.id}) was deleted; it is purged at {found.purged or 'a time not known'}.\n"
                f"  to do: nebius storage bucket undelete --id {found.id}, or choose another name with --name"
            )
        if not found.versioned:
            raise StateBucketError(
                f"the bucket {name} ({found.id}) exists without versioning, which a bucket with state must have. "
                "It was left as it is.\n"
                f"  to do: nebius storage bucket update --id {found.id} --versioning-policy enabled, then run again"
            )
        region = found.region or self.record.settings["region"]
        self.record = self.record.with_settings(region=region)  # what Nebius says is right, whatever was given
        return Step(what=what, done=done, detail=f"with versioning, in {region}")

    def _account(self, api: StateBucket, *, dry_run: bool) -> tuple[str, Step]:
        """The service account's id, empty if it is still to be created."""
        name = self.record.settings["account"]
        what, found = f"service account {name}", api.account(name)
        if found is not None:
            return found, Step(what=what, done=Done.FOUND, detail=found)
        if dry_run:
            return "", Step(what=what, done=Done.TO_CREATE)
        created = api.create_account(name)
        account = created or api.account(name)
        if account is None:
            raise StateBucketError(f"the service account {name} was deleted while it was created. Run again.")
        return account, Step(what=what, done=Done.CREATED if created else Done.FOUND, detail=account)

    def _membership(self, api: StateBucket, account: str, *, dry_run: bool) -> Step:
        group = api.group(self.record.settings["tenant"])
        what = f"membership in the group {EDITORS}"
        if account and api.is_member(group, account):
            return Step(what=what, done=Done.FOUND, detail=group)
        if dry_run:
            return Step(what=what, done=Done.TO_CREATE, detail=group)
        api.add_member(group, account)
        return Step(what=what, done=Done.CREATED, detail=group)

    def _key(self, api: StateBucket, account: str, keys: list[AccessKey], *, dry_run: bool) -> Step:
        """The kept key if it can be used; else a new one, since the API shows the secret of a key only once."""
        kept, active = self.record.key, {key.id: key for key in keys if key.state == "ACTIVE"}
        if kept and kept.id in active and kept.usable(now()):
            if not dry_run:
                self.save(self.record)
            return Step(what=f"access key {kept.name}", done=Done.FOUND, detail=self._until(kept))
        if dry_run:
            hours = self.record.settings["lifetime_hours"]
            return Step(what="access key", done=Done.TO_CREATE, detail=f"valid for {hours} h")
        if kept and not kept.complete and kept.expires > now():
            pending = kept  # a run was killed between the creation of the key and its record
        else:
            created = now()
            expires = created + timedelta(hours=int(self.record.settings["lifetime_hours"]))
            pending = Key(
                name=f"slurm-pulumi-ak-{int(created.timestamp())}-{secrets.token_hex(4)}",
                created=created,
                expires=expires,
            )
        self._keep(pending)
        id_ = next((key.id for key in active.values() if key.name == pending.name), "")
        id_ = id_ or api.create_key(account, pending.name, pending.expires)
        access_key_id, secret = api.secret(id_)
        if not secret:
            api.delete_key(id_)
            self._keep(None)
            raise StateBucketError(
                f"Nebius does not show the secret of the access key {id_}, which was deleted. Run again."
            )
        key = replace(pending, id=id_, access_key_id=access_key_id, secret=secret)
        self._keep(key)
        return Step(what=f"access key {key.name}", done=Done.CREATED, detail=self._until(key))

    def _keep(self, key: Key | None) -> None:
        self.record = self.record.with_key(key)
        self.save(self.record)

    def _until(self, key: Key) -> str:
        return f"valid until {key.expires.isoformat()}, kept in {self.folder}"


BACKEND = ObjectStorage
