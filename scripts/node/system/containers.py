"""Containers of users: where enroot keeps their files, the command `nvcrlogin`, and Docker, which jobs don't get.

Folders are made by systemd-tmpfiles: it follows no links in folders that users can write to.
"""

from pathlib import Path

from interface import User
from system import mounts
from system.host import remove, run, write

ENROOT = Path("/etc/enroot/enroot.conf.d")  # there where the image has enroot
SSD = "/mnt/localssd"  # scripts/image/storage/50-localssd.sh
NVCRLOGIN = Path("/usr/local/bin/nvcrlogin")
DOCKER, WRAPPER = Path("/usr/bin/docker"), Path("/usr/local/bin/docker")
TMPFILES, ON_SSD = Path("/etc/tmpfiles.d/hpc-enroot.conf"), Path("/etc/hpc/localssd.tmpfiles")
MARK = "# Written by the cluster's set-up."
CACHE = "/var/cache/enroot"

# For each setting the first file counts (config::load in enroot.in), so this comes after 50-localssd.conf of machines
# with local SSDs. enroot's own default for what it needs while it runs is /run/enroot or what a login left in
# XDG_RUNTIME_DIR, /run/user/UID: users can't make the first, and nodes do not have the second (NVIDIA/enroot issues 13
# and 23, NVIDIA/pyxis issues 12 and 138). Importing needs room for an unpacked image, 30 GB and more: /tmp is memory on
# some systems, and Slurm sets TMPDIR=/tmp in every job. Layers that were downloaded are 10 GB and more, and every node
# would write its own into the home that all share. Users install packages into containers that have a name
# (--container-remap-root), so containers can be written, as on Soperator (images/common/enroot/enroot.conf);
# --container-readonly is against it.
PATHS = f"""\
{MARK}
ENROOT_RUNTIME_PATH /run/enroot/${{UID}}
ENROOT_CACHE_PATH {CACHE}/${{UID}}
ENROOT_TEMP_PATH /var/tmp
ENROOT_ROOTFS_WRITABLE yes
"""
# containers.data. In the home before 50-localssd.conf, on the node after it: there local SSDs come first. Not in a
# folder of temporary files, of which systemd removes the old ones.
AT_HOME = f"{MARK}\nENROOT_DATA_PATH ${{HOME}}/.local/share/enroot\n"
ON_DISK = "/var/lib/enroot"
ON_NODE = f"{MARK}\nENROOT_DATA_PATH {ON_DISK}/${{UID}}\n"
# Prologs run as root and keep their docker; so does who has a daemon of their own.
DOCKER_WRAPPER = f"""\
#!/bin/bash
{MARK}
if [[ $EUID -eq 0 || -n ${{DOCKER_HOST:-}} || -w /run/docker.sock ]]; then
    exec {DOCKER} "$@"
fi
cat >&2 <<'END'
docker: not for jobs and users of this cluster: its daemon runs containers outside of the job and of its limits.
Use the image with enroot or apptainer instead:
    srun --container-image=ubuntu:24.04 COMMAND
    apptainer exec docker://ubuntu:24.04 COMMAND
END
exit 1
"""


def converge(users: list[User], *, data: str = "", login: bool = False, node: bool = True) -> bool:
    """Have all of it as on a machine with these users; True when anything changed.

    `data`: `containers.data` of the stack. `login`: users log in here. `node`: jobs run here.
    """
    changed = enroot(users, data if node or data == "home" else "") if ENROOT.is_dir() else False
    changed |= login and install_nvcrlogin()
    return docker() or changed


def install_nvcrlogin() -> bool:
    """Have the command where users log in; True when anything changed."""
    return write(NVCRLOGIN, Path(__file__).with_name("nvcrlogin.py").read_bytes(), mode=0o755)


def enroot(users: list[User], data: str) -> bool:
    """enroot's paths, and a folder of each user's own there before their first container.

    Where users make their own, as users do that the stack does not have, anybody may have made one of that name before.
    """
    changed = write(ENROOT / "60-hpc-paths.conf", PATHS)
    for name, text, wanted in (("05", AT_HOME, "home"), ("60", ON_NODE, "node")):
        file = ENROOT / f"{name}-hpc-data.conf"
        changed |= write(file, text) if data == wanted else remove(file)
    folders = ["/run/enroot", CACHE, *([ON_DISK] if data == "node" else [])]
    changed |= write(TMPFILES, tmpfiles(folders, users))
    run("systemd-tmpfiles", "--create", str(TMPFILES))
    if mounts.mounted(SSD):
        changed |= write(ON_SSD, tmpfiles([SSD], users))
        run("systemd-tmpfiles", "--create", str(ON_SSD))
    return changed


def tmpfiles(folders: list[str], users: list[User]) -> str:
    """Lines of tmpfiles.d(5) for folders with one for each user, by their number. A pure function."""
    lines = [f"d {folder} 1777 root root -" for folder in folders]
    lines += [f"d {path}/{user['uid']} 0700 {user['uid']} {user['gid']} -" for path in folders for user in users]
    return "\n".join([MARK, *lines]) + "\n"


def docker() -> bool:
    """Have the command `docker` print what to use instead, where Docker is installed."""
    if WRAPPER.is_symlink() or (WRAPPER.exists() and MARK not in WRAPPER.read_text(errors="replace")):
        return False  # somebody else's
    return write(WRAPPER, DOCKER_WRAPPER, mode=0o755) if DOCKER.exists() else remove(WRAPPER)
