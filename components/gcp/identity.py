"""The identity of machines on Google Cloud: service accounts, their roles, and the secrets and files they may read."""

import hashlib
from collections.abc import Mapping, Sequence

import pulumi
import pulumi_random as random
import pulumi_tls as tls
from pulumi_gcp import projects, serviceaccount

from cluster.config import ClusterConfig
from cluster.platforms.gcp.image import bake_script, bakes, installs
from cluster.platforms.gcp.names import account_id, place
from cluster.platforms.gcp.permissions import reconcile_condition, reconcile_permissions, repair_permissions
from cluster.roster import MachineSpec, machines
from cluster.slurm.power_saving import elastic_nodesets, repaired_nodesets
from components.gcp.boot import Secrets, SetupBucket, StoredObject, archive
from components.slurm.keys import ClusterKeys

PROJECT_ROLES = ("roles/logging.logWriter", "roles/monitoring.metricWriter")
"""Roles of every machine in the project: write its own logs and metrics."""
ACT_AS = "roles/iam.serviceAccountUser"
"""Role on a service account: create machines that act as it."""
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
"""Access scopes of every machine. Roles limit what a machine may do; a narrower scope would only take away from them
(cloud.google.com/compute/docs/access/service-accounts#scopes_best_practice)."""

BUILDER = "builder"
NO_MEMBERS = (BUILDER,)
"""Roles of machines that are no members of the cluster: they may read none of its secrets, files and buckets."""
SETUP, INSTALL = "setup.json", "install.sh"
"""Names of the stored files: the set-up, and the installation of machines without a baked image."""


class Identity(pulumi.ComponentResource):
    """A service account for each role of machines, with its roles, and the secrets and files that it may read."""

    objects: dict[str, StoredObject]
    """Objects for machines in the set-up bucket, by name: setup.json, and install.sh where nothing is baked."""
    project_number: pulumi.Output[int]

    def __init__(
        self,
        name: str,
        config: ClusterConfig,
        keys: ClusterKeys,
        after: Sequence[pulumi.Resource] = (),
        *,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`after` are resources that must exist first: the services of Google Cloud."""
        super().__init__("hpc:gcp:Identity", name, {}, opts)
        self._name, self._config = name, config
        self._child = pulumi.ResourceOptions(parent=self, depends_on=list(after))
        self._accounts = {role: self._account(role) for role in roles(config)}
        self._grants = {role: self._grant_project_roles(role) for role in self._accounts}
        if elastic_nodesets(config):
            self._grants["controller"] += self._reconcile_grants()
        if repaired_nodesets(config):
            self._grants["controller"] += self._repair_grants()
        members = {role: account.member for role, account in self._accounts.items() if role not in NO_MEMBERS}
        child = pulumi.ResourceOptions(parent=self)
        self._secrets = Secrets(f"{name}-secrets", config, keys, members, after, opts=child)
        self._bucket = SetupBucket(f"{name}-setup", config, _files(config), members, after, opts=child)
        self.objects, self.project_number = dict(self._bucket.objects), self._bucket.project_number
        self.register_outputs({"emails": {role: account.email for role, account in self._accounts.items()}})

    def email(self, role: str) -> pulumi.Output[str]:
        """Return the email of a role's service account; a machine's role is its first."""
        return self._accounts[role].email

    def versions(self, spec: MachineSpec) -> dict[str, pulumi.Output[str]]:
        """Return the secrets that a machine fetches: the version of each, by the file that it is kept in."""
        return self._secrets.versions(spec)

    def host_key(self, machine: str) -> tls.PrivateKey:
        """Return the SSH host key of a machine that is set up over SSH."""
        return self._secrets.host_keys[machine]

    def ready(self, role: str) -> list[pulumi.Resource]:
        """Return the grants that a machine of this role waits for: without them it could fetch nothing."""
        if role in NO_MEMBERS:
            return self._grants[role]
        return [*self._grants[role], *self._secrets.readers(role), self._bucket.reader(role)]

    def _account(self, role: str) -> serviceaccount.Account:
        return serviceaccount.Account(
            f"{self._name}-{role}",
            account_id=account_id(self._config, role),
            display_name=f"{role} of the cluster {self._config.name}",
            opts=self._child,
        )

    def _reconcile_grants(self) -> list[pulumi.Resource]:
        """Allow the controller to create and delete machines of elastic nodes, and no others."""
        config = self._config
        return self._grant_custom_role(
            "reconcile",
            acts_as="node",
            title=f"Elastic nodes of the cluster {config.name}",
            description="What the controller needs to create, repair and delete the machines of elastic nodes",
            permissions=reconcile_permissions(config),
            nodesets={nodeset: nodeset for nodeset in elastic_nodesets(config)},
        )

    def _repair_grants(self) -> list[pulumi.Resource]:
        """Allow the controller to repair machines of nodesets without elastic nodes."""
        config = self._config
        return self._grant_custom_role(
            "repair",
            title=f"Static nodes of the cluster {config.name}",
            description="What the controller needs to reboot the machines of static nodes, and to report their hosts",
            permissions=repair_permissions(config),
            nodesets={f"{nodeset}-static": nodeset for nodeset in repaired_nodesets(config)},
        )

    def _grant_custom_role(
        self,
        part: str,
        *,
        acts_as: str = "",
        title: str,
        description: str,
        permissions: Sequence[str],
        nodesets: Mapping[str, str],
    ) -> list[pulumi.Resource]:
        """Grant a custom role to the controller, under a condition for each nodeset, by its key. With `acts_as` it may
        also create machines of that role. Returns the grants."""
        name, config, account = f"{self._name}-{part}", self._config, self._accounts["controller"]
        role = projects.IAMCustomRole(
            f"{name}-role",
            role_id=role_id(f"{name}-role-id", config, part, parent=self),
            title=title,
            description=description,
            permissions=list(permissions),
            opts=self._child,
        )
        grants: list[pulumi.Resource] = [
            projects.IAMMember(
                f"{name}-{key}",
                project=place(config).project,
                role=role.name,
                member=account.member,
                condition=projects.IAMMemberConditionArgs(
                    title=f"{config.name}-{key}",
                    description=f"Instances and disks of the nodeset {nodeset} of {config.name}",
                    expression=reconcile_condition(config, nodeset),
                ),
                opts=self._child,
            )
            for key, nodeset in nodesets.items()
        ]
        if not acts_as:
            return grants
        acting = serviceaccount.IAMMember(
            f"{name}-{acts_as}",
            service_account_id=self._accounts[acts_as].name,
            role=ACT_AS,
            member=account.member,
            opts=self._child,
        )
        return [*grants, acting]

    def _grant_project_roles(self, role: str) -> list[pulumi.Resource]:
        return [
            projects.IAMMember(
                f"{self._name}-{role}-{granted.rpartition('.')[2]}",
                project=place(self._config).project,
                role=granted,
                member=self._accounts[role].member,
                opts=pulumi.ResourceOptions(parent=self),
            )
            for granted in PROJECT_ROLES
        ]


def role_id(name: str, config: ClusterConfig, part: str, *, parent: pulumi.Resource) -> pulumi.Output[str]:
    """Return a new id for a custom role of the stack: the id of a deleted role can't be used again for 37 days."""
    suffix = random.RandomId(name, byte_length=4, opts=pulumi.ResourceOptions(parent=parent))
    return pulumi.Output.concat(f"{config.name.replace('-', '_')}_{part}_", suffix.hex)


def roles(config: ClusterConfig) -> list[str]:
    """Return the roles of the cluster's machines, with that of the image's builder; a machine's role is its first."""
    machine_roles = list(dict.fromkeys(spec.roles[0] for spec in machines(config)))
    if elastic_nodesets(config) and "node" not in machine_roles:
        machine_roles.append("node")
    return [*machine_roles, *([BUILDER] if bakes(config) else [])]


def _files(config: ClusterConfig) -> dict[str, tuple[bytes, str]]:
    files = {SETUP: archive()}
    if installs(config):
        program = bake_script(config).encode()
        files[INSTALL] = program, hashlib.sha256(program).hexdigest()
    return files
