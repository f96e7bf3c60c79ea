"""SSH to the nodes of one's jobs: pam_slurm_adopt lets a user in while a job of theirs runs there, and puts what they
start into that job, within its cores, memory and GPUs, and ends it with the job."""

from __future__ import annotations

from pathlib import Path

from system.host import SetupError, write

PAM = Path("/etc/pam.d/sshd")
KEPT = Path("/etc/hpc/pam-sshd")  # the distribution's, to be put back
MODULES = ("usr/lib/*/security/pam_slurm_adopt.so", "usr/lib/security/pam_slurm_adopt.so")


def keep(*, wanted: bool, root: Path = Path("/")) -> bool:
    """Have sshd ask the module, or no longer; True when that changed. Raises SetupError where there is no module."""
    pam, kept = root / PAM.relative_to("/"), root / KEPT.relative_to("/")
    if not wanted:
        if not kept.exists():
            return False
        write(pam, kept.read_text())
        kept.unlink()
        return True
    if not any(path for pattern in MODULES for path in root.glob(pattern)):
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
