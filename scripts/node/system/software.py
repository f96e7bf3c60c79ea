"""Versions of the components that have a security floor, and daemons that run an earlier version than is installed."""

import os
from pathlib import Path

from interface import Software
from system.host import run, which

PACKAGES = {
    "slurm-smd": "slurm",  # SchedMD's own packaging
    "slurm-wlm-basic-plugins": "slurm-wlm",  # on every machine with Slurm of Debian or Ubuntu
    "nvidia-container-toolkit": "nvidia-container-toolkit",
    "apptainer": "apptainer",
    "prometheus": "prometheus",
}
"""Components by a package of theirs. enroot is installed from its source."""
DAEMONS = {"munged", "prometheus", "sackd", "slurmctld", "slurmd", "slurmdbd", "slurmrestd", "slurmstepd"}
NVIDIA = Path("/sys/module/nvidia/version")  # of the module that is loaded
CONTAINER = Path("/run/systemd/container")  # of systemd, in a machine that has its host's kernel
PROCESSES = Path("/proc")


def observe() -> Software:
    """Return the versions of installed packages, of the running kernel and of the loaded driver; and the names of
    daemons whose program was replaced since they started."""
    text = run("dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status} ${Version}\n", *PACKAGES,
               accept=(0, 1), timeout=2)  # fmt: skip  # 1: some are not known to dpkg
    rows = [line.split(" ") for line in text.splitlines()]
    versions = {PACKAGES[name]: version for name, status, version in rows if status == "installed"}
    if not CONTAINER.exists():
        versions["linux"] = os.uname().release.rpartition("-")[0]  # without gcp, generic or amd64
    if NVIDIA.exists():
        versions["nvidia"] = NVIDIA.read_text().strip()
    if which("enroot"):
        versions["enroot"] = run("enroot", "version", timeout=2).strip()
    return {"versions": versions, "replaced": replaced()}


def replaced() -> list[str]:
    """Return the names of daemons whose program is another file now: dpkg renames the new one over it (proc(5))."""
    names = set()
    for process in PROCESSES.iterdir():
        try:
            path = (process / "exe").readlink() if process.name.isdecimal() else Path()
        except OSError:  # it has ended, or is a thread of the kernel
            continue
        if path.name.endswith(" (deleted)"):
            names.add(path.name.removesuffix(" (deleted)"))
    return sorted(names & DAEMONS)
