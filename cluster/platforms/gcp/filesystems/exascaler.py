"""DDN EXAScaler as DDN's own images expect to be started: which servers and disks there are, what they are called and
labelled, and the file that tells each server of all of them.

The images hold a program, `loci`, which a start-up script runs after writing /etc/loci.conf. It finds the disks by
their labels, formats them, and keeps what servers must know of each other in two configs of the Runtime Configurator.
Names, labels and keys are therefore DDN's, as its last release for Google Cloud (2.2.2) has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cluster.catalog import MACHINE_TYPES, MachineType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.config.cluster import ClusterConfig
    from cluster.config.lustre import Lustre, Targets

Kind = Literal["mgs", "mds", "oss"]

LOCI_VERSIONS: Mapping[str, str] = {"exascaler-cloud-6-2": "2.1.0", "exascaler-cloud-6-3": "2.2.1"}
"""What `Version` in loci.conf is for the images of a release (DDN's modules 2.1.8 and 2.2.2)."""
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
"""What a server must be allowed, and nothing else."""

TARGET_OF: Mapping[str, str] = {"mgs": "mgt", "mds": "mdt", "oss": "ost"}
"""What a server's label `lustre_type` says."""


@dataclass(frozen=True, kw_only=True)
class TargetDisk:
    """A disk that holds one target of the file system."""

    name: str
    host: str
    """Server that it is attached to."""
    role: str
    """mgt, mnt, mdt or ost."""
    index: int
    """Among all disks of its role."""
    targets: Targets


@dataclass(frozen=True, kw_only=True)
class Server:
    """One server of the file system."""

    name: str
    kind: Kind
    index: int
    machine_type: MachineType
    disks: tuple[TargetDisk, ...]

    @property
    def boot_disk(self) -> str:
        """Name of its boot disk."""
        return f"{self.name}-boot-disk"


def servers(config: ClusterConfig) -> tuple[Server, ...]:
    """Every server: the management server, metadata servers, object storage servers; none without EXAScaler."""
    lustre = config.storage.lustre
    if lustre is None or lustre.kind != "exascaler":
        return ()
    parts: list[tuple[Kind, str, int, dict[str, Targets]]] = [
        ("mgs", lustre.mgs.machine_type, 1, {"mgt": lustre.mgs.mgt, "mnt": lustre.mgs.mnt}),
        ("mds", lustre.mds.machine_type, lustre.mds.count, {"mdt": lustre.mds.mdt}),
        ("oss", lustre.oss.machine_type, lustre.oss.count, {"ost": lustre.oss.ost}),
    ]
    return tuple(
        Server(
            name=f"{config.name}-{kind}{index}",
            kind=kind,
            index=index,
            machine_type=MACHINE_TYPES[machine_type],
            disks=tuple(
                TargetDisk(
                    name=f"{config.name}-{kind}{index}-{role}{number}-disk",
                    host=f"{config.name}-{kind}{index}",
                    role=role,
                    index=index * targets.count + number,
                    targets=targets,
                )
                for role, targets in roles.items()
                for number in range(targets.count)
            ),
        )
        for kind, machine_type, count, roles in parts
        for index in range(count)
    )


def http_tag(deployment: str) -> str:
    """Network tag of the server that clients' packages come from."""
    return f"{deployment}-http-server"


def loci_version(image: str) -> str:
    """The version of loci that an image of DDN's has, by its name; the newest known for a name that says nothing."""
    name = image.rpartition("/")[2]
    return next((version for family, version in LOCI_VERSIONS.items() if name.startswith(family)), NEWEST_LOCI)


def loci_conf(config: ClusterConfig, lustre: Lustre) -> str:
    """Text of /etc/loci.conf, the same on every server."""
    rows: list[tuple[str, object]] = [
        ("Version", loci_version(lustre.image)),
        ("Deployment", config.name),
        ("FilesystemTable", f"{config.name}-fs-config"),
        ("StartupTable", f"{config.name}-startup-config"),
        ("Profile", "custom"),
        ("FsName", lustre.fsname),
    ]
    for kind, machine_type, count, roles in (
        ("Mgs", lustre.mgs.machine_type, 1, {"Mgt": lustre.mgs.mgt, "Mnt": lustre.mgs.mnt}),
        ("Mds", lustre.mds.machine_type, lustre.mds.count, {"Mdt": lustre.mds.mdt}),
        ("Oss", lustre.oss.machine_type, lustre.oss.count, {"Ost": lustre.oss.ost}),
    ):
        rows += [(f"{kind}Type", machine_type), (f"{kind}Count", count)]
        for role, targets in roles.items():
            rows += [(f"{role}Type", targets.type), (f"{role}Size", targets.size_gb), (f"{role}Count", targets.count)]
            rows.append((f"{role}Raid", "false"))
    return "[default]\n" + "".join(f"{key}: {value}\n" for key, value in rows)


def startup_script(config: ClusterConfig, lustre: Lustre) -> str:
    """What every server runs at each start."""
    return (
        "#!/bin/sh\n"
        "# What this server and the others are, then the image's own program, which brings up its part.\n"
        "set -eu\n"
        "umask 022\n"
        "cat >/etc/loci.conf.new <<'END'\n"
        f"{loci_conf(config, lustre)}"
        "END\n"
        "mv /etc/loci.conf.new /etc/loci.conf\n"
        "loci init\n"
    )
