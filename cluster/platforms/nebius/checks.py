"""Checks of a configuration for Nebius: errors, and warnings for its author."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cluster.catalog import MACHINE_TYPES
from cluster.catalog.nebius_machine_types import FABRICS, PLATFORMS, fabrics_of, preset_of
from cluster.checks.security import vulnerable_software
from cluster.config.cluster import ClusterConfig
from cluster.config.controller import Disk
from cluster.config.fields import as_written
from cluster.config.validators import is_within
from cluster.findings import Finding, Level, Location, listing, nearest, show, suggest, unknown_name
from cluster.platforms.nebius import versions
from cluster.platforms.nebius.names import CIDR
from cluster.platforms.nebius.node_groups import DISK_GIB, LOGIN_DISK_GIB, smallest_node_disk
from cluster.platforms.nebius.releases import FIXED, NODESETS, CloudFacts, releases_without_overrides
from cluster.platforms.nebius.slurm import CHECKS_PARTITION, CHECKS_USER, PLUGINS
from cluster.platforms.nebius.stack_file_fields import AUTO_LIMIT_GIB, Nebius, settings_of
from cluster.roster import nodeset_type
from cluster.slurm.power_saving import elastic_nodesets

_VERSION: Location = ("nebius", "soperator", "version")
_TAKEN_NODESETS = ("accounting", "system")
"""Names of other node groups. The names controller and login are refused on every platform."""
CHECKS_USERS = ("nebius", CHECKS_USER)
"""Users that Soperator creates for its checks."""


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    """Yield the reasons why `up` would fail, or create a cluster that does not work."""
    settings = settings_of(config)
    yield from _soperator_errors(config, settings)
    yield from _machine_errors(config, settings)
    yield from _gpu_errors(config, settings)
    yield from _filesystem_errors(config, settings)
    yield from _setting_errors(config, settings)
    yield from _value_errors(config, settings)


def find_warnings(config: ClusterConfig) -> Iterator[Finding]:
    """Yield the warnings for the author of the stack file."""
    settings = settings_of(config)
    yield from _soperator_warnings(config, settings)
    yield from _gpu_warnings(config, settings)
    yield from _filesystem_warnings(settings)
    yield from _setting_warnings(config)
    yield from _elastic_warnings(config)


def _soperator_errors(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    version = settings.soperator.version
    if not versions.FIRST <= versions.parse(version) < versions.END:
        first = ".".join(map(str, versions.FIRST))
        yield Finding(
            id="nebius-soperator-version",
            at=_VERSION,
            given=version,
            allowed=f"{first} and later patches of {first[:3]}, e.g. {versions.SOPERATOR}: this program has values for "
            "their charts",
            todo=f"write {versions.SOPERATOR}",
        )
        return
    if config.name != (only := versions.CLUSTER_NAME):
        yield Finding(
            id="nebius-cluster-name",
            at=("name",),
            given=config.name,
            allowed=f"{only}: Soperator's chart of active checks has objects in the namespace {only}, whatever the "
            "cluster is called",
            todo=f"write name: {only}; the stack keeps its name, and nebius.prefix distinguishes clusters of a project",
        )
    yield from _name_errors(config)


def _soperator_warnings(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    version, number = settings.soperator.version, versions.parse(settings.soperator.version)
    was_read, read = number <= versions.READ, ".".join(map(str, versions.READ))
    for fault in versions.FAULTS:
        if number < fault.corrected and AFFECTED[fault.clusters](config, settings):
            yield Finding(
                id="nebius-soperator-fault",
                level=fault.level,
                at=_VERSION,
                what=f"Soperator {version} has a fault{'' if was_read else f', if it has what {read} has'}: "
                f"{fault.effect} (nebius/soperator, pull request {fault.pull})",
                todo=fault.todo,
            )
    todo = (
        "write a release of Soperator with a later Slurm once there is one; until then, only people whom you trust "
        "with the whole cluster should have accounts"
    )
    assumed = "" if was_read else f", if it has the Slurm of {read},"
    yield from vulnerable_software(_VERSION, f"Soperator {version}{assumed}", {"slurm": versions.SLURM}, todo)


def _is_mixed(config: ClusterConfig, _: Nebius) -> bool:
    """Return whether there are nodesets with GPUs and others."""
    return len({bool(nodeset_type(config, section).gpu) for section in config.nodesets.values()}) > 1


AFFECTED: Mapping[str, Callable[[ClusterConfig, Nebius], bool]] = {
    "all": lambda *_: True,
    "elastic": lambda config, _: bool(elastic_nodesets(config)),
    "fabric": lambda config, settings: any(settings.workers_of(name).infiniband for name in config.nodesets),
    "mixed": _is_mixed,
}
"""Whether a cluster has a fault, by its `clusters`."""


def _name_errors(config: ClusterConfig) -> Iterator[Finding]:
    """Yield nodesets, partitions and users with names that Soperator uses itself."""
    taken: list[tuple[Location, str, str]] = [
        *(
            (("nodesets", name), name, "the node group of a service")
            for name in _TAKEN_NODESETS
            if name in config.nodesets
        ),
        *(
            (("partitions", name), name, "the partition of checks")
            for name in config.partitions
            if name == CHECKS_PARTITION
        ),
        *(
            (("users", position, "name"), user.name, "a user of checks")
            for position, user in enumerate(config.users)
            if user.name in CHECKS_USERS
        ),
    ]
    for at, name, what in taken:
        yield Finding(
            id="nebius-name-taken",
            at=at,
            given=name,
            allowed=f"any other name: this is the one of {what}, which Soperator has itself",
            todo="rename it",
        )


_LEAST_VCPUS = {"system": 8, "controller": 4, "login": 8, "accounting": 8, "node": 8}
"""vCPUs that the pods of a node need, by role (nebius-solutions-library, available_resources/preset.tf; accounting:
MariaDB alone takes 2 vCPUs and 12 GiB)."""
LARGEST_DISK_GIB = 8192
"""GiB of one network-ssd disk (docs.nebius.com/compute/storage/types)."""


def _machine_errors(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    controller_type = config.controller.machine_type
    for at, machine_type, role in (
        (("nebius", "system", "machine_type"), settings.system.machine_type, "system"),
        (("nebius", "accounting", "machine_type"), settings.accounting.machine_type, "accounting"),
        (("controller", "machine_type"), controller_type, "controller"),
        (("login", "machine_type"), config.login.machine_type or controller_type, "login"),
        *(
            (("nodesets", name, "machine_type"), section.machine_type or controller_type, "node")
            for name, section in config.nodesets.items()
        ),
    ):
        yield from _machine_type_errors(at, machine_type, role, settings)
    yield from _disk_errors(("controller", "disk"), config.controller.disk, DISK_GIB)
    yield from _disk_errors(("login", "disk"), config.login.disk, LOGIN_DISK_GIB)
    for name, section in config.nodesets.items():
        yield from _disk_errors(("nodesets", name, "disk"), section.disk, smallest_node_disk(config, section))
    yield from _capacity_errors(config)
    if not config.login.count:
        yield Finding(
            id="nebius-login-count",
            at=("login", "count"),
            given="0",
            allowed="1 or more: users and this program log in to the cluster by login pods",
            todo="write 2",
        )
    for name in settings.workers:
        if name not in config.nodesets:
            at = ("nebius", "workers", name)
            yield unknown_name(at, name, config.nodesets, "a nodeset", "nodesets", rule="nebius-workers-unknown")


def _machine_type_errors(at: Location, machine_type: str, role: str, settings: Nebius) -> Iterator[Finding]:
    row = MACHINE_TYPES[machine_type]
    if row.platform != "nebius":
        if at[0] == "nebius":  # cluster/checks/nodesets_and_partitions.py checks the others
            yield Finding(
                id="nebius-group-type",
                at=at,
                given=machine_type,
                allowed="a machine type of nebius, e.g. cpu-d3/8vcpu-32gb",
                todo="write PLATFORM/PRESET",
            )
        return
    platform, preset = PLATFORMS[row.family.name], preset_of(machine_type)
    if settings.region not in platform.regions:
        available = [row.name for row in PLATFORMS.values() if settings.region in row.regions]
        yield Finding(
            id="nebius-region",
            at=at,
            given=machine_type,
            allowed=f"a platform that {settings.region} has: {listing(available)}; {platform.name} is in "
            f"{listing(platform.regions)}",
            todo="write another machine type, or nebius.region of a project in another region",
        )
    if role != "node" and platform.gpu:
        yield Finding(
            id="nebius-service-type",
            at=at,
            given=machine_type,
            allowed="a platform without GPUs, e.g. cpu-d3/16vcpu-64gb: only nodesets compute",
            todo="write one of cpu-d3",
        )
    elif preset.vcpus < _LEAST_VCPUS[role]:
        larger = next(row.name for row in platform.presets if row.vcpus >= _LEAST_VCPUS[role])
        yield Finding(
            id="nebius-preset-small",
            at=at,
            given=machine_type,
            allowed=f"a preset of {_LEAST_VCPUS[role]} vCPUs or more, which is what runs there",
            todo=f"write {platform.name}/{larger}",
        )


def _disk_errors(at: Location, disk: Disk, least: int) -> Iterator[Finding]:
    if disk.type is not None:
        yield Finding(
            id="nebius-disk-type",
            at=(*at, "type"),
            given=disk.type,
            allowed="size_gb alone: boot disks on Nebius are network-ssd",
            todo="remove it",
        )
    if disk.size_gb is not None and not least <= disk.size_gb <= LARGEST_DISK_GIB:
        yield Finding(
            id="nebius-disk-size",
            at=(*at, "size_gb"),
            given=str(disk.size_gb),
            allowed=f"{least} to {LARGEST_DISK_GIB} GiB: Kubernetes keeps 48 GiB and 15 % of it, and container images "
            "fill the rest",
            todo=f"write {least if disk.size_gb < least else LARGEST_DISK_GIB}, or remove it for the default",
        )


def _capacity_errors(config: ClusterConfig) -> Iterator[Finding]:
    for name, section in config.nodesets.items():
        if section.capacity is None:
            continue
        capacity, at = section.ways[0], ("nodesets", name, "capacity")
        if isinstance(section.capacity, tuple):
            yield Finding(
                id="nebius-capacity-list",
                at=at,
                given=as_written(section.capacity),
                allowed="one way: a node group asks Nebius in one, and Soperator tries no other",
                todo="keep one of them, or make a nodeset for each and name both in the partition",
            )
            continue
        if capacity.way not in ("on_demand", "spot", "reservation"):
            yield Finding(
                id="nebius-capacity",
                at=(*at, capacity.way),
                given=capacity.way,
                allowed="on Nebius: on_demand, spot, reservation",
                todo="write {spot: {}} for preemptible nodes, or {reservation: capacityblockgroup-...}",
            )
        reserved = capacity.reservation
        if capacity.placement is not None:
            place = (*at, capacity.way, "placement")
            given = f"max_distance {capacity.placement.max_distance}"
            yield _unused_error(place, given, "nodes of nebius.workers.NAME.infiniband are on one fabric")
        if reserved and reserved.placement_policy:
            place = (*at, "reservation", "placement_policy")
            yield _unused_error(place, reserved.placement_policy, "a capacity block group has no policy")
        if reserved and not reserved.name.startswith("capacityblockgroup-"):
            yield Finding(
                id="nebius-reservation",
                at=(*at, "reservation"),
                given=reserved.name,
                allowed="the id of a capacity block group, e.g. capacityblockgroup-e00abc",
                todo="copy it from `nebius capacity capacity-block-group list`",
            )


def _gpu_errors(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    for name, workers in settings.workers.items():
        if workers.infiniband is None or name not in config.nodesets:
            continue
        row = nodeset_type(config, config.nodesets[name])
        if row.platform != "nebius" or preset_of(row.name).clusterable:
            continue
        fitting = [kind.name for kind in MACHINE_TYPES.values() if kind.platform == "nebius" and kind.line_rate]
        yield Finding(
            id="nebius-gpu-cluster",
            at=("nebius", "workers", name, "infiniband"),
            given=f"a GPU cluster for {row.name}",
            allowed=f"a preset with all GPUs of a host: {listing(fitting)}",
            todo="remove infiniband, or write such a machine type for the nodeset",
        )
    yield from _fabric_errors(config, settings)


def _fabric_errors(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    """Yield partitions with nodes of several GPU clusters, between which there is no InfiniBand.

    Soperator hangs the switches of all fabrics under one root, so that Slurm gives a job nodes of two as if they were
    connected (nebius/soperator 4.1.4 to 4.1.7, internal/controller/topologyconfcontroller/topology_graph.go,
    ensureSingleRoot). Pull requests 2585 and 2614 give each fabric a root of its own, and are in no release that could
    be read. Slurm places no job in two partitions.
    """
    for partition, section in config.partitions.items():
        of: dict[str, list[str]] = {}
        for nodeset in section.nodesets:
            infiniband = settings.workers_of(nodeset).infiniband
            if nodeset in config.nodesets and infiniband:
                of.setdefault(infiniband.fabric or infiniband.existing or "", []).append(nodeset)
        if len(of) > 1:
            each = "; ".join(f"{listing(nodesets)} on {fabric}" for fabric, nodesets in of.items())
            yield Finding(
                id="nebius-partition-fabrics",
                at=("partitions", partition, "nodesets"),
                given=each,
                allowed="nodesets of one GPU cluster: Soperator connects all fabrics in Slurm's topology, and a job on "
                "nodes of two would have no InfiniBand between them",
                todo="make a partition for each; a job that may run on either names both: --partition=A,B",
            )


def _gpu_warnings(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    for name, section in config.nodesets.items():
        row, infiniband = nodeset_type(config, section), settings.workers_of(name).infiniband
        here = row.family.name, settings.region
        if infiniband is None and section.most > 1 and preset_of(row.name).clusterable:
            yield Finding(
                id="nebius-no-gpu-cluster",
                level=Level.WARNING,
                at=("nodesets", name),
                what=f"{section.most} nodes of {row.name} are in no GPU cluster: jobs on several of them have "
                "Ethernet in place of InfiniBand",
                todo=f"write nebius.workers.{name}.infiniband, with one of the fabrics {listing(fabrics_of(*here))}",
            )
        fabric = infiniband.fabric if infiniband else None
        if fabric and (place := FABRICS.get(fabric)) != here:
            why = "is none of those that are known here"
            if place:
                why = f"is of {place[0]} in {place[1]}, and the nodes are {here[0]} in {here[1]}"
            yield Finding(
                id="nebius-fabric",
                level=Level.WARNING,
                at=("nebius", "workers", name, "infiniband", "fabric"),
                what=f"{fabric} {why}",
                todo=f"known for these nodes: {listing(fabrics_of(*here))}; Nebius's page "
                "docs.nebius.com/compute/clusters/gpu has all",
            )


IMAGE_STORAGE = "/mnt/image-storage"
"""The folder of each node's image disk."""
_NEEDED = ("/opt/bin", "/opt/soperator", "/usr", "/etc", "/home", IMAGE_STORAGE)
"""Paths of the jail itself: of Soperator's programs, and /home, whose many small files are slow elsewhere."""
SUPPORT_GIB = 2048
"""GiB above which a file system needs a request to Nebius's support (nebius-solutions-library, README)."""


def _filesystem_errors(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    jail = settings.filesystems.jail
    if jail.existing and not jail.overwrite_existing:
        yield Finding(
            id="nebius-jail-existing",
            at=("nebius", "filesystems", "jail", "existing"),
            given=jail.existing,
            allowed="an existing file system whose files may be overwritten, said by overwrite_existing: true: "
            "populating the jail writes a whole root file system there",
            todo="write overwrite_existing: true, or mount the file system as a submount",
        )
    yield from _duplicate_filesystem_errors(settings)
    yield from _mount_errors(config, settings)


def _filesystem_warnings(settings: Nebius) -> Iterator[Finding]:
    large = [
        f"{'.'.join(path)} ({filesystem.spec.size_gib} GiB)"
        for path, filesystem in settings.filesystems.members().items()
        if filesystem.spec and filesystem.spec.size_gib > SUPPORT_GIB
    ]
    if large:
        yield Finding(
            id="nebius-filesystem-large",
            level=Level.INFO,
            at=("nebius", "filesystems"),
            what=f"Nebius has file systems above {SUPPORT_GIB} GiB on request to its support: {listing(large)}",
            todo="ask the support before `up`, unless that is done",
        )
    jail = settings.filesystems.jail
    if settings.backups.enabled is True and jail.spec and jail.spec.size_gib >= AUTO_LIMIT_GIB:
        yield Finding(
            id="nebius-backup-size",
            level=Level.WARNING,
            at=("nebius", "backups", "enabled"),
            what=f"a backup of a jail of {jail.spec.size_gib} GiB may not end within a day",
            todo="write auto, and keep data in submounts",
        )


def _duplicate_filesystem_errors(settings: Nebius) -> Iterator[Finding]:
    places: dict[str, Location] = {}
    for path, filesystem in settings.filesystems.members().items():
        at, existing = ("nebius", "filesystems", *path), filesystem.existing
        if existing in places:
            yield Finding(
                id="nebius-filesystem-twice",
                at=(*at, "existing"),
                given=existing,
                allowed=f"a file system of its own; that one is {'.'.join(map(str, places[existing]))}",
                todo="write another id",
            )
        if existing:
            places.setdefault(existing, at)


def _mount_errors(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    """Yield mount points that hide a directory which the jail needs, or overlap with another on the same nodes."""
    shared: dict[Location, str] = {
        ("filesystems", "submounts", name, "mount"): submount.mount
        for name, submount in settings.filesystems.submounts.items()
    }
    nodes = [shared]
    for nodeset, workers in settings.workers.items():
        disks = workers.local_disks.items() if nodeset in config.nodesets else ()
        nodes.append(
            {**shared, **{("workers", nodeset, "local_disks", name, "mount"): disk.mount for name, disk in disks}}
        )
    found: dict[Location, tuple[str, str]] = {}
    for mounts in nodes:
        before: list[str] = []
        for at, path in mounts.items():
            others = [other for other in _NEEDED if is_within(other, path)]
            others += [other for other in before if is_within(path, other) or is_within(other, path)]
            if others:
                found[at] = path, others[0]
            before.append(path)
    for at, (path, other) in found.items():
        yield Finding(
            id="nebius-mount",
            at=("nebius", *at),
            given=path,
            allowed=f"a directory apart from {other}, which the jail has itself or something else is mounted at",
            todo="mount it elsewhere, e.g. /data",
        )


FIRST_FREE_UID = 1010
"""Users of the image and of Soperator's checks have lower uids (adduser takes the first free one)."""


def _setting_errors(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    if config.network.cidr != CIDR:
        yield _unused_error(("network", "cidr"), config.network.cidr, "nodes have addresses of nebius.subnet")
    if config.host_names != "pods":
        yield _unused_error(("host_names",), config.host_names, "Soperator names the pods")
    if settings.login.service == "NodePort" and settings.login.exposure == "internal":
        yield Finding(
            id="nebius-login-exposure",
            at=("nebius", "login", "exposure"),
            given="internal, with service NodePort",
            allowed="public with NodePort, whose nodes have public addresses; internal with LoadBalancer",
            todo="write service: LoadBalancer, or remove exposure",
        )
    for name, section in config.nodesets.items():
        for key, value in section.node_conf.items():
            if key.lower() == "realmemory":  # Soperator writes it from the resources of slurmd
                place = ("nodesets", name, "node_conf", key)
                yield _unused_error(place, str(value), "it follows from the machine type")
    if config.slurm.topology == "nodesets":
        yield Finding(
            id="nebius-topology",
            at=("slurm", "topology"),
            given="nodesets",
            allowed=f"{listing(PLUGINS)}: Soperator writes switches from the labels of Kubernetes' nodes alone",
            todo="write places, or remove it for the same",
        )
    if config.slurm.mpi_default == "none":
        # On other platforms `none` leaves the parameter out; here Soperator's own value would hold.
        yield _unused_error(
            ("slurm", "mpi_default"), "none", "Soperator's slurm.conf has pmix, and another one can be named"
        )


def _setting_warnings(config: ClusterConfig) -> Iterator[Finding]:
    for position, user in enumerate(config.users):
        if user.uid < FIRST_FREE_UID:
            yield Finding(
                id="nebius-user-uid",
                level=Level.WARNING,
                at=("users", position, "uid"),
                what=f"{user.uid} may be taken: Soperator creates users for its checks with the first free numbers "
                "from 1000 on",
                todo=f"write {FIRST_FREE_UID} or more, unless there are files of that number",
            )


def _elastic_warnings(config: ClusterConfig) -> Iterator[Finding]:
    elastic = elastic_nodesets(config)
    if elastic and not any(section.static for section in config.nodesets.values()):
        yield Finding(
            id="nebius-elastic-asleep",
            level=Level.WARNING,
            at=("nodesets", elastic[0], "count", "min"),
            what="no nodeset has a static node: Soperator's checks run on nodes that are awake, and fail where there "
            "are none",
            todo="write min: 1 in one nodeset",
        )


def _unused_error(at: Location, given: str, why: str) -> Finding:
    return Finding(id="nebius-unused", at=at, given=given, allowed=f"nothing on Nebius: {why}", todo="remove it")


def _value_errors(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    if not settings.values:
        return
    facts = CloudFacts(stack="", root_keys=(), backups={"name": "", "endpoint": ""})
    try:
        releases = [release.name for release in releases_without_overrides(config, settings, facts)]
    except KeyError:
        return  # because of an unknown machine type, which has a finding of its own
    at = ("nebius", "values")
    for name in settings.values:
        if name not in releases:
            yield Finding(
                id="nebius-release-unknown",
                at=(*at, name),
                given=name,
                allowed=f"a release of this cluster: {listing(releases)}",
                todo=suggest(name, releases, "remove it"),
                missing=name,
            )
    for path, why in FIXED.items():
        for given in _members_at(settings.values, path):
            yield Finding(
                id="nebius-value-fixed", at=(*at, *path), given=show(given), allowed=f"nothing: {why}", todo="remove it"
            )
    nodesets = settings.values.get(NODESETS, {}).get(NODESETS)
    for position, member in enumerate(nodesets if isinstance(nodesets, list) else ()):
        name = member.get("name") if isinstance(member, Mapping) else None
        if name not in config.nodesets:
            yield Finding(
                id="nebius-value-nodeset",
                at=(*at, NODESETS, NODESETS, position),
                given=str(name) if name else "no name",
                allowed=f"the name of a nodeset: {listing(config.nodesets)}",
                todo=f"write name: {nearest(str(name), config.nodesets) or next(iter(config.nodesets))}",
            )


def _members_at(value: Any, path: tuple[str, ...]) -> Iterator[Any]:  # noqa: ANN401 - values are of any type
    """Yield the values at a path, of each member where it leads through a list."""
    if isinstance(value, list):
        for member in value:
            yield from _members_at(member, path)
    elif not path:
        yield value
    elif isinstance(value, Mapping) and path[0] in value:
        yield from _members_at(value[path[0]], path[1:])
