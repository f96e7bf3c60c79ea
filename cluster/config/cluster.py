"""The whole cluster, as a stack file describes it under `hpc:cluster`."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, Field, PrivateAttr

from cluster.catalog import IMAGES
from cluster.catalog.base_system import FIREWALL, MONITORING
from cluster.config.accounting import Accounting
from cluster.config.controller import Controller, Login
from cluster.config.image import Image
from cluster.config.impact_annotations import NoEffect, Refuse, Replace
from cluster.config.monitoring import Monitoring
from cluster.config.network import Network
from cluster.config.nodesets import Nodeset
from cluster.config.partitions import Partition
from cluster.config.pricing import BUDGET, SHOWN, Budget, Pricing
from cluster.config.section import Section, Slurm
from cluster.config.slurm import SlurmSettings
from cluster.config.storage import Storage
from cluster.config.types import ClusterName, Flag, GroupName, NodesetName, PartitionName, RegularId
from cluster.config.users import Containers, FormerUser, User
from cluster.config.validators import matching

S = TypeVar("S", bound=Section)


_resource_type = matching(
    "gcp:[a-z0-9]+/[A-Za-z0-9]+:[A-Za-z0-9]+",
    "a type of resource of Google Cloud, e.g. gcp:compute/instance:Instance",
    "copy it from a preview",
)
"""Checks only the form. The provider's own classes decide whether the type exists."""


class Customize(Section):
    """Inputs to change or add, of the resources that a type and a name pattern match."""

    one_value: ClassVar[bool] = True

    type: Annotated[str, AfterValidator(_resource_type)] = Field(examples=["gcp:compute/instance:Instance"])
    """Type of the resources, as a preview shows it."""
    name: str = Field(default="*", min_length=1, examples=["*-login-*"])
    """Pattern of their names in the preview: `*` is any text, `?` one character, `[01]` one of these."""
    set: Mapping[str, Any] = Field(min_length=1, examples=[{"labels": {"team": "ml"}}])
    """Inputs, by their names in pulumi_gcp: a mapping is merged into what is there, a list or a single value replaces
    it, and null removes it."""


class ClusterConfig(Section):
    """A Slurm cluster."""

    # cluster.load derives the model that is used from this, with the names and own sections of the platforms.

    platform: Annotated[str, Refuse("a cluster can't move from one platform to another")] = Field(examples=["local"])
    """The place of the cluster: local is the rehearsal on this machine."""
    name: Annotated[
        ClusterName,
        Slurm("ClusterName"),
        Refuse("every host name, Slurm's state and the accounting database carry the name"),
    ] = Field(examples=["dev"])
    """Name of the cluster, in Slurm and in front of every host name; it can't be changed later."""
    host_names: Annotated[Literal["cluster", "pods"], Refuse("every machine would get another name")] = "cluster"
    """Host names: `cluster` puts the cluster's name in front (dev-controller, dev-cpu-0), `pods` names machines as
    Soperator names its pods (controller-0, login-0, cpu-0)."""
    network: Network
    """The cluster's own network."""
    storage: Storage
    """File systems that machines share."""
    image: Image
    """The operating system of the machines."""
    controller: Controller
    """The machine that runs slurmctld, slurmdbd and the accounting database."""
    login: Login = Field(default_factory=Login.model_construct)
    """Machines where people log in and submit jobs."""
    nodesets: Mapping[NodesetName, Nodeset] = Field(min_length=1, max_length=500, examples=[{"cpu": {"count": 2}}])
    """Compute nodes, by kind."""
    partitions: Mapping[PartitionName, Partition] = Field(
        min_length=1, max_length=1000, examples=["{cpu: {nodesets: [cpu], default: true}}"]
    )
    """Queues, by name."""
    groups: Mapping[GroupName, RegularId] = Field(default_factory=dict, max_length=10_000)
    """Groups that users share, with their number, e.g. {ml: 3001}."""
    users: tuple[User, ...] = Field(default=(), max_length=10_000)
    """People who use the cluster."""
    former_users: Annotated[tuple[FormerUser, ...], NoEffect("only keeps uids from being given to somebody else")] = (
        Field(default=(), max_length=10_000)
    )
    """People who used it, whose files are still there: nobody else can have their uids. `./hpc user remove` adds
    them."""
    accounting: Accounting = Field(default_factory=Accounting.model_construct)
    """Accounts that jobs are charged to, and their limits."""
    slurm: SlurmSettings = Field(default_factory=SlurmSettings.model_construct)
    """Slurm's own settings; the defaults suit a cluster of any size here."""
    containers: Containers = Field(default_factory=Containers.model_construct)
    """On local and gcp: containers of jobs."""
    monitoring: Monitoring | None = None
    """On local and gcp: metrics and alerts. Default: none; `{}` has them with their defaults."""
    pricing: Annotated[Pricing | None, SHOWN] = None
    """On gcp and nebius: own rates and discounts for the price that previews show. Default: the list prices."""
    budget: Annotated[Budget | None, BUDGET] = None
    """On gcp and nebius: the most that it is to cost in a month. Default: no limit."""
    customize: Annotated[tuple[Customize, ...], Replace("depends on the provider: see the preview")] = Field(
        default=(), max_length=100
    )
    """On gcp: inputs of Google Cloud's resources to change or add before they are registered."""
    deletion_protection: Annotated[Flag, NoEffect("only `destroy` asks for it")]
    """True if `destroy` is refused: on local and gcp of the whole cluster, on nebius of file systems and backups, which
    then stay. Default: false on local, true elsewhere."""

    _nodes_release: str = PrivateAttr(default="")

    def section(self, kind: type[S]) -> S | None:
        """Return a platform's own section, by its class; None if the file does not have it."""
        return next((value for _, value in self if isinstance(value, kind)), None)

    @property
    def slurm_version(self) -> str:
        """Slurm's release, such as 22.05: that of the configuration, else that of the platform or of the image."""
        of_platform = (section.slurm_release for _, section in self if isinstance(section, Section))
        return self.slurm.version or next(filter(None, of_platform), IMAGES[self.image.base].slurm_versions[0])

    @property
    def packages(self) -> tuple[str, ...]:
        """Additional packages of the distribution on machines: those of `image.packages`, and those that other sections
        need."""
        return (*self.image.packages, *((*MONITORING, FIREWALL) if self.monitoring else ()))

    @property
    def nodes_release(self) -> str:
        """The release that nodes may still run during an upgrade; empty at other times. It is not in the stack file."""
        return self._nodes_release

    def with_nodes_release(self, release: str) -> "ClusterConfig":
        """Return this configuration, for a cluster whose nodes may still run an earlier release."""
        copy = self.model_copy()
        copy._nodes_release = release  # noqa: SLF001 - of the same class
        return copy
