"""The controller's state disk: what outlives the controller's machine.

One file system, mounted at /srv/state, with a folder for each place that is kept there: Slurm's state, the accounting
database, users' files. They are bound to where everybody looks for them, by fstab, and the daemons' units require
them: a controller without its state starts none, rather than one that has no job.
"""

import os
import shutil
from pathlib import Path

from interface import Exports, StateDisk
from system.host import SetupError, folder, log, reload_units, run, service, succeeds, wait, write, write_unit
from system.mounts import mount_one, mounted, write_block

MOUNT_POINT = Path("/srv/state")
OURS = "/var/lib/hpc/controller"  # what the set-up remembers of the database: always kept with it
MARK = "hpc state"
DAEMONS = {
    "/var/spool/slurmctld": ("slurmctld", "slurm", 0o700),
    "/var/spool/slurmdbd": ("slurmdbd", "slurm", 0o700),
    "/var/lib/mysql": ("mariadb", "mysql", 0o755),
}
"""Folders that are not root's: the unit that needs each, its user, and its mode where it has to be made."""
NOBODYS = ("", "root", 0o755)  # of any other folder


def keep(state: StateDisk | None) -> None:
    """Have the folders of `state` on it, mounted, and the daemons wait for them; nothing where there is no such disk.

    The first time, what a folder holds already goes along. Raises SetupError for a disk that is not there, and for one
    that holds something else.
    """
    if not state:
        return
    disk = state["fs_type"] == "ext4"
    if disk:
        prepare(state["source"])
    write_block(state_lines(state), mark=MARK)
    for path in folders(state):
        if unit := DAEMONS.get(path, NOBODYS)[0]:
            drop_in = f"/etc/systemd/system/{unit}.service.d/hpc-state.conf"
            text = f"# Written by the cluster's set-up.\n[Unit]\nRequiresMountsFor={path}\n"
            write_unit(drop_in, text)
    reload_units()
    if not mounted(str(MOUNT_POINT)):
        MOUNT_POINT.mkdir(parents=True, exist_ok=True, mode=0o700)
        mount(MOUNT_POINT)
        log(f"mounted {state['source']} on {MOUNT_POINT}")
    if disk:
        grow(state["source"])
    for path in folders(state):
        bind(Path(path))


def prepare(device: str) -> None:
    """Have ext4 on a disk that is empty. Raises SetupError where anything else is on it: that stays."""
    hint = "is the disk attached to this machine, under that device name?"
    wait(f"the state disk {device}", Path(device).exists, seconds=60, interval=0.5, hint=hint)
    # Looks at the disk itself, not at what udev remembers; 2 is its word for a disk on which it finds nothing at all.
    found = run("blkid", "--probe", "--output", "export", device, accept=(0, 2))
    kind = dict(line.split("=", 1) for line in found.splitlines() if "=" in line)
    if kind.get("TYPE") == "ext4":
        return
    if found.strip():
        what = kind.get("TYPE") or kind.get("PTTYPE", "something") + " partitions"
        raise SetupError(
            f"the state disk {device} holds {what}, not an ext4 file system of ours, and is left alone: attach the "
            f"right disk, or, if nothing on it is needed, empty this one with `wipefs --all {device}`"
        )
    run("mkfs.ext4", "-q", "-F", "-L", "hpc-state", "-m", "0", device, timeout=600)
    log(f"made an ext4 file system on {device}")


def folders(state: StateDisk) -> list[str]:
    """Every folder that is kept."""
    return [*state["folders"], OURS]


def grow(device: str) -> None:
    """Have the file system as large as its disk, which may have grown since."""
    before = os.statvfs(MOUNT_POINT).f_blocks
    run("resize2fs", device, timeout=600)
    if os.statvfs(MOUNT_POINT).f_blocks > before:
        log(f"{device}: the file system has grown to the disk's size")


def state_lines(state: StateDisk) -> list[str]:
    """The lines of fstab. The machine boots without the disk, so that one can log in and mend it; daemons do not."""
    remote = ",_netdev" if "_netdev" in state["options"].split(",") else ""
    checked = 2 if state["fs_type"] == "ext4" else 0
    own = f"{state['source']} {MOUNT_POINT} {state['fs_type']} {state['options']},nofail 0 {checked}"
    return [own, *(f"{place(path)} {path} none bind,nofail{remote} 0 0" for path in map(Path, folders(state)))]


def place(path: Path) -> Path:
    """Return where a folder lies on the disk: /var/lib/mysql is var-lib-mysql."""
    return MOUNT_POINT / str(path).strip("/").replace("/", "-")


def bind(path: Path) -> None:
    """Have a folder on the disk in the place of the machine's own."""
    there = place(path)
    unit, owner, mode = DAEMONS.get(str(path), NOBODYS)
    if not mounted(str(path)):
        if unit and succeeds("systemctl", "is-active", "--quiet", unit):
            run("systemctl", "stop", unit)
        if not there.exists():
            take_over(path, there, owner=owner, mode=mode)
    if there.owner() != owner:
        # Another image numbers its daemons' users otherwise.
        run("chown", "--recursive", f"{owner}:{owner}", str(there), timeout=3600)
        log(f"{there}: everything is {owner}'s")
    if not mounted(str(path)):
        path.mkdir(parents=True, exist_ok=True)
        mount(path)
        log(f"mounted {there} on {path}")


def mount(path: Path) -> None:
    """Mount what fstab says of `path`. Raises SetupError with the command's own words."""
    if not mount_one(str(path)):
        run("mount", str(path))  # once more, for its own words


def take_over(path: Path, there: Path, *, owner: str, mode: int) -> None:
    """Copy a folder of the machine to the disk. The copy is atomic: an interrupted one is repeated."""
    half = there.with_name(f".{there.name}.half")
    if half.exists():
        shutil.rmtree(half)
    if path.is_dir() and any(path.iterdir()):
        run("cp", "--archive", str(path), str(half), timeout=3600)
        log(f"{path}: what was there is kept on the state disk")
    else:
        folder(half, mode=mode, owner=owner)
    half.replace(there)


EXPORTS = Path("/etc/exports.d/hpc.exports")
EXPORTS_APPLIED = Path("/etc/hpc/exports")  # what exportfs applied last
NFS_CONF = Path("/etc/nfs.conf.d/hpc.conf")
# A thread for each request that is under way; the default, 8, is used up by the nodes' first minute.
NFS_SETTINGS = "# Written by the cluster's set-up.\n[nfsd]\nthreads=64\n"
NFS_NEEDS = Path("/etc/systemd/system/nfs-server.service.d/hpc.conf")


def share_folders(exports: Exports | None) -> None:
    """Have the folders exported, and no others of ours; nothing where this machine exports none.

    Raises SetupError where the machine has no NFS server.
    """
    # As in exports(5); `mountpoint`: not while nothing is mounted there.
    options = "(rw,sync,no_subtree_check,root_squash,mountpoint)"
    text = "".join(f"{path} {exports['network']}{options}\n" for path in exports["paths"]) if exports else ""
    if not text and not EXPORTS.exists():
        return
    if not shutil.which("exportfs", path="/usr/sbin:/sbin:/usr/bin:/bin"):
        raise SetupError("this machine can't share folders by NFS: install the package nfs-kernel-server")
    write(NFS_CONF, NFS_SETTINGS)
    paths = " ".join(exports["paths"]) if exports else ""
    # Without the state disk the folders would be the machine's own, and empty.
    write_unit(NFS_NEEDS, f"# Written by the cluster's set-up.\n[Unit]\nRequiresMountsFor={paths}\n")
    write(EXPORTS, text)
    service("nfs-server", settings=NFS_SETTINGS)
    # Remembered after it took them, so that a set-up that was killed in between is made good by the next.
    if not EXPORTS_APPLIED.exists() or EXPORTS_APPLIED.read_text() != text:
        run("exportfs", "-r", "-a")
        write(EXPORTS_APPLIED, text, quiet=True)
        log(f"exported {paths or 'nothing'}")
