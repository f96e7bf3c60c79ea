"""Resources on Nebius: subnet, file systems, Kubernetes, node groups, NVIDIA's operators, address, backups."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pulumi
import pulumi_random as random
import pulumi_tls as tls
from pulumi.dynamic import CreateResult, ReadResult

from cluster.config import ClusterConfig
from cluster.platforms.nebius import request
from cluster.platforms.nebius.kubectl import PORTABLE_COMMAND, kubeconfig, server_url
from cluster.platforms.nebius.names import MONITORING_NAMESPACE
from cluster.platforms.nebius.node_groups import NodeGroup, filesystems, node_groups, shape
from cluster.platforms.nebius.releases import Facts, releases
from cluster.platforms.nebius.section import backs_up, settings_of
from components.dynamic import Action, ActionProvider, given, without_traceback
from components.nebius import waits
from components.nebius.api.client import NebiusError
from components.nebius.chart_sources import ChartVersions, charts_of
from components.nebius.drain import Drain, Partitions
from components.nebius.node_groups import GpuClusters, NodeGroups, NodeGroupsArgs, Operators
from components.nebius.preflight import Preflight
from components.nebius.resource import Cloud, NebiusResource, shortened
from components.nebius.teardown import Leftovers, Teardown
from components.nebius.waits import Wait


class FirstSubnetProvider(ActionProvider):
    """Finds a subnet once; the stack keeps its id, whatever subnets come later. Another project has others."""

    LEAVES_NOTHING = False
    PLACE = ("project",)
    ACTED_ON = ("endpoint",)

    def create(self, props: dict[str, Any]) -> CreateResult:
        from components.nebius.api import objects

        with without_traceback(NebiusError):
            return CreateResult(objects.first_subnet(props["project"], props["endpoint"]), given(props))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        from components.nebius.api import objects

        with without_traceback(NebiusError):
            there = objects.exists("Subnet", id_, props["endpoint"])
        return ReadResult(id_ if there else "", given(props))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Do nothing: the subnet was there before."""


class FirstSubnet(Action, module="nebius", name="FirstSubnet"):
    """A lookup; its id is the subnet's. Inputs: `project`, `endpoint`."""

    PROVIDER = FirstSubnetProvider


class Network(pulumi.ComponentResource):
    """The subnet that everything is created in."""

    subnet_id: pulumi.Output[str]

    def __init__(self, name: str, cloud: Cloud, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:Network", name, {}, opts)
        settings = cloud.settings
        child = pulumi.ResourceOptions(parent=self)
        if settings.subnet == "create":
            network = cloud.resource("Network", f"{name}-vpc", {}, called=cloud.config.name, opts=child)
            subnet = cloud.resource(
                "Subnet",
                f"{name}-subnet",
                # The network's own pools: private addresses that it has by default.
                {"network_id": network.id, "ipv4_private_pools": {"use_network_pools": True}},
                called=cloud.config.name,
                opts=child,
            )
            self.subnet_id = subnet.id
        elif settings.subnet:
            self.subnet_id = pulumi.Output.from_input(settings.subnet)
        else:
            found = FirstSubnet(
                f"{name}-first",
                project=settings.project,
                endpoint=settings.endpoint,
                opts=pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=list(cloud.after))),
            )
            self.subnet_id = found.id
        self.register_outputs({"subnet_id": self.subnet_id})


class LoginAddress(pulumi.ComponentResource):
    """An address that stays while the Service is created again; none for a Service that is not public."""

    allocation_id: pulumi.Output[str] | None = None
    address: pulumi.Output[str] | None = None

    def __init__(
        self, name: str, cloud: Cloud, subnet_id: pulumi.Input[str], *, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("hpc:nebius:LoginAddress", name, {}, opts)
        login = cloud.settings.login
        if login.service == "LoadBalancer" and login.exposure == "public":
            made = cloud.resource(
                "Allocation",
                f"{name}-allocation",
                {"ipv4_public": {"cidr": "/32", "subnet_id": subnet_id}},
                called=shortened(cloud.config.name, "static-ip"),
                opts=pulumi.ResourceOptions(parent=self),
            )
            self.allocation_id = made.id
            self.address = made.status.apply(lambda status: status["details"]["allocated_cidr"].partition("/")[0])
        self.register_outputs({"address": self.address})


class Filesystems(pulumi.ComponentResource):
    """File systems by their mount tag."""

    ids: Mapping[str, pulumi.Output[str]]

    def __init__(self, name: str, cloud: Cloud, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:Filesystems", name, {}, opts)
        ids: dict[str, pulumi.Output[str]] = {}
        for tag, section in filesystems(cloud.settings).items():
            if section.spec is None:
                ids[tag] = pulumi.Output.from_input(section.existing or "")
                continue
            made = cloud.resource(
                "Filesystem",
                f"{name}-{tag}",
                {
                    "type": "NETWORK_SSD",
                    "size_gibibytes": section.spec.size_gib,
                    "block_size_bytes": section.spec.block_kib * 1024,
                },
                called=shortened(cloud.config.name, tag),
                opts=pulumi.ResourceOptions(parent=self, retain_on_delete=cloud.config.deletion_protection),
            )
            ids[tag] = made.id
        self.ids = ids
        self.register_outputs({"ids": ids})


ROLE = "storage.object-editor"
"""The service account's role for the bucket; it has no other."""


class Backups(pulumi.ComponentResource):
    """The bucket, the service account in a group of its own, and its access key."""

    bucket: pulumi.Output[str]
    """The bucket's name, once it and the permission are there."""
    endpoint: pulumi.Output[str]
    """URL of the object storage."""
    key_id: pulumi.Output[str]
    secret: pulumi.Output[str]
    password: pulumi.Output[str]
    """The password that encrypts backups."""

    def __init__(self, name: str, cloud: Cloud, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:Backups", name, {}, opts)
        child = pulumi.ResourceOptions(parent=self)
        kept = cloud.config.deletion_protection
        # Names of buckets are unique among all customers of a region; and a bucket that stayed after a destroy must not
        # be in the way of the next stack. A group of the project takes no right at the tenant.
        called = cloud.owner.apply(lambda owner: shortened(cloud.config.name, f"backups-{owner[:8]}"))
        bucket = cloud.resource(
            "Bucket",
            f"{name}-bucket",
            {"versioning_policy": "DISABLED"},
            called=called,
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=kept),
        )
        account = cloud.resource(
            "ServiceAccount",
            f"{name}-account",
            {"description": f"backups of {cloud.config.name}"},
            called=shortened(cloud.config.name, "backup-sa"),
            opts=child,
        )
        group = cloud.resource("Group", f"{name}-group", {}, called=called, opts=child)
        member = cloud.resource(
            "GroupMembership", f"{name}-membership", {"member_id": account.id}, parent_id=group.id, opts=child
        )
        permit = cloud.resource(
            "AccessPermit", f"{name}-permit", {"resource_id": bucket.id, "role": ROLE}, parent_id=group.id, opts=child
        )
        key = cloud.resource(
            "AccessKey",
            f"{name}-key",
            {"account": {"service_account": {"id": account.id}}, "secret_delivery_mode": "INLINE"},
            called=called,
            opts=pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=[member, permit])),
        )
        self.bucket = pulumi.Output.all(called, key.id).apply(lambda found: found[0])
        self.endpoint = bucket.status.apply(lambda status: f"https://{status['domain_name']}:443")
        self.key_id = key.status.apply(lambda status: status["aws_access_key_id"])
        self.secret = pulumi.Output.secret(key.secret.apply(lambda secret: secret or ""))
        self.password = random.RandomPassword(f"{name}-password", length=40, special=False, opts=child).result
        self.register_outputs({"bucket": self.bucket})


class KubernetesCluster(pulumi.ComponentResource):
    """The control plane."""

    resource: NebiusResource
    access: pulumi.Output[dict[str, Any]]
    """`server`, `certificate_authority`, `command`, `context`, `namespace`: the stack's output `kubernetes`.

    The command prints a credential when kubectl or Helm asks for one; there is no token in it. None is this program."""
    kubeconfig: pulumi.Output[str]

    def __init__(
        self, name: str, cloud: Cloud, subnet_id: pulumi.Input[str], *, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("hpc:nebius:KubernetesCluster", name, {}, opts)
        settings = cloud.settings
        self.resource = cloud.resource(
            "Cluster",
            f"{name}-mk8s",
            {
                "control_plane": {
                    "subnet_id": subnet_id,
                    "version": settings.kubernetes.version,
                    "etcd_cluster_size": settings.kubernetes.etcd_size,
                    "endpoints": {"public_endpoint": {}},
                }
            },
            called=cloud.config.name,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.access = self.resource.status.apply(
            lambda status: access(status, cloud.config.name, list(settings.token_command))
        )
        self.kubeconfig = self.access.apply(
            lambda found: kubeconfig(**(found | {"command": found["command"] or PORTABLE_COMMAND}))
        )
        self.register_outputs({"id": self.resource.id})


def access(status: Mapping[str, Any], name: str, command: list[str]) -> dict[str, Any]:
    """Return how a cluster is reached, from the status of its resource."""
    plane = status["control_plane"]
    return {
        "server": server_url(plane["endpoints"]["public_endpoint"]),
        "certificate_authority": plane["auth"]["cluster_ca_certificate"],
        "command": command,
        "context": f"nebius-{name}",
        "namespace": name,
    }


class Infrastructure(pulumi.ComponentResource):
    """A Kubernetes cluster that Soperator can be installed in, with all that it needs around it."""

    cloud: Cloud
    admin: tls.PrivateKey
    """The operator's key: root on login pods."""
    filesystems: Filesystems
    cluster: KubernetesCluster
    groups: Sequence[NodeGroup]
    nodesets: Mapping[str, Mapping[str, object]]
    """`count` of each nodeset, `shape`, a hash of what its nodes are made of (another one recreates them), and
    `static`, if it is elastic."""
    address: LoginAddress
    backups: Backups | None = None
    api: Wait
    """The API server answers."""
    nodes: Wait
    """Nodes are Ready and advertise their GPUs."""
    volumes: Teardown
    """Is deleted after all charts and before all nodes."""
    operators: Operators

    def __init__(self, name: str, config: ClusterConfig, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:Infrastructure", name, {}, opts)
        settings = settings_of(config)
        self._name, self._child = name, pulumi.ResourceOptions(parent=self)
        self.admin = tls.PrivateKey(f"{name}-admin", algorithm="ED25519", opts=self._child)
        owner = random.RandomId(f"{name}-owner", byte_length=8, opts=self._child)
        self.cloud = Cloud(config=config, settings=settings, owner=owner.hex)
        # Before anything is created; what the cloud will know makes no other chart.
        planned = releases(
            config, Facts(root_keys=(), backups={"name": "", "endpoint": ""} if backs_up(settings) else {})
        )
        # Charts of a rehearsal take any value.
        rows = charts_of(planned, {} if settings.endpoint else settings.values)
        charts = ChartVersions(f"{name}-chart-versions", charts=rows, opts=self._child)
        asked = Preflight(
            f"{name}-preflight",
            tenant=settings.tenant,
            project=settings.project,
            region=settings.region,
            request=request.request(config, settings),
            command=list(settings.token_command),
            endpoint=settings.endpoint,
            opts=self._child,
        )
        self.cloud = replace(self.cloud, after=[asked, charts, self._leftovers()])
        subnet = Network(f"{name}-network", self.cloud, opts=self._child).subnet_id
        self.filesystems = Filesystems(f"{name}-fs", self.cloud, opts=self._child)
        self.address = LoginAddress(f"{name}-login", self.cloud, subnet, opts=self._child)
        self.cluster = KubernetesCluster(f"{name}-kubernetes", self.cloud, subnet, opts=self._child)
        self.api = self.wait("api", {}, seconds=waits.API_SECONDS)
        gpu_clusters = GpuClusters(f"{name}-gpu", self.cloud, opts=self._child)
        self.groups = node_groups(config, settings)
        self.nodesets = {
            nodeset: {
                "count": section.most,
                "shape": shape(config, settings, nodeset),
                **({"static": section.static} if section.elastic else {}),
            }
            for nodeset, section in config.nodesets.items()
        }
        limits = {"access": self.cluster.access, "seconds": config.slurm.drain_seconds, "pace": self.cloud.pace}
        drain = Drain(f"{name}-drain", nodesets=self.nodesets, **limits, opts=self._child)
        partitions = Partitions(f"{name}-partitions", partitions=list(config.partitions), **limits, opts=self._child)
        made = NodeGroups(
            f"{name}-nodes",
            NodeGroupsArgs(
                cloud=self.cloud,
                groups=self.groups,
                cluster_id=self.cluster.resource.id,
                subnet_id=subnet,
                filesystems=self.filesystems.ids,
                gpu_clusters=gpu_clusters.of,
                after=[drain, partitions],
            ),
            opts=self._child,
        )
        self.operators = Operators(
            f"{name}-nvidia",
            self.cloud,
            self.cluster.resource.id,
            gpus=any(group.gpus for group in self.groups),
            after=[self.api, *made.of.values()],
            opts=self._child,
        )
        self.volumes = self.teardown("volumes", [self.api, *made.of.values(), *self.operators.ready])
        rows = [
            {
                "name": group.name,
                "id": made.of[group.name].id,
                "count": request.initial_count(group),
                "gpus": group.gpus,
            }
            for group in self.groups
        ]
        # Nodes that were recreated are waited for again.
        shapes = {nodeset: row["shape"] for nodeset, row in self.nodesets.items()}
        self.nodes = self.wait("nodes", {"groups": rows, "shapes": shapes}, after=[self.api, self.volumes])
        if backs_up(settings):
            self.backups = Backups(f"{name}-backups", self.cloud, opts=self._child)
        self.register_outputs({})

    def wait(
        self,
        kind: str,
        spec: Mapping[str, object],
        *,
        after: Sequence[pulumi.Resource] = (),
        changed: pulumi.Input[str] = "",
        seconds: int | None = None,
        parent: pulumi.Resource | None = None,
    ) -> Wait:
        """A wait for a kind of `waits.KINDS`; done again when `spec` or `changed` differ."""
        return Wait(
            f"{self._name}-wait-{kind}",
            kind=kind,
            access=self.cluster.access,
            spec=spec,
            seconds=seconds or self.cloud.settings.timeouts.available,
            pace=self.cloud.pace,
            after=changed,
            opts=pulumi.ResourceOptions(parent=parent or self, depends_on=list(after)),
        )

    def teardown(self, stage: str, after: Sequence[pulumi.Resource], parent: pulumi.Resource | None = None) -> Teardown:
        """Return what is deleted before all of `after`."""
        return Teardown(
            f"{self._name}-teardown-{stage}",
            stage=stage,
            access=self.cluster.access,
            cluster_id=self.cluster.resource.id,
            endpoint=self.cloud.settings.endpoint,
            pace=self.cloud.pace,
            opts=pulumi.ResourceOptions(parent=parent or self, depends_on=list(after)),
        )

    def _leftovers(self) -> Leftovers:
        config, settings = self.cloud.config, self.cloud.settings
        return Leftovers(
            f"{self._name}-leftovers",
            tenant=settings.tenant,
            project=settings.project,
            cluster=config.name,
            owner=self.cloud.owner,
            namespaces=[config.name, *([MONITORING_NAMESPACE] if config.monitoring else [])],
            keep=config.deletion_protection,
            existing={tag: section.existing for tag, section in filesystems(settings).items() if section.existing},
            endpoint=settings.endpoint,
            opts=self._child,
        )
