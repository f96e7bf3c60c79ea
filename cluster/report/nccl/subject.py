"""What a run is compared with: its collective, machines and what is known of them."""

from dataclasses import dataclass

from cluster.catalog import MACHINE_TYPES
from cluster.catalog.families import Fabric
from cluster.catalog.machines import MachineType
from cluster.catalog.nccl_references import LINE_RATES, LineRate, Reference, reference
from cluster.report.nccl.collective import candidates, ranks_of
from cluster.report.nccl.run import Run


@dataclass(frozen=True, kw_only=True)
class Given:
    """What whoever asks for a report knows; it is taken before what the log says."""

    machine_type: str = ""
    nodes: int | None = None
    collective: str = ""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A run's circumstances; empty or None where nothing says them."""

    machine_type: str
    gpu: str
    """Names of its GPUs."""
    types: str
    """Data types that were sent."""
    nodes: int | None
    ranks: int | None
    collective: str
    possible: tuple[str, ...]
    """All collectives that the columns allow, where nothing names it."""
    network_only: bool
    reference: Reference | None

    @property
    def machines(self) -> str:
        """The machine type, else the GPUs."""
        return self.machine_type or self.gpu

    @property
    def kind(self) -> tuple[object, ...]:
        """What has to agree where two runs are compared."""
        return self.collective, self.nodes, self.ranks, self.machine_type, self.gpu, self.types, self.network_only

    @property
    def machine(self) -> MachineType | None:
        return MACHINE_TYPES.get(self.machine_type)

    @property
    def fabric(self) -> Fabric:
        """The network between GPUs of different nodes; NONE on one node."""
        return self.machine.family.fabric if self.machine and self.line_rate else Fabric.NONE

    @property
    def line_rate(self) -> LineRate | None:
        """What the NICs for GPUs of a node carry, if there are some and if the run leaves the node."""
        return LINE_RATES.get(self.machine_type) if (self.nodes or 0) > 1 else None

    def __str__(self) -> str:
        nodes = "" if self.nodes is None else "1 node" if self.nodes == 1 else f"{self.nodes} nodes"
        ranks = "" if self.ranks is None else f"{self.ranks} ranks"
        network = "without NVLink" if self.network_only else ""
        return ", ".join(one for one in (self.collective, nodes, self.machines, ranks, network) if one)


def subject_of(run: Run, given: Given | None = None) -> Subject:
    """The circumstances of a run: as given, else by its header, else by what nccl-tests printed."""
    given = given or Given()
    possible = (given.collective,) if given.collective else candidates(run)
    collective = possible[0] if possible else ""
    machine_type = given.machine_type or run.facts.get("machine_type", "")
    nodes = given.nodes or run.nodes
    forced = all(run.environment.get(name) == "1" for name in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"))
    network_only = forced or run.facts.get("over") == "fabric"
    known = reference(machine_type, collective, nodes, network_only=network_only) if nodes else None
    return Subject(
        machine_type=machine_type,
        gpu=run.gpu,
        types=run.types,
        nodes=nodes,
        ranks=ranks_of(run, collective),
        collective=collective,
        possible=possible,
        network_only=network_only,
        reference=known,
    )
