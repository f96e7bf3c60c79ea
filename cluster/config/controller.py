"""Sections of the controller and of login machines, and what their machines share with nodes: disks, and running on
the controller."""

from typing import Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from cluster.config.capacity import BasicCapacity
from cluster.config.impact_annotations import NoEffect
from cluster.config.section import Section
from cluster.config.types import (
    DiskTypeName,
    Flag,
    MachineTypeName,
    Natural,
    Positive,
    ZoneName,
)
from cluster.findings import RefusedError


class Disk(Section):
    """A disk of a machine."""

    type: DiskTypeName | None = None
    """On gcp: disk type. Default: pd-ssd for controller and nodes, pd-balanced for login machines."""
    size_gb: Positive | None = Field(default=None, ge=10, le=65536)
    """GB; on nebius GiB. Default: 200, and 100 for the controller's state; on nebius 128, 256 for login nodes, 512 for
    nodes with GPUs."""


class StateDisk(Disk):
    """The controller's disk for what outlives its machine."""

    replica_zone: ZoneName | None = None
    """On gcp: another zone of the region, e.g. us-central1-b, that has a copy of the disk. An edit of gcp:zone can then
    move the cluster there. Decided when the cluster is created."""


class Controller(Section):
    """The machine that runs slurmctld, slurmdbd and the accounting database."""

    machine_type: MachineTypeName
    """Machine type of the catalog. Default: the platform's smallest that suffices."""
    disk: Disk = Field(default_factory=Disk.model_construct)
    """On gcp and nebius: its boot disk."""
    state_disk: StateDisk = Field(default_factory=StateDisk.model_construct)
    """On gcp: the disk for Slurm's state, the accounting database, /opt/apps and, where nothing else is mounted there,
    /home. It outlives the machine."""
    capacity: BasicCapacity | None = None
    """On gcp: how the cloud is asked for it."""


class OnController(Section):
    """A role that the controller may have as well: it then has no machines to be counted, typed or addressed."""

    on: Literal["controller"] | None = None

    @model_validator(mode="after")
    def _refuse_machines(self) -> Self:
        machines = {"count", "idle", "spare", "machine_type", "gpus", "addresses", "disk", "capacity"}
        beside = sorted(machines & self.model_fields_set)
        if self.on and beside:
            raise RefusedError(
                "`on: controller` without count, idle, spare, machine_type, gpus, addresses, disk or capacity",
                f"remove {' and '.join(beside)} here, or remove `on`; the section `controller` describes the machine",
            )
        return self


class Login(OnController):
    """Machines where people log in and submit jobs; they run no daemon of Slurm."""

    on: Literal["controller"] | None = None
    """`controller` makes the controller the login machine as well; then nothing else is given here."""
    count: Natural = Field(default=1, le=1000)
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
