"""The section `nebius` of a stack file: where on Nebius, and what a cluster of pods has besides machines and Slurm."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from cluster.config.section import Section
from cluster.config.types import Flag, MachineTypeName, MountPoint, Positive, PublicKey, Seconds
from cluster.findings import Refused
from cluster.platforms.nebius.types import (
    FilesystemId,
    GibiBytes,
    GpuClusterId,
    KubernetesVersion,
    ProjectId,
    SubmountName,
    SubnetId,
    TenantId,
    Version,
)


class FilesystemSpec(Section):
    """A shared file system to create."""

    size_gib: GibiBytes
    """GiB. It can grow, and never shrink."""
    block_kib: Literal[4, 8, 16, 32, 64, 128] = 4
    """KiB of a block; 32 suits large files. It can't be changed later."""


class Filesystem(Section):
    """A shared file system: one to create (`spec`) or one that is there already (`existing`)."""

    spec: FilesystemSpec | None = None
    """The file system to create; deletion_protection keeps it when the cluster is destroyed."""
    existing: FilesystemId | None = None
    """Id of a file system that is there before the stack and stays after it."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.spec is None) == (self.existing is None):
            raise Refused(
                "exactly one of spec and existing, e.g. {spec: {size_gib: 2048}}",
                "remove one of them" if self.spec else "add one of them",
            )
        return self


class Jail(Filesystem):
    """The file system that users see as `/` on all login and worker pods."""

    overwrite_existing: Flag = False
    """With `existing`: says that you know that its files may be overwritten when the jail is populated."""


class Submount(Filesystem):
    """A shared file system that is mounted inside the jail."""

    mount: MountPoint = Field(examples=["/mlperf-sd"])
    """Where users see it."""


class Filesystems(Section):
    """Shared file systems."""

    jail: Jail = Field(default_factory=lambda: Jail(spec=FilesystemSpec(size_gib=2048)))
    """What users see as `/`. Default: 2048 GiB."""
    controller_spool: Filesystem = Field(default_factory=lambda: Filesystem(spec=FilesystemSpec(size_gib=128)))
    """slurmctld's state. Default: 128 GiB."""
    accounting: Filesystem = Field(default_factory=lambda: Filesystem(spec=FilesystemSpec(size_gib=512)))
    """The accounting database. Default: 512 GiB."""
    submounts: Mapping[SubmountName, Submount] = Field(default_factory=dict, max_length=50)
    """Further file systems inside the jail, by name."""


class NodeGroup(Section):
    """A node group of Kubernetes that runs no Slurm node."""

    machine_type: MachineTypeName
    """Platform and preset, e.g. cpu-d3/8vcpu-32gb."""
    disk_gib: GibiBytes = Field(default=128, ge=128)
    """GiB of the boot disk of each."""


class SystemGroup(NodeGroup):
    """The node group of operators and controllers, which grows and shrinks by itself."""

    machine_type: MachineTypeName = "cpu-d3/8vcpu-32gb"
    disk_gib: GibiBytes = Field(default=192, ge=128)
    min_nodes: Positive = Field(default=3, le=100)
    max_nodes: Positive = Field(default=9, le=100)


class AccountingGroup(NodeGroup):
    """The node group of slurmdbd and its database."""

    machine_type: MachineTypeName = "cpu-d3/8vcpu-32gb"


class Infiniband(Section):
    """The GPU cluster that a nodeset's nodes join: a fabric to create one in, or one that is there already."""

    fabric: str | None = Field(default=None, examples=["fabric-3"], min_length=1, max_length=63)
    """InfiniBand fabric that a GPU cluster is created in."""
    existing: GpuClusterId | None = None
    """Id of a GPU cluster that is there before the stack and stays after it."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.fabric is None) == (self.existing is None):
            raise Refused("exactly one of fabric and existing, e.g. {fabric: fabric-3}", "keep one of them")
        return self


class Workers(Section):
    """What a nodeset has on Nebius besides its count and machine type."""

    infiniband: Infiniband | None = None
    """The GPU cluster that its nodes join; none for nodesets without GPUs or with one GPU a node."""
    nodes_per_group: Positive = Field(default=100, le=100)
    """Most nodes of one node group of Kubernetes; more nodes are split, the last group has the rest."""


class Kubernetes(Section):
    """The managed Kubernetes cluster."""

    version: KubernetesVersion = "1.31"
    """Minor version of the control plane and of the nodes."""
    etcd_size: Literal[1, 3] = 3
    """Members of etcd; 3 for a control plane that survives the loss of one."""


class Soperator(Section):
    """The operator that runs Slurm in pods."""

    version: Version = "4.1.7"
    """Version of Soperator, of its charts and images."""
    charts: str = Field(default="oci://cr.eu-north1.nebius.cloud/soperator", min_length=1, max_length=500)
    """Where Soperator's charts are: a registry (`oci://...`) or a folder."""


class LoginService(Section):
    """How users reach the login pods."""

    service: Literal["LoadBalancer", "NodePort"] = "LoadBalancer"
    """Type of the Kubernetes Service."""
    exposure: Literal["public", "internal"] = "public"
    """public: a static public address. internal: an address of the subnet; for projects without public addresses."""
    root_keys: tuple[PublicKey, ...] = Field(default=(), max_length=100)
    """SSH public keys that may log in as root, besides the stack's own."""


class Gpu(Section):
    """NVIDIA's driver and operators on GPU nodes."""

    driver: Literal["operator", "preinstalled"] = "preinstalled"
    """operator: NVIDIA's GPU operator installs `driver_version`. preinstalled: nodes boot with `drivers_preset`."""
    driver_version: str = Field(default="550.54.15", max_length=40)
    """With `operator`."""
    drivers_preset: str = Field(default="cuda12.8", max_length=40)
    """With `preinstalled`: preset of Nebius's node images, one for all nodes, since they share one jail."""


class NcclCheck(Section):
    """The periodic NCCL test of GPU nodes (Soperator before 1.22), which drains nodes below the threshold."""

    enabled: Flag = True
    schedule: str = Field(default="0 */3 * * *", max_length=100)
    """Times, as cron has them."""
    min_busbw_gbps: Positive = Field(default=420, le=100_000)
    """GB/s of average bus bandwidth below which a node is drained."""
    infiniband: Flag = False
    """Whether it measures InfiniBand in place of NVLink."""


class Health(Section):
    """Health checks that Soperator runs by itself."""

    nccl: NcclCheck = Field(default_factory=NcclCheck)
    """The periodic NCCL test."""
    scope: Literal["skip_all", "testing", "essential", "prod_quick", "prod_acceptance"] = "prod_quick"
    """Soperator from 3.0 on: which active checks run when the cluster comes up."""
    replace_nodes: Flag = True
    """Whether nodes that were drained for a hardware problem are recreated by themselves."""


class Backups(Section):
    """Backups of the jail into a bucket, by k8up."""

    enabled: Literal["auto", True, False] = "auto"
    """auto: if the jail is created here and smaller than 12 TiB."""
    schedule: str = Field(default="@daily-random", max_length=100)
    """Times, as k8up has them."""
    keep_daily: Positive = Field(default=7, le=365)
    """Daily backups that are kept."""


class Timeouts(Section):
    """How long `up` waits; seconds."""

    available: Seconds = 3600
    """For the SlurmCluster to be Available, and its nodesets to be complete."""
    login: Seconds = 600
    """For the login Service's address."""


class Nebius(Section):
    """Where on Nebius, and what runs Slurm in pods there."""

    stand_in: ClassVar[Mapping[str, Any]] = {
        "tenant": "tenant-standin",
        "project": "project-standin",
        "region": "eu-north1",
    }

    tenant: TenantId = Field(examples=["tenant-e00abc"])
    """Id of the tenant."""
    project: ProjectId = Field(examples=["project-e00abc"])
    """Id of the project that everything is created in."""
    region: str = Field(examples=["eu-north1"], min_length=1, max_length=40)
    """The project's region."""
    subnet: SubnetId | Literal["create"] | None = None
    """Id of a subnet; `create` for a network and a subnet of the cluster's own. Default: the project's first."""
    kubernetes: Kubernetes = Field(default_factory=Kubernetes)
    soperator: Soperator = Field(default_factory=Soperator)
    filesystems: Filesystems = Field(default_factory=Filesystems)
    system: SystemGroup = Field(default_factory=SystemGroup)
    accounting: AccountingGroup = Field(default_factory=AccountingGroup)
    workers: Mapping[str, Workers] = Field(default_factory=dict, max_length=500)
    """What nodesets have besides, by the nodeset's name."""
    login: LoginService = Field(default_factory=LoginService)
    gpu: Gpu = Field(default_factory=Gpu)
    health: Health = Field(default_factory=Health)
    backups: Backups = Field(default_factory=Backups)
    timeouts: Timeouts = Field(default_factory=Timeouts)
    endpoint: str = Field(default="", max_length=200)
    """Address of the API in place of Nebius's own, host:port without encryption; for rehearsals."""
    token_command: tuple[Annotated[str, Field(min_length=1, max_length=500)], ...] = Field(
        default=("nebius", "mk8s", "v1", "cluster", "get-token", "--format", "json"), min_length=1, max_length=20
    )
    """The program that prints a credential (ExecCredential) for kubectl and Helm."""
