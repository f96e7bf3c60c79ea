"""Creates, updates, starts, stops and deletes machines: systemd-nspawn on an overlay of a base image."""

import json
import re
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from components.local.host import bridge, cgroups, layer, owner
from components.local.host.images import image_root, note_root
from components.local.host.layer import File, Layer
from components.local.host.paths import HostError, MachinePaths, StackPaths, checked_name
from components.local.host.process import Process, run
from scripts.hostfiles import locked, remove_empty, write_atomically


@dataclass(frozen=True, kw_only=True)
class Design:
    """The inputs of a machine. Only `files` and `authorized_keys` can be changed in place."""

    root: Path
    images: Path
    stack: str
    name: str
    address: str
    prefix: int
    image: str
    """Digest of the base image."""
    authorized_keys: str = ""
    """Public keys that may log in as root."""
    files: Mapping[str, File] = field(default_factory=dict)
    os_release: str = ""
    """Content of /etc/os-release; empty for the image's."""
    devices: tuple[tuple[str, int, int], ...] = ()
    """Character devices in /dev, created at each boot: name, major, minor."""
    orderly: bool = False
    """True for a controller: its services are shut down before it is deleted, as a cloud does, as it has a database."""

    @property
    def stack_paths(self) -> StackPaths:
        return StackPaths(self.root, self.stack)

    @property
    def paths(self) -> MachinePaths:
        return self.stack_paths.machine(self.name)

    @property
    def host_id(self) -> str:
        return bridge.machine_id(self.root, self.stack, self.name)


@dataclass(frozen=True, kw_only=True)
class MachineFacts:
    instance_id: str
    """Changes only when the machine is recreated."""
    boot_id: str
    """New at each start."""
    host_key: str
    """The SSH host key, public half, as known_hosts has it."""


def design_without_files(props: Mapping[str, Any]) -> Design:
    """Return a machine's design from its inputs or outputs without the files, to inspect or delete the machine.
    Pulumi's numbers are floats."""
    own = {name: props[name] for name in ("stack", "name", "address", "image", "authorized_keys", "os_release")}
    return Design(
        **own,
        root=Path(props["root"]),
        images=Path(props["images"]),
        prefix=int(props["prefix"]),
        devices=tuple((d["name"], int(d["major"]), int(d["minor"])) for d in props["devices"]),
        orderly=bool(props["orderly"]),
    )


def design(inputs: Mapping[str, Any]) -> Design:
    """Return a machine's design from its inputs with the files, to create or update the machine."""
    return replace(design_without_files(inputs), files={path: _file(file) for path, file in inputs["files"].items()})


def _file(file: str | Mapping[str, Any]) -> File:
    if isinstance(file, str):
        return File(content=file)
    if "link" in file:
        return File(link=file["link"])
    return File(
        content=file["content"], mode=int(file.get("mode", f"{File.mode:o}"), 8), owner=file.get("owner", File.owner)
    )


def _own_files(design: Design, instance_id: str) -> dict[str, File]:
    """Return the files that every machine has."""
    files = {
        "/etc/hostname": File(content=f"{design.name}\n"),
        "/etc/machine-id": File(content=f"{instance_id}\n", mode=0o444),
        "/etc/hpc/address": File(content=f"{design.address}/{design.prefix}\n"),
        "/etc/ssh/sshd_config.d/host.conf": File(content=_SSHD),
        **_access_files(design),
    }
    if design.os_release:
        files["/usr/lib/os-release"] = File(content=design.os_release)
        files["/etc/os-release"] = File(link="../usr/lib/os-release")
    if design.devices:
        lines = [f"{name} {major} {minor}\n" for name, major, minor in design.devices]
        files["/etc/hpc/devices"] = File(content="".join(lines))
    return files


_SSHD = "KexAlgorithms ecdh-sha2-nistp256\n"
"""Connections do not leave this host, so the cheapest key exchange is enough. OpenSSH 9 prefers sntrup761, which takes
the client 0.07 s of a processor; curve25519, which OpenSSH has in plain C, takes both sides 5 ms together."""


def _access_files(design: Design) -> dict[str, File]:
    return {"/root/.ssh/authorized_keys": File(content=design.authorized_keys.strip() + "\n", mode=0o600)}


def _generate_key() -> tuple[str, str]:
    """Return a new ed25519 key pair: the text of OpenSSH's key file, and "ssh-ed25519 AAAA...".

    Not by ssh-keygen: a child process can outlive a killed run, and would write its file into the folder of the next
    run.
    """
    # Slow to import, and a preview generates no key.
    from cryptography.hazmat.primitives import serialization as forms  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    key, ssh = Ed25519PrivateKey.generate(), forms.Encoding.OpenSSH
    private = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.OpenSSH, forms.NoEncryption()).decode()
    return private, key.public_key().public_bytes(ssh, forms.PublicFormat.OpenSSH).decode()


_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[=>])|\r")


def nspawn_command(design: Design, instance: str) -> list[str]:
    """Return the command systemd-nspawn(1) of one machine.

    The machine is not registered, as the host may have no systemd. It uses nothing of the host but the folders bound
    into it: no resolver, time zone, journal or settings file.
    """
    stack = design.stack_paths
    return [
        *"systemd-nspawn --quiet --boot --register=no --keep-unit --settings=no".split(),
        *(f"--machine={design.host_id}", f"--hostname={design.name}", f"--uuid={instance}"),
        f"--directory={design.paths.root}",
        f"--network-bridge={bridge.bridge_name(design.root, design.stack)}",
        *"--console=read-only --resolv-conf=off --timezone=off --link-journal=no".split(),
        # On cgroup v2 slurmstepd loads a BPF program, which keeps a job from other jobs' devices. On cgroup v1 none is
        # needed, and without BPF systemd does not load six of its own at each start.
        *(("--capability=CAP_BPF", "--system-call-filter=bpf") if cgroups.is_unified() else ()),
        f"--bind={stack.shared}:/srv/shared",
        f"--bind-ro={stack.hosts}:/etc/hosts",
    ]


def console_tail(path: Path, lines: int = 20) -> list[str]:
    """Return the last lines of a machine's console, without colours."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - 65536))
            text = stream.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    return [line for line in _ESCAPES.sub("", text).splitlines() if line.strip()][-lines:]


SSH_SECONDS = 240.0
"""Time limit of a machine's start. It takes about a second alone, ten among forty on two cores, and minutes if other
programs use the cores. The wait ends earlier if the machine does."""
_PID_FILE = "run/sshd.pid"  # sshd writes it once it listens; /run is new at each boot


def wait_for_record(name: str, record: Path, console: Path) -> Process:
    """Wait until start-machine.sh has recorded its process, and return that."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        process = Process.load(record)
        if process:
            return process
        time.sleep(0.01)
    raise HostError(_explain(f"machine {name}: did not start", console))


def wait_for_ssh(name: str, process: Process, address: str, console: Path) -> None:
    """Wait until port 22 of the machine answers with SSH's greeting.

    Until sshd listens, only its PID file is read. That is cheap when many machines start at once, and has no retries of
    one second like a connection. (Reading /proc/PID/net/tcp walks the host's whole connection table.)
    """
    started = time.monotonic()
    deadline = started + SSH_SECONDS
    while not _listens(process):
        if not process.alive():
            raise HostError(_explain(f"machine {name}: ended while it started", console))
        if time.monotonic() > deadline:
            raise HostError(_explain(f"machine {name}: no SSH server after {SSH_SECONDS:.0f} s", console))
        # Many machines that start at once take longer, and frequent checks would slow them down further.
        time.sleep(min(0.2, 0.03 + (time.monotonic() - started) / 20))
    problem = "no answer"
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((address, 22), timeout=2) as connection:
                greeting = connection.recv(4)
                if greeting == b"SSH-":
                    return
                problem = f"it sent {greeting!r}" if greeting else "it closed the connection"
        except OSError as error:
            problem = str(error)
        time.sleep(0.05)
    text = f"machine {name}: its SSH server is up, but does not greet this host at {address} port 22 ({problem})"
    raise HostError(_explain(text, console))


def _listens(process: Process) -> bool:
    return any(_has_sshd(Path(f"/proc/{pid}/root")) for pid in process.children())


def _has_sshd(root: Path) -> bool:
    try:
        # At first the child is still in the host's root, which may have another SSH server.
        return not root.samefile("/") and (root / _PID_FILE).exists()
    except OSError:  # the process ended, or is changing its root
        return False


def _explain(text: str, console: Path) -> str:
    tail = console_tail(console)
    if not tail:
        return f"{text}; its console is empty ({console})"
    return "\n".join([f"{text}; the last lines of its console:", *(f"  {line}" for line in tail)])


ORDERLY_WAIT = 30.0
"""Seconds for a machine to shut down its services before it is killed."""
_START = Path(__file__).with_name("start-machine.sh")
_KEEP = Path(__file__).with_name("keep-machine.sh")
_HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
_PROPAGATE = Path("/run/systemd/nspawn/propagate")


def create(design: Design) -> MachineFacts:
    """Create and start the machine. Returns when it answers SSH."""
    checked_name(design.stack, "stack")
    checked_name(design.name, "machine")
    owner.refuse_other_state(design.stack_paths, owner.state_id(design.authorized_keys))
    with locked(design.paths.lock):
        _remove(design)
        if not bridge.exists(bridge.bridge_name(design.root, design.stack)):
            msg = f"machine {design.name}: the network of stack {design.stack} is not up; run `up` for the whole stack"
            raise HostError(msg)
        try:
            return _make(design)
        except BaseException:
            # No state contains a machine whose creation failed, so nothing would remove it later.
            _remove(design)
            raise


def update(design: Design) -> MachineFacts:
    """Write the design's files to a machine, and start it if it does not run. Other files of the machine stay."""
    owner.refuse_other_state(design.stack_paths, owner.state_id(design.authorized_keys))
    with locked(design.paths.lock):
        record = _read_record(design.paths)
        if record is None:
            msg = f"machine {design.name}: its folder {design.paths.folder} is gone; run `refresh`, then `up`"
            raise HostError(msg)
        process = running(design.paths)
        inside = process and _inside(process)
        if inside is None:
            _stop(design, orderly=False)
        with layer.running(inside) if inside else _stopped(design) as root:
            for path in sorted(set(record["files"]) - set(design.files)):
                root.remove(path)
            for path, file in (_access_files(design) | dict(design.files)).items():
                root.write(path, file)
        if inside:
            _reconnect(design, inside)
        _record(design, record["instance_id"], record["host_key"])
        boot = _boot_id(design.paths) if inside else _start(design, record["instance_id"])
        return MachineFacts(instance_id=record["instance_id"], boot_id=boot, host_key=record["host_key"])


def stop(design: Design, *, orderly: bool = False) -> None:
    """Stop the machine and keep its files; without `orderly` as a power failure would. `update` starts it again.

    (It is not enough to kill the recorded process: processes inside systemd-nspawn outlive it.)
    """
    with locked(design.paths.lock):
        _stop(design, orderly=orderly)


def delete(design: Design) -> None:
    """Stop the machine and remove its files, unless it does not exist or belongs to another state."""
    state = owner.state_id(design.authorized_keys)
    if state and owner.is_other_states(design.stack_paths, state):
        return
    if design.stack_paths.folder.exists():
        with locked(design.paths.lock):
            if design.orderly:
                _stop(design, orderly=True)
            _remove(design)
            design.paths.lock.unlink(missing_ok=True)
    if remove_empty(design.stack_paths.machines):
        remove_empty(design.stack_paths.folder)


def delete_all(root: Path, stack: str) -> None:
    """Stop and remove every machine that the stack has on this host, also machines that no state contains."""
    for folder in sorted(StackPaths(root, stack).machines.glob("*/")):
        delete(bare(root, stack, folder.name))
    for lock in StackPaths(root, stack).machines.glob(".*.lock"):
        lock.unlink(missing_ok=True)


def any_runs(root: Path, stack: str) -> bool:
    return any(running(MachinePaths(folder)) for folder in StackPaths(root, stack).machines.glob("*/"))


def bare(root: Path, stack: str, name: str) -> Design:
    """Return the part of a design that is needed to stop, delete or inspect an existing machine."""
    return Design(root=root, images=root / "images", stack=stack, name=name, address="", prefix=0, image="")


def facts(design: Design) -> MachineFacts | None:
    """Return the facts of a machine, running or not; None if it does not exist."""
    record = _read_record(design.paths)
    if record is None:
        return None
    return MachineFacts(instance_id=record["instance_id"], host_key=record["host_key"], boot_id=_boot_id(design.paths))


def running(paths: MachinePaths) -> Process | None:
    """Return the process of nspawn if it and the first process of the machine run."""
    process = Process.load(paths.run)
    return process if process and process.alive() and _inside(process) else None


def is_between_boots(paths: MachinePaths) -> bool:
    """Return whether the machine was rebooted from inside and has not started again yet."""
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = command.read_bytes().decode(errors="replace").split("\0")
            if str(_KEEP) in words and str(paths.run) in words:
                return True
    return False


def files_of(paths: MachinePaths) -> list[str] | None:
    """Return the paths of the files in the machine's design; None without a record."""
    record = _read_record(paths)
    return record["files"] if record else None


def is_disconnected(design: Design) -> bool:
    """Return whether the machine runs and its cable is disconnected: its bridge was recreated, or an end is down."""
    cable = bridge.interface_name(design.root, design.stack, design.name)
    return running(design.paths) is not None and bridge.is_disconnected(
        bridge.bridge_name(design.root, design.stack), cable
    )


def _reconnect(design: Design, inside: Process) -> None:
    if not is_disconnected(design):
        return
    if (Path("/sys/class/net") / (cable := bridge.interface_name(design.root, design.stack, design.name))).exists():
        bridge.reconnect(bridge.bridge_name(design.root, design.stack), cable)
    # Its own end, with its address and route.
    run(["nsenter", f"--net=/proc/{inside.pid}/ns/net", "ip", "link", "set", "dev", "host0", "up"])


def _inside(process: Process) -> Process | None:
    """Return the first process of the machine that nspawn's `process` runs; None if there is none.

    Helpers that nspawn forks while it starts or cleans up are children too, but in the host's PID namespace.
    """
    children = (Process.of(pid) for pid in process.children())
    return next((child for child in children if child and child.alive() and child.is_first_of_namespace()), None)


def _make(design: Design) -> MachineFacts:
    for folder in (design.paths.upper, design.paths.work, design.paths.root):
        folder.mkdir(parents=True)
    # Other users of the host must not read a machine's files. The top of the layer is the machine's `/`.
    design.paths.folder.chmod(0o700)
    instance = uuid.uuid4().hex
    private, public = _generate_key()
    keys = {_HOST_KEY: File(content=private, mode=0o600), f"{_HOST_KEY}.pub": File(content=f"{public}\n")}
    with _stopped(design) as root:
        for path, file in (keys | _own_files(design, instance) | dict(design.files)).items():
            root.write(path, file)
    _record(design, instance, public)
    return MachineFacts(instance_id=instance, boot_id=_start(design, instance), host_key=public)


def _stopped(design: Design) -> AbstractContextManager[Layer]:
    return layer.stopped(design.paths.upper, image_root(design.images, design.image))


def _start(design: Design, instance: str) -> str:
    """Start the machine, wait until it answers SSH, and return the new boot id."""
    paths, boot = design.paths, uuid.uuid4().hex
    paths.run.unlink(missing_ok=True)
    # start-machine.sh compares this id, so that a late start of a killed run does not become the machine.
    write_atomically(paths.wanted, boot)
    for folder in (design.stack_paths.shared, paths.root):
        folder.mkdir(parents=True, exist_ok=True)
    layers = (image_root(design.images, design.image), paths.upper, paths.work, paths.root)
    command = [
        # A session of its own: it outlives the command that started it.
        *("setsid", "--fork", str(_KEEP), str(paths.run), boot),
        *cgroups.prefix(design.host_id, design.root, controller=design.orderly),
        *("unshare", "--mount", "--propagation", "slave"),
        *(str(_START), str(paths.run), boot, *map(str, layers)),
        *nspawn_command(design, instance),
    ]
    with paths.console.open("wb") as console:
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, cwd="/", check=True)
    process = wait_for_record(design.name, paths.run, paths.console)
    wait_for_ssh(design.name, process, design.address, paths.console)
    return boot


def _stop(design: Design, *, orderly: bool) -> None:
    """Stop the machine and end all of its processes; its files stay."""
    process = Process.load(design.paths.run)
    if process and process.alive():
        guard = process.parent()
        if orderly:
            process.end(signal.SIGTERM, wait=ORDERLY_WAIT)
        inside = _inside(process)
        if inside:
            # With the first process inside the kernel ends all others, and nspawn cleans up.
            inside.end(signal.SIGKILL, wait=5)
        if not process.end(signal.SIGTERM, wait=2) and not process.end(signal.SIGKILL, wait=5):
            raise HostError(f"machine {design.name}: its process {process.pid} does not end, even when killed")
        # It ends by itself, but must have ended when this function returns.
        if guard and str(_KEEP) in guard.command():
            guard.end(signal.SIGTERM, wait=2)
    # The machine's processes outlive a killed nspawn; the control group contains them.
    cgroups.remove(design.host_id, design.root)
    bridge.remove_cable(bridge.interface_name(design.root, design.stack, design.name))
    design.paths.run.unlink(missing_ok=True)
    shutil.rmtree(_PROPAGATE / design.host_id, ignore_errors=True)


def _remove(design: Design) -> None:
    if design.paths.folder.exists():
        _stop(design, orderly=False)
        shutil.rmtree(design.paths.folder)


def _record(design: Design, instance: str, host_key: str) -> None:
    """Write the record of a machine. It has only the names of its files, as they contain secrets."""
    record = {
        "instance_id": instance,
        "host_key": host_key,
        "image": design.image,
        "address": design.address,
        "files": sorted(design.files),
    }
    note_root(design.images, design.root)
    write_atomically(design.paths.record, json.dumps(record, indent=1))


def _read_record(paths: MachinePaths) -> dict[str, Any] | None:
    try:
        return json.loads(paths.record.read_text())
    except (FileNotFoundError, ValueError):
        return None


def _boot_id(paths: MachinePaths) -> str:
    try:
        return str(json.loads(paths.run.read_text())["boot_id"])
    except (FileNotFoundError, ValueError, KeyError):
        return ""
