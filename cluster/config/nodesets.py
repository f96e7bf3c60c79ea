"""The section of nodesets: machine types, counts, GPUs, and elastic nodes."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator
from typing_extensions import Self

from cluster.catalog.bounds import MOST_NODES
from cluster.config.capacity import Capacity, OnDemand
from cluster.config.controller import Disk, OnController
from cluster.config.impact_annotations import NoEffect, Reconfigure, Restart
from cluster.config.section import OTHER, PLAIN, Section, Slurm
from cluster.config.slurm import SCRIPTS, Script
from cluster.config.types import (
    Cidr,
    Duration,
    Feature,
    MachineTypeName,
    Natural,
    NodeCount,
    NodeSettings,
    Positive,
)
from cluster.config.validators import duration_seconds
from cluster.findings import RefusedError


class Gpus(Section):
    """GPUs attached to a machine type that has none of its own."""

    type: str
    """GPU type that the machine type can take, e.g. t4 on n1-standard-1, standin on the local types."""
    count: Positive = Field(le=16)
    """GPUs in each machine."""


MOST_WAYS = 10
"""Most entries of a nodeset's list of capacities (ours)."""


class Elastic(Section):
    """The numbers of nodes of an elastic nodeset."""

    one_value: ClassVar[bool] = True

    min: Natural = Field(le=MOST_NODES)
    """Static nodes: they are there as long as the stack is."""
    max: NodeCount
    """The most nodes. Those above `min` are elastic: Slurm has their machines created when jobs need them, and deleted
    when they have been idle for `idle`."""

    @model_validator(mode="after")
    def _min_below_max(self) -> Self:
        if self.min >= self.max:
            raise RefusedError(
                "a min below max, e.g. {min: 2, max: 16}",
                f"write `count: {self.max}` if all nodes are to stay, or exchange the two"
                if self.min > self.max
                else f"write `count: {self.max}`: no node is elastic",
            )
        return self


def _count_form(value: Any) -> str:  # noqa: ANN401 - what stands in the file may have any shape
    return OTHER if isinstance(value, Mapping | Elastic) else PLAIN


def _capacity_form(value: Any) -> str:  # noqa: ANN401 - what stands in the file may have any shape
    return OTHER if isinstance(value, list | tuple) else PLAIN


def _check_length(ways: tuple[Capacity, ...]) -> tuple[Capacity, ...]:
    if not 1 <= len(ways) <= MOST_WAYS:
        raise RefusedError(
            f"1 to {MOST_WAYS} ways, e.g. [{{reservation: mine}}, spot, on_demand]",
            "remove some" if ways else "name one, or remove `capacity` for on_demand",
        )
    return ways


Count = Annotated[Annotated[NodeCount, Tag(PLAIN)] | Annotated[Elastic, Tag(OTHER)], Discriminator(_count_form)]
Capacities = Annotated[
    Annotated[Capacity, Tag(PLAIN)] | Annotated[tuple[Capacity, ...], AfterValidator(_check_length), Tag(OTHER)],
    Discriminator(_capacity_form),
]
IDLE_SECONDS = 600
"""Default of `idle`."""


class Nodeset(OnController):
    """Compute nodes of one kind."""

    on: Literal["controller"] | None = None
    """`controller` makes the controller a compute node as well; the nodeset is that one machine."""
    count: Count = 1
    """Nodes, numbered from 0. More adds at the end, fewer removes from the end. `{min: 2, max: 16}` makes the nodeset
    elastic: the first two are static, and Slurm has the others created and deleted."""
    idle: Annotated[
        Duration | None, Reconfigure("SuspendTime of the nodeset's partitions; nodes with jobs are not affected")
    ] = None
    """Time that an elastic node is idle before its machine is deleted, e.g. 10m. Default: 10m."""
    spare: Annotated[Natural, NoEffect("held back or given back within seconds; jobs that run there go on")] = Field(
        default=0, le=MOST_NODES
    )
    """How many of these nodes Slurm holds back from jobs (reservations hpc-spare-NODE). For each node that is drained
    or down one is given to jobs, and when it returns, an idle node is held back again. A spare that is not elastic is
    paid for as the others are."""
    machine_type: MachineTypeName | None = None
    """Machine type of the catalog, which sets sockets, cores, threads, memory and GPUs. Default: the platform's."""
    gpus: Gpus | None = None
    """GPUs to attach, on machine types that have none of their own."""
    disk: Disk = Field(default_factory=Disk.model_construct)
    """On gcp and nebius: the boot disk of each."""
    capacity: Capacities | None = None
    """On gcp and nebius: how the cloud is asked for them. On nebius on_demand, spot (preemptible nodes) or
    reservation. Elastic nodes may have a list, e.g. [{reservation: mine}, spot, on_demand]: where one way has no
    machines, the next one is tried. Static nodes have the first. On local: names of ways alone, without effect on the
    machines."""
    features: Annotated[
        tuple[Feature, ...],
        Slurm("Feature"),
        Restart("slurmctld and the nodeset's slurmd restart to know them; jobs run on"),
    ] = ()
    """Node features that jobs can ask for with --constraint."""
    node_conf: NodeSettings = Field(default_factory=dict)
    """Parameters of the NodeName line to set or override, e.g. {Weight: 10, MemSpecLimit: 512}."""
    scripts: Annotated[tuple[Script, ...], SCRIPTS] = ()
    """Scripts that run on these nodes, for jobs of any partition, after those of `slurm.scripts` and the partition's.
    """
    addresses: Cidr | None = None
    """Address block of this nodeset on local, inside network.cidr. Default: a free eighth, which it keeps."""

    @property
    def most(self) -> int:
        """The number of nodes in Slurm, static and elastic."""
        return self.count.max if isinstance(self.count, Elastic) else self.count

    @property
    def static(self) -> int:
        """The number of nodes whose machines Pulumi creates: the first ones."""
        return self.count.min if isinstance(self.count, Elastic) else self.count

    @property
    def elastic(self) -> bool:
        """Return whether Slurm has some of the nodes created and deleted."""
        return isinstance(self.count, Elastic)

    @property
    def idle_seconds(self) -> int:
        """Seconds that an elastic node is idle before its machine is deleted."""
        return duration_seconds(self.idle) if self.idle else IDLE_SECONDS

    @property
    def ways(self) -> tuple[Capacity, ...]:
        """The capacities in the order in which they are tried; at least one."""
        if isinstance(self.capacity, tuple):
            return self.capacity
        return (self.capacity or Capacity.model_construct(on_demand=OnDemand.model_construct()),)
