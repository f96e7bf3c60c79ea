"""State buckets in Nebius Object Storage."""

import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

from cli.backends import buckets
from cli.backends.buckets import Backend, Done, Key, Record, Step, Version, now
from cli.errors import CliError
from cluster.config import ClusterConfig
from cluster.findings import RefusedError
from cluster.platforms.nebius.section import Nebius, ProjectId, TenantId
from components.environment import Environment
from components.nebius.state import EDITORS, AccessKey, StateBucket

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
    return buckets.backend_url(bucket, region, endpoint(region), cli)


def record(
    config: ClusterConfig | None,
    *,
    tenant: str | None,
    project: str | None,
    region: str | None,
    name: str | None,
    account: str,
    lifetime: timedelta,
) -> Record:
    """The record of a bucket that may not exist yet; what is not given is the stack's own. The key that an earlier run
    kept is used again.

    Raises CliError: an id is missing or none, or the name can't be a bucket's.
    """
    where = config.section(Nebius) if config else None
    tenant = _id("--tenant", TenantId, tenant or (where.tenant if where else None))
    project = _id("--project", ProjectId, project or (where.project if where else None))
    name = name or default_name(tenant, project)
    if not NAME.fullmatch(name):
        raise CliError(f"--name\n  given: {name!r}\n  allowed: 3 to 63 of a-z, 0-9 and -, no - first or last")
    settings = {
        "tenant": tenant,
        "region": region or (where.region if where else REGION),
        "account": account,
        "lifetime_hours": str(int(lifetime / timedelta(hours=1))),
        "endpoint": where.endpoint if where else "",
    }
    before = buckets.load(name)
    key = before.key if before and (before.kind, before.project) == ("nebius", project) else None
    return Record(kind="nebius", bucket=name, project=project, settings=settings, key=key)


def _id(option: str, kind: Any, given: str | None) -> str:  # noqa: ANN401 - a type with its validator
    if not given:
        raise CliError(f"{option} is missing, and no stack on Nebius is given that has one (--stack).")
    try:
        return kind.__metadata__[0].func(given)
    except RefusedError as refused:
        message = f"{option}\n  given: {given!r}\n  allowed: {refused.allowed}\n  to do: {refused.todo}"
        raise CliError(message) from None


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
        variables = {"PULUMI_BACKEND_URL": url, **buckets.variables(cli)}
        if (key := self.record.key) and key.complete:
            variables |= {"AWS_ACCESS_KEY_ID": key.access_key_id, "AWS_SECRET_ACCESS_KEY": key.secret}
        session = "AWS_SESSION_TOKEN"
        notes = [buckets.defect(cli), f"{session} is set, and Nebius does not know it: unset {session}"]
        notes = notes if os.environ.get(session) else notes[:1]
        secret = frozenset({"AWS_SECRET_ACCESS_KEY"} & variables.keys())
        return Environment(variables=variables, secret=secret, notes=[note for note in notes if note])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the bucket and of its key."""
        return (*super().names, *buckets.VARIABLES, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")

    def _bucket(self, api: StateBucket, *, dry_run: bool) -> Step:
        name, what, done = self.record.bucket, f"bucket {self.record.bucket}", Done.FOUND
        found = api.bucket(name)
        if found is None and dry_run:
            return Step(what=what, done=Done.TO_CREATE, detail="with versioning")
        if found is None:
            done = Done.CREATED if api.create_bucket(name) else Done.FOUND
            found = api.bucket(name)  # another run may have created it meanwhile
        if found is None:
            raise CliError(
                f"the bucket {name} belongs to another project, or was deleted there and is not purged yet.\n"
                "  to do: choose another name with --name"
            )
        if not found.usable:
            raise CliError(
                f"the bucket {name} ({found.id}) was deleted; it is purged at {found.purged or 'a time not known'}.\n"
                f"  to do: nebius storage bucket undelete --id {found.id}, or choose another name with --name"
            )
        if not found.versioned:
            raise CliError(
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
            raise CliError(f"the service account {name} was deleted while it was created. Run again.")
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
                buckets.save(self.record)
            return Step(what=f"access key {kept.name}", done=Done.FOUND, detail=_until(kept))
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
            raise CliError(f"Nebius does not show the secret of the access key {id_}, which was deleted. Run again.")
        key = replace(pending, id=id_, access_key_id=access_key_id, secret=secret)
        self._keep(key)
        return Step(what=f"access key {key.name}", done=Done.CREATED, detail=_until(key))

    def _keep(self, key: Key | None) -> None:
        self.record = self.record.with_key(key)
        buckets.save(self.record)


BACKEND = ObjectStorage


def _until(key: Key) -> str:
    return f"valid until {key.expires.isoformat()}, kept in {buckets.folder()}"
