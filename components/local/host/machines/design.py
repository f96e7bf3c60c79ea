"""What a machine is to be, and the files that follow from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from components.local.host.machines.layer import File
from components.local.host.networks import names
from components.local.host.paths import MachinePaths, StackPaths


@dataclass(frozen=True, kw_only=True)
class Design:
    """All that makes a machine what it is; only `files` and `authorized_keys` can be changed in place."""

    root: Path
    images: Path
    stack: str
    name: str
    address: str
    prefix: int
    image: str
    """Digest of the base image."""
    authorized_keys: str = ""
    """Who may log in as root."""
    files: Mapping[str, File] = field(default_factory=dict)
    os_release: str = ""
    """Content of /etc/os-release, if not the image's."""
    devices: tuple[tuple[str, int, int], ...] = ()
    """Character devices to be in /dev at each boot: name, major, minor."""
    orderly: bool = False
    """Shut its services down before it is started again (it holds a database)."""

    @property
    def stack_paths(self) -> StackPaths:
        return StackPaths(self.root, self.stack)

    @property
    def paths(self) -> MachinePaths:
        return self.stack_paths.machine(self.name)

    @property
    def host_id(self) -> str:
        return names.machine_id(self.root, self.stack, self.name)


@dataclass(frozen=True, kw_only=True)
class Facts:
    instance_id: str
    """Changes only when the machine is recreated."""
    boot_id: str
    """New at each start."""
    host_key: str
    """Its SSH host key, public half, as known_hosts has it."""


def own_files(design: Design, instance_id: str) -> dict[str, File]:
    """Files that every machine is made with."""
    files = {
        "/etc/hostname": File(content=f"{design.name}\n"),
        "/etc/machine-id": File(content=f"{instance_id}\n", mode=0o444),
        "/etc/systemd/network/10-host0.network": File(
            content=f"[Match]\nName=host0\n\n[Network]\nAddress={design.address}/{design.prefix}\n"
            "DHCP=no\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n"
        ),
        **access_files(design),
    }
    if design.os_release:
        files["/usr/lib/os-release"] = File(content=design.os_release)
        files["/etc/os-release"] = File(link="../usr/lib/os-release")
    if design.devices:
        lines = [f"{name} {major} {minor}\n" for name, major, minor in design.devices]
        files["/etc/hpc/devices"] = File(content="".join(lines))
    return files


def access_files(design: Design) -> dict[str, File]:
    """Those of them that may change while it lives."""
    return {"/root/.ssh/authorized_keys": File(content=design.authorized_keys.strip() + "\n", mode=0o600)}
