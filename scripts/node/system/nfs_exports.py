"""What the controller shares with the other machines by NFS: folders of its state disk.

To the cluster's own network only. Root of the other machines is nobody here (root_squash): root of this machine and of
others runs what is root's below /opt/apps. Both folders, as they are of one file system: who may write as root through
one of them reaches the other. Root of a machine of that network can still be any other user.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from interface import Exports
from system.host import SetupError, log, run, service, write

EXPORTS = Path("/etc/exports.d/hpc.exports")
APPLIED = Path("/etc/hpc/exports")  # what the kernel's server was told last
SERVER = Path("/etc/nfs.conf.d/hpc.conf")
# A thread for each request that is under way; the default, 8, is used up by the nodes' first minute.
SETTINGS = "# Written by the cluster's set-up.\n[nfsd]\nthreads=64\n"
NEEDS = Path("/etc/systemd/system/nfs-server.service.d/hpc.conf")


def share(exports: Exports | None) -> None:
    """Have the folders exported, and no others of ours; nothing where this machine exports none.

    Raises SetupError where the machine has no NFS server.
    """
    text = "".join(map(line, exports["paths"], [exports["network"]] * len(exports["paths"]))) if exports else ""
    if not text and not EXPORTS.exists():
        return
    if not shutil.which("exportfs", path="/usr/sbin:/sbin:/usr/bin:/bin"):
        raise SetupError("this machine can't share folders by NFS: install the package nfs-kernel-server")
    write(SERVER, SETTINGS)
    paths = " ".join(exports["paths"]) if exports else ""
    # Without the state disk the folders would be the machine's own, and empty.
    if write(NEEDS, f"# Written by the cluster's set-up.\n[Unit]\nRequiresMountsFor={paths}\n"):
        run("systemctl", "daemon-reload")
    write(EXPORTS, text)
    service("nfs-server", settings=SETTINGS)
    # Remembered after it took them, so that a set-up that was killed in between is made good by the next.
    if not APPLIED.exists() or APPLIED.read_text() != text:
        run("exportfs", "-r", "-a")
        write(APPLIED, text, quiet=True)
        log(f"exported {paths or 'nothing'}")


def line(path: str, network: str) -> str:
    """A line of exports(5); `mountpoint`: not while nothing is mounted there."""
    return f"{path} {network}(rw,sync,no_subtree_check,root_squash,mountpoint)\n"
