"""The identity of the machines of a cluster on Google Cloud: service accounts, their roles, and what they may fetch."""

import hashlib
from collections.abc import Mapping, Sequence

import pulumi
import pulumi_random as random
import pulumi_tls as tls
from pulumi_gcp import projects, serviceaccount

from cluster.config import ClusterConfig
from cluster.platforms.gcp.image import bake_script, bakes, installs
from cluster.platforms.gcp.names import account_id, place
from cluster.platforms.gcp.permissions import (
    failover_condition,
    failover_permissions,
    reconcile_condition,
    reconcile_permissions,
    repair_permissions,
)
from cluster.roster import MachineSpec, machines
from cluster.slurm.power_saving import elastic_nodesets, repaired_nodesets
from components.gcp.machines.boot import Secrets, SetupBucket, StoredObject, archive
from components.slurm.keys import ClusterKeys

PROJECT_ROLES = ("roles/logging.logWriter", "roles/monitoring.metricWriter")
"""Roles of every machine in the project: write its own logs and metrics."""
ACT_AS = "roles/iam.serviceAccountUser"
"""Role on a service account: create machines that act as it."""
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
"""Access scopes of every machine. They are the older way to limit it; roles do, and a narrower scope would only hide
what a role gives (cloud.google.com/compute/docs/access/service-accounts#scopes_best_practice)."""

BUILDER, WATCH = "builder", "watch"
NO_MEMBERS = (BUILDER, WATCH)
"""Roles of machines that are no members of the cluster: they read no secrets, files and buckets of it."""
SETUP, INSTALL = "setup.json", "install.sh"
"""Names of the stored files: the set-up, and what machines run at their first boot where nothing is baked."""


class Identity(pulumi.ComponentResource):
    """A service account for each role, with the least roles; the secrets and files that it can read."""

    objects: dict[str, StoredObject]
    """Objects for machines in the set-up bucket, by name: setup.json, and install.sh where nothing is baked."""

    def __init__(
        self,
        name: str,
        config: ClusterConfig,
        keys: ClusterKeys,
        after: Sequence[pulumi.Resource] = (),
        *,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`after` has what everything waits for: the services of Google Cloud that it uses."""
        super().__init__("hpc:gcp:Identity", name, {}, opts)
        self._name, self._config = name, config
        self._accounts = {role: self._account(role, after=after) for role in roles(config)}
        self._grants = {role: self._grant(role) for role in self._accounts}
        if elastic_nodesets(config):
            self._grants["controller"] += self._reconcile(after)
        if repaired_nodesets(config):
            self._grants["controller"] += self._repair(after)
        if config.controller.failover:
            self._grants[WATCH] += self._failover(after)
        members = {role: account.member for role, account in self._accounts.items() if role not in NO_MEMBERS}
        child = pulumi.ResourceOptions(parent=self)
        self._secrets = Secrets(f"{name}-secrets", config, keys, members, after, opts=child)
        self._bucket = SetupBucket(f"{name}-setup", config, _files(config), members, after, opts=child)
        self.objects = dict(self._bucket.objects)
        self.register_outputs({"emails": {role: account.email for role, account in self._accounts.items()}})

    def email(self, role: str) -> pulumi.Output[str]:
        """Address of a role's service account; a machine's role is its first."""
        return self._accounts[role].email

    def versions(self, spec: MachineSpec) -> dict[str, pulumi.Output[str]]:
        """Return all that a machine fetches from Secret Manager, by the path that it is kept at."""
        return self._secrets.versions(spec)

    def host_key(self, machine: str) -> tls.PrivateKey:
        """SSH host key of a machine that is set up over SSH, by its name."""
        return self._secrets.host_keys[machine]

    def ready(self, role: str) -> list[pulumi.Resource]:
        """The grants that a machine of this role waits for: it could fetch nothing without."""
        if role in NO_MEMBERS:
            return self._grants[role]
        return [*self._grants[role], *self._secrets.readers(role), self._bucket.reader(role)]

    def _account(self, role: str, *, after: Sequence[pulumi.Resource]) -> serviceaccount.Account:
        return serviceaccount.Account(
            f"{self._name}-{role}",
            account_id=account_id(self._config, role),
            display_name=f"{role} of the cluster {self._config.name}",
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(after)),
        )

    def _reconcile(self, after: Sequence[pulumi.Resource]) -> list[pulumi.Resource]:
        """Return the rights by which the controller creates and deletes machines of elastic nodes, and no others."""
        config = self._config
        return self._may(
            "reconcile",
            "controller",
            acts_as="node",
            title=f"Elastic nodes of the cluster {config.name}",
            description="What the controller needs to create, repair and delete the machines of elastic nodes",
            permissions=reconcile_permissions(config),
            conditions={
                nodeset: (f"the nodeset {nodeset}", reconcile_condition(config, nodeset))
                for nodeset in elastic_nodesets(config)
            },
            after=after,
        )

    def _repair(self, after: Sequence[pulumi.Resource]) -> list[pulumi.Resource]:
        """Return the rights by which the controller repairs machines of nodesets without elastic nodes."""
        config = self._config
        return self._may(
            "repair",
            "controller",
            title=f"Static nodes of the cluster {config.name}",
            description="What the controller needs to reboot the machines of static nodes, and to report their hosts",
            permissions=repair_permissions(config),
            conditions={
                f"{nodeset}-static": (f"the nodeset {nodeset}", reconcile_condition(config, nodeset))
                for nodeset in repaired_nodesets(config)
            },
            after=after,
        )

    def _failover(self, after: Sequence[pulumi.Resource]) -> list[pulumi.Resource]:
        """Return the rights by which the machine that watches the controller creates it in its other zone."""
        config = self._config
        return self._may(
            "failover",
            WATCH,
            acts_as="controller",
            title=f"Failover of the controller of {config.name}",
            description="What the machine that watches the controller needs to create it in its other zone",
            permissions=failover_permissions(config),
            conditions={"controller": ("the controller", failover_condition(config))},
            after=after,
        )

    def _may(
        self,
        part: str,
        whose: str,
        *,
        acts_as: str = "",
        title: str,
        description: str,
        permissions: Sequence[str],
        conditions: Mapping[str, tuple[str, str]],
        after: Sequence[pulumi.Resource],
    ) -> list[pulumi.Resource]:
        """Give the machines of the role `whose` a custom role, bound once for each condition; with `acts_as` they may
        create machines of that role."""
        name, config, account = f"{self._name}-{part}", self._config, self._accounts[whose]
        child = pulumi.ResourceOptions(parent=self, depends_on=list(after))
        role = projects.IAMCustomRole(
            f"{name}-role",
            role_id=role_id(f"{name}-role-id", config, part, parent=self),
            title=title,
            description=description,
            permissions=list(permissions),
            opts=child,
        )
        grants: list[pulumi.Resource] = [
            projects.IAMMember(
                f"{name}-{key}",
                project=place(config).project,
                role=role.name,
                member=account.member,
                condition=projects.IAMMemberConditionArgs(
                    title=f"{config.name}-{key}",
                    description=f"Instances and disks of {what} of {config.name}",
                    expression=expression,
                ),
                opts=child,
            )
            for key, (what, expression) in conditions.items()
        ]
        if not acts_as:
            return grants
        acting = serviceaccount.IAMMember(
            f"{name}-{acts_as}",
            service_account_id=self._accounts[acts_as].name,
            role=ACT_AS,
            member=account.member,
            opts=child,
        )
        return [*grants, acting]

    def _grant(self, role: str) -> list[pulumi.Resource]:
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
    """The id of a custom role of the stack. That of a deleted one stays taken for 37 days, so each creation has its
    own."""
    end = random.RandomId(name, byte_length=4, opts=pulumi.ResourceOptions(parent=parent))
    return pulumi.Output.concat(f"{config.name.replace('-', '_')}_{part}_", end.hex)


def roles(config: ClusterConfig) -> list[str]:
    """The roles that this cluster has machines of, the image's builder included; a machine's role is its first."""
    found = list(dict.fromkeys(spec.roles[0] for spec in machines(config)))
    if elastic_nodesets(config) and "node" not in found:
        found.append("node")
    return [*found, *([WATCH] if config.controller.failover else []), *([BUILDER] if bakes(config) else [])]


def _files(config: ClusterConfig) -> dict[str, tuple[bytes, str]]:
    found = {SETUP: archive()}
    if installs(config):
        program = bake_script(config).encode()
        found[INSTALL] = program, hashlib.sha256(program).hexdigest()
    return found
