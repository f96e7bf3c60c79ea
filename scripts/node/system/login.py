"""A login machine: Slurm's client tools and users; no daemon of Slurm's."""

from __future__ import annotations

from pathlib import Path

from system.host import run, stop_service, write

SSHD = Path("/etc/ssh/sshd_config.d/hpc.conf")
PROFILE = """\
# Written by the cluster's set-up.
# sacct's own columns leave out whose job it was and how long it took. Not for scripts and jobs, which count columns.
case $- in *i*)
    sacct() {
        SACCT_FORMAT="${SACCT_FORMAT:-jobid,jobname%20,user,account,partition,alloccpus,elapsed,state,exitcode}" \\
            command sacct "$@"
    }
    ;;
esac
"""


# What one user may take of a machine that all log in to, where systemd-logind gives each a slice of their own. Twice
# what a build with a hundred compilers takes; memory is given back under pressure before anything is ended.
SLICE = """\
# Written by the cluster's set-up.
[Slice]
TasksMax=4096
MemoryHigh=40%
MemoryMax=50%
"""


def bound() -> None:
    """Have one user not take the whole machine, by intent or by a loop in a script."""
    if write("/etc/systemd/system/user-.slice.d/hpc.conf", SLICE):
        # For those who are logged in already as well.
        run("systemctl", "daemon-reload")


def configure(files: dict[str, list[str]]) -> None:
    """Keep Slurm's files for commands, as the stack sent them; and none of its daemons.

    Not those of the shared file system: root of every node may write there, and slurm.conf names what commands load.
    """
    for name, lines in files.items():
        write(Path("/etc/slurm") / name, "\n".join(lines) + "\n")
    for unit in ("slurmd", "slurmctld", "slurmdbd", "mariadb"):
        stop_service(unit)


def welcome() -> None:
    """What a user's shell starts with on a machine where users log in."""
    write("/etc/profile.d/hpc.sh", PROFILE)


def admit(*, users: bool) -> str:
    """The sshd settings of a machine: users come in on login machines only, root by key everywhere."""
    lines = ["# Written by the cluster's set-up.", "PasswordAuthentication no", "PermitRootLogin prohibit-password"]
    # The scheduler hands out the other machines; a shell beside it would use what somebody else was given.
    return "\n".join([*lines, *([] if users else ["AllowUsers root"])]) + "\n"
