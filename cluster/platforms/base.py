"""The interface of platforms for the rest of the program."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from cluster.catalog.base_system import JOB_PROGRAMS
from cluster.catalog.bounds import MOST_NODES
from cluster.catalog.prologs import NEWEST, RxdmVersion
from cluster.config.cluster import ClusterConfig
from cluster.config.controller import Login
from cluster.config.impact_annotations import Impact
from cluster.config.nodesets import Nodeset
from cluster.config.partitions import Partition
from cluster.config.section import Section
from cluster.config.slurm import SlurmSettings
from cluster.edits import Rule
from cluster.findings import Finding
from cluster.platforms.capability import Capability

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
class Limit:
    """The most machines that a cluster can have, and what sets this limit."""

    machines: int
    of: str


@dataclass(frozen=True, kw_only=True)
class Provider:
    """A section that the stack file has as settings of Pulumi's provider (`gcp:project`), beside `hpc:cluster`."""

    namespace: str
    """The provider's, and the key of the section."""
    more: Mapping[str, str] = field(default_factory=dict)
    """Settings besides those of the section that the stack file may have, with their description."""
    check: Callable[[Mapping[str, Any]], Iterable[Finding]]
    """Errors in these settings that the section can't find by itself."""


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """Credentials with which the provider of a platform logs in."""

    title: str
    """The owner of the interface: Google."""
    found: Callable[[Mapping[str, Any]], bool]
    """Returns whether there are any here, given the settings of the stack file."""
    todo: str
    """The command that creates some."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """The networks and servers that machines are connected to, where they do not report these themselves."""

    network: str
    mounts: Mapping[str, str]
    """The server of each mount point."""


def _network(config: ClusterConfig) -> Places:
    return Places(network=str(config.network.cidr), mounts={})


def _newest_rxdm(_: ClusterConfig) -> RxdmVersion:
    return NEWEST


def packaged(config: ClusterConfig) -> Collection[str]:
    """Return the programs for jobs in `image.packages`."""
    return {JOB_PROGRAMS[name] for name in config.image.packages if name in JOB_PROGRAMS}


def _as_written(_: ClusterConfig | None, config: ClusterConfig) -> ClusterConfig:
    return config


def _none(_: ClusterConfig) -> Sequence[Any]:
    return ()


def later(path: str) -> Callable[..., Any]:
    """Return a function that imports the module of `MODULE:NAME` when it is called, and calls or returns that object:
    every command reads the fields of all platforms, but the rules of one."""

    def call(*given: Any) -> Any:  # noqa: ANN401 - as the function has it
        module, _, name = path.partition(":")
        found = getattr(import_module(module), name)
        return found(*given) if callable(found) else found

    return call


_all_dashboards = later("cluster.monitoring.dashboards:DASHBOARDS")


@dataclass(frozen=True, kw_only=True)
class Platform:
    """A kind of place where clusters can be created."""

    name: str
    """The value of `hpc:cluster.platform`."""
    title: str
    """The name for users: Google Cloud."""
    defaults: Mapping[str, Any]
    """Default values of `hpc:cluster`."""
    machine_types: Mapping[str, str]
    """Default machine type of each role: controller, login, monitoring, node."""
    images: tuple[str, ...]
    """Operating systems of the catalog that machines can have, the default first."""
    any_machine_type: bool = False
    """True if machines may be of every type of the catalog, as in a rehearsal, whose machines only present themselves
    so."""
    elastic: bool = False
    """True if nodesets can be elastic: `count: {min: 2, max: 16}`."""
    limit: Limit = Limit(machines=MOST_NODES, of="Slurm")
    """The largest number of machines."""
    sections: Mapping[str, str] = field(default_factory=dict)
    """Sections that only this platform has, as MODULE:CLASS by their key of `hpc:cluster`; imported when a stack has
    one."""
    provider: Provider | None = None
    """The provider that also reads one of these sections."""
    fields: Mapping[type[Section], frozenset[str]] = field(default_factory=dict)
    """The fields of this platform that not all platforms have. A field that only another platform lists is refused."""
    instead: Mapping[str, str] = field(default_factory=dict)
    """The advice for a field that it refuses, by the field's key."""
    capabilities: frozenset[Capability] = frozenset()
    slurm: SlurmDifferences = SlurmDifferences()
    rxdm: Callable[[ClusterConfig], RxdmVersion] = _newest_rxdm
    """Returns the default version of the rxdm prolog (`slurm.rxdm`)."""
    checks: Callable[[ClusterConfig], Iterable[Finding]] = _none
    """Errors of a configuration that only this platform can have."""
    warnings: Callable[[ClusterConfig], Iterable[Finding]] = _none
    keep: Callable[[ClusterConfig | None, ClusterConfig], ClusterConfig] = _as_written
    """Returns the second configuration with values that it does not set, such as addresses, as the running cluster with
    the first configuration has them."""
    impacts: Callable[[], Mapping[str, Impact | Rule]] = dict
    """The impacts of edits, by pattern of the field, as in cluster/impact/rules.py. They come before those."""
    summary: Callable[[ClusterConfig], Sequence[str]] = _none
    """Lines below a preview."""
    places: Callable[[ClusterConfig], Places] = _network
    """Returns what a drawing of a cluster has beside its machines."""
    job_programs: Callable[[ClusterConfig], Collection[str]] = packaged
    """Returns the programs for jobs that not every cluster has: pyxis, apptainer, podman, mpi, pytorch."""
    dashboards: Callable[[ClusterConfig], Iterable[Any]] = _all_dashboards
    """Dashboards (cluster.monitoring.dashboards) with the panels that it has metrics for."""
    ops_agent: tuple[str, str] = ("", "")
    """Unit and configuration file of the platform's agent for metrics (`monitoring.ops_agent`)."""
    on_this_host: bool = False
    """True if its machines run on this host: they are created as root."""
    credentials: Credentials | None = None
    """Credentials of its provider; None if it needs nothing, and the embedded engine can create its resources."""
    observer: str = ""
    """Module whose OBSERVER reads clusters for `status`, `health`, `logs` and `drift` (see
    cluster/platforms/observer.py); empty if each machine has the set-up of this program, which reports."""
    machine_images: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Types of resources that are machines or their templates, each with the inputs of its image, which an upgrade
    changes in steps. Empty if this program does not install Slurm."""
    deploy: str
    """Module with `deploy(config, scripts) -> Deployment`, imported when a stack is deployed. Unless `machine_images`
    is empty, it also has `machine_image(config)`, which returns the id of the machines' image."""
    environment: str = ""
    """Module (see Environment in components/state_bucket.py) that `./hpc env` imports to print what programs need to
    work with a stack's cloud. Empty: they need nothing."""
    state_bucket: tuple[str, str] | None = None
    """The kind of its buckets for state, as in `./hpc backend init KIND`, and the module whose BACKEND (see
    components/state_bucket.py) creates them."""

    def section(self, key: str) -> type[Section]:
        """Return the class of a section that only this platform has."""
        return section_class(self.sections[key])


def section_class(path: str) -> type[Section]:
    """Return the class that `MODULE:CLASS` names."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
