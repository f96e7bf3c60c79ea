"""Log-ins to a machine, and what users find on a login machine, which has client tools and no daemon of Slurm's.

pam_slurm_adopt lets users log in by SSH to the nodes of their jobs. It puts what they start there into the job, within
its cores, memory and GPUs, and ends it with the job.
"""

from pathlib import Path

from system.host import SetupError, run, stop_services, write, write_unit

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
JOB_REPORT = Path("/usr/local/bin/hpc-job")  # on login machines
JOB_REPORT_STARTER = """\
#!/bin/sh
# Written by the cluster's set-up. With --help it says more.
exec python3 -S -c '
import sys
sys.path.insert(0, "/usr/local/lib/hpc/node")
from slurm.job_report import main
sys.exit(main(sys.argv[1:]))
' "$@"
"""


def prepare_for_users() -> None:
    """Have what users' shells start with, the command hpc-job, and a limit on what one user may take of the machine."""
    write("/etc/profile.d/hpc.sh", PROFILE)
    write(JOB_REPORT, JOB_REPORT_STARTER, mode=0o755)
    write_unit("/etc/systemd/system/user-.slice.d/hpc.conf", SLICE)


def configure(files: dict[str, list[str]]) -> None:
    """Keep Slurm's files for commands, as the stack sent them; and none of its daemons.

    Not those of the shared file system: root of every node may write there, and slurm.conf names what commands load.
    """
    for name, lines in files.items():
        write(Path("/etc/slurm") / name, "\n".join(lines) + "\n")
    stop_services("slurmd", "slurmctld", "slurmdbd", "mariadb")


def admit(*, users: bool) -> None:
    """Users may log in on login machines only, root by key everywhere. sshd reads it without losing a connection."""
    if write(SSHD, sshd_settings(users=users)):
        # Where a socket starts sshd it may not run yet, and reads them when it does.
        run("systemctl", "try-reload-or-restart", "ssh")


def let_in(*, jobs: bool) -> None:
    """Let users with a job on this node log in, where the stack says so; at no time without the module's check."""
    if jobs:
        keep_pam_slurm_adopt(wanted=True)
        admit(users=True)
    else:
        admit(users=False)
        keep_pam_slurm_adopt(wanted=False)


def sshd_settings(*, users: bool) -> str:
    """The sshd settings of a machine: users come in on login machines only, root by key everywhere."""
    lines = ["# Written by the cluster's set-up.", "PasswordAuthentication no", "PermitRootLogin prohibit-password"]
    # The scheduler hands out the other machines; a shell beside it would use what somebody else was given.
    return "\n".join([*lines, *([] if users else ["AllowUsers root"])]) + "\n"


PAM = Path("/etc/pam.d/sshd")
PAM_KEPT = Path("/etc/hpc/pam-sshd")  # the distribution's, to be put back
PAM_MODULES = ("usr/lib/*/security/pam_slurm_adopt.so", "usr/lib/security/pam_slurm_adopt.so")


def keep_pam_slurm_adopt(*, wanted: bool, root: Path = Path("/")) -> bool:
    """Have sshd ask the module, or no longer; True when that changed. Raises SetupError where there is no module."""
    pam, kept = root / PAM.relative_to("/"), root / PAM_KEPT.relative_to("/")
    if not wanted:
        if not kept.exists():
            return False
        write(pam, kept.read_text())
        kept.unlink()
        return True
    if not any(path for pattern in PAM_MODULES for path in root.glob(pattern)):
        raise SetupError("slurm.pam_slurm_adopt: there is no pam_slurm_adopt.so on this machine")
    if not kept.exists():
        write(kept, pam.read_text(), quiet=True)
    return write(pam, adopting(kept.read_text()))


def adopting(text: str) -> str:
    """sshd's PAM stack with the module last of its account part (root passes it), and without common-session.

    That has pam_systemd, which would take the processes out of the job again (SchedMD's page on pam_slurm_adopt).
    Raises SetupError for a stack that has no common-account. A pure function.
    """
    lines: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if words == ["@include", "common-account"]:
            lines += [line, "account required pam_slurm_adopt.so"]
        elif words == ["@include", "common-session"]:
            lines += ["session required pam_unix.so", "session optional pam_umask.so"]
        else:
            lines.append(line)
    if "account required pam_slurm_adopt.so" not in lines:
        raise SetupError(f"{PAM} does not include common-account: slurm.pam_slurm_adopt does not know where to stand")
    return "\n".join(["# Changed by the cluster's set-up (pam_slurm_adopt).", *lines]) + "\n"
