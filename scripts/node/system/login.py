"""Who may log in to a machine, and what a login machine has: Slurm's commands, and none of its daemons.

pam_slurm_adopt lets users log in by SSH to the nodes of their jobs. It moves their processes into the job, with its
limits of cores, memory and GPUs, and Slurm ends them with the job.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from interface import UnixUser
from system.host import SetupError, run, stop_services, write, write_unit

SSHD = Path("/etc/ssh/sshd_config.d/hpc.conf")
SSHD_MAIN = Path("/etc/ssh/sshd_config")  # the package's, which includes SSHD before its own settings
CLOSED_SHELLS = ("nologin", "false")
PROFILE = """\
# Written by the cluster's set-up.
# sacct's own columns leave out the user and the elapsed time. Only in interactive shells, since scripts count columns.
case $- in *i*)
    sacct() {
        SACCT_FORMAT="${SACCT_FORMAT:-jobid,jobname%20,user,account,partition,alloccpus,elapsed,state,exitcode}" \\
            command sacct "$@"
    }
    ;;
esac
"""

# The limits of one user on a machine that all log in to; systemd-logind gives each user a slice. TasksMax is twice what
# a build with a hundred compilers needs. At MemoryHigh the kernel reclaims memory, at MemoryMax it kills.
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
    """Write the profile of users' shells, the command hpc-job, and the limits of one user."""
    write("/etc/profile.d/hpc.sh", PROFILE)
    write(JOB_REPORT, JOB_REPORT_STARTER, mode=0o755)
    write_unit("/etc/systemd/system/user-.slice.d/hpc.conf", SLICE)


def configure(files: dict[str, list[str]]) -> None:
    """Write Slurm's files for its commands, and stop its daemons.

    The files come from the stack, not from the shared file system: root of every node may write there, and slurm.conf
    names plugins that the commands load.
    """
    for name, lines in files.items():
        write(Path("/etc/slurm") / name, "\n".join(lines) + "\n")
    stop_services("slurmd", "slurmctld", "slurmdbd", "mariadb")


def allow_logins(users: Sequence[UnixUser] | None) -> None:
    """Let root log in by key and, unless `users` is None, everybody. sshd reads the change without ending a connection.

    `users` are those of the stack.
    """
    changed = write(SSHD_MAIN, with_internal_sftp(SSHD_MAIN.read_text()))
    if write(SSHD, sshd_settings(users)) or changed:
        # If a socket starts sshd, it may not run yet, and reads the file when it starts.
        run("systemctl", "try-reload-or-restart", "ssh")


def allow_logins_of_jobs(users: Sequence[UnixUser], *, allowed: bool) -> None:
    """Let users with a job on this node log in, or nobody but root. sshd never admits users without the PAM module."""
    if allowed:
        set_pam_slurm_adopt(enabled=True)
        allow_logins(users)
    else:
        allow_logins(None)
        set_pam_slurm_adopt(enabled=False)


def sshd_settings(users: Sequence[UnixUser] | None) -> str:
    """Return the settings of sshd: root logs in by key, users only if `users` is not None."""
    lines = ["# Written by the cluster's set-up.", "PasswordAuthentication no", "PermitRootLogin prohibit-password"]
    if users is None:
        # slurmctld allocates nodes: a shell that is not part of a job would use the resources of another user's job.
        lines.append("AllowUsers root")
    elif closed := [user["name"] for user in users if Path(user["shell"]).name in CLOSED_SHELLS]:
        # internal-sftp starts no shell, so that a shell that refuses everybody does not refuse it (session.c, do_child,
        # of openssh-portable at V_8_9_P1 and V_10_0_P2). A match in an included file ends with that file.
        lines += [f"Match User {','.join(closed)}", "    ForceCommand /bin/false"]
    return "\n".join(lines) + "\n"


def with_internal_sftp(text: str) -> str:
    """Return sshd_config with sshd's own SFTP server, for sftp and scp. A pure function.

    A program as server is started by the user's shell, whose .bashrc may print text, which breaks the protocol. The
    line is replaced, since sshd before 9.5 does not start with a second one in another file (servconf.c, sSubsystem, of
    openssh-portable: fatal at V_8_9_P1 and V_9_2_P1, ignored at V_9_6_P1 and V_10_0_P2).
    """
    return re.sub(r"(?im)^[ \t]*subsystem[ \t]+sftp[ \t].*$", "Subsystem sftp internal-sftp", text)


PAM = Path("/etc/pam.d/sshd")
PAM_ORIGINAL = Path("/etc/hpc/pam-sshd")  # the distribution's file, to be restored
PAM_MODULES = ("usr/lib/*/security/pam_slurm_adopt.so", "usr/lib/security/pam_slurm_adopt.so")


def set_pam_slurm_adopt(*, enabled: bool, root: Path = Path("/")) -> bool:
    """Add the module to sshd's PAM stack, or remove it; return whether it changed. Raises SetupError without it."""
    pam, original = root / PAM.relative_to("/"), root / PAM_ORIGINAL.relative_to("/")
    if not enabled:
        if not original.exists():
            return False
        write(pam, original.read_text())
        original.unlink()
        return True
    if not any(path for pattern in PAM_MODULES for path in root.glob(pattern)):
        raise SetupError("slurm.pam_slurm_adopt: there is no pam_slurm_adopt.so on this machine")
    if not original.exists():
        write(original, pam.read_text(), quiet=True)
    return write(pam, add_pam_slurm_adopt(original.read_text()))


def add_pam_slurm_adopt(text: str) -> str:
    """Return sshd's PAM stack with the module as the last account module (root passes it), without common-session.

    common-session has pam_systemd, which would move the processes out of the job again (SchedMD's page on
    pam_slurm_adopt). Raises SetupError for a stack without common-account. A pure function.
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
