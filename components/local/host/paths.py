"""Paths of a rehearsal on the host.

<root>/images/<hash>/            read-only base images, shared between stacks (a cache)
<root>/stacks/<stack>/           all that one stack owns; gone after its destroy
    network.json  hosts  lock    the network's facts, its hosts file, the lock of its list of machines
    shared/<name>/               the shared folders
    .claims/                     who made network and shared folders last
    machines/<name>/             see MachinePaths below
    cloud/                       designs, token, state and log of the process that creates elastic nodes' machines
"""

import os
import re
from pathlib import Path


class HostError(Exception):
    """This host can't run a rehearsal; the message is for the user."""


DEFAULT_ROOT = Path("/var/lib/hpc")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_PLAIN = re.compile(r"/[A-Za-z0-9._/-]*")


def host_root() -> Path:
    """Return the folder of rehearsals: $HPC_LOCAL_ROOT, else /var/lib/hpc."""
    return plain(Path(os.environ.get("HPC_LOCAL_ROOT") or DEFAULT_ROOT))


def images_root() -> Path:
    """Return the folder of base images: $HPC_LOCAL_IMAGES, which several roots can share, else `images` in the root."""
    folder = os.environ.get("HPC_LOCAL_IMAGES")
    return plain(Path(folder)) if folder else host_root() / "images"


def plain(path: Path) -> Path:
    """Return the path. Raises HostError: an overlay's mount options can't contain it, as `:` and `,` separate them."""
    if not _PLAIN.fullmatch(str(path)):
        msg = f"{path}: the folder of local machines must be an absolute path of letters, digits and . _ - / only"
        raise HostError(msg)
    return path


def checked_name(name: str, what: str) -> str:
    """Return the name, which becomes a folder and a host name. Raises HostError: it is no label of a host name."""
    if not _NAME.fullmatch(name):
        raise HostError(f"{what} {name!r}: must be 1 to 63 of a-z, 0-9 and '-', not beginning or ending with '-'")
    return name


class MachinePaths:
    """The files of one machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.upper = folder / "upper"
        """The machine's own layer over the base image, with everything that it wrote."""
        self.work = folder / "work"
        """Overlayfs' scratch folder, on the same file system as `upper`."""
        self.root = folder / "root"
        """Mount point of the machine's root, mounted only in its own mount namespace."""
        self.console = folder / "console.log"
        """Output of the machine's console since its last start."""
        self.run = folder / "run.json"
        """The running process: pid, its start time, the host's boot id (see process.Process)."""
        self.wanted = folder / "wanted"
        """The boot id of the latest start."""
        self.record = folder / "machine.json"
        """The inputs that the machine was created from, and its instance id."""
        self.lock = folder.parent / f".{folder.name}.lock"
        """Held while the machine is changed."""


class StackPaths:
    """The files of one stack."""

    def __init__(self, root: Path, stack: str) -> None:
        self.stack = stack
        self.folder = root / "stacks" / stack
        """Everything that the stack owns on this host."""
        self.network = self.folder / "network.json"
        """The network's facts: owner, CIDR, bridge."""
        self.hosts = self.folder / "hosts"
        """/etc/hosts of every machine, bound into each."""
        self.shared = self.folder / "shared"
        """The shared folders, bound into each machine at /srv/shared."""
        self.claims = self.folder / ".claims"
        """The claims on the network and the shared folders (see owner.py)."""
        self.machines = self.folder / "machines"
        self.cloud = self.folder / "cloud"
        """Files of the process that creates the machines of elastic nodes (see cloud.py)."""

    def machine(self, name: str) -> MachinePaths:
        return MachinePaths(self.machines / name)
