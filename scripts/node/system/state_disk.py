"""The controller's state disk, which outlives the controller's machine, and the folders that it exports by NFS.

It is one file system, mounted at /srv/state, with Slurm's state, the accounting database and users' files. fstab binds
its folders to their usual paths, and the units of the daemons require them: without the disk no daemon starts, so that
none starts with an empty state.
"""

import os
import shutil
from pathlib import Path

from interface import Exports, StateDiskInput
from system.host import SetupError, folder, log, reload_units, run, service, succeeds, wait, write, write_unit
from system.mounts import is_mounted, try_mount, write_block

MOUNT_POINT = Path("/srv/state")
SETUP_FOLDER = "/var/lib/hpc/controller"  # the set-up's records of the database, always kept with it
MARK = "hpc state"
DAEMONS = {
    "/var/spool/slurmctld": ("slurmctld", "slurm", 0o700),
    "/var/spool/slurmdbd": ("slurmdbd", "slurm", 0o700),
    "/var/lib/mysql": ("mariadb", "mysql", 0o755),
}
"""Folders that root does not own: the unit that needs each, its owner, and its mode when it is created."""
OTHER = ("", "root", 0o755)  # the same for any other folder


def converge(state: StateDiskInput | None) -> None:
    """Mount the state disk and its folders, and make the daemons require them; do nothing without a state disk.

    The first time it copies the contents of each folder to the disk. Raises SetupError if the disk is missing or holds
    something else.
    """
    if not state:
        return
    is_disk = state["fs_type"] == "ext4"
    if is_disk:
        format_if_empty(state["source"])
    write_block(state_lines(state), mark=MARK)
    for path in folders(state):
        if unit := DAEMONS.get(path, OTHER)[0]:
            drop_in = f"/etc/systemd/system/{unit}.service.d/hpc-state.conf"
            write_unit(drop_in, f"# Written by the cluster's set-up.\n[Unit]\nRequiresMountsFor={path}\n")
    reload_units()
    if not is_mounted(str(MOUNT_POINT)):
        MOUNT_POINT.mkdir(parents=True, exist_ok=True, mode=0o700)
        mount(MOUNT_POINT)
        log(f"mounted {state['source']} on {MOUNT_POINT}")
    if is_disk:
        grow_file_system(state["source"])
    for path in folders(state):
        bind_folder(Path(path))


def format_if_empty(device: str) -> None:
    """Create an ext4 file system on an empty disk. Raises SetupError if the disk holds anything else but ext4."""
    hint = "is the disk attached to this machine, under that device name?"
    wait(f"the state disk {device}", Path(device).exists, seconds=60, interval=0.5, hint=hint)
    # --probe reads the disk itself, not udev's records. It exits with 2 for an empty disk.
    printed = run("blkid", "--probe", "--output", "export", device, accept=(0, 2))
    fields = dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)
    if fields.get("TYPE") == "ext4":
        return
    if printed.strip():
        what = fields.get("TYPE") or fields.get("PTTYPE", "something") + " partitions"
        raise SetupError(
            f"the state disk {device} holds {what}, not an ext4 file system of ours, and is left alone: attach the "
            f"right disk, or, if nothing on it is needed, empty this one with `wipefs --all {device}`"
        )
    run("mkfs.ext4", "-q", "-F", "-L", "hpc-state", "-m", "0", device, timeout=600)
    log(f"made an ext4 file system on {device}")


def folders(state: StateDiskInput) -> list[str]:
    """Return every folder that is kept on the disk."""
    return [*state["folders"], SETUP_FOLDER]


def grow_file_system(device: str) -> None:
    """Grow the file system to the size of its disk."""
    before = os.statvfs(MOUNT_POINT).f_blocks
    run("resize2fs", device, timeout=600)
    if os.statvfs(MOUNT_POINT).f_blocks > before:
        log(f"{device}: the file system has grown to the disk's size")


def state_lines(state: StateDiskInput) -> list[str]:
    """Return the lines of fstab. With nofail the machine also boots without the disk, so that root can log in."""
    remote = ",_netdev" if "_netdev" in state["options"].split(",") else ""
    checked = 2 if state["fs_type"] == "ext4" else 0
    own = f"{state['source']} {MOUNT_POINT} {state['fs_type']} {state['options']},nofail 0 {checked}"
    return [own, *(f"{path_on_disk(path)} {path} none bind,nofail{remote} 0 0" for path in map(Path, folders(state)))]


def path_on_disk(path: Path) -> Path:
    """Return the path of a folder on the disk: /var/lib/mysql is /srv/state/var-lib-mysql."""
    return MOUNT_POINT / str(path).strip("/").replace("/", "-")


def bind_folder(path: Path) -> None:
    """Mount the folder of the disk at `path`, in place of the machine's own folder."""
    source = path_on_disk(path)
    unit, owner, mode = DAEMONS.get(str(path), OTHER)
    if not is_mounted(str(path)):
        if unit and succeeds("systemctl", "is-active", "--quiet", unit):
            run("systemctl", "stop", unit)
        if not source.exists():
            copy_to_disk(path, source, owner=owner, mode=mode)
    if source.owner() != owner:
        # Another image may give the user of a daemon another uid.
        run("chown", "--recursive", f"{owner}:{owner}", str(source), timeout=3600)
        log(f"{source}: everything is {owner}'s")
    if not is_mounted(str(path)):
        path.mkdir(parents=True, exist_ok=True)
        mount(path)
        log(f"mounted {source} on {path}")


def mount(path: Path) -> None:
    """Mount `path` as fstab says. Raises SetupError with the message of mount(8)."""
    if not try_mount(str(path)):
        run("mount", str(path))  # again, for its error message


def copy_to_disk(path: Path, target: Path, *, owner: str, mode: int) -> None:
    """Copy a folder of the machine to the disk. The copy is atomic: the next run repeats an interrupted one."""
    part = target.with_name(f".{target.name}.half")
    if part.exists():
        shutil.rmtree(part)
    if path.is_dir() and any(path.iterdir()):
        run("cp", "--archive", str(path), str(part), timeout=3600)
        log(f"{path}: what was there is kept on the state disk")
    else:
        folder(part, mode=mode, owner=owner)
    part.replace(target)


EXPORTS = Path("/etc/exports.d/hpc.exports")
EXPORTS_APPLIED = Path("/etc/hpc/exports")  # the exports that exportfs applied last
NFS_CONF = Path("/etc/nfs.conf.d/hpc.conf")
# Each request in progress needs a thread. At the start of many nodes the default of 8 is too few.
NFS_SETTINGS = "# Written by the cluster's set-up.\n[nfsd]\nthreads=64\n"
NFS_NEEDS = Path("/etc/systemd/system/nfs-server.service.d/hpc.conf")


def share_folders(exports: Exports | None) -> None:
    """Export these folders and no others; do nothing on a machine that exports none and never did.

    Raises SetupError if the machine has no NFS server.
    """
    # See exports(5). `mountpoint` exports a folder only while something is mounted there.
    options = "(rw,sync,no_subtree_check,root_squash,mountpoint)"
    text = "".join(f"{path} {exports['network']}{options}\n" for path in exports["paths"]) if exports else ""
    if not text and not EXPORTS.exists():
        return
    if not shutil.which("exportfs", path="/usr/sbin:/sbin:/usr/bin:/bin"):
        raise SetupError("this machine can't share folders by NFS: install the package nfs-kernel-server")
    write(NFS_CONF, NFS_SETTINGS)
    paths = " ".join(exports["paths"]) if exports else ""
    # Without the state disk, nfs-server would export the machine's own, empty folders.
    write_unit(NFS_NEEDS, f"# Written by the cluster's set-up.\n[Unit]\nRequiresMountsFor={paths}\n")
    write(EXPORTS, text)
    service("nfs-server", settings=NFS_SETTINGS)
    # Recorded after exportfs applied them, so that the next run repeats it if this one is killed in between.
    if not EXPORTS_APPLIED.exists() or EXPORTS_APPLIED.read_text() != text:
        run("exportfs", "-r", "-a")
        write(EXPORTS_APPLIED, text, quiet=True)
        log(f"exported {paths or 'nothing'}")
