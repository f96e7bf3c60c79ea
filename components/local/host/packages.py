"""What the host must have before machines can be made on it, and how to get it there."""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from components.local.host.errors import HostError
from components.local.host.process import run

TOOLS = {
    "systemd-container": "systemd-nspawn",
    "mmdebstrap": "mmdebstrap",
    "iproute2": "ip",
    "nftables": "nft",
    "openssh-client": "ssh-keygen",
}
"""Debian packages that the rehearsal needs, and a command of each that shows it is there."""

_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def usual_umask() -> None:
    """Make files as Debian's packages and machines expect them, whatever the caller's umask is.

    With 027 or 077 users of a machine could not read its /etc/hosts or run its programs; with 000 all could write them.
    What is to be private gets its mode by name.
    """
    os.umask(0o022)


def missing_packages() -> list[str]:
    """Packages whose command is not on this machine."""
    return [package for package, command in TOOLS.items() if not shutil.which(command, path=_PATH)]


def install_packages(names: Sequence[str], report: Callable[[str], None]) -> None:
    """Install packages with apt-get, refreshing its lists if it has none; HostError when that fails."""
    if not names:
        return
    _require_root()
    if not shutil.which("apt-get", path=_PATH):
        raise HostError(_no_apt(names))
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "PATH": _PATH}
    install = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *names]
    report(f"installing {', '.join(names)} with apt-get")
    if _has_lists():
        try:
            run(install, env=env)
        except HostError:
            # Old lists name versions that the archive no longer has.
            report("apt-get failed: refreshing its lists and trying again")
        else:
            return
    run(["apt-get", "update", "--quiet"], env=env)
    run(install, env=env)


def require_host() -> None:
    """Raise HostError if this host can't run local machines; the umask is the usual one then."""
    usual_umask()
    if os.uname().sysname != "Linux":
        msg = f"platform local: machines need Linux, this is {os.uname().sysname}; use a Debian or Ubuntu machine"
        raise HostError(msg)
    _require_root()
    missing = missing_packages()
    if missing and not shutil.which("apt-get", path=_PATH):
        raise HostError(_no_apt(missing))
    if missing:
        msg = f"platform local: this host lacks {', '.join(missing)}; run: apt-get install {' '.join(missing)}"
        raise HostError(msg)
    if "\toverlay\n" not in Path("/proc/filesystems").read_text():
        try:
            run(["modprobe", "overlay"])
        except HostError:
            msg = "platform local: this host's kernel has no overlayfs, which machines share their base image by"
            raise HostError(msg) from None


def _require_root() -> None:
    if os.geteuid() != 0:
        msg = "platform local: machines, bridges and mounts are made as root; run again as root (sudo ./hpc ...)"
        raise HostError(msg)


def _no_apt(names: Sequence[str]) -> str:
    wanted = ", ".join(f"{TOOLS.get(name, name)} (Debian package {name})" for name in names)
    return (
        f"platform local: this host lacks {wanted}, and has no apt-get to install it with; "
        "install it with the system's own package manager, or use a Debian or Ubuntu machine"
    )


def _has_lists() -> bool:
    return any(Path("/var/lib/apt/lists").glob("*_InRelease"))
