"""Checks of stacks on Google Cloud: networks, file systems, the image, disks, rxdm, `customize`, zones."""

import ipaddress
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timezone
from itertools import combinations

from cluster import roster
from cluster.catalog import DISK_TYPES, MACHINE_TYPES, DiskType
from cluster.catalog.machine_families import ACCELERATORS
from cluster.catalog.prologs import RXDM_VERSIONS, fitting
from cluster.catalog.recipes import any_recipe
from cluster.checks import nodesets_and_partitions
from cluster.checks.security import vulnerable_software
from cluster.config.cluster import ClusterConfig
from cluster.config.controller import Disk
from cluster.config.fields import as_written, explicit
from cluster.config.validators import is_within
from cluster.findings import Finding, Level, Location, dotted, listing
from cluster.platforms.gcp import address_plan, capacity_checks, disks
from cluster.platforms.gcp.address_plan import fabric_of
from cluster.platforms.gcp.defaults import BASE_IMAGES, NETWORK
from cluster.platforms.gcp.disks import find_size_errors, find_type_errors
from cluster.platforms.gcp.filesystems.buckets import LOCAL_SSDS
from cluster.platforms.gcp.filesystems.registry import EXPORTS, file_systems
from cluster.platforms.gcp.image import BAKED, bakes, gpu_types, installs, recipe, software
from cluster.platforms.gcp.names import place
from cluster.roster import monitoring_machine, nodeset_type
from cluster.slurm.script_tree import default_rxdm
from scripts.node.judge.kinds import OLDEST_KERNEL

LARGEST_SERVICES = 22
"""Prefix length: half of it is a /23, Managed Lustre's least (cloud.google.com/managed-lustre/docs/vpc)."""
LARGEST_GPU = 26
"""Prefix length: an eighth of it is a /29, the smallest subnetwork there is (cloud.google.com/vpc/docs/subnets)."""
TAKEN = 4
"""Addresses of each subnetwork that Google reserves (cloud.google.com/vpc/docs/subnets)."""


def _network_errors(config: ClusterConfig) -> Iterator[Finding]:
    yield from _overlaps(config)
    yield from _network_sizes(config)
    yield from _public_login_errors(config)
    if not config.network.nat and not config.network.existing and (bakes(config) or installs(config)):
        yield Finding(
            id="network-nat",
            at=("network", "nat"),
            given="false",
            allowed="true, where machines install packages: an image is baked, or each installs at its first boot",
            todo="remove it, or name an image that is there already: `image: {name: ...}`",
        )


def _used_networks(config: ClusterConfig) -> dict[str, ipaddress.IPv4Network]:
    """Return the ranges that the stack uses, by their keys."""
    network = config.network
    services = any(file_system.peered or file_system.own_range for file_system in file_systems(config))
    fabric = fabric_of(config)
    used = {
        "cidr": network.cidr,
        "gpu_cidr": network.gpu_cidr if fabric.nics else None,
        "second_cidr": network.second_cidr if len(fabric.host_nics) > 1 else None,
        "services_cidr": network.services_cidr if services else None,
    }
    return {key: ipaddress.IPv4Network(value) for key, value in used.items() if value}


def _overlaps(config: ClusterConfig) -> Iterator[Finding]:
    purpose = {
        "cidr": "the machines'",
        "gpu_cidr": "the GPUs'",
        "second_cidr": "of the nodes' second NIC",
        "services_cidr": "for what Google runs",
    }
    for (key, left), (other, right) in combinations(_used_networks(config).items(), 2):
        if not left.overlaps(right):
            continue
        # The finding is about a range in the file, rather than a default.
        fault, against = (key, other) if str(right) == NETWORK[other] else (other, key)
        networks = {key: left, other: right}
        yield Finding(
            id="network-overlap",
            at=("network", fault),
            given=str(networks[fault]),
            allowed=f"a network that overlaps no other; {networks[against]} is {purpose[against]} ({against})",
            todo=f"choose another, e.g. the default {NETWORK[fault]}"
            if not ipaddress.IPv4Network(NETWORK[fault]).overlaps(networks[against])
            else "choose another private network",
        )


def _network_sizes(config: ClusterConfig) -> Iterator[Finding]:
    network = config.network
    for shortage in () if any(nodesets_and_partitions.count_errors(config)) else address_plan.shortages(config):
        yield Finding(
            id="network-size",
            at=("network", "cidr"),
            given=f"{network.cidr}: {shortage}",
            allowed="a network whose sixteen parts hold all machines, e.g. 172.16.0.0/20 "
            "(docs/reference/google-cloud.md)",
            todo="widen it",
        )
    used = _used_networks(config)
    gpu_range = ipaddress.IPv4Network(network.gpu_cidr or "10.0.0.0/17")
    if gpu_range.prefixlen > LARGEST_GPU:
        yield Finding(
            id="gpu-network-size",
            at=("network", "gpu_cidr"),
            given=str(gpu_range),
            allowed=f"a network of /{LARGEST_GPU} or larger, of which each of eight GPU networks gets a part",
            todo="widen it, e.g. 10.0.0.0/17",
        )
    elif gpu := used.get("gpu_cidr"):
        nodes = sum(
            section.most
            for section in config.nodesets.values()
            if roster.nodeset_type(config, section).family.fabric.nics
        )
        room = (gpu.num_addresses // address_plan.GPU_NETWORKS) - TAKEN
        if room < nodes:
            yield Finding(
                id="gpu-network-nodes",
                at=("network", "gpu_cidr"),
                given=str(gpu),
                allowed=f"a network whose eighth holds {nodes} nodes and {TAKEN} addresses of Google's",
                todo="widen it, e.g. 10.0.0.0/17",
            )
    services = used.get("services_cidr")
    if services and services.prefixlen > LARGEST_SERVICES:
        yield Finding(
            id="services-network-size",
            at=("network", "services_cidr"),
            given=str(services),
            allowed=f"a network of /{LARGEST_SERVICES} or larger, e.g. 10.128.0.0/20",
            todo="widen it",
        )


def _public_login_errors(config: ClusterConfig) -> Iterator[Finding]:
    login, admins = config.login, config.network.admin_cidrs
    if login.public and not login.on and login.count == 0:
        yield Finding(
            id="login-public-nowhere",
            at=("login", "public"),
            given="true, with no login machine",
            allowed="true with a login machine, or `on: controller`",
            todo="raise login.count, or remove `public`: Identity-Aware Proxy reaches the controller",
        )
    elif login.public and not admins:
        yield Finding(
            id="login-public-nobody",
            at=("login", "public"),
            given="true, and nobody in network.admin_cidrs",
            allowed="true together with network.admin_cidrs, e.g. [203.0.113.7/32]",
            todo="say who may reach it, or remove `public`: Identity-Aware Proxy needs no public address",
            missing="admin_cidrs",
        )
    if admins and not login.public:
        yield Finding(
            id="admin-cidrs-unused",
            at=("network", "admin_cidrs"),
            given=listing(admins),
            allowed="networks of those who log in at public addresses, which no machine has",
            todo="remove them, or write `login: {public: true}`",
            missing="public",
        )


def _storage_errors(config: ClusterConfig) -> Iterator[Finding]:
    """Yield the file systems' own errors, and mount points that are the same or below each other (the later one)."""
    for file_system in file_systems(config):
        yield from file_system.find_errors()
    places = [place for file_system in file_systems(config) for place in file_system.places()]
    for mount in places:
        yield from _hidden_directories(mount.at, mount.path, bucket=not mount.posix)
    for left, right in combinations(places, 2):
        if is_within(left.path, right.path) or is_within(right.path, left.path):
            yield Finding(
                id="mount-overlap",
                at=(*right.at, "mount"),
                given=right.path,
                allowed=f"a directory apart from all others that are mounted; {left.path} is {left.owner}",
                todo="mount it elsewhere, e.g. /data",
            )


def _hidden_directories(at: Location, mount: str, *, bucket: bool) -> Iterator[Finding]:
    """Yield directories that machines need and that a mount would hide. Only a bucket may not replace an export."""
    for needed in (*EXPORTS, LOCAL_SSDS):
        if mount == needed and not bucket and needed in EXPORTS:
            continue
        if not is_within(needed, mount):
            continue
        if needed == LOCAL_SSDS:
            why = "where nodes have their local SSDs"
        elif bucket:
            why = "which need a file system with owners, locks and renaming"
        else:
            why = "which are a file system of their own"
        yield Finding(
            id="mount-hides",
            at=(*at, "mount"),
            given=mount,
            allowed=f"a directory apart from {needed}, {why}",
            todo=f"mount it elsewhere, e.g. {'/gcs' if bucket else '/lustre'}",
        )


def today() -> datetime:
    return datetime.now(timezone.utc)


def _image_warnings(config: ClusterConfig) -> Iterator[Finding]:
    """Yield a recipe without metrics of GPUs, with vulnerable software, and with an old kernel. The content of an
    existing image is not known."""
    if config.image.base not in BASE_IMAGES or config.image.name:
        return
    row = recipe(config)
    if config.monitoring and gpu_types(config) and not row.dcgm_exporter:
        yield Finding(
            id="gpu-metrics",
            level=Level.WARNING,
            at=("image", "base"),
            what=f"images of {row.base} have no dcgm-exporter: `monitoring` has no metrics of GPUs, and no alerts of "
            "them but those of health checks",
            todo="write ubuntu-2204, or name an image that has datacenter-gpu-manager-exporter (image.name)",
        )
    newer = "take a newer version of this program, with newer recipes"
    todo = newer if row.slurm else "write ubuntu-2204 as image.base: Slurm is built there"
    yield from vulnerable_software(("image", "recipe"), f"recipe {row.version}", software(config), todo)
    days = (today().date() - date.fromisoformat(row.kernel_day)).days
    if days > OLDEST_KERNEL:
        yield Finding(
            id="kernel-old",
            level=Level.WARNING,
            at=("image", "recipe"),
            what=f"kernel {row.kernel or row.image.rpartition('/')[2]} of recipe {row.version} is of {row.kernel_day}, "
            f"{days} days ago: security fixes since then are missing",
            todo=newer,
        )


def _image_errors(config: ClusterConfig) -> Iterator[Finding]:
    if config.image.base not in BASE_IMAGES:
        return
    image = config.image
    if image.name:
        for key in ("bake", "snapshot", "provision", "packages", "builder"):
            value = explicit(image, key)
            if value is None or (key == "bake" and value is False):
                continue
            yield Finding(
                id="image-name-alone",
                at=("image", key),
                given=as_written(value),
                allowed=f"nothing beside image.name: {image.name} is used as it is",
                todo=f"remove it, or remove `name` and let the stack bake an image with {key}",
            )
        return
    if image.snapshot and image.snapshot > (now := today().strftime("%Y%m%dT%H%M%SZ")):
        yield Finding(
            id="image-snapshot-future",
            at=("image", "snapshot"),
            given=image.snapshot,
            allowed=f"a day that was, up to {now} (UTC): the archive of a later one would be another at each bake",
            todo="write an earlier day, or remove it for the recipe's own",
        )
    if image.bake and image.base not in BAKED:
        yield Finding(
            id="image-bake",
            at=("image", "bake"),
            given=f"true, of {image.base}",
            allowed=f"true of {' and '.join(BAKED)}; {image.base} has Slurm and drivers as packages",
            todo="write `bake: false`: machines install them at their first boot",
        )
    if not bakes(config):
        if (value := explicit(image, "builder")) is not None:
            yield Finding(
                id="image-builder-unused",
                at=("image", "builder"),
                given=as_written(value),
                allowed="nothing where no image is made",
                todo="remove it, or write `bake: true`",
            )
        return
    builder = MACHINE_TYPES[image.builder.machine_type]
    if not builder.family.builds_images or builder.gpu or builder.platform != "gcp":
        why = "that has no GPU and is not of an N series, where NVIDIA's open driver does not install"
        yield Finding(
            id="image-builder-type",
            at=("image", "builder", "machine_type"),
            given=builder.name,
            allowed=f"a machine of gcp {why}, e.g. c2-standard-8",
            todo="remove it for c2-standard-8",
        )


SYSTEM_GB = 20
"""Smallest space for an operating system with Slurm, drivers and a user's packages."""


def _disk_errors(config: ClusterConfig) -> Iterator[Finding]:
    prometheus, metrics = "monitoring" if monitoring_machine(config) else "controller", config.monitoring
    for at, disk, role, machine_type in _boot_disks(config):
        kind = MACHINE_TYPES[machine_type]
        name, size = disks.boot(disk, role, kind)
        if kind.platform == "gcp" and kind.family.fabric.set_up:
            yield from find_type_errors(at, DISK_TYPES[name], kind, boot=True)
            yield from _boot_size_errors(config, at, DISK_TYPES[name], size)
        if metrics and role == prometheus and metrics.disk_gb > size - SYSTEM_GB:
            yield Finding(
                id="monitoring-disk-small",
                at=("monitoring", "disk_gb"),
                given=str(metrics.disk_gb),
                allowed=f"{size - SYSTEM_GB} at most: {dotted(at)} has {size} GB, {SYSTEM_GB} of them for the system",
                todo=f"lower it, or write a larger {dotted((*at, 'size_gb'))}",
            )
    name, size = disks.state_disk(config)
    kind = MACHINE_TYPES[config.controller.machine_type]
    if kind.platform == "gcp":
        yield from disks.find_replica_errors(config)
        yield from find_type_errors(("controller", "state_disk"), DISK_TYPES[name], kind)
        yield from find_size_errors(("controller", "state_disk"), DISK_TYPES[name], size)


def _boot_disks(config: ClusterConfig) -> Iterator[tuple[Location, Disk, str, str]]:
    """Yield location and section of each boot disk, and the role and type of its machine."""
    controller = config.controller
    yield ("controller", "disk"), controller.disk, "controller", controller.machine_type
    if not config.login.on and config.login.count:
        yield ("login", "disk"), config.login.disk, "login", config.login.machine_type or controller.machine_type
    if machine := monitoring_machine(config):
        kind = machine.machine_type or controller.machine_type
        yield ("monitoring", "machine", "disk"), machine.disk, "monitoring", kind
    for name, section in config.nodesets.items():
        if not section.on:
            yield ("nodesets", name, "disk"), section.disk, "node", section.machine_type or controller.machine_type


def _boot_size_errors(config: ClusterConfig, at: Location, row: DiskType, size: int) -> Iterator[Finding]:
    image = config.image.builder.size_gb if bakes(config) else SYSTEM_GB
    if size < image:
        why = "image.builder.size_gb, which the image has" if bakes(config) else "for the system and its software"
        yield Finding(
            id="disk-boot-size",
            at=(*at, "size_gb"),
            given=str(size),
            allowed=f"at least {image}: {why}",
            todo=f"write {image} or more, or remove it for {disks.BOOT_GB}",
        )
    else:
        yield from find_size_errors(at, row, size)


_TCPXO = tuple(kind.name for kind in MACHINE_TYPES.values() if kind.family.fabric.rxdm)
_TIMERS = {"prolog_epilog": "Slurm ends the prolog and drains the node", "batch_start": "Slurm requeues the batch job"}
_SECONDS = 600
"""Value of both timers in the configuration that Google ships with rxdm: slurm-gcp, etc/long-prolog-slurm.conf.tpl."""


def _rxdm_errors(config: ClusterConfig) -> Iterator[Finding]:
    """Yield partitions with other machines, where the prolog does nothing and jobs on two or more nodes fail."""
    for at, name in enumerate(config.slurm.rxdm.partitions if config.slurm.rxdm else ()):
        nodesets = config.partitions[name].nodesets if name in config.partitions else ()
        kinds = [(each, nodeset_type(config, config.nodesets[each])) for each in nodesets if each in config.nodesets]
        if others := [f"{each} of {kind.name}" for each, kind in kinds if not kind.family.fabric.rxdm]:
            yield Finding(
                id="rxdm-nodes",
                at=("slurm", "rxdm", "partitions", at),
                given=f"{name}, with " + listing(others),
                allowed=f"partitions of {listing(_TCPXO)} alone",
                todo="give the other nodesets a partition of their own",
            )


def rxdm_warnings(config: ClusterConfig) -> Iterator[Finding]:
    """Yield partitions that do not use rxdm but could, and timers that are too short for its first prolog."""
    runs = config.slurm.rxdm.partitions if config.slurm.rxdm else ()
    for name, partition in config.partitions.items():
        kinds = {nodeset: nodeset_type(config, config.nodesets[nodeset]) for nodeset in partition.nodesets}
        mega = [nodeset for nodeset, kind in kinds.items() if kind.family.fabric.rxdm]
        if mega and name not in runs:
            yield Finding(
                id="rxdm-partition-missing",
                level=Level.WARNING,
                at=("slurm", "rxdm"),
                what=f"jobs of partition {name} use plain TCP between the A3 Mega nodes of {listing(mega)}, at a "
                "fraction of their bandwidth",
                todo=f"add {name} to slurm.rxdm.partitions",
            )
    for key, effect in _TIMERS.items() if runs else ():
        if (seconds := getattr(config.slurm.timers, key)) < _SECONDS:
            yield Finding(
                id="rxdm-timers",
                level=Level.WARNING,
                at=("slurm", "timers", key),
                what=f"the first prolog on a node pulls containers of several GB; after {seconds} s {effect}",
                todo=f"write {_SECONDS}",
            )
    yield from _driver_warnings(config)


def _driver_warnings(config: ClusterConfig) -> Iterator[Finding]:
    """Yield a version that Google has not qualified with the recipe's driver.

    A file of the user's own, or an unknown version, is not checked.
    """
    rxdm, row = config.slurm.rxdm, any_recipe(config.image.recipe, config.image.base)
    if rxdm is None or rxdm.file or row is None:
        return
    version = RXDM_VERSIONS.get(rxdm.sha256) if rxdm.sha256 else default_rxdm(config)
    driver = (row.rxdm_driver or row.driver).version
    if version is None or driver in version.drivers:
        return
    known = f"with driver {listing(version.drivers)}" if version.drivers else "with no driver that is known here"
    yield Finding(
        id="rxdm-driver",
        level=Level.WARNING,
        at=("slurm", "rxdm"),
        what=f"plugin {version.plugin} and rxdm {version.rxdm} were qualified {known}, and recipe {row.version} has "
        f"{driver}: jobs may fail on the GPUs' devices, after all images were pulled",
        todo=f"remove url and sha256 for the version of {fitting(driver).date}, which goes with that driver",
    )


CUSTOMIZE_INPUTS = frozenset(
    """
    account_id address boot_disk bucket instance_id ip_cidr_range location machine_type member name network
    network_interfaces project region role role_id secret secret_data secret_id service service_account source
    source_instance_template subnetwork zone
    """.split()
)
"""Inputs that other fields of the stack file set, or by which resources, machines and `./hpc` find each other."""
CUSTOMIZE_KEYS: Mapping[str, frozenset[str]] = {
    "labels": frozenset(
        """
        deployment hpc-booted hpc-cluster hpc-digest hpc-owner hpc-part lustre_index lustre_target_host
        lustre_target_index lustre_target_role lustre_type managed-by name
        """.split()
    ),
    "metadata": frozenset({"block-project-ssh-keys", "enable-oslogin", "hpc-boot", "ssh-keys", "startup-script"}),
}
"""Keys of mappings that can't be customized, for the same reasons."""


def _customize_errors(config: ClusterConfig) -> Iterator[Finding]:
    for index, row in enumerate(config.customize):
        for name, value in row.set.items():
            at = ("customize", index, "set", name)
            if name in CUSTOMIZE_INPUTS:
                yield Finding(
                    id="customize-protected",
                    at=at,
                    given=str(value),
                    allowed=f"inputs other than {listing(sorted(CUSTOMIZE_INPUTS))}",
                    todo=f"remove it: the cluster depends on the {name} that it gives its resources",
                )
            held = CUSTOMIZE_KEYS.get(name, frozenset())
            if held and not isinstance(value, Mapping):
                yield Finding(
                    id="customize-protected",
                    at=at,
                    given=str(value),
                    allowed=f"a mapping, since the cluster needs its own {name}",
                    todo=f"name single keys, e.g. {name}: {{team: ml}}",
                )
            for key in held.intersection(value) if isinstance(value, Mapping) else ():
                yield Finding(
                    id="customize-protected",
                    at=(*at, key),
                    given=str(value[key]),
                    allowed=f"keys of {name} other than {listing(sorted(held))}",
                    todo="remove it: the cluster depends on it",
                )


def zone_warnings(config: ClusterConfig) -> Iterator[Finding]:
    """Yield machine types and GPUs of nodes that the catalog does not have in the zone."""
    zone = place(config).zone
    for name, (kind, zones) in _zones_of_types(config).items():
        if not zones or zone in zones:
            continue
        # Zones in the same part of the world first.
        near = sorted(zones, key=lambda name: name.partition("-")[0] != zone.partition("-")[0])
        yield Finding(
            id="zone-unknown",
            level=Level.WARNING,
            at=("gcp", "zone"),
            what=f"{zone} is not known to have {name}; zones that have it: {listing(near)}",
            todo=f"take one of these, unless `gcloud compute {kind} list --filter zone:{zone}` shows {name}",
        )


def _zones_of_types(config: ClusterConfig) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return for each machine type and each type of attached GPUs gcloud's list that has it, and its known zones."""
    types: dict[str, tuple[str, tuple[str, ...]]] = {}
    for section in config.nodesets.values():
        kind = roster.nodeset_type(config, section)
        types[kind.name] = ("machine-types", kind.family.zones)
        if section.gpus and (row := ACCELERATORS.get(section.gpus.type)):
            types[row.type] = ("accelerator-types", row.zones)
    return types


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    for find in (
        _network_errors,
        _storage_errors,
        _image_errors,
        _disk_errors,
        capacity_checks.find_errors,
        capacity_checks.elastic_bindings,
        capacity_checks.flex_times,
        _rxdm_errors,
        _customize_errors,
    ):
        yield from find(config)


def find_warnings(config: ClusterConfig) -> Iterator[Finding]:
    for find in (
        zone_warnings,
        _image_warnings,
        capacity_checks.capacity_warnings,
        capacity_checks.elastic_warnings,
        capacity_checks.shared_network_warnings,
        rxdm_warnings,
    ):
        yield from find(config)
    for file_system in file_systems(config):
        yield from file_system.find_warnings()
