"""The section `nebius` of a stack file: where on Nebius, and what a cluster of pods has besides machines and Slurm."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from cluster.config.impact import Replace
from cluster.config.section import Section
from cluster.config.types import MachineTypeName, Positive, PublicKey, Seconds
from cluster.findings import Refused
from cluster.platforms.nebius import versions
from cluster.platforms.nebius.filesystems import Filesystem, Filesystems, Jail, Submount
from cluster.platforms.nebius.health import Backups, Health
from cluster.platforms.nebius.types import (
    BootDiskGib,
    KubernetesVersion,
    ProjectId,
    RegionName,
    SubnetId,
    TenantId,
    Version,
)
from cluster.platforms.nebius.workers import Infiniband, Workers

__all__ = ["Filesystem", "Infiniband", "Jail", "Nebius", "Submount", "Workers"]


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
    min_nodes: Positive = Field(default=3, le=100)
    """Fewest nodes."""
    max_nodes: Positive = Field(default=9, le=100)
    """Most nodes."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min_nodes > self.max_nodes:
            raise Refused("min_nodes of at most max_nodes, e.g. {min_nodes: 3, max_nodes: 9}", "raise max_nodes")
        return self


class AccountingGroup(ServiceGroup):
    """The node group of slurmdbd and its database."""


class Kubernetes(Section):
    """The managed Kubernetes cluster."""

    version: KubernetesVersion = versions.KUBERNETES
    """Minor version of the control plane and of the nodes. Before `up` creates a cluster, it asks Nebius whether it has
    this version, with `gpu.drivers_preset` for the nodesets' platforms."""
    etcd_size: Literal[1, 3] = 3
    """Members of etcd. With 3 the control plane survives the loss of one."""


class Soperator(Section):
    """The operator that runs Slurm in pods."""

    version: Version = versions.SOPERATOR
    """Version of Soperator, of its charts and images. It decides which release of Slurm the cluster has."""
    charts: str = Field(default="oci://cr.eu-north1.nebius.cloud/soperator", min_length=1, max_length=500)
    """Where Soperator's charts are: a registry (`oci://...`) or a folder."""


class LoginService(Section):
    """How users reach the login pods."""

    service: Literal["LoadBalancer", "NodePort"] = "LoadBalancer"
    """Type of the Kubernetes Service. NodePort is port 30022 of the login nodes, which then have public addresses."""
    exposure: Literal["public", "internal"] = "public"
    """Where a LoadBalancer can be reached: at a static public address, or at an address of the subnet (internal), for
    projects that forbid public ones."""
    root_keys: tuple[PublicKey, ...] = Field(default=(), max_length=100)
    """SSH public keys that may log in as root, besides the stack's own."""


class Gpu(Section):
    """NVIDIA's driver on nodes with GPUs: the same on all, because they share one jail."""

    driver: Literal["operator", "preinstalled"] = "preinstalled"
    """Who installs it: NVIDIA's GPU operator (`driver_version`), or Nebius's node images (`drivers_preset`)."""
    driver_version: str = Field(default="580.95.05", min_length=1, max_length=40)
    """With `driver: operator`: version of NVIDIA's driver. Nebius's chart of the operator has 570.148.08 and
    580.95.05."""
    drivers_preset: str = Field(default=versions.NEWEST_PRESET, min_length=1, max_length=40)
    """With `driver: preinstalled`: preset of Nebius's node images, e.g. cuda12.8 or cuda13.0. The jail and the checks
    have the version of CUDA that goes with it."""

    @property
    def cuda(self) -> str:
        """Version of CUDA of the jail and of the checks."""
        if self.driver == "operator":
            return versions.cuda_of_driver(self.driver_version)
        return versions.cuda_of_preset(self.drivers_preset)


class Timeouts(Section):
    """How long `up` waits for the running cluster."""

    available: Seconds = 3600
    """Seconds for the SlurmCluster to be Available and its nodesets to be complete."""
    login: Seconds = 600
    """Seconds for the login Service to have an address."""


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
    region: RegionName = Field(examples=["eu-north1"])
    """The project's region."""
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
    """What nodesets have on Nebius besides count, machine type and disk, by the nodeset's name."""
    login: LoginService = Field(default_factory=LoginService)
    """How users reach the login pods."""
    gpu: Gpu = Field(default_factory=Gpu)
    """NVIDIA's driver."""
    health: Health = Field(default_factory=Health)
    """Health checks that Soperator runs by itself."""
    backups: Backups = Field(default_factory=Backups)
    """Backups of the jail."""
    timeouts: Timeouts = Field(default_factory=Timeouts)
    """How long `up` waits for the running cluster."""
    values: Annotated[Mapping[str, Mapping[str, Any]], Replace("depends on the chart: see the preview")] = Field(
        default_factory=dict, max_length=20, examples=[{"slurm-cluster": {"slurmConfig": {"completeWait": 10}}}]
    )
    """Values of Helm charts to change or add, by the name of the release: a mapping is merged into what is there, as is
    a list of members with a `name`; other lists and single values replace it. Keys that the chart does not have are
    refused."""
    endpoint: str = Field(default="", max_length=200)
    """Address of the API in place of Nebius's own, as [TOKEN@]HOST:PORT without encryption. For rehearsals."""
    token_command: tuple[Annotated[str, Field(min_length=1, max_length=500)], ...] = Field(
        default=(), max_length=20, examples=[["nebius", "mk8s", "v1", "cluster", "get-token", "--format", "json"]]
    )
    """The program that prints a credential for kubectl and Helm (ExecCredential of
    client.authentication.k8s.io/v1beta1), and its arguments. None: `./hpc` itself, with the credential that `up`
    has."""

    @property
    def slurm_release(self) -> str:
        """Slurm's release, which Soperator's version decides."""
        return versions.series(self.soperator.version).release
