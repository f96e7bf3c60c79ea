"""Ways to ask Compute Engine for machines: one class for each, with its meaning in the API's own words.

A way is one of five classes, each with what it alone can take, so that a mixture (spot machines from a reservation, a
placement beside one) can't be written down, let alone sent.
"""

from dataclasses import dataclass
from typing import Literal

from cluster.config.capacity import BasicCapacity, Capacity
from cluster.config.validators.settings import minutes

Model = Literal["STANDARD", "SPOT", "FLEX_START", "RESERVATION_BOUND"]
Maintenance = Literal["MIGRATE", "TERMINATE"]
End = Literal["STOP", "DELETE"]

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
    """The scheduling options of a machine, in the words of Compute Engine's API."""

    model: Model
    on_host_maintenance: Maintenance
    automatic_restart: bool
    """True if Compute Engine starts a machine again that it ended itself (not by a preemption)."""
    end: End | None = None
    """The action when Compute Engine takes the machine back."""
    seconds: int | None = None
    """The longest run time."""
    affinity: Affinity | None = None


@dataclass(frozen=True, kw_only=True)
class OnDemand:
    """At the list price, for as long as wanted. `migrates`: whether a running machine can move to another host."""

    max_distance: int | None = None
    """Network hops between two machines at most, where they are to be close; None: wherever there is room."""

    def scheduling(self, *, migrates: bool) -> Scheduling:
        # Machines of a compact placement can't move: they would leave it.
        moves = migrates and self.max_distance is None
        return Scheduling(
            model="STANDARD", on_host_maintenance="MIGRATE" if moves else "TERMINATE", automatic_restart=True
        )


@dataclass(frozen=True, kw_only=True)
class Spot:
    """At a low price, and taken back at any time, with 30 seconds' notice."""

    max_distance: int | None = None
    """The same as for OnDemand."""
    end: End = "STOP"
    """A static node keeps its name, disk and place in the state, is DOWN in Slurm while it is away, and joins again by
    itself once it is started. An elastic node is deleted, and created again for the next job."""

    def scheduling(self, *, migrates: bool) -> Scheduling:  # noqa: ARG002 - these never move
        return Scheduling(model="SPOT", on_host_maintenance="TERMINATE", automatic_restart=False, end=self.end)


@dataclass(frozen=True, kw_only=True)
class Reserved:
    """Machines from a reservation, which brings its own placement."""

    name: str
    """Name, or projects/PROJECT/reservations/NAME where another project shares it."""
    policy: str | None = None
    """The compact placement policy that the reservation was made with, which its machines must name too: slurm-gcp
    sends `reservation.policies` (scripts/resume.py). Name, or projects/PROJECT/regions/REGION/resourcePolicies/NAME."""
    bound: bool = False
    """True if the machines end with it, as all do whose family has no other reservations."""

    def scheduling(self, *, migrates: bool) -> Scheduling:
        moves = migrates and self.policy is None and not self.bound
        return Scheduling(
            model="RESERVATION_BOUND" if self.bound else "STANDARD",
            on_host_maintenance="MIGRATE" if moves else "TERMINATE",
            automatic_restart=True,
            end="DELETE" if self.bound else None,
            affinity=Affinity(type="SPECIFIC_RESERVATION", values=(self.name,)),
        )


@dataclass(frozen=True, kw_only=True)
class Flex:
    """Machines by Dynamic Workload Scheduler's flex start: waited for, then held for a time."""

    seconds: int

    def scheduling(self, *, migrates: bool) -> Scheduling:  # noqa: ARG002 - these never move
        return Scheduling(
            model="FLEX_START",
            on_host_maintenance="TERMINATE",
            automatic_restart=False,
            end="DELETE",
            seconds=self.seconds,
            # Its capacity is the scheduler's: a request that could also take a reservation's is refused.
            affinity=Affinity(type="NO_RESERVATION"),
        )


@dataclass(frozen=True, kw_only=True)
class Calendar:
    """Machines from a future reservation in calendar mode; they end with it."""

    name: str
    """Name of the reservation that it becomes."""
    ends: str | None = None
    """The reservation's end, YYYYMMDDTHHMMSSZ, where that is known."""

    def scheduling(self, *, migrates: bool) -> Scheduling:  # noqa: ARG002 - these never move
        return Scheduling(
            model="RESERVATION_BOUND",
            on_host_maintenance="TERMINATE",
            automatic_restart=True,
            end="DELETE",
            affinity=Affinity(type="SPECIFIC_RESERVATION", values=(self.name,)),
        )


Way = OnDemand | Spot | Reserved | Flex | Calendar
"""A way of asking for machines."""


def of_machine(capacity: BasicCapacity | None) -> OnDemand | Spot:
    """Return how the controller or a login machine is asked for."""
    return Spot() if capacity is not None and capacity.spot else OnDemand()


def of_nodes(capacity: Capacity | None, *, elastic: bool = False, bound: bool = False) -> Way:
    """Return how the nodes of a nodeset are asked for; they were parsed, so exactly one way is given. `bound`: whether
    machines of their family end with their reservation."""
    if capacity is None:
        return OnDemand()
    hops = capacity.placement.max_distance if capacity.placement else None
    if capacity.spot:
        return Spot(max_distance=hops, end="DELETE" if elastic else "STOP")
    if capacity.reservation:
        return Reserved(name=capacity.reservation.name, policy=capacity.reservation.placement_policy, bound=bound)
    if capacity.flex:
        return Flex(seconds=int(minutes(capacity.flex.max_run) * 60))
    if capacity.calendar:
        return Calendar(name=capacity.calendar.name, ends=capacity.calendar.ends)
    return OnDemand(max_distance=hops)
