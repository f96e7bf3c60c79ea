"""Checks of machines on Google Cloud: capacity, placement, fabrics, elastic nodes."""

from collections.abc import Iterator

from cluster import roster
from cluster.catalog import MACHINE_TYPES, MachineType
from cluster.catalog.machine_families import ACCELERATORS, FAMILIES
from cluster.config.capacity import Capacity
from cluster.config.cluster import ClusterConfig
from cluster.config.controller import Controller, Login
from cluster.config.fields import as_written
from cluster.config.nodesets import Nodeset
from cluster.config.validators import minutes
from cluster.findings import Finding, Level, Location, listing
from cluster.platforms.gcp.address_plan import fabric_of
from cluster.platforms.gcp.image import installs
from cluster.platforms.gcp.names import account_id, host_project, place
from cluster.platforms.gcp.permissions import BINDINGS
from cluster.slurm.power_saving import boot_seconds, elastic_nodesets, repaired_nodesets, resume_timeout_for

MOST_FLEX_MINUTES = 7 * 24 * 60
LEAST_FLEX_MINUTES = 10
_NO_PLACEMENT = [row.name for row in FAMILIES.values() if row.platform == "gcp" and not row.compact_placement]


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    for role, machine in (("controller", config.controller), ("login", config.login)):
        yield from _role_errors(role, machine)
    network_fabric = fabric_of(config)
    for name, section in config.nodesets.items():
        kind = roster.nodeset_type(config, section)
        if not kind.family.fabric.set_up:
            yield _fabric_error(name, kind)
        elif kind.family.fabric.nics and kind.family.fabric is not network_fabric:
            yield Finding(
                id="machine-type-fabrics",
                at=("nodesets", name, "machine_type"),
                given=f"{kind.name}, whose GPUs are connected by {kind.family.fabric.name}",
                allowed=f"one fabric in a cluster; another nodeset has {network_fabric.name}",
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
        for at, capacity in () if section.on else _capacities(name, section):
            yield from _capacity_errors(at, capacity, kind)
            if section.elastic:
                yield from _elastic_errors(at, capacity, section)
            yield from _policy_errors(config, (*at, "reservation"), capacity)


def _capacities(name: str, section: Nodeset) -> Iterator[tuple[Location, Capacity]]:
    """Yield each capacity of a nodeset, with its location in the stack file."""
    at = ("nodesets", name, "capacity")
    for index, capacity in enumerate(section.ways):
        yield ((*at, index) if isinstance(section.capacity, tuple) else at), capacity


def _elastic_errors(at: Location, capacity: Capacity, section: Nodeset) -> Iterator[Finding]:
    """Yield capacities that elastic nodes can't have, and those after which no other is tried."""
    allowed = "on_demand, spot, flex or a reservation of an elastic nodeset"
    if capacity.flex and capacity is not section.ways[-1]:
        yield Finding(
            id="elastic-flex",
            at=at,
            given=as_written(capacity),
            allowed="flex as the last way: its requests wait in Google's queue, so ways after it are never tried",
            todo="move it to the end, e.g. capacity: [{reservation: my-reservation}, spot, flex]",
        )
    if capacity.calendar:
        yield Finding(
            id="elastic-calendar",
            at=(*at, "calendar"),
            given=as_written(capacity),
            allowed=f"{allowed}: the machines of {capacity.calendar.name} are paid for until it ends, whether they run "
            "or not",
            todo=f"write `count: {section.most}`",
        )


def flex_times(config: ClusterConfig) -> Iterator[Finding]:
    """Yield partitions whose jobs may run longer than machines of flex start exist."""
    for name in elastic_nodesets(config):
        longest = min((minutes(way.flex.max_run) for way in config.nodesets[name].ways if way.flex), default=0.0)
        most = longest - boot_seconds(config, name) / 60
        for partition, row in config.partitions.items():
            if longest and name in row.nodesets and minutes(row.max_time) > most:
                yield Finding(
                    id="elastic-flex-time",
                    at=("partitions", partition, "max_time"),
                    given=row.max_time,
                    allowed=f"{as_time(most)} at most: machines of flex start of {name} are deleted {as_time(longest)} "
                    "after they were created, and jobs are placed before that time is known",
                    todo=f'write `max_time: "{as_time(most)}"`',
                )


def as_time(span: float) -> str:
    """Return minutes as Slurm writes them."""
    days, rest = divmod(int(span), 24 * 60)
    return f"{days}-{rest // 60:02d}:{rest % 60:02d}:00"


def elastic_bindings(config: ClusterConfig) -> Iterator[Finding]:
    """Yield more nodesets than IAM accepts conditions for one role of the controller."""
    elastic, repaired = len(elastic_nodesets(config)), len(repaired_nodesets(config))
    allowed = f"{BINDINGS}: IAM binds a role to an account under so many conditions, and each nodeset is one"
    if repaired > BINDINGS:
        yield Finding(
            id="repair-many",
            at=("slurm", "reconcile", "static"),
            given=f"{repaired} nodesets with a number as `count`",
            allowed=allowed,
            todo="join nodesets of the same machines, or remove it",
        )
    if elastic > BINDINGS:
        yield Finding(
            id="elastic-many",
            at=("nodesets",),
            given=f"{elastic} nodesets with `count: {{min, max}}`",
            allowed=allowed,
            todo="join nodesets of the same machines, or write their `count` as a number",
        )


def elastic_warnings(config: ClusterConfig) -> Iterator[Finding]:
    """Yield elastic nodes whose boots take longer than Slurm waits, and users who can become root on a controller that
    may create and delete machines: the packet filter keeps only other users from the metadata server."""
    elastic = elastic_nodesets(config)
    for name in elastic if installs(config) else ():
        wait = boot_seconds(config, name)
        if wait < config.slurm.join_seconds:
            yield Finding(
                id="elastic-install",
                level=Level.WARNING,
                at=("nodesets", name, "count"),
                what=f"each machine of an elastic node installs its packages at its boot, for up to "
                f"{config.slurm.join_seconds} s (slurm.join_seconds), and one that has not joined after {wait} s is "
                "deleted",
                todo=f"name an image that has them (image.name, or `bake: true`), or write `ResumeTimeout: "
                f"{resume_timeout_for(config.slurm.join_seconds)}` in `conf` of its partitions",
            )
    sudoers = [user.name for user in config.users if user.sudo]
    if elastic and config.login.on and sudoers:
        yield Finding(
            id="elastic-login",
            level=Level.WARNING,
            at=("login", "on"),
            what=f"{listing(sudoers)} can become root on the controller, whose service account may create and delete "
            f"the machines of {listing(elastic)}",
            todo="remove `on: controller`, for login machines of their own, or `sudo` of these users",
        )


def shared_network_warnings(config: ClusterConfig) -> Iterator[Finding]:
    """Yield the accounts that put machines into another project's subnetwork after `up`, and may need a grant there.

    Machines of a managed instance group are created by the project's Google APIs service account
    (GoogleCloudPlatform/cloud-foundation-fabric, modules/project/sharedvpc-agent-iam.yaml: compute, cloudservices).
    """
    host, made = host_project(config), sorted({*elastic_nodesets(config), *repaired_nodesets(config)})
    if not (config.network.existing and host and made):
        return
    where, subnetwork = place(config), config.network.existing.subnetwork.rpartition("/")[2]
    accounts = [f"{account_id(config, 'controller')}@{where.project}.iam.gserviceaccount.com"]
    if any(way.flex for name in elastic_nodesets(config) for way in config.nodesets[name].ways):
        accounts.append("with flex start Google's NUMBER@cloudservices.gserviceaccount.com (NUMBER of this project)")
    yield Finding(
        id="elastic-shared-network",
        level=Level.WARNING,
        at=("network", "existing", "subnetwork"),
        what=f"machines of {listing(made)} are refused where project {host} does not let their makers use it: "
        f"{listing(accounts)}",
        todo=f"run, for each of them: gcloud compute networks subnets add-iam-policy-binding {subnetwork} --project "
        f"{host} --region {where.region} --role roles/compute.networkUser --member serviceAccount:ACCOUNT",
    )


def capacity_warnings(config: ClusterConfig) -> Iterator[Finding]:
    """Yield nodesets whose machines end at a time that Slurm does not know of, and jobs that would never start."""
    rows = [(name, *row) for name, section in config.nodesets.items() for row in _capacities(name, section)]
    for name, at, capacity in rows:
        calendar = capacity.calendar
        if calendar and calendar.ends is None:
            yield Finding(
                id="calendar-ends",
                level=Level.WARNING,
                at=(*at, "calendar"),
                what=f"Slurm starts jobs that can't finish before {calendar.name} ends and its machines are deleted",
                todo=f"write {{name: {calendar.name}, ends: YYYYMMDDTHHMMSSZ}}",
            )
        if not (capacity.flex or (calendar and calendar.ends)):
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


def _fabric_error(nodeset: str, kind: MachineType) -> Finding:
    usable = [
        row.name for row in MACHINE_TYPES.values() if row.platform == "gcp" and row.gpu and row.family.fabric.set_up
    ]
    return Finding(
        id="machine-type-fabric",
        at=("nodesets", nodeset, "machine_type"),
        given=f"{kind.name}, whose GPUs are connected by {kind.family.fabric.name}",
        allowed=f"machine types with GPUs whose network this version sets up: {listing(usable)}",
        todo=f"write {usable[0]}; `./hpc rehearse` runs this cluster's Slurm as it is",
    )


def _role_errors(role: str, machine: Controller | Login) -> Iterator[Finding]:
    """Yield placement and GPUs of machines that run no jobs."""
    options = (machine.capacity.spot or machine.capacity.on_demand) if machine.capacity else None
    if machine.capacity and options and options.placement:
        yield Finding(
            id="placement-role",
            at=(role, "capacity", "spot" if machine.capacity.spot else "on_demand", "placement"),
            given=f"{{max_distance: {options.placement.max_distance}}}",
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


def _capacity_errors(at: Location, capacity: Capacity, kind: MachineType) -> Iterator[Finding]:
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
    if capacity.flex and not LEAST_FLEX_MINUTES <= (longest := minutes(capacity.flex.max_run)) <= MOST_FLEX_MINUTES:
        yield Finding(
            id="flex-duration",
            at=(*at, "flex", "max_run"),
            given=capacity.flex.max_run,
            allowed='ten minutes to seven days, e.g. "7-00:00:00"',
            todo="shorten it: flex start holds machines for a week at most"
            if longest > MOST_FLEX_MINUTES
            else "lengthen it",
        )
    if capacity.calendar and not kind.family.calendar:
        yield Finding(
            id="calendar-family",
            at=(*at, "calendar"),
            given=f"{capacity.calendar.name} for {kind.name}",
            allowed="future reservations in calendar mode for A3 machines, e.g. a3-megagpu-8g",
            todo="write `capacity: {on_demand: {}}`, {spot: {}} or {reservation: NAME}",
        )


def _policy_errors(config: ClusterConfig, at: Location, capacity: Capacity) -> Iterator[Finding]:
    """Yield a policy of another project or region. Templates keep only the name, which would be another policy's."""
    folder, _, name = ((capacity.reservation.placement_policy if capacity.reservation else "") or "").rpartition("/")
    own = f"projects/{place(config).project}/regions/{place(config).region}/resourcePolicies"
    if folder and folder != own:
        yield Finding(
            id="placement-policy-elsewhere",
            at=(*at, "placement_policy"),
            given=f"{folder}/{name}",
            allowed=f"a policy of the stack's own project and region: {own}/NAME, or NAME alone",
            todo="create one there (`gcloud compute resource-policies create group-placement`), and name it",
        )
