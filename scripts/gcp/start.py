#!/usr/bin/env python3
"""Makes a machine on Google Cloud a member of its cluster. It is the startup-script, which runs as root at every boot.

It reads the machine's description from the metadata attribute `hpc-boot`, the cluster's secrets from Secret Manager and
the set-up from the stack's bucket. It retries until all of it is done, and reports failures on the console and in
/var/lib/hpc/boot/state. A second run changes nothing. As /usr/local/lib/hpc/refresh it tries once, before the machine
joins and every minute; exit code 10 means that something has changed.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from google_apis import BootError, GoogleApis, metadata, publish
from system.locks import LOCKS, LONGEST_SECONDS, describe_holders, open_lock, take_lock

SHIELD = ""  # scripts/gcp/shield.sh, which components/gcp/boot.py inserts
HOST_EVENTS = ""  # scripts/gcp/host_events.py, inserted as well
LIB, KEPT, RUN = Path("/usr/local/lib/hpc"), Path("/var/lib/hpc/boot"), LOCKS
INSTALL, INSTALL_LOG = Path("/var/lib/hpc/install/state"), Path("/var/log/hpc-install.log")
BEGUN = RUN / "install-begun"  # exists if the installation began in this boot
SYSTEMD, SSHD = Path("/etc/systemd/system"), Path("/etc/ssh/sshd_config.d/00-hpc-boot.conf")
RESOLVER, RESOLVED = Path("/usr/bin/resolvectl"), Path("/etc/systemd/resolved.conf.d/00-hpc.conf")
PLACE = Path("/etc/hpc/place")
HOST_KEY = Path("/etc/ssh/hpc_host_key")  # not a path at which the guest agent creates keys
UNIT = "hpc-install.service"
UNITS = ("hpc-node.service", "hpc-watch.service")
EVENTS = "hpc-host-events.service"
CHANGED = 10
PAUSE, LONGEST = 1.0, 60.0  # seconds between two tries, at first and after a while

SSHD_TEXT = """\
# Written by the cluster's start-up script.
PermitRootLogin prohibit-password
PasswordAuthentication no
# Many commands of one `up` share a connection (10 is the default), and many may begin at once.
MaxSessions 100
MaxStartups 100:30:200
"""
RESOLVED_TEXT = """\
# Written by the cluster's start-up script: the machine of an elastic node may come after its name was asked for.
[Resolve]
Cache=no-negative
"""
INSTALL_UNIT = """\
[Unit]
Description=Install what the cluster needs, once

[Service]
Type=oneshot
ExecStart=/usr/local/lib/hpc/install
"""
SHIELD_UNIT = """\
[Unit]
Description=Keep the metadata server to root
After=nftables.service
Before=ssh.service ssh.socket slurmd.service hpc-node.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/lib/hpc/shield
"""


EVENTS_UNIT = """\
# Drains this node when Google Cloud takes it back, or stops it to maintain its host.
[Unit]
Description=Drain this node before Google Cloud stops it
# At a shutdown it ends before these: what it says last, it says with MUNGE over the network.
After=network-online.target munge.service slurmd.service hpc-node.service

[Service]
ExecStart=/usr/bin/python3 /usr/local/lib/hpc/host-events
Restart=always
RestartSec=5

[Install]
WantedBy=multi-user.target
"""


class BootingMachine:
    """This machine, and the changes that this run made on it."""

    def __init__(self) -> None:
        self.changed: list[str] = []

    def write(self, path: Path, data: str | bytes, mode: int = 0o644) -> None:
        """Write a file of root's atomically, if it differs. Others can't read it before it has its mode."""
        data = data.encode() if isinstance(data, str) else data
        if _has_content(path, data) and path.stat().st_mode & 0o7777 == mode:
            return
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if path.parent.name == ".ssh" else 0o755)
        handle, part = tempfile.mkstemp(dir=str(path.parent), prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(part).chmod(mode)
        Path(part).replace(path)
        self.changed.append(f"wrote {path}")

    def enable(self, unit: str) -> None:
        """Make systemd start a unit at each boot."""
        link = SYSTEMD / "multi-user.target.wants" / unit
        if not link.is_symlink():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(SYSTEMD / unit)
            self.changed.append(f"enabled {unit}")


def _has_content(path: Path, data: bytes) -> bool:
    return path.is_file() and not path.is_symlink() and path.read_bytes() == data


def configure(machine: BootingMachine, *, once: bool) -> None:
    """Configure the machine. Root's login comes first, so that an administrator can correct what fails later."""
    protect_metadata_server(machine, again=not once)
    try:
        script, boot = metadata("attributes/startup-script"), json.loads(metadata("attributes/hpc-boot"))
    except KeyError as error:
        raise BootError(f"the machine's metadata lacks {error}: it was not made by the stack") from None
    except ValueError as error:
        raise BootError(f"the machine's metadata attribute hpc-boot is no JSON ({error}): run `up`") from None
    configure_resolver(machine)
    machine.write(LIB / "refresh", script, 0o755)
    cloud = GoogleApis(boot.get("endpoints") or {})
    to_install = bool(boot["install"]) and not installed()
    if to_install and not once and not BEGUN.exists():
        machine.write(INSTALL, "running boot\n")  # before the first login, which would find the machine ready otherwise
    for path, file in boot["files"].items():
        machine.write(Path(path), file["content"], int(file["mode"], 8))
    configure_sshd(machine)
    write_secrets(machine, cloud, boot["secrets"])
    if to_install and not once:
        install(machine, cloud, boot["install"])
    if boot["setup"] and (not once or not to_install):
        write_place(machine)
        machine.write(Path("/etc/hpc/node.json"), json.dumps(boot["node"], indent=1, sort_keys=True) + "\n")
        install_setup(machine, cloud, boot["setup"])


def write_place(machine: BootingMachine) -> None:
    """Write Google's name of this machine's host, /CLUSTER/BLOCK/HOST, for topology.conf. A stop changes the host.

    Only machines with a placement policy or in a dense reservation have such a name.
    """
    try:
        place = metadata("attributes/physical_host").strip()
    except KeyError:
        place = ""
    if place or PLACE.exists():
        machine.write(PLACE, place + "\n")


def protect_metadata_server(machine: BootingMachine, *, again: bool) -> None:
    """Let only root connect to the metadata server: now, and at the next boots before users can log in."""
    before = len(machine.changed)
    machine.write(LIB / "shield", SHIELD, 0o755)
    machine.write(SYSTEMD / "hpc-shield.service", SHIELD_UNIT)
    machine.enable("hpc-shield.service")
    if again or len(machine.changed) > before:
        result = subprocess.run([str(LIB / "shield")], stderr=subprocess.PIPE, text=True, check=False)
        if result.returncode:
            print_line(result.stderr.strip())


def configure_resolver(machine: BootingMachine) -> None:
    """Make systemd-resolved, if it is installed, cache no missing names."""
    before = len(machine.changed)
    if RESOLVER.exists():
        machine.write(RESOLVED, RESOLVED_TEXT)
    if len(machine.changed) > before:
        call("systemctl", "try-restart", "systemd-resolved")


def configure_sshd(machine: BootingMachine) -> None:
    """Let root log in with the stack's key, and use the stack's host key if the machine has one."""
    key = HOST_KEY.read_bytes() if HOST_KEY.exists() else b""
    text = SSHD_TEXT + (f"HostKey {HOST_KEY}\n" if key else "")
    machine.write(SSHD, text)
    # The mark is in /run, since sshd reads its files at a boot. After a run that was killed, the next one reloads.
    loaded, mark = hashlib.sha256(text.encode() + key).hexdigest(), RUN / "sshd"
    if not (mark.exists() and mark.read_text() == loaded):
        Path("/run/sshd").mkdir(exist_ok=True)
        call("sshd", "-t")
        call("systemctl", "try-reload-or-restart", "ssh")
        mark.write_text(loaded)


def write_secrets(machine: BootingMachine, cloud: GoogleApis, versions: dict[str, str]) -> None:
    """Write each secret to its file, 0600. A file that has the version already is kept, so that a reboot needs no
    request."""
    record = KEPT / "secrets.json"
    known = json.loads(record.read_text()) if record.exists() else {}
    for name, version in sorted(versions.items(), key=lambda item: item[0] != str(HOST_KEY)):
        path = Path(name)
        old = path.read_bytes() if path.exists() else b""
        data = old if known.get(name) == [version, digest(old)] else cloud.secret(version)
        machine.write(path, data, 0o600)
        if known.get(name) != [version, digest(data)]:
            known[name] = [version, digest(data)]
            machine.write(record, json.dumps(known), 0o600)
        if path == HOST_KEY:
            configure_sshd(machine)


def installed() -> bool:
    """Return whether the installation is done."""
    return INSTALL.exists() and INSTALL.read_text().strip() == "done"


def install(machine: BootingMachine, cloud: GoogleApis, program: dict[str, str]) -> None:
    """Start the installation once in each boot, and wait until it is done. Print its progress."""
    if not BEGUN.exists():
        machine.write(LIB / "install", cloud.fetch("the installation", program), 0o700)
        machine.write(SYSTEMD / UNIT, INSTALL_UNIT)
        call("systemctl", "daemon-reload")
        call("systemctl", "start", "--no-block", UNIT)
        BEGUN.touch()
    shown = ""
    while not installed():
        time.sleep(1)
        running = subprocess.run(["systemctl", "show", "-p", "ActiveState", UNIT], stdout=subprocess.PIPE, check=False)
        state = INSTALL.read_text().strip()
        if state.startswith("failed"):
            end = INSTALL_LOG.read_text(errors="replace").splitlines()[-20:] if INSTALL_LOG.exists() else []
            raise BootError("\n".join([f"the installation {state}; {INSTALL_LOG} ends:", *end]))
        if b"=activating" not in running.stdout and not installed():
            BEGUN.unlink()
            raise BootError(f"the installation was ended while it was {state}")
        if state != shown:
            shown = state
            print_line(f"installing: {state}")


def install_setup(machine: BootingMachine, cloud: GoogleApis, stored: dict[str, str]) -> None:
    """Write the files of the set-up, {path: [lines]}, delete other files, and enable the units that run it."""
    folder, known = LIB / "node", KEPT / "setup"
    if not (folder.is_dir() and _has_content(known, stored["sha256"].encode())):
        files: dict[str, Any] = json.loads(cloud.fetch("the set-up", stored))
        for name, lines in files.items():
            machine.write(folder / name, "\n".join(lines) + "\n")
        for parent, _, names in os.walk(str(folder), topdown=False):
            for path in [Path(parent, name) for name in names]:
                if str(path.relative_to(folder)) not in files:
                    path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # not empty
                Path(parent).rmdir()
        machine.write(known, stored["sha256"])
    for unit in UNITS:
        machine.write(SYSTEMD / unit, (folder / unit).read_bytes())
        machine.enable(unit)
    machine.write(LIB / "host-events", HOST_EVENTS, 0o755)
    machine.write(SYSTEMD / EVENTS, EVENTS_UNIT)
    machine.enable(EVENTS)


def start_units(machine: BootingMachine, *, once: bool) -> None:
    """Start the units of the set-up, or restart them after a change. The caller of `refresh` does that itself."""
    if machine.changed or not once:
        call("systemctl", "daemon-reload")
    if (SYSTEMD / UNITS[0]).exists() and not once:
        call("systemctl", "--no-block", "restart" if machine.changed else "start", *UNITS, EVENTS)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def call(*command: str) -> None:
    """Run a program. Raises BootError with its output if it fails."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode:
        raise BootError(f"`{' '.join(command)}` failed with exit code {result.returncode}: {result.stdout.strip()}")


def print_line(text: str) -> None:
    """Print a line for the console or the journal, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def report_state(text: str) -> None:
    """Write the state to a file on this machine, and to a guest attribute, which can be read from outside."""
    machine = BootingMachine()
    machine.write(KEPT / "state", text + "\n")
    if machine.changed:
        publish(text)


def attempt(machine: BootingMachine, *, once: bool) -> None:
    """Try once. Raises BootError with the reason, also for unexpected errors."""
    try:
        configure(machine, once=once)
        start_units(machine, once=once)
    except (OSError, ValueError, LookupError, TypeError, subprocess.SubprocessError) as error:
        raise BootError(f"{type(error).__name__}: {error}") from None


def retry_until_done(machine: BootingMachine) -> None:
    """Try until all is done, with growing pauses. Print the error when it changes, and once a minute."""
    pause, shown = PAUSE, ""
    while True:
        try:
            return attempt(machine, once=False)
        except BootError as error:
            report_state(f"failed: {error}")
            if str(error) != shown or pause >= LONGEST:
                print_line(f"not a member of the cluster yet: {error}; it is tried again")
            shown = str(error)
        time.sleep(pause)
        pause = min(2 * pause, LONGEST)


def main() -> int:
    """Run as start-up script until the machine is configured, or as `refresh` once."""
    once = Path(sys.argv[0]).name == "refresh"
    machine = BootingMachine()
    with open_lock(RUN / "start.lock") as lock:
        if not take_lock(lock, seconds=0 if once else LONGEST_SECONDS):
            if once:
                return 0  # the start-up script is running, and starts the units
            print_line(f"not started: {describe_holders(lock)} holds {RUN}/start.lock")
            return 1
        try:
            if once:
                attempt(machine, once=True)
            else:
                report_state("running")
                retry_until_done(machine)
        except BootError as error:
            report_state(f"failed: {error}")
            print_line(f"nothing new could be taken over: {error}")
            return 1
        report_state("done")
    for line in machine.changed or ([] if once else ["nothing to change"]):
        print_line(line)
    return CHANGED if machine.changed and once else 0


if __name__ == "__main__":
    sys.exit(main())
