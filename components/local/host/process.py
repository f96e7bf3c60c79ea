"""Runs commands, identifies processes by more than their number, and checks that this host can run machines."""

import functools
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from components.local.host.paths import HostError


def run(command: Sequence[str], *, stdin: str | None = None, env: Mapping[str, str] | None = None) -> str:
    """Run a short command and return its output. Raises HostError: it failed, with its last line of output."""
    try:
        done = subprocess.run(
            command,
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env=env,
        )
    except FileNotFoundError:
        raise HostError(f"{command[0]}: not found on this machine") from None
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip() or f"ended with status {done.returncode}").splitlines()
        raise HostError(f"{' '.join(command)}: {lines[-1]}")
    return done.stdout


@functools.cache
def host_boot_id() -> str:
    """Return the id of this host's boot. Process numbers are only valid within one boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@dataclass(frozen=True)
class Process:
    """A process, identified by its number, its start (clock ticks since boot) and the host's boot."""

    pid: int
    started: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> "Process | None":
        """Return the process that has this number now; None if there is none."""
        stat = _stat(pid)
        return cls(pid, stat[1], host_boot_id()) if stat else None

    @classmethod
    def load(cls, path: Path) -> "Process | None":
        """Return the process recorded at `path`; None if there is no complete record."""
        try:
            record = json.loads(path.read_text())
            return cls(int(record["pid"]), int(record["started"]), str(record["boot"]))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def alive(self) -> bool:
        """Return whether this very process still runs; a zombie does not."""
        stat = _stat(self.pid)
        return stat is not None and stat[0] not in "ZX" and stat[1] == self.started and self.boot == host_boot_id()

    def end(self, sig: signal.Signals, *, wait: float) -> bool:
        """Send a signal if the process still runs, and wait up to `wait` seconds. Returns whether it has ended."""
        if not self.alive():
            return True
        try:
            # A pidfd stays with this process, even if its number is reused between the check and the signal.
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            if not self.alive():
                return True
            signal.pidfd_send_signal(handle, sig)
        except ProcessLookupError:
            return True
        finally:
            os.close(handle)
        deadline = time.monotonic() + wait
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def parent(self) -> "Process | None":
        stat = _stat(self.pid)
        return Process.of(stat[2]) if stat else None

    def command(self) -> list[str]:
        """Return the process's command line; empty if it has ended."""
        try:
            return Path(f"/proc/{self.pid}/cmdline").read_text(errors="replace").split("\0")
        except OSError:
            return []

    def is_first_of_namespace(self) -> bool:
        """Return whether it is process 1 of a PID namespace below this one (NSpid in proc_pid_status(5))."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return False
        numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
        return len(numbers) > 1 and numbers[-1] == "1"

    def children(self) -> list[int]:
        try:
            return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]
        except OSError:
            return []


def _stat(pid: int) -> tuple[str, int, int] | None:
    """Return the state, start time and parent of a process: fields 3, 22 and 4 of /proc/PID/stat (proc(5))."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], int(fields[19]), int(fields[1])


TOOLS = {
    "systemd-container": "systemd-nspawn",
    "mmdebstrap": "mmdebstrap",
    "iproute2": "ip",
    "nftables": "nft",
    "openssh-client": "ssh-keygen",
}
"""Debian packages that the rehearsal needs, and a command of each by which it is found."""

_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def usual_umask() -> None:
    """Set the umask that Debian's packages and machines expect, whatever the caller's is.

    With 027 or 077 users of a machine could not read its /etc/hosts or run its programs, with 000 all could write them.
    Private files get their mode explicitly.
    """
    os.umask(0o022)


def missing_packages() -> list[str]:
    """Return the packages whose command this host lacks."""
    return [package for package, command in TOOLS.items() if not shutil.which(command, path=_PATH)]


def install_packages(names: Sequence[str], report: Callable[[str], None]) -> None:
    """Install packages with apt-get, and refresh its lists if needed. Raises HostError: that failed."""
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
    """Raise HostError if this host can't run local machines. Also sets the usual umask."""
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
