"""Scheduling options, reservations and placement of instances, in the API's own terms."""

from dataclasses import dataclass
from typing import Literal

from cluster.config.capacity import BasicCapacity, Capacity
from cluster.config.validators import minutes

RESERVATION_KEY = "compute.googleapis.com/reservation-name"
"""Key of an instance's reservation affinity (cloud.google.com/compute/docs/instances/reservations-consume)."""


@dataclass(frozen=True, kw_only=True)
class Affinity:
    """The reservation from which a machine takes its capacity."""

    type: Literal["SPECIFIC_RESERVATION", "NO_RESERVATION"]
    values: tuple[str, ...] = ()
    """The reservation's name as in the stack file, with its project if that is not the stack's."""

    def paths(self, project: str) -> list[str]:
        """Return the values as Compute Engine takes them: a block is named with its reservation's project
        (GoogleCloudPlatform/cluster-toolkit v1.95.0, schedmd-slurm-gcp-v6-nodeset: the form in variables.tf,
        reservation_name in main.tf)."""
        return [
            f"projects/{project}/reservations/{value}" if "/" in value and not value.startswith("projects/") else value
            for value in self.values
        ]


@dataclass(frozen=True, kw_only=True)
class Scheduling:
    """The scheduling options of a machine, with its reservation and its placement."""

    model: Literal["STANDARD", "SPOT", "FLEX_START", "RESERVATION_BOUND"] = "STANDARD"
    on_host_maintenance: Literal["MIGRATE", "TERMINATE"] = "TERMINATE"
    automatic_restart: bool = True
    """True if Compute Engine restarts an instance that it stopped itself, other than by a preemption."""
    end: Literal["STOP", "DELETE"] | None = None
    """The action at a preemption, and at the end of the run time."""
    seconds: int | None = None
    """The longest run time."""
    affinity: Affinity | None = None
    max_distance: int | None = None
    """Largest number of network hops between two machines of a compact placement; None for no placement."""
    policy: str | None = None
    """The compact placement policy of the reservation, which its instances must name too: slurm-gcp sends
    `reservation.policies` (scripts/resume.py). Name, or projects/PROJECT/regions/REGION/resourcePolicies/NAME."""
    ends: str | None = None
    """The end of a future reservation, YYYYMMDDTHHMMSSZ, if it is known. Its instances are deleted then."""


def machine_scheduling(capacity: BasicCapacity | None, *, migrates: bool) -> Scheduling:
    """Return the options of the controller or of a login machine."""
    return node_scheduling(
        Capacity.model_validate("spot" if capacity and capacity.spot else "on_demand"), migrates=migrates
    )


def node_scheduling(capacity: Capacity, *, migrates: bool, elastic: bool = False, bound: bool = False) -> Scheduling:
    """Return the options of a nodeset's nodes. `migrates`: whether a running instance can move to another host;
    `bound`: whether instances of their family are deleted at the end of their reservation.

    A static spot node that is preempted keeps its name, disk and entry in the state, is DOWN in Slurm while it is
    stopped, and joins again once it is started. An elastic one is deleted, and created again for the next job.
    """
    hops, calendar, reservation = capacity.placement, capacity.calendar, capacity.reservation
    distance = hops.max_distance if hops else None
    if capacity.spot:
        end = "DELETE" if elastic else "STOP"
        return Scheduling(model="SPOT", automatic_restart=False, end=end, max_distance=distance)
    if capacity.flex:
        return Scheduling(
            model="FLEX_START",
            automatic_restart=False,
            end="DELETE",
            seconds=int(minutes(capacity.flex.max_run) * 60),
            # Google refuses a request for flex start that could also use a reservation.
            affinity=Affinity(type="NO_RESERVATION"),
        )
    source = calendar or reservation
    affinity = Affinity(type="SPECIFIC_RESERVATION", values=(source.name,)) if source else None
    policy = reservation.placement_policy if reservation else None
    if calendar or (reservation and bound):
        ends = calendar.ends if calendar else None
        return Scheduling(model="RESERVATION_BOUND", end="DELETE", affinity=affinity, policy=policy, ends=ends)
    # Instances of a compact placement can't migrate: they would leave it.
    maintenance = "MIGRATE" if migrates and distance is None and policy is None else "TERMINATE"
    return Scheduling(on_host_maintenance=maintenance, affinity=affinity, max_distance=distance, policy=policy)
