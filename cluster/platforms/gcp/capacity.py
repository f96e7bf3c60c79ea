"""Ways to ask Compute Engine for machines, in the API's own words."""

from dataclasses import dataclass
from typing import Literal

from cluster.config.capacity import BasicCapacity, Capacity
from cluster.config.validators import minutes

RESERVATION_KEY = "compute.googleapis.com/reservation-name"
"""Key by which a machine names its reservation (cloud.google.com/compute/docs/instances/reservations-consume)."""


@dataclass(frozen=True, kw_only=True)
class Affinity:
    """The reservation from which a machine takes its capacity."""

    type: Literal["SPECIFIC_RESERVATION", "NO_RESERVATION"]
    values: tuple[str, ...] = ()
    """The reservation's name, with its project where that is another one."""


@dataclass(frozen=True, kw_only=True)
class Scheduling:
    """The scheduling options of a machine, with its reservation and its placement."""

    model: Literal["STANDARD", "SPOT", "FLEX_START", "RESERVATION_BOUND"] = "STANDARD"
    on_host_maintenance: Literal["MIGRATE", "TERMINATE"] = "TERMINATE"
    automatic_restart: bool = True
    """True if Compute Engine starts a machine again that it ended itself (not by a preemption)."""
    end: Literal["STOP", "DELETE"] | None = None
    """The action when Compute Engine takes the machine back."""
    seconds: int | None = None
    """The longest run time."""
    affinity: Affinity | None = None
    max_distance: int | None = None
    """Network hops between two machines at most, where they are to be close; None: wherever there is room."""
    policy: str | None = None
    """The compact placement policy that the reservation was made with, which its machines must name too: slurm-gcp
    sends `reservation.policies` (scripts/resume.py). Name, or projects/PROJECT/regions/REGION/resourcePolicies/NAME."""
    ends: str | None = None
    """The end of a future reservation, YYYYMMDDTHHMMSSZ, where that is known; its machines end with it."""


def machine_scheduling(capacity: BasicCapacity | None, *, migrates: bool) -> Scheduling:
    """Return how the controller or a login machine is asked for."""
    return node_scheduling(
        Capacity.model_validate("spot" if capacity and capacity.spot else "on_demand"), migrates=migrates
    )


def node_scheduling(capacity: Capacity, *, migrates: bool, elastic: bool = False, bound: bool = False) -> Scheduling:
    """Return how the nodes of a nodeset are asked for. `migrates`: whether a running machine can move to another host;
    `bound`: whether machines of their family end with their reservation.

    A static spot node keeps its name, disk and place in the state, is DOWN in Slurm while it is away, and joins again
    by itself once it is started. An elastic one is deleted, and created again for the next job.
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
            # Its capacity is the scheduler's: a request that could also take a reservation's is refused.
            affinity=Affinity(type="NO_RESERVATION"),
        )
    source = calendar or reservation
    affinity = Affinity(type="SPECIFIC_RESERVATION", values=(source.name,)) if source else None
    policy = reservation.placement_policy if reservation else None
    if calendar or (reservation and bound):
        ends = calendar.ends if calendar else None
        return Scheduling(model="RESERVATION_BOUND", end="DELETE", affinity=affinity, policy=policy, ends=ends)
    # Machines of a compact placement can't move: they would leave it.
    moves = migrates and distance is None and policy is None
    maintenance = "MIGRATE" if moves else "TERMINATE"
    return Scheduling(on_host_maintenance=maintenance, affinity=affinity, max_distance=distance, policy=policy)
