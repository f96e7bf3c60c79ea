"""The start of a machine: its metadata, its secrets and the set-up's bucket."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pulumi
import pulumi_tls as tls
from pulumi_gcp import secretmanager, storage

from cluster.config import ClusterConfig
from cluster.platforms.gcp.names import labels, place, search_domains
from cluster.roster import MachineSpec, controller_name, machines
from components.slurm import payload
from components.slurm.keys import ClusterKeys
from components.slurm.payload import DATABASE_PASSWORD, MUNGE_KEY
from scripts.node.interface import ROLES

VIEWER = "roles/storage.objectViewer"


@cache
def archive() -> tuple[bytes, str]:
    """The set-up, {name: [lines]} as JSON, and its SHA-256.

    Not compressed: the bytes of a gzip differ between versions of zlib, and with them every machine's metadata.
    """
    content = payload.packed_setup().encode()
    return content, hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, kw_only=True)
class StoredObject:
    """An object that a machine can fetch, and its hash."""

    url: pulumi.Output[str]
    """gs://BUCKET/NAME; the name carries the hash, so that what a URL means never changes."""
    sha256: str


class SetupBucket(pulumi.ComponentResource):
    """A private bucket with the set-up; nothing in it is secret, and nothing in it is data."""

    objects: Mapping[str, StoredObject]
    """The stored files, by the name that they were given with."""

    def __init__(
        self,
        name: str,
        config: ClusterConfig,
        files: Mapping[str, tuple[bytes, str]],
        members: Mapping[str, pulumi.Input[str]],
        after: Sequence[pulumi.Resource],
        *,
        opts: pulumi.ResourceOptions,
    ) -> None:
        """`files` has content (text) and SHA-256 by name, `members` the IAM member of each role that fetches them."""
        super().__init__("hpc:gcp:SetupBucket", name, {}, opts)
        child = pulumi.ResourceOptions(parent=self, depends_on=list(after))
        bucket = storage.Bucket(
            f"{name}-bucket",
            # Names are the whole world's, as a project's id is.
            name=f"{place(config).project}-{config.name}-setup",
            location=place(config).region,
            uniform_bucket_level_access=True,
            public_access_prevention="enforced",
            # The next `up` creates all of it again.
            force_destroy=True,
            # Replaced versions are not needed.
            soft_delete_policy=storage.BucketSoftDeletePolicyArgs(retention_duration_seconds=0),
            labels=labels(config, "storage"),
            opts=child,
        )
        self.objects = {
            file: _store(f"{name}-{file.partition('.')[0]}", bucket, file, *held, opts=child)
            for file, held in files.items()
        }
        self._readers = {
            role: storage.BucketIAMMember(f"{name}-{role}", bucket=bucket.name, role=VIEWER, member=member, opts=child)
            for role, member in members.items()
        }
        self.register_outputs({"bucket": bucket.name})

    def reader(self, role: str) -> pulumi.Resource:
        """The grant that a machine of this role can't boot without."""
        return self._readers[role]


def _store(
    name: str, bucket: storage.Bucket, file: str, content: bytes, sha256: str, *, opts: pulumi.ResourceOptions
) -> StoredObject:
    stem, dot, ending = file.partition(".")
    stored = storage.BucketObject(
        name,
        bucket=bucket.name,
        name=f"{stem}-{sha256[:12]}{dot}{ending}",
        source=pulumi.StringAsset(content.decode()),
        opts=opts,
    )
    return StoredObject(url=pulumi.Output.concat("gs://", stored.bucket, "/", stored.output_name), sha256=sha256)


SCRIPTS = Path(__file__).parents[3] / "scripts" / "gcp"
HOST_KEY = "/etc/ssh/hpc_host_key"
"""A machine's file of the SSH host key that the stack gives it; scripts/gcp/start.py has sshd use it alone."""
STATE_DEVICE = "hpc-state"
"""Device name of the controller's state disk."""
STATE_DISK = f"/dev/disk/by-id/google-{STATE_DEVICE}"
"""The disk's path on the controller (Google's udev rules make the link)."""

FIXED: Mapping[str, str] = {
    # Users come from the stack file, the same on every platform, and root by the stack's own key alone.
    "enable-oslogin": "FALSE",
    "block-project-ssh-keys": "TRUE",
    # The start-up script's state can be read without logging in, and its console outlives the machine.
    "enable-guest-attributes": "TRUE",
    "serial-port-logging-enable": "TRUE",
    # Machines find each other by short names, in projects that were made with global DNS as well.
    "VmDnsSetting": "ZonalPreferred",
}
"""Metadata that Google's own agents read, the same on every machine (cloud.google.com/compute/docs/metadata)."""


@dataclass(frozen=True, kw_only=True)
class BootArgs:
    """The arguments with which a machine becomes a member of its cluster."""

    admin_key: pulumi.Input[str]
    """Public half (OpenSSH) of the operator's key: root everywhere."""
    cluster_key: pulumi.Input[str]
    """Public half of the controller's key to the nodes."""
    secrets: Mapping[str, pulumi.Input[str]]
    """Version of a secret (projects/P/secrets/S/versions/V), by the file that the machine keeps it in."""
    setup: StoredObject
    """The set-up; compute nodes run it themselves, the others are brought it over SSH."""
    install: StoredObject | None
    """The program that a machine runs at its first boot where no image brings it."""
    mounts: Sequence[Mapping[str, pulumi.Input[str]]]
    """Shared file systems of this machine: source, target, fs_type, options."""


def metadata(config: ClusterConfig, spec: MachineSpec, args: BootArgs) -> dict[str, pulumi.Input[str]]:
    return {**FIXED, "startup-script": startup_script(), "hpc-boot": boot_attribute(config, spec, args)}


def boot_attribute(config: ClusterConfig, spec: MachineSpec, args: BootArgs) -> pulumi.Output[str]:
    """The attribute `hpc-boot`, as scripts/gcp/start.py reads it."""
    node = spec.roles == ("node",)
    keys = [args.admin_key, args.cluster_key] if node else [args.admin_key]
    boot: dict[str, Any] = {
        "cluster": config.name,
        "roles": list(spec.roles),
        "install": _object(args.install),
        "secrets": dict(args.secrets),
        "setup": _object(args.setup) if node else None,
        "node": pulumi.Output.all(*[dict(mount) for mount in args.mounts]).apply(
            lambda mounts: json.loads(payload.node_json(mounts=mounts, controller=controller_name(config)))
        )
        if node
        else None,
        # Only where there are some: another attribute would be a change of every machine.
        **({"domains": domains} if (domains := search_domains(config)) else {}),
        "files": {
            "/root/.ssh/authorized_keys": {
                "content": pulumi.Output.all(*keys).apply(lambda keys: "".join(key.strip() + "\n" for key in keys)),
                "mode": "0600",
            }
        },
    }
    return pulumi.Output.json_dumps(boot, sort_keys=True)


@cache
def startup_script() -> str:
    """The files of scripts/gcp as one program: metadata carries one text."""
    own = program("start.py")
    for name, file in (("SHIELD", "shield.sh"), ("HOST_EVENTS", "host_events.py")):
        text = (SCRIPTS / file).read_text()
        # A function as replacement: backslashes in the text are no escapes.
        own = re.sub(rf'^{name} = "".*$', lambda _: f"{name} = {text!r}", own, count=1, flags=re.MULTILINE)  # noqa: B023
    return own


def program(name: str) -> str:
    """A program of scripts/gcp with the modules in it that it imports."""
    own = (SCRIPTS / name).read_text()
    for module, path in (("google_apis", SCRIPTS), ("system.google_api", SCRIPTS.parent / "node/system")):
        text = (path / f"{module.rpartition('.')[2]}.py").read_text()
        text = text.partition('"""\n')[2].strip("\n") + "\n"  # without its docstring
        own = re.sub(rf"^from {module} import .*\n", lambda _: text, own, count=1, flags=re.MULTILINE)  # noqa: B023
    return own


def _object(stored: StoredObject | None) -> dict[str, pulumi.Input[str]] | None:
    return {"url": stored.url, "sha256": stored.sha256} if stored else None


ACCESSOR = "roles/secretmanager.secretAccessor"


class Secrets(pulumi.ComponentResource):
    """The MUNGE key, the database's password, and SSH host keys of the machines that are set up over SSH.

    Machines fetch them at boot, as the service account that they run with: nothing secret is in their metadata.
    """

    host_keys: dict[str, tls.PrivateKey]
    """SSH host key of each machine that is set up over SSH, by name: known before the machine is, so that there is
    no trust on first use."""

    def __init__(
        self,
        name: str,
        config: ClusterConfig,
        keys: ClusterKeys,
        members: Mapping[str, pulumi.Input[str]],
        after: Sequence[pulumi.Resource],
        *,
        opts: pulumi.ResourceOptions,
    ) -> None:
        """`members` has the IAM member (serviceAccount:...) of each role."""
        super().__init__("hpc:gcp:Secrets", name, {}, opts)
        self._name, self._config, self._members, self._after = name, config, members, list(after)
        self._readers: dict[str, list[pulumi.Resource]] = {role: [] for role in members}
        known = [role for role in ROLES if role in members]
        password = keys.database_password
        self._munge = self._secret("munge", f"{config.name}-munge", keys.munge, roles=known)
        self._database = self._secret("database", f"{config.name}-database", password, roles=["controller"])
        child = pulumi.ResourceOptions(parent=self)
        self.host_keys, self._own = {}, {}
        for spec in machines(config):
            if spec.roles != ("node",):
                key = tls.PrivateKey(f"{name}-{spec.name}", algorithm="ED25519", opts=child)
                secret = f"{spec.name}-host-key"
                self._own[spec.name] = self._secret(secret, secret, key.private_key_openssh, roles=[spec.roles[0]])
                self.host_keys[spec.name] = key
        self.register_outputs({"host_keys": {name: key.public_key_openssh for name, key in self.host_keys.items()}})

    def versions(self, spec: MachineSpec) -> dict[str, pulumi.Output[str]]:
        """Return what a machine fetches: resource name of each secret's version, by the path that it is kept at."""
        found = {MUNGE_KEY: self._munge}
        if "controller" in spec.roles:
            found[DATABASE_PASSWORD] = self._database
        if spec.name in self._own:
            found[HOST_KEY] = self._own[spec.name]
        return found

    def readers(self, role: str) -> list[pulumi.Resource]:
        """The grants that a machine of this role can't boot without."""
        return self._readers[role]

    def _secret(
        self, name: str, secret_id: str, value: pulumi.Output[str], *, roles: Sequence[str]
    ) -> pulumi.Output[str]:
        child = pulumi.ResourceOptions(parent=self, depends_on=self._after)
        secret = secretmanager.Secret(
            f"{self._name}-{name}",
            secret_id=secret_id,
            labels=labels(self._config, roles[0]),
            replication=secretmanager.SecretReplicationArgs(auto=secretmanager.SecretReplicationAutoArgs()),
            opts=child,
        )
        version = secretmanager.SecretVersion(
            f"{self._name}-{name}-version",
            secret=secret.id,
            # The line end is part of the MUNGE key: each machine hashes the file as a whole.
            secret_data=pulumi.Output.secret(value).apply(lambda text: text.rstrip("\n") + "\n"),
            opts=child,
        )
        for role in roles:
            reader, member = f"{self._name}-{name}-{role}", self._members[role]
            grant = secretmanager.SecretIamMember(reader, secret_id=secret.id, role=ACCESSOR, member=member, opts=child)
            self._readers[role].append(grant)
        return version.name
