"""DDN EXAScaler: its servers and disks with the names and labels that DDN's images expect, and the file loci.conf.

The images contain a program, `loci`, which a start-up script runs after writing /etc/loci.conf. It finds the disks by
their labels, formats them, and stores the servers' names and states in two configs of the Runtime Configurator. Names,
labels and keys are therefore those of DDN's last release for Google Cloud (2.2.2).
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from cluster.catalog import DISK_TYPES, MACHINE_TYPES
from cluster.catalog.storage import DISK_WRITES, WRITE_OVERHEAD, disks_mbps
from cluster.checks.nodesets_and_partitions import wrong_platform
from cluster.config.storage import Lustre, Targets
from cluster.cost_parts import Part
from cluster.findings import Finding, Level
from cluster.platforms.gcp.disks import find_rate_errors, find_size_errors, find_type_errors
from cluster.platforms.gcp.filesystems.base import FileServer, ServiceNeed, TargetDisk
from cluster.platforms.gcp.filesystems.lustre import Expected, LustreKind

LOCI_VERSIONS: Mapping[str, str] = {"exascaler-cloud-6-2": "2.1.0", "exascaler-cloud-6-3": "2.2.1"}
"""`Version` in loci.conf for the images of a release (DDN's modules 2.1.8 and 2.2.2)."""
NEWEST_LOCI = "2.2.1"

PERMISSIONS = (
    "compute.disks.get",
    "compute.disks.list",
    "compute.instances.get",
    "compute.instances.list",
    "runtimeconfig.configs.get",
    "runtimeconfig.configs.list",
    "runtimeconfig.variables.create",
    "runtimeconfig.variables.delete",
    "runtimeconfig.variables.get",
    "runtimeconfig.variables.list",
    "runtimeconfig.variables.update",
)
"""All permissions of a server."""
TARGET_OF: Mapping[str, str] = {"mgs": "mgt", "mds": "mdt", "oss": "ost"}
"""Target of a server, the value of its label `lustre_type`, by the server's kind."""
UNSUPPORTED_SINCE = "31 December 2025"
"""End of support for Deployment Manager with its Runtime Configurator: the notice on
cloud.google.com/deployment-manager (some translations of it said 31 March 2026)."""


class Exascaler(LustreKind):
    """DDN EXAScaler, on machines of the stack."""

    name = client = "exascaler"
    component = "components.gcp.exascaler:ExascalerLustre"
    needs: ClassVar[Mapping[str, ServiceNeed]] = {
        "gcp:runtimeconfig/": ServiceNeed(services=("runtimeconfig",), roles=("roles/runtimeconfig.admin",)),
        "gcp:projects/iAMCustomRole:": ServiceNeed(services=("iam",), roles=("roles/iam.roleAdmin",)),
    }
    keys = ("mgs", "mds", "oss", "image")
    ready_seconds = 1800  # servers format their disks one after the other
    web = True
    unsigned_servers = True

    @staticmethod
    def expected(lustre: Lustre) -> Expected:
        """Return capacity and bandwidth, from the limits of disks and machines."""
        oss = lustre.oss
        read, write = server_mbps(oss.machine_type, oss.ost)
        # Disks are sold in GB that are GiB: cloud.google.com/compute/docs/disks, "Size".
        return Expected(
            capacity_gib=oss.ost.size_gb * oss.ost.count * oss.count,
            read_mbps=read * oss.count,
            write_mbps=write * oss.count,
        )

    def parts(self) -> list[tuple[str, str, int, dict[str, Targets]]]:
        """Return kind, machine type and count of the servers, and the disks of each by role."""
        lustre = self.section
        return [
            ("mgs", lustre.mgs.machine_type, 1, {"mgt": lustre.mgs.mgt, "mnt": lustre.mgs.mnt}),
            ("mds", lustre.mds.machine_type, lustre.mds.count, {"mdt": lustre.mds.mdt}),
            ("oss", lustre.oss.machine_type, lustre.oss.count, {"ost": lustre.oss.ost}),
        ]

    def servers(self) -> Iterator[FileServer]:
        """Yield the management server, the metadata servers and the object storage servers."""
        for kind, machine_type, count, roles in self.parts():
            for index in range(count):
                name = f"{self.config.name}-{kind}{index}"
                disks = tuple(
                    TargetDisk(
                        name=f"{name}-{role}{number}-disk",
                        host=name,
                        role=role,
                        index=index * targets.count + number,
                        targets=targets,
                    )
                    for role, targets in roles.items()
                    for number in range(targets.count)
                )
                yield FileServer(
                    name=name, kind=kind, index=index, machine_type=MACHINE_TYPES[machine_type], disks=disks
                )

    def cost_parts(self) -> Iterator[Part]:
        """Yield servers, target disks and DDN's license. Boot disks are left out: their size is the image's."""
        for server in self.servers():
            what = f"Lustre {server.kind}"
            yield Part(what=what, item=server.machine_type.name, count=1, group="machines")
            yield Part(what="license of EXAScaler", item="exascaler-license", count=1, group="license")
            for disk in server.disks:
                yield Part(
                    what=what,
                    item=disk.targets.type,
                    count=disk.targets.size_gb,
                    group="storage",
                    protected=self.config.deletion_protection,
                )

    def find_errors(self) -> Iterator[Finding]:
        yield from super().find_errors()
        for server, machine_type, _, disks in self.parts():
            kind = MACHINE_TYPES[machine_type]
            at = ("storage", "lustre", server)
            yield from wrong_platform((*at, "machine_type"), machine_type, self.config.platform)
            for role, targets in disks.items() if kind.platform == self.config.platform else ():
                row = DISK_TYPES[targets.type]
                yield from find_type_errors((*at, role), row, kind)
                yield from find_size_errors((*at, role), row, targets.size_gb)
                yield from find_rate_errors((*at, role), row, targets)

    def find_warnings(self) -> Iterator[Finding]:
        """Warn that the section depends on a service that Google no longer supports."""
        yield Finding(
            id="exascaler-unsupported",
            level=Level.WARNING,
            at=("storage", "lustre", "kind"),
            what="EXAScaler's servers find each other by Google's Runtime Configurator, which is out of support since "
            f"{UNSUPPORTED_SINCE}: without it they do not start, and nobody mends it; and DDN has made no release for "
            "Google Cloud since March 2025",
            todo="for a new cluster write `kind: managed` (Pulumi.a3mega-managed.yaml); of one that is up, keep a copy "
            "of what lies on it",
        )


def server_mbps(machine_type: str, targets: Targets) -> tuple[int, int]:
    """Return MB/s of reading and of writing of one server: the least of its disks, its machine and its network."""
    kind, disk = MACHINE_TYPES[machine_type], DISK_TYPES[targets.type]
    lowest = targets.mbps or (disk.mbps[0] if disk.mbps else None)
    each = lowest or (targets.size_gb * disk.mbps_per_gb if disk.mbps_per_gb else disk.read_mbps)
    machine = disks_mbps(disk.name, kind.cpus)
    network = kind.egress_mbps
    read = min(min(each, disk.read_mbps) * targets.count, machine, network)
    write = min(min(each, disk.write_mbps) * targets.count, machine, network * DISK_WRITES / WRITE_OVERHEAD)
    return int(read), int(write)


def http_tag(deployment: str) -> str:
    """Return the network tag of the server that offers the clients' packages."""
    return f"{deployment}-http-server"


def loci_version(image: str) -> str:
    """Return the version of loci in an image of DDN's, by the image's name; the newest one for an unknown name."""
    name = image.rpartition("/")[2]
    return next((version for family, version in LOCI_VERSIONS.items() if name.startswith(family)), NEWEST_LOCI)


def loci_conf(exascaler: Exascaler) -> str:
    """Return the text of /etc/loci.conf, which is the same on every server."""
    name, lustre = exascaler.config.name, exascaler.section
    rows: list[tuple[str, object]] = [
        ("Version", loci_version(lustre.image)),
        ("Deployment", name),
        ("FilesystemTable", f"{name}-fs-config"),
        ("StartupTable", f"{name}-startup-config"),
        ("Profile", "custom"),
        ("FsName", lustre.fsname),
    ]
    for kind, machine_type, count, roles in exascaler.parts():
        rows += [(f"{kind.title()}Type", machine_type), (f"{kind.title()}Count", count)]
        for role, targets in roles.items():
            values = {"Type": targets.type, "Size": targets.size_gb, "Count": targets.count, "Raid": "false"}
            rows += [(f"{role.title()}{key}", value) for key, value in values.items()]
    return "[default]\n" + "".join(f"{key}: {value}\n" for key, value in rows)


def startup_script(exascaler: Exascaler) -> str:
    """Return the program that every server runs at each start."""
    return (
        "#!/bin/sh\n"
        "# What this server and the others are, then the image's own program, which brings up its part.\n"
        "set -eu\n"
        "umask 022\n"
        "cat >/etc/loci.conf.new <<'END'\n"
        f"{loci_conf(exascaler)}"
        "END\n"
        "mv /etc/loci.conf.new /etc/loci.conf\n"
        "loci init\n"
    )
