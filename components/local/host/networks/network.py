"""A stack's place on this host: its folder, its owner, its bridge and the names of its machines."""

import ipaddress
import json
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from components.local.host import claims, owner
from components.local.host.errors import HostError
from components.local.host.locks import locked, remove_empty, write_atomically
from components.local.host.machines import machine
from components.local.host.networks import bridge, firewall, hosts, names
from components.local.host.paths import StackPaths, checked_name
from components.local.host.process import run

PRIVATE = 0o700
"""Mode of a stack's folder. Who is root in a machine, or can make a program there run as another user, is so on this
host as well: its users must not reach what the cluster's users put into a shared folder."""


@dataclass(frozen=True, kw_only=True)
class Network:
    root: Path
    stack: str
    owner: str
    """Pulumi's project and stack."""
    cidr: str
    gateway: str
    hosts: Mapping[str, str]
    """Addresses of all the stack's machines by name."""
    state: str = ""
    """Which state makes it, see owner.py; empty: not checked."""

    @property
    def paths(self) -> StackPaths:
        return StackPaths(self.root, self.stack)

    @property
    def bridge(self) -> str:
        return names.bridge_name(self.root, self.stack)


def ensure(network: Network, *, before: Sequence[str] | None = None) -> None:
    """Make the network, or bring it to what it should be; HostError if its name or addresses are in use.

    `before`: ids of the state that asks, as it knew itself when it made this network; None where it has made none yet.
    """
    checked_name(network.stack, "stack")
    _check_disk(network.root)
    # Two stacks that come up at once must not both find the same addresses free.
    with locked(network.root / ".networks.lock"):
        _check_owner(network)
        _check_state(network, before)
        cidr = ipaddress.IPv4Network(network.cidr)
        _check_free(network, cidr)
        record = {"owner": network.owner, "cidr": network.cidr, "gateway": network.gateway, "bridge": network.bridge}
        record |= owner.to_record(before or (), network.state, network.paths)
        network.paths.folder.mkdir(parents=True, exist_ok=True)
        network.paths.folder.chmod(PRIVATE)
        network.paths.shared.mkdir(exist_ok=True)
        write_atomically(network.paths.network, json.dumps(record, indent=1))
        hosts.write_in_place(network.paths.hosts, hosts.render(network.hosts, network.gateway))
        address = ipaddress.IPv4Interface(f"{network.gateway}/{cidr.prefixlen}")
        bridge.ensure(network.bridge, network.root, network.stack, address)


def is_up(network: Network) -> bool:
    """Whether the bridge (gone after a restart of the host) and the stack's files are there, and these root's alone."""
    paths = network.paths
    there = paths.network.exists() and paths.hosts.exists() and bridge.exists(network.bridge)
    there = there and firewall.is_shielded(network.bridge)
    return there and stat.S_IMODE(paths.folder.stat().st_mode) == PRIVATE


def remove(network: Network) -> None:
    """Remove the bridge and the stack's folder; not where another state has recreated them since.

    Machines and shared folders were removed before. What a killed run left, of which no state knows, is removed now:
    machines, and empty shared folders.
    """
    if network.state and owner.is_other_states(network.paths, network.state):
        return
    machine.delete_all(network.root, network.stack)
    if not network.root.exists():
        bridge.remove(network.bridge, network.root, network.stack)
        return
    with locked(network.root / ".networks.lock"):
        bridge.remove(network.bridge, network.root, network.stack)
        for path in (network.paths.hosts, network.paths.network, *network.paths.folder.glob(".*.new")):
            path.unlink(missing_ok=True)
        paths = network.paths
        for folder in (*paths.shared.glob("*/"), paths.shared, paths.machines, paths.folder):
            remove_empty(folder)
        if not paths.shared.exists():
            claims.remove_all(paths)
            remove_empty(paths.folder)
        if remove_empty(network.root / "stacks"):
            (network.root / ".networks.lock").unlink(missing_ok=True)
    remove_empty(network.root)


def ensure_shared(paths: StackPaths, name: str, *, mode: int, gid: int) -> None:
    """Make a shared folder of the stack; what is in it stays.

    Root of the stack's machines may put a link in its place at any moment: it is not followed.
    """
    folder = paths.shared / checked_name(name, "shared folder")
    paths.shared.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir()
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise HostError(f"{folder}: is no folder ({error.strerror}); remove what is there") from None
    try:
        os.fchown(handle, 0, gid)
        os.fchmod(handle, mode)
    finally:
        os.close(handle)


def remove_shared(paths: StackPaths, name: str) -> None:
    folder = paths.shared / checked_name(name, "shared folder")
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)


def _check_owner(network: Network) -> None:
    known = owner.recorded(network.paths).get("owner", network.owner)
    if known != network.owner:
        raise HostError(
            f"cluster.name: {network.stack!r} is already up on this host, made by {known}; "
            "give this cluster another name, or destroy that one first"
        )


def _check_state(network: Network, before: Sequence[str] | None) -> None:
    owner.refuse_other_state(network.paths, network.state, before=before or ())
    # Made by an earlier version, or the record is damaged: whose the machines are is not known, but not a new state's.
    unclaimed = network.state and before is None and "states" not in owner.recorded(network.paths)
    if unclaimed and machine.any_runs(network.root, network.stack):
        raise HostError(owner.refusal(network.paths))


def taken_by(root: Path, stack: str, cidr: ipaddress.IPv4Network) -> str | None:
    """Which other stack or interface has addresses of `cidr` on this host, up or not; None if none has."""
    taken = bridge.taken_by(cidr, but=names.bridge_name(root, stack))
    for record in (root / "stacks").glob("*/network.json"):
        if record.parent.name == stack:
            continue
        try:
            other = json.loads(record.read_text())
            if ipaddress.IPv4Network(other["cidr"]).overlaps(cidr):
                taken = f"the local cluster {record.parent.name} ({other['cidr']}, made by {other['owner']})"
        except (FileNotFoundError, ValueError, KeyError):
            continue
    return taken


def _check_free(network: Network, cidr: ipaddress.IPv4Network) -> None:
    taken = taken_by(network.root, network.stack, cidr)
    if taken:
        raise HostError(
            f"network.cidr: {cidr} is in use on this host by {taken}; "
            "choose another private range, e.g. network: {cidr: 10.78.0.0/20}"
        )


def _check_disk(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    kind = run(["stat", "--file-system", "--format=%T", str(root)]).strip()
    if kind == "overlayfs":
        raise HostError(
            f"{root}: is itself on an overlay file system (a container's), which machines can't be layered on; "
            "set HPC_LOCAL_ROOT to a folder on a volume or a disk"
        )
