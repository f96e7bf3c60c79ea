"""Containers of users: enroot's folders, the command `nvcrlogin`, and the wrapper that keeps Docker from jobs.

systemd-tmpfiles creates the folders: it follows no links in folders that users can write to.
"""

from pathlib import Path

from interface import UnixUser
from system import mounts
from system.host import remove, run, write

ENROOT = Path("/etc/enroot/enroot.conf.d")  # exists if the image has enroot
SSD = "/mnt/localssd"  # mounted by scripts/image/storage/50-localssd.sh
NVCRLOGIN = Path("/usr/local/bin/nvcrlogin")
DOCKER, WRAPPER = Path("/usr/bin/docker"), Path("/usr/local/bin/docker")
TMPFILES, ON_SSD = Path("/etc/tmpfiles.d/hpc-enroot.conf"), Path("/etc/hpc/localssd.tmpfiles")
MARK = "# Written by the cluster's set-up."
CACHE = "/var/cache/enroot"

# enroot takes each setting from the first file that has it (config::load in enroot.in): on machines with local SSDs
# from 50-localssd.conf. The reasons for the values:
# - ENROOT_RUNTIME_PATH: the default is /run/enroot, which users can't create, or /run/user/UID (XDG_RUNTIME_DIR), which
#   nodes do not have (NVIDIA/enroot issues 13 and 23, NVIDIA/pyxis issues 12 and 138).
# - ENROOT_CACHE_PATH: downloaded layers are 10 GB and more, and every node would write its own into the shared home.
# - ENROOT_TEMP_PATH: an import needs 30 GB and more for the unpacked image. /tmp is memory on some systems, and Slurm
#   sets TMPDIR=/tmp in every job.
# - ENROOT_ROOTFS_WRITABLE: users install packages into containers that have a name (--container-remap-root). Soperator
#   has the same (images/common/enroot/enroot.conf); --container-readonly turns it off.
PATHS = f"""\
{MARK}
ENROOT_RUNTIME_PATH /run/enroot/${{UID}}
ENROOT_CACHE_PATH {CACHE}/${{UID}}
ENROOT_TEMP_PATH /var/tmp
ENROOT_ROOTFS_WRITABLE yes
"""
# The values of `containers.data`. The file for `home` comes before 50-localssd.conf, that for `node` after it, so that
# local SSDs are preferred. ON_DISK is not below /var/tmp, where systemd removes old files.
AT_HOME = f"{MARK}\nENROOT_DATA_PATH ${{HOME}}/.local/share/enroot\n"
ON_DISK = "/var/lib/enroot"
ON_NODE = f"{MARK}\nENROOT_DATA_PATH {ON_DISK}/${{UID}}\n"
# Prologs run as root and keep docker, as do users who have a daemon of their own.
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


def converge(users: list[UnixUser], *, data: str = "", login: bool = False, node: bool = True) -> bool:
    """Set up the containers of these users; return whether anything changed.

    `data`: `containers.data` of the stack. `login`: users log in here. `node`: jobs run here.
    """
    changed = _converge_enroot(users, data if node or data == "home" else "") if ENROOT.is_dir() else False
    changed |= login and install_nvcrlogin()
    return _converge_docker() or changed


def install_nvcrlogin() -> bool:
    """Install the command `nvcrlogin`; return whether it changed."""
    return write(NVCRLOGIN, Path(__file__).with_name("nvcrlogin.py").read_bytes(), mode=0o755)


def _converge_enroot(users: list[UnixUser], data: str) -> bool:
    """Write enroot's settings, and create a folder for each user; return whether anything changed.

    The folders exist before the first container of a user, so that nobody else can create one of that name.
    """
    changed = write(ENROOT / "60-hpc-paths.conf", PATHS)
    for name, text, wanted in (("05", AT_HOME, "home"), ("60", ON_NODE, "node")):
        file = ENROOT / f"{name}-hpc-data.conf"
        changed |= write(file, text) if data == wanted else remove(file)
    folders = ["/run/enroot", CACHE, *([ON_DISK] if data == "node" else [])]
    changed |= write(TMPFILES, _tmpfiles(folders, users))
    run("systemd-tmpfiles", "--create", str(TMPFILES))
    if mounts.is_mounted(SSD):
        changed |= write(ON_SSD, _tmpfiles([SSD], users))
        run("systemd-tmpfiles", "--create", str(ON_SSD))
    return changed


def _tmpfiles(folders: list[str], users: list[UnixUser]) -> str:
    """Return lines of tmpfiles.d(5) for folders that each have a folder per user, named by uid."""
    lines = [f"d {folder} 1777 root root -" for folder in folders]
    lines += [f"d {path}/{user['uid']} 0700 {user['uid']} {user['gid']} -" for path in folders for user in users]
    return "\n".join([MARK, *lines]) + "\n"


def _converge_docker() -> bool:
    """If Docker is installed, write a command `docker` that prints what to use instead; return whether it changed."""
    if WRAPPER.is_symlink() or (WRAPPER.exists() and MARK not in WRAPPER.read_text(errors="replace")):
        return False  # not the set-up's
    return write(WRAPPER, DOCKER_WRAPPER, mode=0o755) if DOCKER.exists() else remove(WRAPPER)
