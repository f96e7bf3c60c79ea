"""Resources on Nebius: subnet, address, file systems, backups, Kubernetes, node groups, GPU clusters."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_random as random
import pulumi_tls as tls
from pulumi.dynamic import CreateResult, ReadResult

from cluster.config import ClusterConfig
from cluster.platforms.nebius import request
from cluster.platforms.nebius.kubectl import PORTABLE_COMMAND, kubeconfig, server_url
from cluster.platforms.nebius.names import MONITORING_NAMESPACE, shortened
from cluster.platforms.nebius.node_groups import NodeGroup, filesystems, node_groups, shape
from cluster.platforms.nebius.releases import CloudFacts, charts_of, releases
from cluster.platforms.nebius.stack_file_fields import Nebius, backs_up, settings_of
from components.dynamic import ActionProvider, ActionResource, given, without_traceback
from components.nebius import waits
from components.nebius.api import objects
from components.nebius.api.client import NebiusError
from components.nebius.backups import NebiusBackups
from components.nebius.chart_sources import ChartVersions
from components.nebius.drain_leaving import Drain, Partitions
from components.nebius.poll import PACE
from components.nebius.preflight import Preflight
from components.nebius.resource import NebiusPlace, NebiusResource
from components.nebius.teardown import Leftovers, Teardown
from components.nebius.waits import Wait


class FirstSubnetProvider(ActionProvider):
    """Looks up the project's first subnet once; the stack keeps its id, until the project is another one."""

    LEAVES_NOTHING = False
    PLACE = ("project",)

    def create(self, props: dict[str, Any]) -> CreateResult:
        with without_traceback(NebiusError):
            return CreateResult(objects.first_subnet(props["project"]), given(props))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        with without_traceback(NebiusError):
            exists = objects.exists("Subnet", id_)
        return ReadResult(id_ if exists else "", given(props))


class FirstSubnet(ActionResource, module="nebius", name="FirstSubnet"):
    """The lookup of a subnet, whose id it has. Input: `project`."""

    PROVIDER = FirstSubnetProvider


class NebiusNetwork(pulumi.ComponentResource):
    """The subnet that everything is created in."""

    subnet_id: pulumi.Output[str]

    def __init__(self, name: str, cloud: NebiusPlace, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:Network", name, {}, opts)
        settings = cloud.settings
        child = pulumi.ResourceOptions(parent=self)
        if settings.subnet == "create":
            network = cloud.resource("Network", f"{name}-vpc", {}, called=cloud.name, opts=child)
            subnet = cloud.resource(
                "Subnet",
                f"{name}-subnet",
                # The default private addresses of the network.
                {"network_id": network.id, "ipv4_private_pools": {"use_network_pools": True}},
                called=cloud.name,
                opts=child,
            )
            self.subnet_id = subnet.id
        elif settings.subnet:
            self.subnet_id = pulumi.Output.from_input(settings.subnet)
        else:
            self.subnet_id = FirstSubnet(
                f"{name}-first",
                project=settings.project,
                opts=pulumi.ResourceOptions(parent=self, depends_on=list(cloud.after)),
            ).id
        self.register_outputs({"subnet_id": self.subnet_id})


class LoginAddress(pulumi.ComponentResource):
    """A public address that is kept while the Service is recreated; none for a Service that is not public."""

    allocation_id: pulumi.Output[str] | None = None
    address: pulumi.Output[str] | None = None

    def __init__(
        self, name: str, cloud: NebiusPlace, subnet_id: pulumi.Input[str], *, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("hpc:nebius:LoginAddress", name, {}, opts)
        login = cloud.settings.login
        if login.service == "LoadBalancer" and login.exposure == "public":
            allocation = cloud.resource(
                "Allocation",
                f"{name}-allocation",
                {"ipv4_public": {"cidr": "/32", "subnet_id": subnet_id}},
                called=shortened(cloud.name, "static-ip"),
                opts=pulumi.ResourceOptions(parent=self),
            )
            self.allocation_id = allocation.id
            self.address = allocation.status.apply(lambda status: status["details"]["allocated_cidr"].partition("/")[0])
        self.register_outputs({"address": self.address})


class SharedFilesystems(pulumi.ComponentResource):
    """File systems by their mount tag."""

    ids: Mapping[str, pulumi.Output[str]]

    def __init__(self, name: str, cloud: NebiusPlace, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:Filesystems", name, {}, opts)
        self.ids = ids = dict[str, pulumi.Output[str]]()
        for tag, section in filesystems(cloud.settings).items():
            if section.spec is None:
                ids[tag] = pulumi.Output.from_input(section.existing or "")
                continue
            ids[tag] = cloud.resource(
                "Filesystem",
                f"{name}-{tag}",
                {
                    "type": "NETWORK_SSD",
                    "size_gibibytes": section.spec.size_gib,
                    "block_size_bytes": section.spec.block_kib * 1024,
                },
                called=shortened(cloud.name, tag),
                opts=pulumi.ResourceOptions(parent=self, retain_on_delete=cloud.config.deletion_protection),
            ).id
        self.register_outputs({"ids": ids})


class KubernetesCluster(pulumi.ComponentResource):
    """The control plane."""

    resource: NebiusResource
    access: pulumi.Output[dict[str, Any]]
    """`server`, `certificate_authority`, `command`, `context`, `namespace`: the stack's output `kubernetes`.

    The command prints a credential when kubectl or Helm asks for one, so no token is stored; if it is empty, this
    program is the command."""
    kubeconfig: pulumi.Output[str]

    def __init__(
        self, name: str, cloud: NebiusPlace, subnet_id: pulumi.Input[str], *, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("hpc:nebius:KubernetesCluster", name, {}, opts)
        settings = cloud.settings
        allowed = list(settings.kubernetes.allowed_cidrs)
        self.resource = cloud.resource(
            "Cluster",
            f"{name}-mk8s",
            {
                "control_plane": {
                    "subnet_id": subnet_id,
                    "version": settings.kubernetes.version,
                    "etcd_cluster_size": settings.kubernetes.etcd_size,
                    "endpoints": {"public_endpoint": {"allowed_cidrs": allowed} if allowed else {}},
                }
            },
            called=cloud.name,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.access = self.resource.status.apply(lambda status: access(status, cloud, list(settings.token_command)))
        self.kubeconfig = self.access.apply(
            lambda access: kubeconfig(**(access | {"command": access["command"] or PORTABLE_COMMAND}))
        )
        self.register_outputs({"id": self.resource.id})


def access(status: Mapping[str, Any], cloud: NebiusPlace, command: list[str]) -> dict[str, Any]:
    """Return the output `access` of a cluster, from the status of its resource."""
    plane = status["control_plane"]
    return {
        "server": server_url(plane["endpoints"]["public_endpoint"]),
        "certificate_authority": plane["auth"]["cluster_ca_certificate"],
        "command": command,
        "context": f"nebius-{cloud.name}",
        "namespace": cloud.config.name,
    }


class NodeGroups(pulumi.ComponentResource):
    """The node groups of a cluster, by name."""

    of: Mapping[str, NebiusResource]

    def __init__(
        self,
        name: str,
        cloud: NebiusPlace,
        groups: Sequence[NodeGroup],
        *,
        cluster_id: pulumi.Input[str],
        subnet_id: pulumi.Input[str],
        filesystems: Mapping[str, pulumi.Input[str]],
        gpu_clusters: Mapping[str, pulumi.Input[str]],
        after: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`filesystems`: ids by mount tag. `gpu_clusters`: ids by nodeset. `after`: what each change of a group waits
        for."""
        super().__init__("hpc:nebius:NodeGroups", name, {}, opts)
        self.of = {
            group.name: cloud.resource(
                "NodeGroup",
                f"{name}-{group.name}",
                node_group_spec(group, cloud.settings, subnet_id, filesystems, gpu_clusters),
                called=group.name,
                parent_id=cluster_id,
                opts=pulumi.ResourceOptions(parent=self, depends_on=list(after)),
            )
            for group in groups
        }
        self.register_outputs({"ids": {group: resource.id for group, resource in self.of.items()}})


def node_group_spec(
    group: NodeGroup,
    settings: Nebius,
    subnet_id: pulumi.Input[str],
    filesystems: Mapping[str, pulumi.Input[str]],
    gpu_clusters: Mapping[str, pulumi.Input[str]],
) -> dict[str, Any]:
    """Return the spec of a group in Nebius's API (mk8s.v1, NodeGroupSpec).

    The strategy is always complete, because Nebius's defaults changed in 2026.
    """
    login = settings.login
    # A NodePort is reached at the address of its node.
    public = group.role == "login" and login.service == "NodePort" and login.exposure == "public"
    template: dict[str, Any] = {
        "metadata": {"labels": dict(group.labels)},
        "taints": [{"key": key, "value": value, "effect": "NO_SCHEDULE"} for key, value in group.taints.items()],
        "resources": {"platform": group.platform, "preset": group.preset},
        "boot_disk": {"type": "NETWORK_SSD", "size_gibibytes": group.disk_gib, "block_size_bytes": 4096},
        "os": group.os,
        "network_interfaces": [{"subnet_id": subnet_id, **({"public_ip_address": {}} if public else {})}],
        "filesystems": [
            {"attach_mode": "READ_WRITE", "mount_tag": tag, "existing_filesystem": {"id": filesystems[tag]}}
            for tag in group.tags
        ],
    }
    if group.in_gpu_cluster:
        template["gpu_cluster"] = {"id": gpu_clusters[group.nodeset]}
    if group.drivers_preset:
        template["gpu_settings"] = {"drivers_preset": group.drivers_preset}
    if group.preemptible:
        template["preemptible"] = {}
    if group.policy != "AUTO":
        named = {"reservation_ids": [group.reservation]} if group.reservation else {}
        template["reservation_policy"] = {"policy": group.policy, **named}
    if group.max_pods is not None:
        template["max_pods"] = group.max_pods
    size = (
        {"autoscaling": {"min_node_count": group.between[0], "max_node_count": group.between[1]}}
        if group.between
        else {"fixed_node_count": group.count}
    )
    return {
        "version": settings.kubernetes.version,
        **size,
        "strategy": {
            "max_unavailable": {"count": group.unavailable},
            # Surge nodes would count against the quota.
            "max_surge": {"count": 0},
            # Time for a node's pods to end, which a PodDisruptionBudget may prevent.
            "drain_timeout": "600s",
        },
        **({"auto_repair": {"conditions": [_repair(*repair) for repair in group.repairs]}} if group.repairs else {}),
        "template": template,
    }


def _repair(condition: str, status: str, seconds: int | None) -> dict[str, Any]:
    limit = {"disabled": True} if seconds is None else {"timeout": f"{seconds}s"}
    return {"type": condition, "status": status, **limit}


class GpuClusters(pulumi.ComponentResource):
    """A GPU cluster for each fabric that nodesets name, and the existing ones that they name."""

    of: Mapping[str, pulumi.Output[str]]
    """Id of the GPU cluster of each nodeset that has one."""

    def __init__(self, name: str, cloud: NebiusPlace, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:GpuClusters", name, {}, opts)
        infinibands = {
            nodeset: workers.infiniband
            for nodeset, workers in cloud.settings.workers.items()
            if workers.infiniband is not None and nodeset in cloud.config.nodesets
        }
        ids = {
            fabric: cloud.resource(
                "GpuCluster",
                f"{name}-{fabric}",
                {"infiniband_fabric": fabric},
                called=shortened(cloud.name, fabric),
                opts=pulumi.ResourceOptions(parent=self),
            ).id
            for fabric in dict.fromkeys(infiniband.fabric for infiniband in infinibands.values() if infiniband.fabric)
        }
        self.of = {
            nodeset: ids[infiniband.fabric]
            if infiniband.fabric
            else pulumi.Output.from_input(infiniband.existing or "")
            for nodeset, infiniband in infinibands.items()
        }
        self.register_outputs({"ids": self.of})


class Infrastructure(pulumi.ComponentResource):
    """A Kubernetes cluster in which Soperator can be installed, with the resources that it needs."""

    cloud: NebiusPlace
    admin: tls.PrivateKey
    """The operator's key: root on login pods."""
    filesystems: SharedFilesystems
    cluster: KubernetesCluster
    groups: Sequence[NodeGroup]
    nodesets: Mapping[str, Mapping[str, object]]
    """`count` of each nodeset, `shape`, a hash that changes when its nodes are recreated, and `static`, if it is
    elastic."""
    address: LoginAddress
    backups: NebiusBackups | None = None
    api: Wait
    """The wait for the API server."""
    nodes: Wait
    """The wait for nodes that are Ready and advertise their GPUs."""
    volumes: Teardown
    """The teardown of volumes, which is deleted after all charts and before all nodes."""

    def __init__(self, name: str, config: ClusterConfig, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:Infrastructure", name, {}, opts)
        settings = settings_of(config)
        self._name, child = name, pulumi.ResourceOptions(parent=self)
        self.admin = tls.PrivateKey(f"{name}-admin", algorithm="ED25519", opts=child)
        owner = random.RandomId(f"{name}-owner", byte_length=8, opts=child)
        # The checks come before all other resources, so they see the charts without facts of the cloud, which only
        # change values.
        backups = {"name": "", "endpoint": ""} if backs_up(settings) else {}
        planned = releases(config, CloudFacts(stack=pulumi.get_stack(), root_keys=(), backups=backups))
        rows = charts_of(planned, settings.values)
        charts = ChartVersions(f"{name}-chart-versions", charts=rows, opts=child)
        preflight = Preflight(
            f"{name}-preflight",
            tenant=settings.tenant,
            project=settings.project,
            region=settings.region,
            request=request.request(config, settings),
            command=list(settings.token_command),
            opts=child,
        )
        leftovers = Leftovers(
            f"{name}-leftovers",
            tenant=settings.tenant,
            project=settings.project,
            cluster=config.name,
            owner=owner.hex,
            namespaces=[config.name, *([MONITORING_NAMESPACE] if config.monitoring else [])],
            keep=config.deletion_protection,
            existing={tag: section.existing for tag, section in filesystems(settings).items() if section.existing},
            opts=child,
        )
        self.cloud = NebiusPlace(
            config=config, settings=settings, owner=owner.hex, after=[preflight, charts, leftovers]
        )
        subnet = NebiusNetwork(f"{name}-network", self.cloud, opts=child).subnet_id
        self.filesystems = SharedFilesystems(f"{name}-fs", self.cloud, opts=child)
        self.address = LoginAddress(f"{name}-login", self.cloud, subnet, opts=child)
        self.cluster = KubernetesCluster(f"{name}-kubernetes", self.cloud, subnet, opts=child)
        self.api = self.wait("api", {}, seconds=waits.API_SECONDS)
        gpu_clusters = GpuClusters(f"{name}-gpu", self.cloud, opts=child)
        self.groups = node_groups(config, settings)
        self.nodesets = {
            nodeset: {
                "count": section.most,
                "shape": shape(config, settings, nodeset),
                **({"static": section.static} if section.elastic else {}),
            }
            for nodeset, section in config.nodesets.items()
        }
        limits = {"access": self.cluster.access, "seconds": config.slurm.drain_seconds, "pace": PACE}
        drain = Drain(f"{name}-drain", nodesets=self.nodesets, **limits, opts=child)
        partitions = Partitions(f"{name}-partitions", partitions=list(config.partitions), **limits, opts=child)
        if backs_up(settings):
            self.backups = NebiusBackups(f"{name}-backups", self.cloud, opts=child)
        groups = NodeGroups(
            f"{name}-nodes",
            self.cloud,
            self.groups,
            cluster_id=self.cluster.resource.id,
            subnet_id=subnet,
            filesystems=self.filesystems.ids,
            gpu_clusters=gpu_clusters.of,
            # No pod can write to the bucket while it is emptied, because nodes are deleted before.
            after=[drain, partitions, *([self.backups.contents] if self.backups else [])],
            opts=child,
        ).of
        self.volumes = self.teardown("volumes", [self.api, *groups.values()])
        rows = [
            {
                "name": group.name,
                "id": groups[group.name].id,
                "count": request.initial_count(group),
                "gpus": group.gpus,
            }
            for group in self.groups
        ]
        # With the shapes, so that recreated nodes are waited for again.
        shapes = {nodeset: row["shape"] for nodeset, row in self.nodesets.items()}
        self.nodes = self.wait("nodes", {"groups": rows, "shapes": shapes}, after=[self.api, self.volumes])
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
        """Register a wait of `waits.KINDS`, which is repeated when `spec` or `changed` differ."""
        return Wait(
            f"{self._name}-wait-{kind}",
            kind=kind,
            access=self.cluster.access,
            spec=spec,
            seconds=seconds or self.cloud.settings.timeouts.available,
            pace=PACE,
            after=changed,
            opts=pulumi.ResourceOptions(parent=parent or self, depends_on=list(after)),
        )

    def teardown(self, stage: str, after: Sequence[pulumi.Resource], parent: pulumi.Resource | None = None) -> Teardown:
        """Register the teardown of a stage, which is deleted before all of `after`."""
        return Teardown(
            f"{self._name}-teardown-{stage}",
            stage=stage,
            access=self.cluster.access,
            cluster_id=self.cluster.resource.id,
            pace=PACE,
            opts=pulumi.ResourceOptions(parent=parent or self, depends_on=list(after)),
        )
