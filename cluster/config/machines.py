"""Sections that ask for machines: controller, login, nodesets."""

from typing import Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from cluster.config.capacity import BasicCapacity, Capacity
from cluster.config.impact import ByRule, NoEffect, Restart
from cluster.config.section import Section, Slurm
from cluster.config.slurm import SCRIPTS, Script
from cluster.config.types import (
    Cidr,
    DiskTypeName,
    Feature,
    Flag,
    MachineTypeName,
    Natural,
    NodeCount,
    NodeSettings,
    Positive,
)
from cluster.findings import RefusedError


class Gpus(Section):
    """GPUs attached to a machine type that has none of its own."""

    type: str
    """GPU type that the machine type can take, e.g. t4 on n1-standard-1, standin on the local types."""
    count: Positive = Field(le=16)
    """GPUs in each machine."""


class Disk(Section):
    """A disk of a machine."""

    type: DiskTypeName | None = None
    """On gcp: disk type. Default: pd-ssd for controller and nodes, pd-balanced for login machines."""
    size_gb: Positive | None = Field(default=None, ge=10, le=65536)
    """GB; on nebius GiB. Default: 200, and 100 for the controller's state; on nebius 128, 256 for login nodes, 512 for
    nodes with GPUs."""


class Controller(Section):
    """The machine that runs slurmctld, slurmdbd and the accounting database."""

    machine_type: MachineTypeName
    """Machine type of the catalog. Default: the platform's smallest that suffices."""
    disk: Disk = Field(default_factory=Disk.model_construct)
    """On gcp and nebius: its boot disk."""
    state_disk: Disk = Field(default_factory=Disk.model_construct)
    """On gcp: the disk for Slurm's state, the accounting database, /opt/apps and, where nothing else is mounted there,
    /home. It outlives the machine."""
    capacity: BasicCapacity | None = None
    """On gcp: how the cloud is asked for it."""


class OnController(Section):
    """A role that the controller may have as well: it then has no machines to be counted, typed or addressed."""

    on: Literal["controller"] | None = None

    @model_validator(mode="after")
    def _refuse_machines(self) -> Self:
        beside = sorted({"count", "machine_type", "gpus", "addresses", "disk", "capacity"} & self.model_fields_set)
        if self.on and beside:
            raise RefusedError(
                "`on: controller` without count, machine_type, gpus, addresses, disk or capacity",
                f"remove {' and '.join(beside)} here, or remove `on`; the section `controller` describes the machine",
            )
        return self


class Login(OnController):
    """Machines where people log in and submit jobs; they run no daemon of Slurm."""

    on: Annotated[Literal["controller"] | None, ByRule("logins")] = None
    """`controller` makes the controller the login machine as well; then nothing else is given here."""
    count: Annotated[Natural, ByRule("logins")] = Field(default=1, le=1000)
    """Login machines. 0 with no `on` leaves only the controller to submit jobs from."""
    machine_type: MachineTypeName | None = None
    """Machine type of the catalog. Default: the platform's smallest that suffices."""
    disk: Disk = Field(default_factory=Disk.model_construct)
    """On gcp and nebius: the boot disk of each."""
    capacity: BasicCapacity | None = None
    """On gcp: how the cloud is asked for them."""
    public: Annotated[Flag, NoEffect("addresses come or go while the machines run; sessions through them end")] = False
    """On gcp: whether they have public addresses, for those of network.admin_cidrs; the stack then logs in through the
    first of them, else by Identity-Aware Proxy."""


class Nodeset(OnController):
    """Compute nodes of one kind."""

    on: Annotated[Literal["controller"] | None, ByRule("nodes_on")] = None
    """`controller` makes the controller a compute node as well; the nodeset is that one machine."""
    count: Annotated[NodeCount, ByRule("count")] = 1
    """Nodes, numbered from 0. More adds at the end, fewer removes from the end."""
    machine_type: MachineTypeName | None = None
    """Machine type of the catalog, which sets sockets, cores, threads, memory and GPUs. Default: the platform's."""
    gpus: Gpus | None = None
    """GPUs to attach, on machine types that have none of their own."""
    disk: Disk = Field(default_factory=Disk.model_construct)
    """On gcp and nebius: the boot disk of each."""
    capacity: Capacity | None = None
    """On gcp and nebius: how the cloud is asked for them. On nebius on_demand, spot (preemptible nodes) or
    reservation."""
    features: Annotated[
        tuple[Feature, ...],
        Slurm("Feature"),
        Restart("slurmctld and the nodeset's slurmd restart to know them; jobs run on"),
    ] = ()
    """Node features that jobs can ask for with --constraint."""
    node_conf: Annotated[NodeSettings, ByRule("node_conf")] = Field(default_factory=dict)
    """Parameters of the NodeName line to set or override, e.g. {Weight: 10, MemSpecLimit: 512}."""
    scripts: Annotated[tuple[Script, ...], SCRIPTS] = ()
    """Scripts that run on these nodes, for jobs of any partition, after those of `slurm.scripts` and the partition's.
    """
    addresses: Cidr | None = None
    """Address block of this nodeset on local, inside network.cidr. Default: a free eighth, which it keeps."""
