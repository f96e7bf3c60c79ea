"""The network of a stack on this host, its shared folders, and /etc/hosts, one file bound into every machine."""

import ipaddress
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from components.local.host import bridge, cgroups, cloud, machine, owner
from components.local.host.paths import HostError, StackPaths, checked_name
from components.local.host.process import run
from scripts.hostfiles import locked, remove_empty, write_atomically


def render_hosts(hosts: Mapping[str, str], gateway: str) -> str:
    """Return the text of /etc/hosts: the machines by name, in the order of their addresses."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback", f"{gateway} gateway"]
    by_address = sorted(hosts.items(), key=lambda item: tuple(int(part) for part in item[1].split(".")))
    lines += [f"{address} {name}" for name, address in by_address]
    return "\n".join(lines) + "\n"


def write_in_place(path: Path, text: str) -> None:
    """Change the content of a file without replacing the file: machines would keep the old one, which is bound."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = text.encode()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.fchmod(handle, 0o644)
        # First written, then truncated: a reader in between sees whole lines of the new or the old list.
        os.pwrite(handle, content, 0)
        os.ftruncate(handle, len(content))
    finally:
        os.close(handle)


PRIVATE = 0o700
"""Mode of a stack's folder. Files in shared folders may be set-uid programs of the cluster's users, who may be root in
a machine: users of this host must not reach them."""


@dataclass(frozen=True, kw_only=True)
class HostNetwork:
    root: Path
    stack: str
    owner: str
    """Pulumi's project and stack."""
    cidr: str
    gateway: str
    hosts: Mapping[str, str]
    """Addresses of all the stack's machines by name."""
    state: str = ""
    """The id of its state, see owner.py; empty: not checked."""
    open_to: Mapping[str, int] = field(default_factory=dict)
    """Addresses of machines that may connect to a port of the host, with the port."""

    @property
    def paths(self) -> StackPaths:
        return StackPaths(self.root, self.stack)

    @property
    def bridge(self) -> str:
        return bridge.bridge_name(self.root, self.stack)


def ensure(network: HostNetwork, *, before: Sequence[str] | None = None) -> None:
    """Create the network, or update it. Raises HostError: its name or addresses are in use.

    `before` are the ids that the state had when it created this network; None if it has not created it.
    """
    checked_name(network.stack, "stack")
    _check_disk(network.root)
    # Two stacks that come up at once must not both find the same addresses free.
    with locked(network.root / ".networks.lock"):
        _check_owner(network, before)
        cidr = ipaddress.IPv4Network(network.cidr)
        if user := taken_by(network.root, network.stack, cidr):
            raise HostError(
                f"network.cidr: {cidr} is in use on this host by {user}; "
                "choose another private range, e.g. network: {cidr: 10.78.0.0/20}"
            )
        record = {"owner": network.owner, "cidr": network.cidr, "gateway": network.gateway, "bridge": network.bridge}
        record |= owner.to_record(before or (), network.state, network.paths)
        network.paths.folder.mkdir(parents=True, exist_ok=True)
        network.paths.folder.chmod(PRIVATE)
        network.paths.shared.mkdir(exist_ok=True)
        write_atomically(network.paths.network, json.dumps(record, indent=1))
        write_in_place(network.paths.hosts, render_hosts(network.hosts, network.gateway))
        address = ipaddress.IPv4Interface(f"{network.gateway}/{cidr.prefixlen}")
        bridge.ensure(network.bridge, network.root, network.stack, address, network.open_to)


def is_up(network: HostNetwork) -> bool:
    """Return whether the bridge and its rules exist, which a restart of the host removes, and the stack's files with
    their mode."""
    paths = network.paths
    complete = paths.network.exists() and paths.hosts.exists() and bridge.exists(network.bridge)
    complete = complete and bridge.is_shielded(network.bridge)
    return complete and stat.S_IMODE(paths.folder.stat().st_mode) == PRIVATE


def remove(network: HostNetwork) -> None:
    """Remove the bridge and the stack's folder, unless another state owns them.

    Machines and shared folders were removed before. Machines and empty shared folders of a killed run, which no state
    contains, are removed now.
    """
    if network.state and owner.is_other_states(network.paths, network.state):
        return
    cloud.remove(network.paths)
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
            shutil.rmtree(paths.claims, ignore_errors=True)
            remove_empty(paths.folder)
        if remove_empty(network.root / "stacks"):
            (network.root / ".networks.lock").unlink(missing_ok=True)
    remove_empty(network.root)


def ensure_shared(paths: StackPaths, name: str, *, mode: int, gid: int) -> None:
    """Create a shared folder of the stack. The content of an existing one stays.

    Root of a machine may replace it by a link at any moment, so links are not followed.
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


def _check_owner(network: HostNetwork, before: Sequence[str] | None) -> None:
    record = owner.recorded(network.paths)
    # A state that created this network has another stack name after `pulumi stack rename`.
    if before is None and record.get("owner", network.owner) != network.owner:
        raise HostError(
            f"cluster.name: {network.stack!r} is already up on this host, made by {record['owner']}; "
            "give this cluster another name, or destroy that one first"
        )
    owner.refuse_other_state(network.paths, network.state, before=before or ())
    # Without an owner on record (of an earlier version, or damaged) running machines are not those of a new state.
    unclaimed = network.state and before is None and "states" not in record
    if unclaimed and machine.any_runs(network.root, network.stack):
        raise HostError(owner.refusal(network.paths))


def taken_by(root: Path, stack: str, cidr: ipaddress.IPv4Network) -> str | None:
    """Return the other stack, up or not, or the interface that has addresses of `cidr` on this host; None if none."""
    user = bridge.taken_by(cidr, but=bridge.bridge_name(root, stack))
    for record in (root / "stacks").glob("*/network.json"):
        if record.parent.name == stack:
            continue
        try:
            other = json.loads(record.read_text())
            if ipaddress.IPv4Network(other["cidr"]).overlaps(cidr):
                user = f"the local cluster {record.parent.name} ({other['cidr']}, made by {other['owner']})"
        except (FileNotFoundError, PermissionError, ValueError, KeyError):
            continue  # only root creates networks, and root can read all of them
    return user


def _check_disk(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    kind = run(["stat", "--file-system", "--format=%T", str(root)]).strip()
    if kind == "overlayfs":
        raise HostError(
            f"{root}: is itself on an overlay file system (a container's), which machines can't be layered on; "
            "set HPC_LOCAL_ROOT to a folder on a volume or a disk"
        )


def stacks(root: Path) -> list[str]:
    """Return the names of the stacks that have a folder on this host."""
    return sorted(path.name for path in (root / "stacks").glob("*") if path.is_dir())


def leftovers(root: Path) -> list[str]:
    """Return everything of stacks under `root` on this host: files, mounts, bridges, processes, control groups.

    It is empty after every stack's destroy. Base images are a cache and not counted.
    """
    return [
        *(f"folder {path}" for path in (root / "stacks").glob("*")),
        *(f"mount {path}" for path in _mounts(root / "stacks")),
        *(f"bridge {name}" for name in bridge.bridges_of_root(root)),
        *(f"process {line}" for line in _processes(root / "stacks")),
        *(f"control group {path}" for path in cgroups.leftover_groups(root)),
    ]


def sweep(root: Path, stack: str) -> None:
    """Remove everything of a stack from this host, regardless of its owner and of any state."""
    paths = StackPaths(root, stack)
    cloud.remove(paths)
    machine.delete_all(root, stack)
    bridge.remove(bridge.bridge_name(root, stack), root, stack)
    if paths.folder.exists():
        shutil.rmtree(paths.folder)
    remove_empty(root / "stacks")


@contextmanager
def own_root(place: Path, kind: str) -> Iterator[Path]:
    """Yield a root in the folder `place` for stacks of this process only, and remove it with its stacks at the end.

    Roots of killed processes are removed first.
    """
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    remove_unused_roots(place)
    root = place / f"{kind}-{os.getpid()}"
    with locked(place / f"{root.name}.lock"):
        root.mkdir()
        try:
            yield root
        finally:
            _remove_root(root)
            remove_empty(place)


def remove_unused_roots(place: Path) -> list[str]:
    """Remove the roots in the folder `place` whose processes were killed (see `own_root`), and return their names."""
    removed = []
    for root in sorted(place.glob("*/")):
        with locked(place / f"{root.name}.lock", wait=False) as unused:
            if unused and root.exists():
                _remove_root(root)
                removed.append(root.name)
    return removed


def _remove_root(root: Path) -> None:
    for stack in stacks(root):
        sweep(root, stack)
    shutil.rmtree(root, ignore_errors=True)
    root.with_name(f"{root.name}.lock").unlink(missing_ok=True)


def _mounts(folder: Path) -> Iterator[str]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        # Blanks in a mount point are written as octal escapes (proc(5)).
        target = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), line.split()[4])
        if target.startswith(f"{folder}/"):
            yield target


def _processes(folder: Path) -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(argument.startswith((f"--directory={folder}/", f"{folder}/")) for argument in arguments):
            yield f"{path.parent.name} ({arguments[0]})"
