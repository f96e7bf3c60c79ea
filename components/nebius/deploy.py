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
from cluster.platforms.nebius.releases import BACKUP_SECRET, Facts, Release, releases
from cluster.roster import MachineSpec, elastic_names, machines
from cluster.slurm.script_tree import Tree
from components.deploy import Deployment, config_text, monitoring_secrets
from components.nebius.chart_sources import Definitions, charts_of
from components.nebius.infrastructure import Infrastructure
from components.nebius.kubectl import LOGIN, pod_of
from components.nebius.people import People, people, program_hash
from components.nebius.resource import NebiusResource
from components.nebius.waits import Wait

DELETE_TIMEOUT = "20m"
"""Time for the removal of a chart's objects: Teardown has ended what could hold them up."""
_SLACK = 120
"""Seconds that the engine waits longer than Helm, so that Helm's own error is shown."""


class Charts(pulumi.ComponentResource):
    """Helm releases, each installed by `install`."""

    of: dict[str, HelmRelease]
    """Charts that were installed, by the release's name."""

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
        """`secrets`: texts by key, of each Secret by namespace and name. `dashboards`: Grafana's JSON, by the name of
        its ConfigMap. `after`: what everything waits for."""
        super().__init__("hpc:nebius:Charts", name, {}, opts)
        self._name, self.of = name, {}
        provider = Provider(
            f"{name}-provider",
            kubeconfig=kubeconfig,
            # Only another cluster replaces what is in it: not another certificate or address of the same one, nor a
            # kubeconfig that a preview does not know.
            cluster_identifier=cluster.id,
            # A killed `up` may have created a namespace that the state does not have.
            upsert_existing_objects=True,
            opts=pulumi.ResourceOptions(parent=self),
        )
        # What is in a cluster is deleted with it.
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

    def install(self, release: Release, after: Sequence[pulumi.Resource] = ()) -> None:
        """Install a release, after those that it needs, which are installed before."""
        remote = release.repo.startswith(("https://", "http://"))
        chart = release.chart if remote else f"{release.repo.rstrip('/')}/{release.chart}"
        needs = [self.of[need] for need in release.needs if need in self.of]
        limit = f"{release.timeout + _SLACK}s"
        timeouts = pulumi.CustomTimeouts(create=limit, update=limit, delete=DELETE_TIMEOUT)
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
            # What has come up stays for the next run, and a failed Job fails the release.
            atomic=False,
            cleanup_on_fail=False,
            wait_for_jobs=True,
            disable_webhooks=not release.hooks,
            # The one above is for installations, this one for upgrades (pulumi-kubernetes, helmUpdate).
            disable_crd_hooks=not release.hooks,
            opts=_after(child, [*needs, *after, *self._secrets, self._namespaces[release.namespace]]),
        )


def _after(options: pulumi.ResourceOptions, resources: Sequence[pulumi.Resource]) -> pulumi.ResourceOptions:
    return pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(depends_on=[*resources]))


OPERATOR, CLUSTER, NODESETS = "soperator", "slurm-cluster", "nodesets"
"""Names of releases."""


class Slurm(pulumi.ComponentResource):
    """A running Slurm cluster: the SlurmCluster is Available, its NodeSets are full, and Slurm has all nodes."""

    login: pulumi.Output[dict[str, Any]]
    """`address` and `port` that users log in at."""
    ready: pulumi.Output[Any]
    """Known when everything runs."""

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
            dashboards=monitoring.files(config) if config.monitoring else {},
            after=[infrastructure.api],
            opts=child,
        )
        self._waits: dict[str, Wait] = {}
        for release in self._releases:
            after = [resource for word in release.after for resource in self._after(word)]
            if release.name == OPERATOR:
                (chart,) = charts_of([release])
                options = pulumi.ResourceOptions(parent=self, depends_on=[infrastructure.api])
                access = infrastructure.cluster.access
                after.append(Definitions(f"{name}-definitions", chart=chart, access=access, opts=options))
            self._charts.install(release, after)
        last = self._wait("available")
        wanted = {nodeset: section.static for nodeset, section in config.nodesets.items() if section.most}
        most = {nodeset: section.most for nodeset, section in config.nodesets.items() if section.elastic}
        elastic = {nodeset: list(elastic_names(config, nodeset)) for nodeset in most}
        replicas = {"replicas": wanted, **({"most": most} if most else {})}
        last = self._wait("nodesets", replicas, [last, *self._installed(NODESETS)])
        nodes = {machine.name: _gpus(machine) for machine in machines(config) if "node" in machine.roles}
        # Stand-ins of a rehearsal have no GPUs that could be counted.
        spec = {
            "nodes": nodes,
            "nodesets": list(config.nodesets),
            **({"elastic": [name for names in elastic.values() for name in names]} if elastic else {}),
            "count_gpus": not settings.endpoint,
            # Nodes that were recreated are waited for again, and resumed.
            "shapes": {name: row["shape"] for name, row in infrastructure.nodesets.items()},
        }
        scheduler = self._wait("scheduler", spec, [last])
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
        """Users and accounts, once there are login pods: before the checks, whose user has an account as well."""
        infrastructure = self._infrastructure
        return People(
            f"{self._name}-people",
            access=infrastructure.cluster.access,
            people=people(infrastructure.cloud.config),
            program=program_hash(),
            pace=infrastructure.cloud.pace,
            after=infrastructure.filesystems.ids[JAIL],
            opts=pulumi.ResourceOptions(parent=self, depends_on=[self._wait("available")]),
        )

    def _after(self, word: str) -> Sequence[pulumi.Resource]:
        infrastructure = self._infrastructure
        if word == "nodes":
            return [infrastructure.nodes, infrastructure.volumes]
        if word == "gpu":
            return [infrastructure.nodes, *infrastructure.operators.ready]
        if word == "people":
            return [self._people]
        return [self._wait(word)]

    def _installed(self, name: str) -> Sequence[pulumi.Resource]:
        return [self._charts.of[name]] if name in self._charts.of else []

    def _wait(
        self,
        kind: str,
        spec: Mapping[str, Any] | None = None,
        after: Sequence[pulumi.Resource] | None = None,
        seconds: int | None = None,
    ) -> Wait:
        """A wait for something of the cluster's, registered once."""
        if kind not in self._waits:
            if after is None:
                after = [self._wait("populated")] if kind == "available" else self._installed(CLUSTER)
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
        found: dict[tuple[str, str], Mapping[str, pulumi.Input[str]]] = {}
        if backups:
            found[config.name, BACKUP_SECRET] = {
                "aws-access-key-id": backups.key_id,
                "aws-access-secret-key": backups.secret,
                "backup-password": backups.password,
            }
        if alerts := monitoring_secrets(config):
            texts = {name.removeprefix("hpc:"): text for name, text in alerts.items()}
            found[MONITORING_NAMESPACE, monitoring.SECRET] = texts
        return found


def facts(infrastructure: Infrastructure) -> Facts:
    """Return what the charts' values carry of the cloud."""
    backups = infrastructure.backups
    own = infrastructure.admin.public_key_openssh.apply(str.strip)
    return Facts(
        root_keys=[own, *infrastructure.cloud.settings.login.root_keys],
        allocation=infrastructure.address.allocation_id,
        backups={"name": backups.bucket, "endpoint": backups.endpoint} if backups else {},
    )


def digest(releases: Sequence[Release]) -> pulumi.Output[str]:
    """A hash of what the charts are given: whatever it changes has to come up again."""
    given = [{"name": release.name, "version": release.version, "values": dict(release.values)} for release in releases]
    # Output.json_dumps would make an output of each of some thousand values, of which a few are outputs.
    outputs: list[pulumi.Output[Any]] = []
    json.dumps(given, sort_keys=True, default=outputs.append)

    def hashed(known: Sequence[Any]) -> str:
        rest = iter(known)
        text = json.dumps(given, sort_keys=True, default=lambda _: next(rest))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    return pulumi.Output.all(*outputs).apply(hashed)


def _gpus(machine: MachineSpec) -> int:
    return machine.gpu.count if machine.gpu else 0


def deploy(config: ClusterConfig, scripts: Tree) -> Deployment:
    """Deploy a cluster; Soperator has prologs and epilogs of its own, so there are no `scripts`."""
    del scripts
    monitoring_secrets(config)  # one that is missing stops the run before anything is registered
    platform = NebiusPlatform(config.name, config)
    cloud, slurm = platform.infrastructure, platform.slurm
    kubernetes = cloud.cluster
    sleeping = [name for nodeset in config.nodesets for name in elastic_names(config, nodeset)]
    roles = ("node",)
    elastic = {name: pod_of(name, roles).target(roles, config.name) for name in sleeping}
    return Deployment(
        login=LOGIN.name,
        targets=targets(config),
        config=slurm.ready.apply(lambda _: config_text(config)),
        outputs={
            **({"elastic": elastic} if elastic else {}),
            "kubernetes": kubernetes.access,
            "address": slurm.login.apply(lambda found: found["address"]),
            "port": slurm.login.apply(lambda found: int(found["port"])),
            "ssh": slurm.login.apply(ssh_command),
            "kubeconfig": kubernetes.kubeconfig,
            "admin_key": cloud.admin.private_key_openssh,
            "filesystems": cloud.filesystems.ids,
        },
    )


class NebiusPlatform(pulumi.ComponentResource):
    """A cluster on Nebius: Kubernetes with all that it needs around it, and Slurm in its pods."""

    infrastructure: Infrastructure
    slurm: Slurm

    def __init__(self, name: str, config: ClusterConfig, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:NebiusPlatform", name, {}, opts)
        # Clusters that are up have both without a parent: nothing of theirs is replaced.
        child = pulumi.ResourceOptions(parent=self, aliases=[pulumi.Alias(parent=pulumi.ROOT_STACK_RESOURCE)])
        self.infrastructure = Infrastructure(name, config, opts=child)
        self.slurm = Slurm(name, self.infrastructure, opts=child)
        self.register_outputs({"ready": self.slurm.ready})


def targets(config: ClusterConfig) -> Mapping[str, Mapping[str, Any]]:
    """Return how each pod of Slurm's is reached, by its name."""
    return {spec.name: pod_of(spec.name, spec.roles).target(spec.roles, config.name) for spec in machines(config)}


def ssh_command(login: Mapping[str, Any]) -> str:
    """The command that logs in as root, with a key of nebius.login.root_keys."""
    port = "" if login["port"] == 22 else f"-p {login['port']:.0f} "
    return f"ssh {port}root@{login['address']}"
