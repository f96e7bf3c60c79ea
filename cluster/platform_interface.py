"""The interface of platforms, for the rest of the program, and the table of those that are registered.

`cluster.platforms.registry` registers them, and `cluster.load` imports it, so they are there wherever a configuration
is.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from cluster.capability import Capability
from cluster.catalog.base_system import JOB_PROGRAMS
from cluster.catalog.bounds import MOST_NODES
from cluster.config.cluster import ClusterConfig
from cluster.config.controller import Login
from cluster.config.impact_annotations import Impact
from cluster.config.nodesets import Nodeset
from cluster.config.partitions import Partition
from cluster.config.section import ProviderSection, Section
from cluster.config.slurm import SlurmSettings
from cluster.cost_parts import Part
from cluster.edits import ImpactRule
from cluster.findings import Finding

ON_MACHINES: Mapping[type[Section], frozenset[str]] = {
    Login: frozenset({"on"}),
    Nodeset: frozenset({"on", "scripts", "spare"}),
    Partition: frozenset({"scripts"}),
    SlurmSettings: frozenset({"scripts", "rxdm", "job_submit_lua", "health", "warm_up", "reconcile", "topology"}),
}
"""Fields of platforms whose machines run this program's node set-up. On others an operator of Slurm decides these."""


@dataclass(frozen=True, kw_only=True)
class SlurmDifferences:
    """Differences of Slurm's files on a platform from those of real machines."""

    bind_tasks: bool = True
    """True if tasks are bound to cores (task/affinity)."""
    confine_cores: bool = True
    """True if jobs are confined to their cores (ConstrainCores)."""
    config_overrides: bool = False
    """True if slurmd accepts nodes that have less than slurm.conf requires (SlurmdParameters=config_overrides)."""
    places: bool = False
    """True if the cloud names the host of a compactly placed machine, and that name contains its block."""
    account_gather: str = "cgroup"
    """Default of JobAcctGatherType: cgroup or linux."""


@dataclass(frozen=True, kw_only=True)
class MachineLimit:
    """The most machines that a cluster can have, and what sets this limit."""

    machines: int
    of: str


@dataclass(frozen=True, kw_only=True)
class ClusterPlaces:
    """The networks and servers that machines are connected to, where they do not report these themselves."""

    network: str
    mounts: Mapping[str, str]
    """The server of each mount point."""


class ProviderLogin:
    """The credentials with which the provider of a platform logs in."""

    title: ClassVar[str]
    """The owner of the interface: Google."""
    todo: ClassVar[str]
    """The command that creates some."""

    def found(self, settings: Mapping[str, Any]) -> bool:
        """Return whether there are any here, given the settings of the stack file."""
        raise NotImplementedError


class Platform:
    """A kind of place where clusters can be created. Each is a subclass, whose methods import what they call: every
    command reads the fields of all platforms, but the rules of one."""

    name: ClassVar[str]
    """The value of `hpc:cluster.platform`, and the key of the section that only this platform has."""
    title: ClassVar[str]
    """The name for users: Google Cloud."""
    defaults: ClassVar[Mapping[str, Any]]
    """Default values of `hpc:cluster`."""
    machine_types: ClassVar[Mapping[str, str]]
    """Default machine type of each role: controller, login, monitoring, node."""
    images: ClassVar[tuple[str, ...]]
    """Operating systems of the catalog that machines can have, the default first."""
    on_this_host: ClassVar[bool] = False
    """True if its machines run on this host: they are created as root, and only present themselves as a machine type,
    so that they may be of every type of the catalog."""
    installs_slurm: ClassVar[bool] = True
    """True if this program writes Slurm's files and sets up the machines, which then report themselves. On others an
    operator does, and an observer reads the cluster (cluster/platforms/observers.py)."""
    limit: ClassVar[MachineLimit] = MachineLimit(machines=MOST_NODES, of="Slurm")
    """The largest number of machines."""
    fields: ClassVar[Mapping[type[Section], frozenset[str]]] = {}
    """The fields of this platform that not all platforms have. A field that only another platform lists is refused."""
    instead: ClassVar[Mapping[str, str]] = {}
    """The advice for a field that it refuses, by the field's key."""
    capabilities: ClassVar[frozenset[Capability]] = frozenset()
    slurm: ClassVar[SlurmDifferences] = SlurmDifferences()
    ops_agent: ClassVar[tuple[str, str]] = ("", "")
    """Unit and configuration file of the platform's agent for metrics (`monitoring.ops_agent`)."""
    login: ClassVar[ProviderLogin | None] = None
    """The login of its provider; None if it needs none, and the embedded engine can create its resources."""

    def section(self) -> type[Section] | None:
        """Return the section that only this platform has; None if it has none."""
        return self.provider()

    def provider(self) -> type[ProviderSection] | None:
        """Return that section if Pulumi's provider reads it too; None if it has none or stands below `hpc:cluster`."""
        return None

    def find_errors(self, config: ClusterConfig) -> Iterable[Finding]:  # noqa: ARG002 - of subclasses
        """Return errors of a configuration that only this platform can have."""
        return ()

    def find_warnings(self, config: ClusterConfig) -> Iterable[Finding]:  # noqa: ARG002 - of subclasses
        """Return the warnings for the author of a stack file."""
        return ()

    def keep(self, before: ClusterConfig | None, config: ClusterConfig) -> ClusterConfig:  # noqa: ARG002 - of subclasses
        """Return the second configuration with values that it does not set, such as addresses, as the running cluster
        with the first configuration has them."""
        return config

    def impacts(self) -> Mapping[str, Impact | ImpactRule]:
        """Return the impacts of edits, by pattern of the field, as in cluster/impact/rules.py. They come before
        those."""
        return {}

    def describe_request(self, config: ClusterConfig) -> Sequence[str]:  # noqa: ARG002 - of subclasses
        """Return the lines below a preview."""
        return ()

    def region(self, config: ClusterConfig) -> str:  # noqa: ARG002 - of subclasses
        """Return the region that prices are of; empty where nothing has a price."""
        return ""

    def cost_parts(self, config: ClusterConfig) -> Sequence[Part]:  # noqa: ARG002 - of subclasses
        """Return all that a cluster costs money for, but traffic and what is billed by its use."""
        return ()

    def places(self, config: ClusterConfig) -> ClusterPlaces:
        """Return what a drawing of a cluster has beside its machines."""
        return ClusterPlaces(network=str(config.network.cidr), mounts={})

    def job_programs(self, config: ClusterConfig) -> Collection[str]:
        """Return the programs for jobs that not every cluster has: pyxis, apptainer, podman, mpi, pytorch."""
        return packaged(config)


def packaged(config: ClusterConfig) -> Collection[str]:
    """Return the programs for jobs in `image.packages`."""
    return {JOB_PROGRAMS[name] for name in config.image.packages if name in JOB_PROGRAMS}


_REGISTERED: dict[str, Platform] = {}


def register(platform: Platform) -> None:
    """Add a platform, whose name is then allowed as `hpc:cluster.platform`."""
    _REGISTERED[platform.name] = platform


def names() -> tuple[str, ...]:
    return tuple(_REGISTERED)


def get(name: str) -> Platform:
    """Return the platform of a name. Raises KeyError: there is none."""
    return _REGISTERED[name]


def all_platforms() -> tuple[Platform, ...]:
    return tuple(_REGISTERED.values())
