"""Slurm on a Kubernetes cluster: charts, the SlurmCluster, and what has to come up."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from cluster.platforms.nebius.node_groups import JAIL
from cluster.platforms.nebius.releases.release import Facts, Release
from cluster.roster import MachineSpec, machines
from components.nebius.infrastructure import Infrastructure
from components.nebius.kubernetes.charts import Charts, ChartsArgs
from components.nebius.people import payload
from components.nebius.people.resource import People
from components.nebius.waits.resource import Wait

BACKUP_SECRET = "jail-backup"  # noqa: S105 - the Secret's name
NODESETS_FROM = 3
"""Generation of Soperator whose workers are NodeSets."""


@dataclass(frozen=True, kw_only=True)
class SlurmArgs:
    infrastructure: Infrastructure
    releases: Sequence[Release] = ()


class Slurm(pulumi.ComponentResource):
    """A running Slurm cluster: the SlurmCluster is Available, its NodeSets are full, and Slurm has all nodes."""

    login: pulumi.Output[dict[str, Any]]
    """`address` and `port` that users log in at."""
    ready: pulumi.Output[Any]
    """Known when everything runs."""

    def __init__(self, name: str, args: SlurmArgs, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:Slurm", name, {}, opts)
        self._name, self._cloud, self._releases = name, args.infrastructure, args.releases
        cloud = self._cloud
        charts = Charts(
            f"{name}-charts",
            ChartsArgs(
                releases=self._releases, kubeconfig=cloud.cluster.kubeconfig, cluster=cloud.cluster.resource,
                after={
                    "": [cloud.api],
                    "nodes": [cloud.nodes, cloud.volumes],
                    "gpu": [cloud.nodes, *cloud.operators.ready],
                },
                secrets=self._secrets(),
            ),
            opts=pulumi.ResourceOptions(parent=self),
        )  # fmt: skip
        installed: list[pulumi.Resource] = list(charts.of.values())
        config, settings = cloud.cloud.config, cloud.cloud.settings
        cluster = {"cluster": config.name}
        login = self._wait(
            "login", {**cluster, "type": settings.login.service}, installed, seconds=settings.timeouts.login
        )
        populated = self._wait("populated", cluster, installed)
        last = available = self._wait("available", cluster, [populated])
        if settings.generation >= NODESETS_FROM:
            replicas = {nodeset: section.count for nodeset, section in config.nodesets.items()}
            last = self._wait("nodesets", {"replicas": replicas}, [available])
        spec = {
            "nodes": {one.name: _gpus(one) for one in machines(config) if "node" in one.roles},
            "nodesets": list(config.nodesets),
            # Stand-ins of a rehearsal have no GPUs that could be counted.
            "count_gpus": not settings.endpoint,
        }
        scheduler = self._wait("scheduler", spec, [last])
        self.login = login.facts
        people = People(
            f"{name}-people",
            access=cloud.cluster.access,
            people=payload.people(config),
            pace=cloud.cloud.pace,
            after=cloud.filesystems.ids[JAIL],
            opts=pulumi.ResourceOptions(parent=self, depends_on=[scheduler]),
        )
        cloud.teardown("charts", [*installed, people, login], parent=self)
        self.ready = pulumi.Output.all(people.id, login.id)
        self.register_outputs({"address": self.login})

    def _wait(
        self, kind: str, spec: Mapping[str, Any], after: Sequence[pulumi.Resource], seconds: int | None = None
    ) -> Wait:
        return self._cloud.wait(
            kind, kind, spec, after=after, changed=digest(self._releases), seconds=seconds, parent=self
        )

    def _secrets(self) -> Mapping[tuple[str, str], Mapping[str, pulumi.Input[str]]]:
        backups = self._cloud.backups
        if backups is None:
            return {}
        texts = {
            "aws-access-key-id": backups.key_id,
            "aws-access-secret-key": backups.secret,
            "backup-password": backups.password,
        }
        return {(self._cloud.cloud.config.name, BACKUP_SECRET): texts}


def facts(infrastructure: Infrastructure) -> Facts:
    """What the charts' values carry of the cloud."""
    backups = infrastructure.backups
    own = infrastructure.admin.public_key_openssh.apply(str.strip)
    return Facts(
        root_keys=[own, *infrastructure.cloud.settings.login.root_keys],
        allocation=infrastructure.address.allocation_id,
        backups={"name": backups.bucket, "endpoint": backups.endpoint} if backups else {},
    )


def digest(releases: Sequence[Release]) -> pulumi.Output[str]:
    """A hash of what the charts are given: whatever it changes has to come up again."""
    given = [{"name": one.name, "version": one.version, "values": dict(one.values)} for one in releases]
    return pulumi.Output.json_dumps(given, sort_keys=True).apply(
        lambda text: hashlib.sha256(text.encode()).hexdigest()[:16]
    )


def _gpus(machine: MachineSpec) -> int:
    return machine.gpu.count if machine.gpu else 0
