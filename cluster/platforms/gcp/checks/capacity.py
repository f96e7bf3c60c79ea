"""Ways of asking for machines that a machine type, or what it has, does not allow."""

from collections.abc import Iterator

from cluster import roster
from cluster.catalog import MACHINE_TYPES, MachineType
from cluster.catalog.gpus import ACCELERATORS
from cluster.catalog.machine_families import FAMILIES
from cluster.config.capacity import Capacity
from cluster.config.cluster import ClusterConfig
from cluster.config.machines import Controller, Login
from cluster.config.validators.settings import minutes
from cluster.findings import Finding, Level, Location, listing
from cluster.platforms.gcp.fabric import fabric_of
from cluster.platforms.gcp.names import place

MOST_FLEX_MINUTES = 7 * 24 * 60
LEAST_FLEX_MINUTES = 10
_NO_PLACEMENT = [one.name for one in FAMILIES.values() if one.platform == "gcp" and not one.compact_placement]


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    for role, machine in (("controller", config.controller), ("login", config.login)):
        yield from _alone(role, machine)
    made_for = fabric_of(config)
    for name, section in config.nodesets.items():
        kind = roster.nodeset_type(config, section)
        if not kind.family.fabric.set_up:
            yield _fabric(name, kind)
        elif kind.family.fabric.nics and kind.family.fabric is not made_for:
            yield Finding(
                id="machine-type-fabrics",
                at=("nodesets", name, "machine_type"),
                given=f"{kind.name}, whose GPUs are connected by {kind.family.fabric.name}",
                allowed=f"one fabric in a cluster; another nodeset has {made_for.name}",
                todo="make a stack of their own for these nodes",
            )
        row = ACCELERATORS.get(section.gpus.type) if section.gpus else None
        if section.gpus and row and section.gpus.count not in row.counts:
            yield Finding(
                id="gpus-count",
                at=("nodesets", name, "gpus", "count"),
                given=str(section.gpus.count),
                allowed=f"of {section.gpus.type} in one machine: {listing(map(str, row.counts))}",
                todo="take one of these, and more nodes if you need more",
            )
        if section.capacity and not section.on:
            yield from _refused(("nodesets", name, "capacity"), section.capacity, kind)
            yield from _policy(config, ("nodesets", name, "capacity", "reservation"), section.capacity)


def find_warnings(config: ClusterConfig) -> Iterator[Finding]:
    """Nodesets whose machines end: by when Slurm does not know, and jobs that would then never start."""
    for name, section in config.nodesets.items():
        calendar = section.capacity.calendar if section.capacity else None
        if calendar and calendar.ends is None:
            yield Finding(
                id="calendar-ends",
                level=Level.WARNING,
                at=("nodesets", name, "capacity", "calendar"),
                what=f"Slurm starts jobs that can't finish before {calendar.name} ends and its machines are deleted",
                todo=f"write {{name: {calendar.name}, ends: YYYYMMDDTHHMMSSZ}}",
            )
        if not section.capacity or not (section.capacity.flex or (calendar and calendar.ends)):
            continue
        for partition, row in config.partitions.items():
            if name in row.nodesets and minutes(row.default_time or row.max_time) == float("inf"):
                yield Finding(
                    id="end-no-limit",
                    level=Level.WARNING,
                    at=("partitions", partition, "default_time"),
                    what=f"jobs of {partition} that give no --time ask for INFINITE, and never start on {name}, whose "
                    "machines end",
                    todo='write default_time, e.g. "1-00:00:00"',
                )


def _fabric(nodeset: str, kind: MachineType) -> Finding:
    """A machine type whose GPUs would have no network between machines."""
    usable = [
        one.name for one in MACHINE_TYPES.values() if one.platform == "gcp" and one.gpu and one.family.fabric.set_up
    ]
    return Finding(
        id="machine-type-fabric",
        at=("nodesets", nodeset, "machine_type"),
        given=f"{kind.name}, whose GPUs are connected by {kind.family.fabric.name}",
        allowed=f"machine types with GPUs whose network this version sets up: {listing(usable)}",
        todo=f"write {usable[0]}; `./hpc rehearse` runs this cluster's Slurm as it is",
    )


def _alone(role: str, machine: Controller | Login) -> Iterator[Finding]:
    """Machines that compute nothing: no neighbours, no GPUs."""
    way = machine.capacity and (machine.capacity.spot or machine.capacity.on_demand)
    if machine.capacity and way and way.placement:
        yield Finding(
            id="placement-role",
            at=(role, "capacity", "spot" if machine.capacity.spot else "on_demand", "placement"),
            given=f"{{max_distance: {way.placement.max_distance}}}",
            allowed="placement of nodesets, whose machines talk to each other",
            todo="remove it here",
        )
    kind = MACHINE_TYPES[machine.machine_type] if machine.machine_type else None
    if kind and kind.gpu:
        yield Finding(
            id="machine-type-gpu",
            at=(role, "machine_type"),
            given=kind.name,
            allowed="a machine type without GPUs, e.g. c2-standard-8",
            todo="take another, and make a nodeset of those with GPUs",
        )


def _refused(at: Location, capacity: Capacity, kind: MachineType) -> Iterator[Finding]:
    if capacity.placement and not kind.family.compact_placement:
        yield Finding(
            id="placement-family",
            at=(*at, capacity.way, "placement"),
            given=f"{{max_distance: {capacity.placement.max_distance}}} on {kind.name}",
            allowed=f"placement on machine families other than {listing(_NO_PLACEMENT)}",
            todo="remove it, or take another machine type, e.g. c2-standard-8",
        )
    if capacity.flex and not kind.family.flex:
        yield Finding(
            id="flex-family",
            at=(*at, "flex"),
            given=f"flex on {kind.name}",
            allowed="flex start for accelerator-optimized machines, e.g. a3-megagpu-8g",
            todo="write `capacity: {on_demand: {}}`, or {spot: {}}",
        )
    if capacity.flex:
        yield from _held(at, capacity.flex.max_run)
    if capacity.calendar and not kind.family.calendar:
        yield Finding(
            id="calendar-family",
            at=(*at, "calendar"),
            given=f"{capacity.calendar.name} for {kind.name}",
            allowed="future reservations in calendar mode for A3 machines, e.g. a3-megagpu-8g",
            todo="write `capacity: {on_demand: {}}`, {spot: {}} or {reservation: NAME}",
        )


def _policy(config: ClusterConfig, at: Location, capacity: Capacity) -> Iterator[Finding]:
    """A policy of another project or region: templates keep its name alone, and find another policy by it, or none."""
    folder, _, name = ((capacity.reservation and capacity.reservation.placement_policy) or "").rpartition("/")
    own = f"projects/{place(config).project}/regions/{place(config).region}/resourcePolicies"
    if folder and folder != own:
        yield Finding(
            id="placement-policy-elsewhere",
            at=(*at, "placement_policy"),
            given=f"{folder}/{name}",
            allowed=f"a policy of the stack's own project and region: {own}/NAME, or NAME alone",
            todo="create one there (`gcloud compute resource-policies create group-placement`), and name it",
        )


def _held(at: Location, max_run: str) -> Iterator[Finding]:
    held = minutes(max_run)
    if not LEAST_FLEX_MINUTES <= held <= MOST_FLEX_MINUTES:
        yield Finding(
            id="flex-duration",
            at=(*at, "flex", "max_run"),
            given=max_run,
            allowed='ten minutes to seven days, e.g. "7-00:00:00"',
            todo="shorten it: flex start holds machines for a week at most"
            if held > MOST_FLEX_MINUTES
            else "lengthen it",
        )
