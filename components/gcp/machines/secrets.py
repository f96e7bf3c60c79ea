"""A cluster's secrets in Secret Manager, each readable only by the roles that need it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_tls as tls
from pulumi_gcp import secretmanager

from cluster.config import ClusterConfig
from cluster.platforms.gcp.names import labels
from cluster.roster import MachineSpec, machines
from components.gcp.machines.boot import HOST_KEY
from components.slurm.keys import ClusterKeys
from components.slurm.payload import DATABASE_PASSWORD, MUNGE_KEY

READER = "roles/secretmanager.secretAccessor"


@dataclass(frozen=True, kw_only=True)
class SecretsArgs:
    config: ClusterConfig
    keys: ClusterKeys
    members: Mapping[str, pulumi.Input[str]]
    """IAM member (serviceAccount:...) of each role."""
    after: Sequence[pulumi.Resource] = ()
    """What everything waits for: the services of Google Cloud that it uses."""


class Secrets(pulumi.ComponentResource):
    """The MUNGE key, the database's password, and SSH host keys of the machines that are set up over SSH.

    Machines fetch them at boot, as the service account that they run with: nothing secret is in their metadata.
    """

    host_keys: Mapping[str, tls.PrivateKey]
    """SSH host key of the controller and of each login machine, by name: known before the machine is, so that there is
    no trust on first use."""

    def __init__(self, name: str, args: SecretsArgs, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:gcp:Secrets", name, {}, opts)
        self._name, self._args = name, args
        self._readers: dict[str, list[pulumi.Resource]] = {role: [] for role in args.members}
        cluster, keys = args.config.name, args.keys
        known = [role for role in ("controller", "login", "node") if role in args.members]
        password = keys.database_password
        self._shared = {
            MUNGE_KEY: self._secret("munge", f"{cluster}-munge", keys.munge, roles=known),
            DATABASE_PASSWORD: self._secret("database", f"{cluster}-database", password, roles=["controller"]),
        }
        child = pulumi.ResourceOptions(parent=self)
        self.host_keys = {
            spec.name: tls.PrivateKey(f"{name}-{spec.name}", algorithm="ED25519", opts=child)
            for spec in machines(args.config)
            if spec.roles != ("node",)
        }
        self._own: dict[str, pulumi.Output[str]] = {}
        for spec in machines(args.config):
            if spec.name in self.host_keys:
                key, secret = self.host_keys[spec.name].private_key_openssh, f"{spec.name}-host-key"
                self._own[spec.name] = self._secret(secret, secret, key, roles=[spec.roles[0]])
        self.register_outputs({"host_keys": {name: key.public_key_openssh for name, key in self.host_keys.items()}})

    def versions(self, spec: MachineSpec) -> dict[str, pulumi.Output[str]]:
        """What a machine fetches: resource name of each secret's version, by the path that it is kept at."""
        found = {MUNGE_KEY: self._shared[MUNGE_KEY]}
        if "controller" in spec.roles:
            found[DATABASE_PASSWORD] = self._shared[DATABASE_PASSWORD]
        if spec.name in self._own:
            found[HOST_KEY] = self._own[spec.name]
        return found

    def readers(self, role: str) -> list[pulumi.Resource]:
        """The grants that a machine of this role can't boot without."""
        return self._readers[role]

    def _secret(
        self, name: str, secret_id: str, value: pulumi.Output[str], *, roles: Sequence[str]
    ) -> pulumi.Output[str]:
        config = self._args.config
        child = pulumi.ResourceOptions(parent=self, depends_on=list(self._args.after))
        secret = secretmanager.Secret(
            f"{self._name}-{name}",
            secret_id=secret_id,
            labels=labels(config, roles[0]),
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
            member, reader = self._args.members[role], f"{self._name}-{name}-{role}"
            grant = secretmanager.SecretIamMember(reader, secret_id=secret.id, role=READER, member=member, opts=child)
            self._readers[role].append(grant)
        return version.name
