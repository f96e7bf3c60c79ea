"""Creates, starts, stops, changes and removes one machine.

What a killed run left is removed before a machine is created, so every step can be interrupted anywhere.
"""

import json
import shutil
import signal
import subprocess
import uuid
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from components.local.host import owner
from components.local.host.errors import HostError
from components.local.host.images.image import image_root
from components.local.host.locks import locked, remove_empty, write_atomically
from components.local.host.machines import cgroups, layer, nspawn, ready
from components.local.host.machines.design import Design, Facts, access_files, own_files
from components.local.host.machines.host_key import generate
from components.local.host.machines.layer import File, Layer
from components.local.host.networks import bridge, names
from components.local.host.paths import MachinePaths, StackPaths, checked_name
from components.local.host.process import Process, run

ORDERLY_WAIT = 30.0
"""Seconds for a machine to shut its services down in order before it is cut off."""
_START = Path(__file__).parents[1] / "start-machine.sh"
_KEEP = Path(__file__).parents[1] / "keep-machine.sh"
_HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
_PROPAGATE = Path("/run/systemd/nspawn/propagate")


def create(design: Design) -> Facts:
    """Make the machine and start it; returns when it answers SSH."""
    checked_name(design.stack, "stack")
    checked_name(design.name, "machine")
    owner.refuse_other_state(design.stack_paths, owner.state_id(design.authorized_keys))
    with locked(design.paths.lock):
        _remove(design)
        if not bridge.exists(names.bridge_name(design.root, design.stack)):
            msg = f"machine {design.name}: the network of stack {design.stack} is not up; run `up` for the whole stack"
            raise HostError(msg)
        try:
            return _make(design)
        except BaseException:
            # A machine whose creation failed is in no state, so nothing would remove it later.
            _remove(design)
            raise


def update(design: Design) -> Facts:
    """Bring a machine's files to what they should be, and start it if it does not run; its own files are kept."""
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
            for path, file in (access_files(design) | dict(design.files)).items():
                root.write(path, file)
        if inside:
            cgroups.bound(design.host_id, design.root)
            _plug(design, inside)
        _record(design, record["instance_id"], record["host_key"])
        boot = _boot_id(design.paths) if inside else _start(design, record["instance_id"])
        return Facts(instance_id=record["instance_id"], boot_id=boot, host_key=record["host_key"])


def stop(design: Design, *, orderly: bool = False) -> None:
    """End the machine and keep its files: cut off, as by a power failure, or in order. `update` starts it again.

    (Killing the process on record is not enough: what runs inside systemd-nspawn outlives it.)
    """
    with locked(design.paths.lock):
        _stop(design, orderly=orderly)


def restart(design: Design) -> Facts:
    """Stop the machine (in order, if it asks for that) and start it again, its files kept."""
    stop(design, orderly=design.orderly)
    return update(design)


def delete(design: Design) -> None:
    """End the machine and remove all of it; nothing happens if it is gone, or if another state has recreated it."""
    state = owner.state_id(design.authorized_keys)
    if state and owner.is_other_states(design.stack_paths, state):
        return
    if design.stack_paths.folder.exists():
        with locked(design.paths.lock):
            _remove(design)
            design.paths.lock.unlink(missing_ok=True)
    if remove_empty(design.stack_paths.machines):
        remove_empty(design.stack_paths.folder)


def delete_all(root: Path, stack: str) -> None:
    """End and remove every machine that the stack has on this host, also those in no state."""
    for folder in sorted(StackPaths(root, stack).machines.glob("*/")):
        delete(bare(root, stack, folder.name))
    for lock in StackPaths(root, stack).machines.glob(".*.lock"):
        lock.unlink(missing_ok=True)


def any_runs(root: Path, stack: str) -> bool:
    return any(running(MachinePaths(folder)) for folder in StackPaths(root, stack).machines.glob("*/"))


def bare(root: Path, stack: str, name: str) -> Design:
    """As much of a machine's design as it takes to stop, delete or look at one that is there."""
    return Design(root=root, images=root / "images", stack=stack, name=name, address="", prefix=0, image="")


def facts(design: Design) -> Facts | None:
    """What is known of the machine, running or not; None if there is none."""
    record = _read_record(design.paths)
    if record is None:
        return None
    return Facts(
        instance_id=record["instance_id"], host_key=record["host_key"], boot_id=_boot_id(design.paths),
    )  # fmt: skip


def running(paths: MachinePaths) -> Process | None:
    """The machine's process, if the machine runs: nspawn itself, and the first process inside."""
    process = Process.load(paths.run)
    return process if process and process.alive() and _inside(process) else None


def is_cut(design: Design) -> bool:
    """Whether the machine runs and its cable is disconnected: its bridge was recreated, or an end is down."""
    cable = names.interface_name(design.root, design.stack, design.name)
    return running(design.paths) is not None and bridge.cut(names.bridge_name(design.root, design.stack), cable)


def _plug(design: Design, inside: Process) -> None:
    if not is_cut(design):
        return
    if (Path("/sys/class/net") / (cable := names.interface_name(design.root, design.stack, design.name))).exists():
        bridge.plug(names.bridge_name(design.root, design.stack), cable)
    # Its own end; the address and routes come back with it, by its networkd.
    run(["nsenter", f"--net=/proc/{inside.pid}/ns/net", "ip", "link", "set", "dev", "host0", "up"])


def _inside(process: Process) -> Process | None:
    """The first process inside the machine that nspawn's `process` runs, as long as it lives.

    A helper that nspawn forks while it starts or cleans up is a child of its own too, in the host's PID namespace.
    """
    found = (Process.of(pid) for pid in process.children())
    return next((child for child in found if child and child.alive() and child.is_first_of_namespace()), None)


def _make(design: Design) -> Facts:
    for folder in (design.paths.upper, design.paths.work, design.paths.root):
        folder.mkdir(parents=True)
    # Others on the host have no business in a machine's files; the layer's own top is the machine's `/`.
    design.paths.folder.chmod(0o700)
    instance = uuid.uuid4().hex
    private, public = generate()
    keys = {_HOST_KEY: File(content=private, mode=0o600), f"{_HOST_KEY}.pub": File(content=f"{public}\n")}
    with _stopped(design) as root:
        for path, file in (keys | own_files(design, instance) | dict(design.files)).items():
            root.write(path, file)
    _record(design, instance, public)
    return Facts(instance_id=instance, boot_id=_start(design, instance), host_key=public)


def _stopped(design: Design) -> AbstractContextManager[Layer]:
    return layer.stopped(design.paths.upper, image_root(design.images, design.image))


def _start(design: Design, instance: str) -> str:
    """Start the machine, whose files are in place, and wait for it; returns the new boot id."""
    paths, boot = design.paths, uuid.uuid4().hex
    paths.run.unlink(missing_ok=True)
    # A start of a killed run that is not on record yet must not become the machine.
    write_atomically(paths.wanted, boot)
    stack = design.stack_paths
    for folder in (stack.shared, paths.root):
        folder.mkdir(parents=True, exist_ok=True)
    machine = nspawn.command(
        machine_id=design.host_id, hostname=design.name, uuid=instance, root=paths.root,
        bridge=names.bridge_name(design.root, design.stack), binds=[(stack.shared, "/srv/shared")],
        read_only_binds=[(stack.hosts, "/etc/hosts")],
    )  # fmt: skip
    command = [
        # A session of its own, not a child of ours: it outlives the command that started it.
        "setsid", "--fork", str(_KEEP), str(paths.run), boot, *cgroups.prefix(design.host_id, design.root),
        "unshare", "--mount", "--propagation", "slave",
        str(_START), str(paths.run), boot, str(image_root(design.images, design.image)),
        str(paths.upper), str(paths.work), str(paths.root), *machine,
    ]  # fmt: skip
    with paths.console.open("wb") as console:
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, cwd="/", check=True)
    process = ready.wait_for_record(design.name, paths.run, paths.console)
    ready.wait_for_ssh(design.name, process, design.address, paths.console)
    return boot


def _stop(design: Design, *, orderly: bool) -> None:
    """End the machine and everything of it that runs; its files stay."""
    process = Process.load(design.paths.run)
    if process and process.alive():
        guard = process.parent()
        if orderly:
            process.end(signal.SIGTERM, wait=ORDERLY_WAIT)
        inside = _inside(process)
        if inside:
            # When the first process inside ends the kernel ends all others, and nspawn cleans up after it.
            inside.end(signal.SIGKILL, wait=5)
        if not process.end(signal.SIGTERM, wait=2) and not process.end(signal.SIGKILL, wait=5):
            raise HostError(f"machine {design.name}: its process {process.pid} does not end, even when killed")
        # It ends by itself; ended here so that it is gone when this returns.
        if guard and str(_KEEP) in guard.command():
            guard.end(signal.SIGTERM, wait=2)
    # A killed nspawn does not take the machine's processes along; their control group has them.
    cgroups.remove(design.host_id, design.root)
    bridge.remove_cable(names.interface_name(design.root, design.stack, design.name))
    design.paths.run.unlink(missing_ok=True)
    shutil.rmtree(_PROPAGATE / design.host_id, ignore_errors=True)


def _remove(design: Design) -> None:
    if design.paths.folder.exists():
        _stop(design, orderly=False)
        shutil.rmtree(design.paths.folder)


def _record(design: Design, instance: str, host_key: str) -> None:
    """Keep what the machine was made from; of its files the names only, as there are secrets in them."""
    record = {
        "instance_id": instance, "host_key": host_key, "image": design.image, "address": design.address,
        "files": sorted(design.files),
    }  # fmt: skip
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
