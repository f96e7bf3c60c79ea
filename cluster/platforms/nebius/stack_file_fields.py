"""The section `nebius` of a stack file: the place on Nebius, Kubernetes, Soperator, file systems and node groups."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, Strict, WithJsonSchema, model_validator
from typing_extensions import Self

from cluster.catalog.nebius_machine_types import NEBIUS_DISKS, REGIONS
from cluster.config.cluster import ClusterConfig
from cluster.config.impact_annotations import NoEffect, Refuse, Replace
from cluster.config.section import Section
from cluster.config.types import (
    Flag,
    MachineTypeName,
    MountPoint,
    Positive,
    PublicKey,
    Seconds,
    SourceCidr,
    text_schema,
)
from cluster.config.validators import matching, one_of
from cluster.findings import RefusedError
from cluster.platforms.nebius import versions


def _check(prefix: str, where: str) -> AfterValidator:
    pattern = f"{prefix}-[a-z0-9]{{1,80}}"
    return AfterValidator(matching(pattern, f"an id that begins with {prefix}-", f"copy it from {where}"))


def _schema(prefix: str) -> WithJsonSchema:
    return text_schema(pattern=f"^{prefix}-[a-z0-9]+$")


# Prefixes of ids: nebius-solutions-library, soperator/installations/example/variables.tf.
TenantId = Annotated[str, _check("tenant", "`nebius iam tenant list`"), _schema("tenant")]
ProjectId = Annotated[str, _check("project", "`nebius iam project list`"), _schema("project")]
SubnetId = Annotated[str, _check("vpcsubnet", "`nebius vpc subnet list`"), _schema("vpcsubnet")]
FilesystemId = Annotated[
    str, _check("computefilesystem", "`nebius compute filesystem list`"), _schema("computefilesystem")
]
GpuClusterId = Annotated[
    str, _check("computegpucluster", "`nebius compute gpu-cluster list`"), _schema("computegpucluster")
]
Version = Annotated[
    str,
    AfterValidator(
        matching("[0-9]{1,4}[.][0-9]{1,4}[.][0-9]{1,4}", "a version of three numbers, e.g. 4.1.7", "write all three")
    ),
    text_schema(pattern="^[0-9]+[.][0-9]+[.][0-9]+$"),
]
Prefix = Annotated[
    str,
    AfterValidator(
        matching(
            "[a-z]([-a-z0-9]{0,18}[a-z0-9])?",
            "1 to 20 of a-z, 0-9 and -, a letter first and no - last, e.g. team-a",
            "shorten it: it is the first part of names at Nebius, which have 63 characters at most",
        )
    ),
    text_schema(pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$", maxLength=20),
]
KubernetesVersion = Annotated[
    str,
    AfterValidator(matching("1[.][0-9]{2}", 'a minor version of Kubernetes, e.g. "1.35"', "write no more than that")),
    text_schema(pattern="^1[.][0-9]{2}$"),
]
SubmountName = Annotated[
    str,
    AfterValidator(
        matching(
            "[a-z]([-a-z0-9]{0,28}[a-z0-9])?",
            "1 to 30 of a-z, 0-9 and -, a letter first and no - last, e.g. mlperf-sd",
            "shorten it: it is part of names of a file system and of a volume",
        )
    ),
    text_schema(pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$", maxLength=30),
]
DiskType = Annotated[
    str, AfterValidator(one_of(NEBIUS_DISKS, "a disk type of Nebius")), text_schema(enum=list(NEBIUS_DISKS))
]
RegionName = Annotated[str, AfterValidator(one_of(REGIONS, "a region of Nebius")), text_schema(enum=list(REGIONS))]
GibiBytes = Annotated[int, Strict(), Field(ge=1, le=262_144)]
"""GiB of a disk or a file system."""
BootDiskGib = Annotated[int, Strict(), Field(ge=128, le=8192)]
"""GiB of a boot disk: Kubernetes keeps 48 GiB and 15 % of it."""


class FilesystemSpec(Section):
    """A shared file system to create."""

    size_gib: GibiBytes
    """GiB. It can grow, and never shrink."""
    block_kib: Annotated[
        Literal[4, 8, 16, 32, 64, 128],
        Refuse(
            "a block size is for ever: the file system would be deleted with every file in it, and created again: put "
            "it back",
            command="put it back",
        ),
    ] = 4
    """KiB of a block; 32 suits large files. It can't be changed later."""


class Filesystem(Section):
    """A shared file system: exactly one of `spec` and `existing`."""

    spec: FilesystemSpec | None = None
    """The file system to create. `deletion_protection` keeps it when the cluster is destroyed."""
    existing: FilesystemId | None = None
    """Id of a file system that is there before the stack and stays after it."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.spec is None) == (self.existing is None):
            raise RefusedError(
                "exactly one of spec and existing, e.g. {spec: {size_gib: 2048}}",
                "remove one of them" if self.spec else "add one of them",
            )
        return self


class Jail(Filesystem):
    """The file system that users see as `/` on all login and worker pods."""

    overwrite_existing: Annotated[Flag, NoEffect("read when a jail is populated for the first time")] = False
    """With `existing`: says that you know that its files may be overwritten when the jail is populated."""


class Submount(Filesystem):
    """A shared file system that is mounted inside the jail."""

    mount: MountPoint = Field(examples=["/mlperf-sd"])
    """Path at which users see it."""


class Filesystems(Section):
    """Shared file systems."""

    jail: Jail = Field(default_factory=lambda: Jail(spec=FilesystemSpec(size_gib=2048)))
    """The root file system that users see. Default: 2048 GiB."""
    controller_spool: Filesystem = Field(default_factory=lambda: Filesystem(spec=FilesystemSpec(size_gib=128)))
    """slurmctld's state. Default: 128 GiB."""
    accounting: Filesystem = Field(default_factory=lambda: Filesystem(spec=FilesystemSpec(size_gib=512)))
    """The accounting database. Default: 512 GiB."""
    submounts: Mapping[SubmountName, Submount] = Field(default_factory=dict, max_length=50)
    """Further file systems inside the jail, by name."""

    def members(self) -> dict[tuple[str, ...], Filesystem]:
        """Return all file systems, by their path below `nebius.filesystems`."""
        own = {("jail",): self.jail, ("controller_spool",): self.controller_spool, ("accounting",): self.accounting}
        return {**own, **{("submounts", name): submount for name, submount in self.submounts.items()}}


class Infiniband(Section):
    """The GPU cluster that a nodeset's nodes join: exactly one of `fabric` and `existing`."""

    fabric: str | None = Field(default=None, examples=["fabric-3"], min_length=1, max_length=63)
    """InfiniBand fabric that a GPU cluster is created in. Nodesets of one fabric share it."""
    existing: GpuClusterId | None = None
    """Id of a GPU cluster that is there before the stack and stays after it."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.fabric is None) == (self.existing is None):
            raise RefusedError("exactly one of fabric and existing, e.g. {fabric: fabric-3}", "keep one of them")
        return self


class NodeDisk(Section):
    """A disk that each node has for itself. It is deleted with the node's pod volume."""

    size_gib: GibiBytes
    """GiB. A multiple of 93 for network-ssd-io-m3 and network-ssd-non-replicated."""
    type: DiskType = "network-ssd-io-m3"
    """Disk type of Nebius."""
    filesystem: Literal["ext4", "xfs"] = "ext4"
    """File system on it."""

    @model_validator(mode="after")
    def _whole_parts(self) -> Self:
        step = NEBIUS_DISKS[self.type]
        if self.size_gib % step:
            fitting = (self.size_gib // step + 1) * step
            raise RefusedError(
                f"a size_gib that is a multiple of {step} for {self.type}, e.g. {fitting}",
                f"write {fitting}, or type: network-ssd for any size",
            )
        return self

    @property
    def storage_class(self) -> str:
        """The StorageClass that it is created by."""
        return f"compute-csi-{self.type}-{self.filesystem}"


class LocalMount(NodeDisk):
    """A disk of each node, mounted inside the jail: every node sees its own files there."""

    mount: MountPoint = Field(examples=["/scratch"])
    """Path at which users see it."""


class Workers(Section):
    """Settings of a nodeset that only Nebius has."""

    infiniband: Infiniband | None = None
    """The GPU cluster that its nodes join. None for nodesets without GPUs, or with one GPU a node."""
    nodes_per_group: Positive = Field(default=100, le=100)
    """Most nodes of one node group of Kubernetes. More nodes are split, and the last group has the rest."""
    max_unavailable_percent: Annotated[Positive, NoEffect("holds when nodes are recreated the next time")] = Field(
        default=50, le=100
    )
    """Percent of a group's nodes that are recreated at the same time when the group changes; one node at least."""
    local_disks: Mapping[SubmountName, LocalMount] = Field(default_factory=dict, max_length=10)
    """Disks of each node, mounted inside the jail, by name."""
    image_disk: NodeDisk | None = None
    """A disk of each node for container images, in place of the boot disk."""


class SoperatorHealth(Section):
    """Health checks that Soperator runs by itself."""

    scope: Literal["skip_all", "testing", "essential", "prod_quick", "prod_acceptance"] = "prod_quick"
    """The active checks that run when the cluster comes up."""
    replace_nodes: Flag = True
    """True if nodes that were drained for a hardware problem are recreated without being asked for."""


class Backups(Section):
    """Backups of the jail into a bucket, by k8up."""

    enabled: Literal["auto", True, False] = "auto"
    """auto: if the jail is created by the stack and smaller than 12 TiB."""
    schedule: str = Field(default="@daily-random", min_length=1, max_length=100)
    """Schedule, as in a crontab, or one of k8up's words."""
    keep_daily: Positive = Field(default=7, le=365)
    """Daily backups that are kept."""


_OPERATORS = NoEffect("nodes of operators come or go; Slurm and its jobs run on")


class ServiceGroup(Section):
    """A node group of Kubernetes that runs no Slurm node."""

    machine_type: MachineTypeName = "cpu-d3/8vcpu-32gb"
    """Platform and preset of its nodes."""
    disk_gib: BootDiskGib = 128
    """GiB of the boot disk of each."""


class SystemGroup(ServiceGroup):
    """The node group of operators and controllers, which grows and shrinks by itself."""

    disk_gib: BootDiskGib = 192
    """GiB of the boot disk of each."""
    min_nodes: Annotated[Positive, _OPERATORS] = Field(default=3, le=100)
    """Fewest nodes."""
    max_nodes: Annotated[Positive, _OPERATORS] = Field(default=9, le=100)
    """Most nodes."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min_nodes > self.max_nodes:
            raise RefusedError("min_nodes of at most max_nodes, e.g. {min_nodes: 3, max_nodes: 9}", "raise max_nodes")
        return self


class AccountingGroup(ServiceGroup):
    """The node group of slurmdbd and its database."""


class Kubernetes(Section):
    """The managed Kubernetes cluster."""

    version: KubernetesVersion = versions.KUBERNETES
    """Minor version of the control plane and of the nodes. Before `up` creates a cluster, it asks Nebius whether it has
    this version, with `gpu.drivers_preset` for the nodesets' platforms."""
    etcd_size: Annotated[
        Literal[1, 3], NoEffect("members of etcd come or go; the API server may not answer for a minute")
    ] = 3
    """Members of etcd. With 3 the control plane survives the loss of one."""
    allowed_cidrs: Annotated[
        tuple[SourceCidr, ...], NoEffect("who may reach the API server from then on; Slurm and its jobs run on")
    ] = Field(default=(), max_length=100, examples=[["203.0.113.0/24"]])
    """Networks from which the API server can be reached; yours must be among them. None: all, with a credential."""


class Soperator(Section):
    """The operator that runs Slurm in pods."""

    version: Version = versions.SOPERATOR
    """Version of Soperator, of its charts and images. It decides which release of Slurm the cluster has."""
    charts: Annotated[str, NoEffect("charts of the same version are the same: nothing is recreated")] = Field(
        default="oci://cr.eu-north1.nebius.cloud/soperator", min_length=1, max_length=500
    )
    """Place of Soperator's charts: a registry (`oci://...`) or a folder."""


class LoginService(Section):
    """The way in which users reach the login pods."""

    service: Literal["LoadBalancer", "NodePort"] = "LoadBalancer"
    """Type of the Kubernetes Service. NodePort is port 30022 of the login nodes, which then have public addresses."""
    exposure: Literal["public", "internal"] = "public"
    """Address at which a LoadBalancer is reached: a static public one, or one of the subnet (internal), for projects
    that forbid public ones."""
    root_keys: Annotated[tuple[PublicKey, ...], NoEffect("login pods have them within a minute; sessions stay")] = (
        Field(default=(), max_length=100)
    )
    """SSH public keys that may log in as root, besides the stack's own."""


class GpuSettings(Section):
    """NVIDIA's driver on nodes with GPUs: the same on all, because they share one jail."""

    drivers_preset: str = Field(default=versions.DRIVERS_PRESET, min_length=1, max_length=40)
    """Preset of Nebius's node images, e.g. cuda12.8 or cuda13.0. The jail and the checks have the version of CUDA that
    goes with it."""

    @property
    def cuda(self) -> str:
        """Version of CUDA of the jail and of the checks."""
        return versions.cuda_of(self.drivers_preset)


class Timeouts(Section):
    """Deadlines of `up` for the running cluster."""

    available: Seconds = 3600
    """Seconds for the SlurmCluster to be Available, and for its nodes to take jobs."""
    login: Seconds = 600
    """Seconds for the login Service to have an address."""


class Nebius(Section):
    """The place of a cluster on Nebius, and what runs Slurm in pods there."""

    stand_in: ClassVar[Mapping[str, Any]] = {
        "tenant": "tenant-standin",
        "project": "project-standin",
        "region": "eu-north1",
    }

    tenant: TenantId = Field(examples=["tenant-e00abc"])
    """Id of the tenant."""
    project: ProjectId = Field(examples=["project-e00abc"])
    """Id of the project that everything is created in."""
    region: RegionName = Field(examples=["eu-north1"])
    """The project's region."""
    prefix: Annotated[
        Prefix | None,
        Refuse("everything that the stack created has a name that begins with it, and a bucket can't be renamed"),
    ] = Field(default=None, examples=["team-a"])
    """First part of the names that the stack's objects have in the project and in kubectl's contexts, so that several
    clusters of one `name` can be in one project: with team-a, the Kubernetes cluster of `name: soperator` is
    team-a-soperator. Slurm and Kubernetes' objects do not have it. Default: none."""
    subnet: SubnetId | Literal["create"] | None = None
    """Id of the subnet of all nodes, or `create` for a network and a subnet of the cluster's own. Default: the
    project's first subnet."""
    kubernetes: Kubernetes = Field(default_factory=Kubernetes)
    """The managed Kubernetes cluster."""
    soperator: Soperator = Field(default_factory=Soperator)
    """The operator that runs Slurm in pods."""
    filesystems: Filesystems = Field(default_factory=Filesystems)
    """Shared file systems."""
    system: SystemGroup = Field(default_factory=SystemGroup)
    """The node group of operators and controllers."""
    accounting: AccountingGroup = Field(default_factory=AccountingGroup)
    """The node group of slurmdbd and its database."""
    workers: Mapping[str, Workers] = Field(default_factory=dict, max_length=500)
    """Settings that nodesets have on Nebius besides count, machine type and disk, by the nodeset's name."""
    login: LoginService = Field(default_factory=LoginService)
    """The way in which users reach the login pods."""
    gpu: GpuSettings = Field(default_factory=GpuSettings)
    """NVIDIA's driver."""
    health: Annotated[SoperatorHealth, NoEffect("checks run so from then on; jobs run on")] = Field(
        default_factory=SoperatorHealth
    )
    """Health checks that Soperator runs by itself."""
    backups: Annotated[Backups, NoEffect("holds for the next backup")] = Field(default_factory=Backups)
    """Backups of the jail."""
    timeouts: Annotated[Timeouts, NoEffect("read when `up` waits or checks; the cluster runs on")] = Field(
        default_factory=Timeouts
    )
    """Deadlines of `up` for the running cluster."""
    values: Annotated[Mapping[str, Mapping[str, Any]], Replace("depends on the chart: see the preview")] = Field(
        default_factory=dict, max_length=20, examples=[{"slurm-cluster": {"slurmConfig": {"completeWait": 10}}}]
    )
    """Values of Helm charts to change or add, by the name of the release: a mapping is merged into what is there, as is
    a list of members with a `name`; other lists and single values replace it. Before `up` changes
    anything, it compares keys with the values.yaml of Soperator's charts: Helm ignores a key that a chart does not
    have."""
    token_command: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=500)], ...],
        NoEffect("holds for the next command that asks Kubernetes"),
    ] = Field(
        default=(), max_length=20, examples=[["nebius", "mk8s", "v1", "cluster", "get-token", "--format", "json"]]
    )
    """The program that prints a credential for kubectl and Helm (ExecCredential of
    client.authentication.k8s.io/v1beta1), and its arguments. None: `./hpc` itself, with the credential that `up`
    has."""

    @property
    def slurm_release(self) -> str:
        """Slurm's release, which Soperator's version decides."""
        return versions.SLURM_RELEASE

    def workers_of(self, nodeset: str) -> Workers:
        """Return the settings of a nodeset that only Nebius has."""
        return self.workers.get(nodeset) or Workers()


def settings_of(config: ClusterConfig) -> Nebius:
    """Return the section `nebius`. Raises ValueError for a configuration of another platform."""
    section = config.section(Nebius)
    if section is None:
        raise ValueError(f"{config.name}: the configuration has no section `nebius`")
    return section


def name_at_nebius(config: ClusterConfig, settings: Nebius) -> str:
    """Return the cluster's name among those of the project: `nebius.prefix` stands in front of it."""
    return f"{settings.prefix}-{config.name}" if settings.prefix else config.name


AUTO_LIMIT_GIB = 12 * 1024
"""GiB of a jail from which on backups take too long: `auto` makes none (nebius-solutions-library, variables.tf)."""


def backs_up(settings: Nebius) -> bool:
    """Return whether the jail is backed up: as the stack file says, or by the jail's size."""
    enabled, jail = settings.backups.enabled, settings.filesystems.jail
    if enabled == "auto":
        return jail.spec is not None and jail.spec.size_gib < AUTO_LIMIT_GIB
    return enabled
