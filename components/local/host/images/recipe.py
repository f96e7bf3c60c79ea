"""What a base image is made of, and the hash that names it."""

import hashlib
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from components.local.host.errors import HostError

HERE = Path(__file__).parents[1]
BUILD = HERE / "build-image.sh"
TRIM = HERE / "trim-image.sh"
TRIMS = {"debian-13": HERE / "trim-debian-13.sh"}
"""In its place, for some images."""
ROOTFS = HERE.parent / "rootfs"

SUITES = {"debian-12": "bookworm", "debian-13": "trixie"}
"""Base images by their name in `image.base`, and the Debian release that each is."""

PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "iproute2", "usr-is-merged",
    "openssh-server",
    "munge", "slurmctld", "slurmd", "slurm-client", "slurmdbd", "libpmix2",
    "mariadb-server",
    "python3",                              # the node's set-up is Python
    "logrotate",                            # the daemons' logs grow, and those of prologs
    "lsb-release",                          # prologs of the field ask it which system they run on
    "libfaketime",                          # a machine's clock can be put wrong; it is the host's otherwise
    "bsd-mailx", "dma",                     # /usr/bin/mail, and an agent that delivers on the machine itself
    "procps", "psmisc", "iputils-ping", "less", "nano-tiny",  # what one reaches for when something is wrong
)  # fmt: skip
MORE: dict[str, tuple[str, ...]] = {
    "debian-13": (
        "libpam-slurm-adopt",                   # users reach the nodes of their jobs, within those
        "slurmrestd", "slurm-wlm-jwt-plugin",   # REST, and the tokens that it takes
        "xauth",                                # X11 of jobs
        "python3-venv", "git", "tmux",          # what users of login machines reach for; the editor is nano-tiny
    ),
}  # fmt: skip
"""Further packages of some images. Not for debian-12: its machines would be recreated."""


@dataclass(frozen=True)
class Recipe:
    base: str
    suite: str
    packages: tuple[str, ...]
    trim: Path = TRIM
    own: tuple[str, ...] = ()
    """Those of `packages` that the stack file asks for (`image.packages`), beyond what every image has."""

    @property
    def digest(self) -> str:
        """16 hex digits that name the image: of everything that we put in, not of the packages' versions.

        An image is made once and kept; `prune` it to get newer packages.
        """
        content = hashlib.sha256()
        for part in (self.base, self.suite, platform.machine(), *self.packages):
            content.update(part.encode() + b"\0")
        for path in sorted({BUILD, TRIM, self.trim, *(path for path in ROOTFS.rglob("*") if path.is_file())}):
            executable = b"x" if path.stat().st_mode & 0o100 else b"-"
            content.update(str(path.relative_to(HERE.parent)).encode() + b"\0" + executable + path.read_bytes())
        return content.hexdigest()[:16]


def recipe(base: str, packages: Iterable[str] = ()) -> Recipe:
    """The recipe for `image.base` and `image.packages`; HostError if there is none.

    The order of `packages` does not count, nor does one that every image has: that would be the same image.
    """
    if base not in SUITES:
        msg = f"image.base: {base!r} can't be made on this machine; allowed here: {', '.join(sorted(SUITES))}"
        raise HostError(msg)
    usual = (*PACKAGES, *MORE.get(base, ()))
    own = tuple(sorted(set(packages) - set(usual)))
    return Recipe(base, SUITES[base], (*usual, *own), TRIMS.get(base, TRIM), own)
