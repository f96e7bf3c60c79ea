"""What tests need of this machine: root, packages of the rehearsal, an sshd, an emulator."""

import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from cli import console
from cli.errors import CliError
from cli.operation import localhost

_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
_UNITS = ("ssh.service", "ssh.socket")
_EMULATOR = {"qemu-system-x86": "qemu-system-x86_64", "e2fsprogs": "mke2fs"}
"""Packages with which tests emulate a machine with a kernel of its own, and a command of each."""
_INSTALL = ("install", "--yes", "--quiet", "--no-install-recommends")
_POLICY = Path("/usr/sbin/policy-rc.d")


def prepare() -> None:
    """See that all tests can run; installs what is missing, after saying so. Raises CliError: not root, or a package
    can't be installed; HostError: machines can't be made here."""
    if os.geteuid() != 0:
        raise CliError(
            "end-to-end tests make machines, bridges and mounts: run as root (sudo ./hpc test), "
            "or leave them out: ./hpc test --fast"
        )
    localhost.prepare()
    if not shutil.which("sshd", path=_PATH):
        _install_sshd()
    _install_emulator()


def _install_sshd() -> None:
    """Install openssh-server for its sshd. The tests start it themselves; the host's own service must stay off."""
    apt = shutil.which("apt-get", path=_PATH)
    if not apt:
        raise CliError(
            "the tests need an sshd, and there is no apt-get here. Install OpenSSH's server and run this again."
        )
    console.note("Installing openssh-server for the tests; its service stays off ...")
    with _no_service():
        _ran([apt, "update", "--quiet"])  # old lists name versions that the archive no longer has
        if not _ran([apt, *_INSTALL, "openssh-server"]):
            raise CliError("openssh-server could not be installed; see above. Install it and run this again.")
        # Installed while masked, systemd's units are not enabled; the older init scripts are always.
        if shutil.which("update-rc.d", path=_PATH):
            _ran(["update-rc.d", "ssh", "disable"])


def _install_emulator() -> None:
    """Install what is missing to emulate a machine. Where it can't be had, the tests of that machine are skipped."""
    missing = [package for package, command in _EMULATOR.items() if not shutil.which(command, path=_PATH)]
    apt = shutil.which("apt-get", path=_PATH)
    if not missing or not apt:
        return
    console.note(f"Installing {', '.join(missing)} for the tests ...")
    install = [apt, *_INSTALL, *missing]
    if not _ran(install) and not (_ran([apt, "update", "--quiet"]) and _ran(install)):
        console.note("The emulator could not be installed; see above. The tests of an emulated machine are left out.")


@contextmanager
def _no_service() -> Generator[None]:
    """Keep Debian's packages from starting the service now (policy-rc.d) or, if this is killed, ever (masked units)."""
    masks = [Path("/etc/systemd/system") / unit for unit in _UNITS]
    made = [mask for mask in masks if not os.path.lexists(mask)]
    for mask in made:
        mask.parent.mkdir(parents=True, exist_ok=True)
        mask.symlink_to(os.devnull)
    own_policy = not _POLICY.exists()
    if own_policy:
        _POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
        _POLICY.chmod(0o755)
    try:
        yield
    finally:
        if own_policy:
            _POLICY.unlink(missing_ok=True)
        for mask in made:
            if mask.is_symlink() and str(mask.readlink()) == os.devnull:
                mask.unlink()


def _ran(command: list[str]) -> bool:
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "PATH": _PATH}
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        console.note(f"{done.stdout}{done.stderr}".rstrip())
    return done.returncode == 0
