"""State buckets in Nebius Object Storage, with the service account and the access key that write to them.

Source of the steps: the recipe for Soperator (nebius/nebius-solutions-library, soperator/installations/example/.envrc).
"""

import hashlib
import os
import re
import secrets
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from cluster.config import ClusterConfig
from cluster.findings import RefusedError
from cluster.platforms.nebius.stack_file_fields import Nebius, ProjectId, TenantId
from components import state_bucket
from components.nebius.api.client import NebiusError, nebius_error
from components.nebius.api.kinds import KINDS, ResourceKind
from components.nebius.api.lifecycle import ObjectWait
from components.nebius.api.objects import Desired, find, get, list_all, start_create, state_of
from components.state_bucket import (
    Backend,
    BucketRecord,
    BucketStep,
    Done,
    Environment,
    Key,
    StateBucketError,
    Version,
    now,
)

EDITORS = "editors"
"""The tenant's group whose members may change everything in its projects, buckets among it."""
_PACE = 1.0
"""Seconds between polls: these operations take seconds."""

_ACCOUNT, _BUCKET = KINDS["ServiceAccount"], KINDS["Bucket"]
_KEY, _GROUP, _MEMBERSHIP = KINDS["AccessKey"], KINDS["Group"], KINDS["GroupMembership"]


PREFIX = "pulumi-slurm-"
"""Prefix of the default name. The recipe's `tfstate-slurm-k8s-` is for Terraform's state; --name takes it too."""
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{1,61})[a-z0-9]")


def default_name(tenant: str, project: str) -> str:
    """Return the name of a project's bucket: the recipe's hash of both ids, so that it is the same on every machine."""
    return PREFIX + hashlib.md5(f"{tenant}-{project}".encode(), usedforsecurity=False).hexdigest()


def backend_url(bucket: str, region: str, cli: Version) -> str:
    """Return the URL for PULUMI_BACKEND_URL, as that version of the Pulumi CLI reads it."""
    return state_bucket.backend_url(bucket, region, f"https://storage.{region}.nebius.cloud:443", cli)


def record(
    config: ClusterConfig | None,
    *,
    tenant: str | None,
    project: str | None,
    region: str | None,
    name: str | None,
    account: str,
    lifetime: timedelta,
    known: Callable[[str], BucketRecord | None],
) -> BucketRecord:
    """Return the record of a bucket that may not exist yet; what is not given is taken from the stack. The key of the
    record that `known` returns for the bucket's name is used again.

    Raises StateBucketError: an id is missing or not valid, or the name can't be a bucket's.
    """
    section = config.section(Nebius) if config else None
    tenant = _id("--tenant", TenantId, tenant or (section.tenant if section else None))
    project = _id("--project", ProjectId, project or (section.project if section else None))
    name = name or default_name(tenant, project)
    if not NAME.fullmatch(name):
        raise StateBucketError(f"--name\n  given: {name!r}\n  allowed: 3 to 63 of a-z, 0-9 and -, no - first or last")
    settings = {
        "tenant": tenant,
        "region": region or (section.region if section else "eu-north1"),
        "account": account,
        "lifetime_hours": str(int(lifetime / timedelta(hours=1))),
    }
    before = known(name)
    key = before.key if before and (before.kind, before.project) == ("nebius", project) else None
    return BucketRecord(kind="nebius", bucket=name, project=project, settings=settings, key=key)


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
    _has_new_account = False

    def prepare(self, *, dry_run: bool) -> Iterator[BucketStep]:
        """Find or create the bucket first: if that fails, no account and no key is created."""
        yield self._bucket(dry_run=dry_run)
        account, step = self._account(dry_run=dry_run)
        yield step
        yield self._membership(account, dry_run=dry_run)
        keys = self._keys(account) if account else []
        for key in (key for key in keys if state_of(key) == "EXPIRED"):
            if not dry_run:
                self._delete_key(key.metadata.id)
            done = Done.TO_DELETE if dry_run else Done.DELETED
            yield BucketStep(
                what=f"access key {key.metadata.name or key.metadata.id}", done=done, detail="it had expired"
            )
        yield self._key(account, keys, dry_run=dry_run)

    def renew(self) -> str:
        """Create an access key if the kept one has expired or is in the last tenth of its time."""
        if self.record.key and self.record.key.usable(now()):
            return ""
        steps = list(self.prepare(dry_run=False))
        return "; ".join(f"{step.done.value} {step.what} ({step.detail})" for step in steps if step.changes)

    def environment(self, cli: Version) -> Environment:
        """Return the variables of the URL, the key and the checksums."""
        url = backend_url(self.record.bucket, self.record.settings["region"], cli)
        variables = {"PULUMI_BACKEND_URL": url, **state_bucket.variables(cli)}
        if (key := self.record.key) and key.complete:
            variables |= {"AWS_ACCESS_KEY_ID": key.access_key_id, "AWS_SECRET_ACCESS_KEY": key.secret}
        session = "AWS_SESSION_TOKEN"
        notes = [state_bucket.defect(cli)]
        if os.environ.get(session):
            notes.append(f"{session} is set, and Nebius does not know it: unset {session}")
        secret = frozenset({"AWS_SECRET_ACCESS_KEY"} & variables.keys())
        return Environment(variables=variables, secret=secret, notes=[note for note in notes if note])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variables of the bucket and of its key."""
        return (*super().names, *state_bucket.VARIABLES, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")

    def _bucket(self, *, dry_run: bool) -> BucketStep:
        name, what = self.record.bucket, f"bucket {self.record.bucket}"
        bucket, done = self._found_or_created(_BUCKET, name, {"versioning_policy": "ENABLED"}, dry_run=dry_run)
        if done is Done.TO_CREATE:
            return BucketStep(what=what, done=done, detail="with versioning")
        if bucket is None:
            raise StateBucketError(
                f"the bucket {name} belongs to another project, or was deleted there and is not purged yet.\n"
                "  to do: choose another name with --name"
            )
        id_, status = bucket.metadata.id, bucket.status
        if state_of(bucket) in _BUCKET.deleting:
            purged = status.purge_at.isoformat() if status and status.purge_at else "a time not known"
            raise StateBucketError(
                f"the bucket {name} ({id_}) was deleted; it is purged at {purged}.\n"
                f"  to do: nebius storage bucket undelete --id {id_}, or choose another name with --name"
            )
        if bucket.spec.versioning_policy.name != "ENABLED":
            raise StateBucketError(
                f"the bucket {name} ({id_}) exists without versioning, which a bucket with state must have. "
                "It was left as it is.\n"
                f"  to do: nebius storage bucket update --id {id_} --versioning-policy enabled, then run again"
            )
        region = (status.region if status else "") or self.record.settings["region"]
        self.record = self.record.with_settings(region=region)  # the region of an existing bucket can't be chosen
        return BucketStep(what=what, done=done, detail=f"with versioning, in {region}")

    def _account(self, *, dry_run: bool) -> tuple[str, BucketStep]:
        """Return the service account's id; an empty one in a dry run, if there is no such account yet."""
        name = self.record.settings["account"]
        spec = {"description": "Writes the state of Pulumi stacks"}
        account, done = self._found_or_created(_ACCOUNT, name, spec, dry_run=dry_run)
        if done is not Done.TO_CREATE and account is None:
            raise StateBucketError(f"the service account {name} was deleted while it was created. Run again.")
        id_ = account.metadata.id if account else ""
        return id_, BucketStep(what=f"service account {name}", done=done, detail=id_)

    def _membership(self, account: str, *, dry_run: bool) -> BucketStep:
        tenant = self.record.settings["tenant"]
        editors = find(self._desired(_GROUP, EDITORS, parent=tenant))
        if editors is None:
            todo = "check the id of the tenant: nebius iam tenant list"
            raise nebius_error(f"find the group {EDITORS}", [f"{tenant} has no such group that you may see"], todo)
        group = editors.metadata.id
        desired = self._desired(_MEMBERSHIP, "", {"member_id": account}, parent=group)
        if account and find(desired) is not None:
            done = Done.FOUND
        elif dry_run:
            done = Done.TO_CREATE
        else:
            done = Done.CREATED
            self._create(desired)
        return BucketStep(what=f"membership in the group {EDITORS}", done=done, detail=group)

    def _keys(self, account: str) -> list[Any]:
        """Return the access keys of a service account."""

        def is_own(row: Any) -> bool:  # noqa: ANN401 - a message of the SDK
            owner = row.spec.account.service_account if row.spec.account else None
            return owner is not None and owner.id == account

        return [row for row in list_all(_KEY, self.record.project) if is_own(row)]

    def _key(self, account: str, keys: list[Any], *, dry_run: bool) -> BucketStep:
        """Use the kept key if it is valid, else create one, because the API shows the secret of a key only once."""
        kept, active = self.record.key, [key.metadata for key in keys if state_of(key) == "ACTIVE"]
        if kept and kept.id in {key.id for key in active} and kept.usable(now()):
            if not dry_run:
                self.save(self.record)
            return BucketStep(what=f"access key {kept.name}", done=Done.FOUND, detail=self._until(kept))
        if dry_run:
            hours = self.record.settings["lifetime_hours"]
            return BucketStep(what="access key", done=Done.TO_CREATE, detail=f"valid for {hours} h")
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
        id_ = next((key.id for key in active if key.name == pending.name), "")
        id_ = id_ or self._create_key(account, pending)
        message = get(_KEY, id_)
        if message is None or message.status is None or not message.status.secret:
            self._delete_key(id_)
            self._keep(None)
            raise StateBucketError(
                f"Nebius does not show the secret of the access key {id_}, which was deleted. Run again."
            )
        status = message.status
        key = replace(pending, id=id_, access_key_id=status.aws_access_key_id, secret=status.secret)
        self._keep(key)
        return BucketStep(what=f"access key {key.name}", done=Done.CREATED, detail=self._until(key))

    def _keep(self, key: Key | None) -> None:
        self.record = self.record.with_key(key)
        self.save(self.record)

    def _until(self, key: Key) -> str:
        return f"valid until {key.expires.isoformat()}, kept in {self.folder}"

    def _create_key(self, account: str, key: Key) -> str:
        """Create an access key and return its id. A second call with the same name returns the same key."""
        spec = {
            "account": {"service_account": {"id": account}},
            "expires_at": key.expires.isoformat().replace("+00:00", "Z"),
            "description": "State of Pulumi stacks",
            "secret_delivery_mode": "INLINE",
        }
        # Names of keys are used once, so a run that follows a killed one gets the key of the killed one.
        created = self._create(self._desired(_KEY, key.name, spec), f"hpc-state-{account}-{key.name}")
        if created is None:
            raise nebius_error(f"create the access key {key.name}", ["the name is taken"], "run it again")
        return created.metadata.id

    def _delete_key(self, id_: str) -> None:
        ObjectWait(f"delete the access key {id_}", _KEY.delete_seconds, _PACE).delete(_KEY, id_)

    def _found_or_created(
        self, kind: ResourceKind, name: str, spec: Mapping[str, Any], *, dry_run: bool
    ) -> tuple[Any, Done]:
        """Return the object of that name; None if a dry run would create it, or the name is taken elsewhere."""
        desired = self._desired(kind, name, spec)
        if (found := find(desired)) is not None:
            return found, Done.FOUND
        if dry_run:
            return None, Done.TO_CREATE
        if (created := self._create(desired)) is not None:
            return created, Done.CREATED
        return find(desired), Done.FOUND  # another run has created it meanwhile

    def _create(self, desired: Desired, key: str = "") -> Any:  # noqa: ANN401 - a message of the SDK
        """Create an object and return it, once it can be used; None if there is one of that name already. A second
        request with the same `key` creates nothing."""
        kind, key = desired.kind, key or str(uuid.uuid4())
        # An account that another run creates at the same time is new too.
        self._has_new_account = self._has_new_account or kind is _ACCOUNT
        wait = ObjectWait(f"create {desired.title}", kind.create_seconds, _PACE)
        fresh = kind.fresh_seconds if self._has_new_account else 0
        try:
            operation = wait.start(lambda: start_create(desired, key), fresh_seconds=fresh)
        except NebiusError as error:
            if error.code == "ALREADY_EXISTS" or "resource_already_exists" in error.details:
                return None
            raise
        wait.until_ended(kind, operation)
        return wait.until_ready(kind, operation.resource_id)

    def _desired(
        self, kind: ResourceKind, name: str, spec: Mapping[str, Any] | None = None, *, parent: str = ""
    ) -> Desired:
        parent = parent or self.record.project
        return Desired(kind=kind, parent_id=parent, name=name, spec=spec or {})
