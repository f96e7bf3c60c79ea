#!/usr/bin/env python3
"""Makes a machine on Google Cloud a member of its cluster. Its startup-script: runs as root at every boot.

It reads what the machine is to be from the metadata attribute `hpc-boot`, the cluster's secrets from Secret Manager
and the set-up from the stack's bucket, and goes on until all is there: what fails is said on the console and in
/var/lib/hpc/boot/state, and tried again. A second run changes nothing. As /usr/local/lib/hpc/refresh it tries once,
before the machine joins and every minute; its exit code 10 says that something had changed.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from google_apis import BootError, Cloud, metadata, publish

SHIELD = ""  # scripts/gcp/shield.sh, which travels in this text
HOST_EVENTS = ""  # scripts/gcp/host_events.py, likewise
LIB, KEPT, RUN = Path("/usr/local/lib/hpc"), Path("/var/lib/hpc/boot"), Path("/run/hpc")
INSTALL, INSTALL_LOG = Path("/var/lib/hpc/install/state"), Path("/var/log/hpc-install.log")
BEGUN = RUN / "install-begun"  # in this boot
SYSTEMD, SSHD = Path("/etc/systemd/system"), Path("/etc/ssh/sshd_config.d/00-hpc-boot.conf")
RESOLVER, RESOLVED = Path("/usr/bin/resolvectl"), Path("/etc/systemd/resolved.conf.d/00-hpc.conf")
PLACE = Path("/etc/hpc/place")
HOST_KEY = Path("/etc/ssh/hpc_host_key")  # not where the guest agent makes keys of its own
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
DOMAINS_TEXT = """\
# The controller may be in another zone, where names have another ending.
DNS=169.254.169.254
Domains={}
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


class Machine:
    """This machine, and what this run changed on it."""

    def __init__(self) -> None:
        self.changed: list[str] = []

    def write(self, path: Path, data: str | bytes, mode: int = 0o644) -> None:
        """Have a file, root's, whole or not at all, and never readable by others before it has its mode."""
        data = data.encode() if isinstance(data, str) else data
        if _holds(path, data) and path.stat().st_mode & 0o7777 == mode:
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
        """Have systemd start a unit at each boot."""
        link = SYSTEMD / "multi-user.target.wants" / unit
        if not link.is_symlink():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(SYSTEMD / unit)
            self.changed.append(f"enabled {unit}")


def _holds(path: Path, data: bytes) -> bool:
    return path.is_file() and not path.is_symlink() and path.read_bytes() == data


def make(machine: Machine, *, once: bool) -> None:
    """Do all of it, in the order in which it is of use: whoever is to mend the rest gets in first."""
    shield(machine, again=not once)
    try:
        own, boot = metadata("attributes/startup-script"), json.loads(metadata("attributes/hpc-boot"))
    except KeyError as error:
        raise BootError(f"the machine's metadata lacks {error}: it was not made by the stack") from None
    except ValueError as error:
        raise BootError(f"the machine's metadata attribute hpc-boot is no JSON ({error}): run `up`") from None
    resolve(machine, boot.get("domains") or [])
    machine.write(LIB / "refresh", own, 0o755)
    cloud = Cloud(boot.get("endpoints") or {})
    to_install = bool(boot["install"]) and not installed()
    if to_install and not once and not BEGUN.exists():
        machine.write(INSTALL, "running boot\n")  # before anybody gets in, who would take the machine to be ready
    for path, file in boot["files"].items():
        machine.write(Path(path), file["content"], int(file["mode"], 8))
    admit(machine)
    keep_secrets(machine, cloud, boot["secrets"])
    if to_install and not once:
        install(machine, cloud, boot["install"])
    if boot["setup"] and (not once or not to_install):
        note_place(machine)
        machine.write(Path("/etc/hpc/node.json"), json.dumps(boot["node"], indent=1, sort_keys=True) + "\n")
        set_up(machine, cloud, boot["setup"])


def note_place(machine: Machine) -> None:
    """Keep what Google calls this machine's host, /CLUSTER/BLOCK/HOST, for topology.conf: another one after a stop.

    Only machines of a placement policy or of a reservation that is dense have a name for it.
    """
    try:
        place = metadata("attributes/physical_host").strip()
    except KeyError:
        place = ""
    if place or PLACE.exists():
        machine.write(PLACE, place + "\n")


def shield(machine: Machine, *, again: bool) -> None:
    """Keep the metadata server to root: now, and at the next boots before anybody can log in."""
    before = len(machine.changed)
    machine.write(LIB / "shield", SHIELD, 0o755)
    machine.write(SYSTEMD / "hpc-shield.service", SHIELD_UNIT)
    machine.enable("hpc-shield.service")
    if again or len(machine.changed) > before:
        done = subprocess.run([str(LIB / "shield")], stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            say(done.stderr.strip())


def resolve(machine: Machine, domains: list[str]) -> None:
    """Have systemd-resolved, where it is, keep no name as missing, and look for names in these domains too."""
    before = len(machine.changed)
    if RESOLVER.exists():
        more = DOMAINS_TEXT.format(" ".join(domains)) if domains else ""
        machine.write(RESOLVED, RESOLVED_TEXT + more)
    if len(machine.changed) > before:
        call("systemctl", "try-restart", "systemd-resolved")


def admit(machine: Machine) -> None:
    """Let root in with the stack's key, by the host key that the stack pins, if the machine was given one."""
    key = HOST_KEY.read_bytes() if HOST_KEY.exists() else b""
    text = SSHD_TEXT + (f"HostKey {HOST_KEY}\n" if key else "")
    machine.write(SSHD, text)
    # In /run: sshd reads it again at a boot, and a run that was killed before the reload is made good by the next.
    runs_with, mark = hashlib.sha256(text.encode() + key).hexdigest(), RUN / "sshd"
    if not (mark.exists() and mark.read_text() == runs_with):
        Path("/run/sshd").mkdir(exist_ok=True)
        call("sshd", "-t")
        call("systemctl", "try-reload-or-restart", "ssh")
        mark.write_text(runs_with)


def keep_secrets(machine: Machine, cloud: Cloud, wanted: dict[str, str]) -> None:
    """Every secret in its file, 0600. One that is there in its version is not asked for: a reboot needs nobody."""
    record = KEPT / "secrets.json"
    known = json.loads(record.read_text()) if record.exists() else {}
    for name, version in sorted(wanted.items(), key=lambda item: item[0] != str(HOST_KEY)):
        path = Path(name)
        there = path.read_bytes() if path.exists() else b""
        data = there if known.get(name) == [version, digest(there)] else cloud.secret(version)
        machine.write(path, data, 0o600)
        if known.get(name) != [version, digest(data)]:
            known[name] = [version, digest(data)]
            machine.write(record, json.dumps(known), 0o600)
        if path == HOST_KEY:
            admit(machine)


def installed() -> bool:
    """Return whether what an image would bring is there."""
    return INSTALL.exists() and INSTALL.read_text().strip() == "done"


def install(machine: Machine, cloud: Cloud, program: dict[str, str]) -> None:
    """Have what an image would bring installed: begun once a boot, until it is done. It says itself how far it is."""
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
            say(f"installing: {state}")


def set_up(machine: Machine, cloud: Cloud, wanted: dict[str, str]) -> None:
    """The files of the set-up, {path: [lines]}, and nothing else; then the units that run it."""
    folder, known = LIB / "node", KEPT / "setup"
    if not (folder.is_dir() and _holds(known, wanted["sha256"].encode())):
        files: dict[str, Any] = json.loads(cloud.fetch("the set-up", wanted))
        for name, lines in files.items():
            machine.write(folder / name, "\n".join(lines) + "\n")
        for parent, _, names in os.walk(str(folder), topdown=False):
            for path in [Path(parent, name) for name in names]:
                if str(path.relative_to(folder)) not in files:
                    path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # not empty
                Path(parent).rmdir()
        machine.write(known, wanted["sha256"])
    for unit in UNITS:
        machine.write(SYSTEMD / unit, (folder / unit).read_bytes())
        machine.enable(unit)
    machine.write(LIB / "host-events", HOST_EVENTS, 0o755)
    machine.write(SYSTEMD / EVENTS, EVENTS_UNIT)
    machine.enable(EVENTS)


def start(machine: Machine, *, once: bool) -> None:
    """Have the machine join; again, where something is new to it. Whoever called `refresh` sees to that itself."""
    if machine.changed or not once:
        call("systemctl", "daemon-reload")
    if (SYSTEMD / UNITS[0]).exists() and not once:
        call("systemctl", "--no-block", "restart" if machine.changed else "start", *UNITS, EVENTS)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def call(*command: str) -> None:
    """Run a program. Raises BootError with its last words."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise BootError(f"`{' '.join(command)}` failed with exit code {done.returncode}: {done.stdout.strip()}")


def say(text: str) -> None:
    """Print a line for the console or the journal, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def state(text: str) -> None:
    """Keep how far it is, here and where it can be read from outside."""
    machine = Machine()
    machine.write(KEPT / "state", text + "\n")
    if machine.changed:
        publish(text)


def attempt(machine: Machine, *, once: bool) -> None:
    """Try once. Raises BootError with the reason, also for what nobody thought of."""
    try:
        make(machine, once=once)
        start(machine, once=once)
    except (OSError, ValueError, LookupError, TypeError, subprocess.SubprocessError) as error:
        raise BootError(f"{type(error).__name__}: {error}") from None


def go_on(machine: Machine) -> None:
    """Try until all is there, ever more slowly; what is wrong is said when it changes, and once a minute."""
    pause, shown = PAUSE, ""
    while True:
        try:
            return attempt(machine, once=False)
        except BootError as error:
            state(f"failed: {error}")
            if str(error) != shown or pause >= LONGEST:
                say(f"not a member of the cluster yet: {error}; it is tried again")
            shown = str(error)
        time.sleep(pause)
        pause = min(2 * pause, LONGEST)


def main() -> int:
    """Start the machine; as `refresh` look for what is new."""
    once = Path(sys.argv[0]).name == "refresh"
    machine = Machine()
    RUN.mkdir(exist_ok=True)
    with (RUN / "start.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (fcntl.LOCK_NB if once else 0))
        except BlockingIOError:
            return 0  # the start-up is at it, and starts what has to be
        try:
            if once:
                attempt(machine, once=True)
            else:
                state("running")
                go_on(machine)
        except BootError as error:
            state(f"failed: {error}")
            say(f"nothing new could be taken over: {error}")
            return 1
        state("done")
    for line in machine.changed or ([] if once else ["nothing to change"]):
        say(line)
    return CHANGED if machine.changed and once else 0


if __name__ == "__main__":
    sys.exit(main())
