"""The boot of machines: their metadata, their secrets, and the bucket that they fetch the set-up from."""

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
from cluster.platforms.gcp.names import labels, place, setup_bucket
from cluster.roster import MachineSpec, controller_name, machines
from components.slurm import payload
from components.slurm.keys import ClusterKeys
from components.slurm.payload import DATABASE_PASSWORD, MUNGE_KEY
from scripts.node.interface import ROLES

VIEWER = "roles/storage.objectViewer"


@cache
def archive() -> tuple[bytes, str]:
    """Return the set-up, {name: [lines]} as JSON, and its SHA-256.

    It is not compressed: the bytes of a gzip differ between versions of zlib, and would change the machines' metadata.
    """
    content = payload.packed_setup().encode()
    return content, hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, kw_only=True)
class StoredObject:
    """An object that a machine can fetch, and its hash."""

    url: pulumi.Output[str]
    """gs://BUCKET/NAME; the name contains the hash, so that the content of a URL never changes."""
    sha256: str


class SetupBucket(pulumi.ComponentResource):
    """A private bucket with the set-up. It holds no secrets and no data."""

    objects: Mapping[str, StoredObject]
    """The stored files, by their name in `files`."""
    project_number: pulumi.Output[int]

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
            name=setup_bucket(config),
            location=place(config).region,
            uniform_bucket_level_access=True,
            public_access_prevention="enforced",
            # The next `up` stores all objects again.
            force_destroy=True,
            # Replaced versions are not needed.
            soft_delete_policy=storage.BucketSoftDeletePolicyArgs(retention_duration_seconds=0),
            labels=labels(config, "storage"),
            opts=child,
        )
        self.project_number = bucket.project_number
        self.objects = {
            file: _store(f"{name}-{file.partition('.')[0]}", bucket, file, *content, opts=child)
            for file, content in files.items()
        }
        self._readers = {
            role: storage.BucketIAMMember(f"{name}-{role}", bucket=bucket.name, role=VIEWER, member=member, opts=child)
            for role, member in members.items()
        }
        self.register_outputs({"bucket": bucket.name})

    def reader(self, role: str) -> pulumi.Resource:
        """Return the grant that a machine of this role can't boot without."""
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


SCRIPTS = Path(__file__).parents[2] / "scripts" / "gcp"
HOST_KEY = "/etc/ssh/hpc_host_key"
"""File of a machine with the SSH host key of the stack; scripts/gcp/start.py makes sshd use this key alone."""
STATE_DEVICE = "hpc-state"
"""Device name of the controller's state disk."""
STATE_DISK = f"/dev/disk/by-id/google-{STATE_DEVICE}"
"""The disk's path on the controller (Google's udev rules make the link)."""

FIXED: Mapping[str, str] = {
    # Users are the stack file's, as on every platform, and root logs in with the stack's key alone.
    "enable-oslogin": "FALSE",
    "block-project-ssh-keys": "TRUE",
    # The start-up script's state can be read without logging in, and the console is kept after the machine is deleted.
    "enable-guest-attributes": "TRUE",
    "serial-port-logging-enable": "TRUE",
    # Machines find each other by short names, also in projects that were created with global DNS.
    "VmDnsSetting": "ZonalPreferred",
}
"""Metadata that Google's own agents read, the same on every machine (cloud.google.com/compute/docs/metadata)."""


@dataclass(frozen=True, kw_only=True)
class BootArgs:
    """The inputs of a machine's metadata."""

    admin_key: pulumi.Input[str]
    """Public half (OpenSSH) of the operator's key: root everywhere."""
    cluster_key: pulumi.Input[str]
    """Public half of the controller's key to the nodes."""
    secrets: Mapping[str, pulumi.Input[str]]
    """Version of a secret (projects/P/secrets/S/versions/V), by the file that the machine keeps it in."""
    setup: StoredObject
    """The set-up; compute nodes fetch it and run it, the other machines are set up over SSH."""
    install: StoredObject | None
    """The installation that a machine runs at its first boot; None for a baked image."""
    mounts: Sequence[Mapping[str, pulumi.Input[str]]]
    """Shared file systems of this machine: source, target, fs_type, options."""


def metadata(config: ClusterConfig, spec: MachineSpec, args: BootArgs) -> dict[str, pulumi.Input[str]]:
    return {**FIXED, "startup-script": startup_script(), "hpc-boot": boot_attribute(config, spec, args)}


def boot_attribute(config: ClusterConfig, spec: MachineSpec, args: BootArgs) -> pulumi.Output[str]:
    """Return the attribute `hpc-boot`, as scripts/gcp/start.py reads it."""
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
    """Return the files of scripts/gcp as one program, since the metadata attribute is one text."""
    script = program("start.py")
    for name, file in (("SHIELD", "shield.sh"), ("HOST_EVENTS", "host_events.py")):
        text = (SCRIPTS / file).read_text()
        # A function as replacement: backslashes in the text are no escapes.
        script = re.sub(rf'^{name} = "".*$', lambda _: f"{name} = {text!r}", script, count=1, flags=re.MULTILINE)  # noqa: B023
    return script


def program(name: str) -> str:
    """Return a program of scripts/gcp that contains the modules that it imports."""
    script = (SCRIPTS / name).read_text()
    system = SCRIPTS.parent / "node/system"
    for module, path in (("google_apis", SCRIPTS), ("system.google_api", system), ("system.locks", system)):
        text = (path / f"{module.rpartition('.')[2]}.py").read_text()
        text = text.partition('"""\n')[2].strip("\n") + "\n"  # without its docstring
        script = re.sub(rf"^from {module} import .*\n", lambda _: text, script, count=1, flags=re.MULTILINE)  # noqa: B023
    return script


def _object(stored: StoredObject | None) -> dict[str, pulumi.Input[str]] | None:
    return {"url": stored.url, "sha256": stored.sha256} if stored else None


ACCESSOR = "roles/secretmanager.secretAccessor"


class Secrets(pulumi.ComponentResource):
    """The MUNGE key, the database's password, and SSH host keys of the machines that are set up over SSH.

    Machines fetch them at boot with their service account, so that their metadata contains no secret.
    """

    host_keys: dict[str, tls.PrivateKey]
    """SSH host key of each machine that is set up over SSH, by name. It exists before the machine, so that there is no
    trust on first use."""

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
        roles = [role for role in ROLES if role in members]
        password = keys.database_password
        self._munge = self._secret("munge", f"{config.name}-munge", keys.munge, roles=roles)
        self._database = self._secret("database", f"{config.name}-database", password, roles=["controller"])
        child = pulumi.ResourceOptions(parent=self)
        self.host_keys, self._host_key_versions = {}, {}
        for spec in machines(config):
            if spec.roles != ("node",):
                key = tls.PrivateKey(f"{name}-{spec.name}", algorithm="ED25519", opts=child)
                secret = f"{spec.name}-host-key"
                version = self._secret(secret, secret, key.private_key_openssh, roles=[spec.roles[0]])
                self._host_key_versions[spec.name] = version
                self.host_keys[spec.name] = key
        self.register_outputs({"host_keys": {name: key.public_key_openssh for name, key in self.host_keys.items()}})

    def versions(self, spec: MachineSpec) -> dict[str, pulumi.Output[str]]:
        """Return the secrets of a machine: resource name of each secret's version, by the file that it is kept in."""
        versions = {MUNGE_KEY: self._munge}
        if "controller" in spec.roles:
            versions[DATABASE_PASSWORD] = self._database
        if spec.name in self._host_key_versions:
            versions[HOST_KEY] = self._host_key_versions[spec.name]
        return versions

    def readers(self, role: str) -> list[pulumi.Resource]:
        """Return the grants that a machine of this role can't boot without."""
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
            # The line end is part of the MUNGE key, which is the whole file.
            secret_data=pulumi.Output.secret(value).apply(lambda text: text.rstrip("\n") + "\n"),
            opts=child,
        )
        for role in roles:
            reader, member = f"{self._name}-{name}-{role}", self._members[role]
            grant = secretmanager.SecretIamMember(reader, secret_id=secret.id, role=ACCESSOR, member=member, opts=child)
            self._readers[role].append(grant)
        return version.name
