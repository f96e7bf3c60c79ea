"""The platform `nebius`: managed Kubernetes, and Slurm in pods that Soperator runs."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import pulumi
from pulumi_kubernetes import Provider
from pulumi_kubernetes.core.v1 import ConfigMap, Namespace, Secret
from pulumi_kubernetes.helm.v3 import Release as HelmRelease
from pulumi_kubernetes.helm.v3 import RepositoryOptsArgs
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from cluster.config import ClusterConfig
from cluster.platforms.nebius import monitoring
from cluster.platforms.nebius.names import MONITORING_NAMESPACE
from cluster.platforms.nebius.node_groups import JAIL
from cluster.platforms.nebius.releases import BACKUP_SECRET, ChartRelease, CloudFacts, charts_of, releases
from cluster.roster import elastic_names, machines
from cluster.slurm.script_tree import Tree
from components.deploy import Deployment, config_text, monitoring_secrets
from components.nebius.chart_sources import Definitions
from components.nebius.infrastructure import Infrastructure
from components.nebius.kubectl import LOGIN, pod_of
from components.nebius.people import People, people, program_hash
from components.nebius.poll import PACE
from components.nebius.resource import NebiusResource
from components.nebius.waits import Wait


class Charts(pulumi.ComponentResource):
    """Helm releases, each installed by `install`."""

    of: dict[str, HelmRelease]
    """The installed releases, by name."""

    def __init__(
        self,
        name: str,
        cluster: NebiusResource,
        kubeconfig: pulumi.Input[str],
        *,
        namespaces: Iterable[str],
        secrets: Mapping[tuple[str, str], Mapping[str, pulumi.Input[str]]],
        dashboards: Mapping[str, str],
        after: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`secrets`: texts by key, by namespace and name of the Secret. `dashboards`: Grafana's JSON, by the name of
        its ConfigMap. `after`: what everything waits for."""
        super().__init__("hpc:nebius:Charts", name, {}, opts)
        self._name, self.of = name, {}
        provider = Provider(
            f"{name}-provider",
            kubeconfig=kubeconfig,
            # Only another cluster replaces the objects in it: not another certificate or address of the same cluster,
            # nor a kubeconfig that is unknown in a preview.
            cluster_identifier=cluster.id,
            # A killed `up` may have created a namespace without a record in the state. A create takes over an object
            # that exists, unless another manager set one of its fields to another value (pulumi-kubernetes 4.32.0).
            upsert_existing_objects=True,
            opts=pulumi.ResourceOptions(parent=self),
        )
        # Objects in a cluster are deleted with it.
        self._child = pulumi.ResourceOptions(parent=self, provider=provider)
        child = pulumi.ResourceOptions.merge(self._child, pulumi.ResourceOptions(deleted_with=cluster))
        self._namespaces = {
            namespace: Namespace(
                f"{name}-{namespace}", metadata=ObjectMetaArgs(name=namespace), opts=_after(child, after)
            )
            for namespace in dict.fromkeys(namespaces)
        }
        self._secrets = [
            Secret(
                f"{name}-{secret}",
                metadata=ObjectMetaArgs(name=secret, namespace=namespace),
                string_data={key: pulumi.Output.secret(text) for key, text in texts.items()},
                opts=_after(child, [self._namespaces[namespace]]),
            )
            for (namespace, secret), texts in secrets.items()
        ]
        for title, text in dashboards.items():
            ConfigMap(
                f"{name}-dashboard-{title}",
                metadata=ObjectMetaArgs(name=title, namespace=MONITORING_NAMESPACE, labels={"grafana_dashboard": "1"}),
                data={f"{title}.json": text},
                opts=_after(child, [self._namespaces[MONITORING_NAMESPACE]]),
            )
        self.register_outputs({})

    def install(self, release: ChartRelease, after: Sequence[pulumi.Resource] = ()) -> None:
        """Install a release after those that it needs, for which this was called before."""
        remote = release.repo.startswith(("https://", "http://"))
        chart = release.chart if remote else f"{release.repo.rstrip('/')}/{release.chart}"
        needs = [self.of[need] for need in release.needs]
        # Longer than Helm's own timeout, so that Helm's error is shown.
        limit = f"{release.timeout + 120}s"
        timeouts = pulumi.CustomTimeouts(create=limit, update=limit, delete="20m")
        child = pulumi.ResourceOptions.merge(self._child, pulumi.ResourceOptions(custom_timeouts=timeouts))
        self.of[release.name] = HelmRelease(
            f"{self._name}-{release.name}",
            name=release.name,
            chart=chart,
            version=release.version,
            repository_opts=RepositoryOptsArgs(repo=release.repo) if remote else None,
            namespace=release.namespace,
            values=dict(release.values),
            # Both engines run Helm in the project's folder.
            postrender=f"./{release.post_renderer}" if release.post_renderer else None,
            timeout=release.timeout,
            # The objects of a failed release stay for the next run.
            atomic=False,
            cleanup_on_fail=False,
            wait_for_jobs=True,
            disable_webhooks=not release.hooks,
            # disable_webhooks is for installations, this one for upgrades (pulumi-kubernetes, helmUpdate).
            disable_crd_hooks=not release.hooks,
            opts=_after(child, [*needs, *after, *self._secrets, self._namespaces[release.namespace]]),
        )


def _after(options: pulumi.ResourceOptions, resources: Sequence[pulumi.Resource]) -> pulumi.ResourceOptions:
    return pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(depends_on=[*resources]))


OPERATOR, CLUSTER, NODESETS = "soperator", "slurm-cluster", "nodesets"
"""Names of releases."""


class SlurmInPods(pulumi.ComponentResource):
    """A running Slurm cluster: the SlurmCluster is Available, its NodeSets are full, and Slurm has all nodes."""

    login: pulumi.Output[dict[str, Any]]
    """`address` and `port` that users log in at."""
    ready: pulumi.Output[Any]
    """Known once everything runs."""

    def __init__(
        self, name: str, infrastructure: Infrastructure, *, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("hpc:nebius:Slurm", name, {}, opts)
        self._name, self._infrastructure = name, infrastructure
        cloud = infrastructure.cloud
        config, settings = cloud.config, cloud.settings
        self._releases = releases(config, facts(infrastructure))
        child = pulumi.ResourceOptions(parent=self)
        self._charts = Charts(
            f"{name}-charts",
            infrastructure.cluster.resource,
            infrastructure.cluster.kubeconfig,
            namespaces=[config.name, *(release.namespace for release in self._releases)],
            secrets=self._secrets(),
            dashboards=monitoring.files(config),
            after=[infrastructure.api],
            opts=child,
        )
        self._waits: dict[str, Wait] = {}
        for release in self._releases:
            after = [resource for condition in release.after for resource in self._after(condition)]
            if release.name == OPERATOR:
                (chart,) = charts_of([release])
                options = pulumi.ResourceOptions(parent=self, depends_on=[infrastructure.api])
                access = infrastructure.cluster.access
                after.append(Definitions(f"{name}-definitions", chart=chart, access=access, opts=options))
            self._charts.install(release, after)
        powered = {name: [section.static, section.most] for name, section in config.nodesets.items() if section.elastic}
        elastic = [name for nodeset in powered for name in elastic_names(config, nodeset)]
        roster = [machine for machine in machines(config) if "node" in machine.roles]
        spec = {
            "nodes": {machine.name: machine.gpu.count if machine.gpu else 0 for machine in roster},
            "nodesets": list(config.nodesets),
            **({"elastic": elastic, "powered": powered} if powered else {}),
            # With the shapes, so that recreated nodes are waited for again.
            "shapes": {name: row["shape"] for name, row in infrastructure.nodesets.items()},
        }
        scheduler = self._wait("scheduler", spec, [self._wait("available"), self._charts.of[NODESETS]])
        # Soperator creates the Service once the jail is populated, which may take longer than the address.
        login = self._wait(
            "login", {"type": settings.login.service}, [self._wait("available")], settings.timeouts.login
        )
        self.login = login.facts
        infrastructure.teardown("charts", [*self._charts.of.values(), self._people, login], parent=self)
        self.ready = pulumi.Output.all(self._people.id, login.id, scheduler.id)
        self.register_outputs({"address": self.login})

    @cached_property
    def _people(self) -> People:
        """Users and accounts. They need login pods, and come before the checks, whose user has an account as well."""
        infrastructure = self._infrastructure
        return People(
            f"{self._name}-people",
            access=infrastructure.cluster.access,
            people=people(infrastructure.cloud.config),
            program=program_hash(),
            pace=PACE,
            after=infrastructure.filesystems.ids[JAIL],
            opts=pulumi.ResourceOptions(parent=self, depends_on=[self._wait("available")]),
        )

    def _after(self, condition: str) -> Sequence[pulumi.Resource]:
        """Return the resources of a condition of `Release.after`."""
        infrastructure = self._infrastructure
        if condition == "nodes":
            return [infrastructure.nodes, infrastructure.volumes]
        return [self._people if condition == "people" else self._wait(condition)]

    def _wait(
        self,
        kind: str,
        spec: Mapping[str, Any] | None = None,
        after: Sequence[pulumi.Resource] | None = None,
        seconds: int | None = None,
    ) -> Wait:
        """Return the wait of a kind, which is registered once."""
        if kind not in self._waits:
            if after is None:
                after = [self._wait("populated") if kind == "available" else self._charts.of[CLUSTER]]
            self._waits[kind] = self._infrastructure.wait(
                kind,
                {"cluster": self._infrastructure.cloud.config.name, **(spec or {})},
                after=after,
                changed=digest(self._releases),
                seconds=seconds,
                parent=self,
            )
        return self._waits[kind]

    def _secrets(self) -> Mapping[tuple[str, str], Mapping[str, pulumi.Input[str]]]:
        backups, config = self._infrastructure.backups, self._infrastructure.cloud.config
        secrets: dict[tuple[str, str], Mapping[str, pulumi.Input[str]]] = {}
        if backups:
            secrets[config.name, BACKUP_SECRET] = {
                "aws-access-key-id": backups.key_id,
                "aws-access-secret-key": backups.secret,
                "backup-password": backups.password,
            }
        if alerts := monitoring_secrets(config):
            texts = {name.removeprefix("hpc:"): text for name, text in alerts.items()}
            secrets[MONITORING_NAMESPACE, monitoring.SECRET] = texts
        return secrets


def facts(infrastructure: Infrastructure) -> CloudFacts:
    """Return the facts of the cloud for the charts' values."""
    backups = infrastructure.backups
    stack_key = infrastructure.admin.public_key_openssh.apply(str.strip)
    return CloudFacts(
        stack=pulumi.get_stack(),
        root_keys=[stack_key, *infrastructure.cloud.settings.login.root_keys],
        allocation=infrastructure.address.allocation_id,
        backups={"name": backups.bucket, "endpoint": backups.endpoint} if backups else {},
    )


def digest(releases: Sequence[ChartRelease]) -> pulumi.Output[str]:
    """Return a hash of the releases; a change of it starts the waits again."""
    given = [{"name": release.name, "version": release.version, "values": dict(release.values)} for release in releases]
    # Output.json_dumps would create an output for each of some thousand values, of which a few are outputs.
    outputs: list[pulumi.Output[Any]] = []
    json.dumps(given, sort_keys=True, default=outputs.append)

    def hash_of(known: Sequence[Any]) -> str:
        values = iter(known)
        text = json.dumps(given, sort_keys=True, default=lambda _: next(values))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    return pulumi.Output.all(*outputs).apply(hash_of)


def deploy(config: ClusterConfig, scripts: Tree) -> Deployment:
    """Deploy a cluster. `scripts` are not used: Soperator has prologs and epilogs of its own."""
    del scripts
    monitoring_secrets(config)  # a missing secret stops the run before anything is registered
    platform = NebiusPlatform(config.name, config)
    cloud, slurm = platform.infrastructure, platform.slurm
    kubernetes = cloud.cluster
    elastic = {name: ("node",) for nodeset in config.nodesets for name in elastic_names(config, nodeset)}
    return Deployment(
        login=LOGIN.name,
        targets=targets(config.name, {machine.name: machine.roles for machine in machines(config)}),
        config=slurm.ready.apply(lambda _: config_text(config)),
        outputs={
            **({"elastic": targets(config.name, elastic)} if elastic else {}),
            "kubernetes": kubernetes.access,
            "address": slurm.login.apply(lambda login: login["address"]),
            "port": slurm.login.apply(lambda login: int(login["port"])),
            "ssh": slurm.login.apply(ssh_command),
            "kubeconfig": kubernetes.kubeconfig,
            "admin_key": cloud.admin.private_key_openssh,
            "filesystems": cloud.filesystems.ids,
        },
    )


class NebiusPlatform(pulumi.ComponentResource):
    """A cluster on Nebius: Kubernetes with the resources that it needs, and Slurm in its pods."""

    infrastructure: Infrastructure
    slurm: SlurmInPods

    def __init__(self, name: str, config: ClusterConfig, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:NebiusPlatform", name, {}, opts)
        # Existing clusters have both without a parent. With the alias nothing of them is replaced.
        child = pulumi.ResourceOptions(parent=self, aliases=[pulumi.Alias(parent=pulumi.ROOT_STACK_RESOURCE)])
        self.infrastructure = Infrastructure(name, config, opts=child)
        self.slurm = SlurmInPods(name, self.infrastructure, opts=child)
        self.register_outputs({"ready": self.slurm.ready})


def targets(namespace: str, roles: Mapping[str, Sequence[str]]) -> dict[str, Mapping[str, Any]]:
    """Return rows of the output `targets` for the pods of machines, whose `roles` are given by name."""
    return {name: pod_of(name, its_roles).target(its_roles, namespace) for name, its_roles in roles.items()}


def ssh_command(login: Mapping[str, Any]) -> str:
    """Return the command that logs in as root with a key of nebius.login.root_keys."""
    port = "" if login["port"] == 22 else f"-p {login['port']:.0f} "
    return f"ssh {port}root@{login['address']}"
