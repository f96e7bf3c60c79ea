"""Operating systems that machines can run, the Slurm that comes with each, and what their os-release says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Containers = Literal["pyxis", "apptainer"]


@dataclass(frozen=True, kw_only=True)
class OperatingSystem:
    """A base operating system."""

    name: str
    slurm_versions: tuple[str, ...]
    """Releases of Slurm that can run on it, the default first."""
    source: str
    built: bool = False
    """True if Slurm is built from SchedMD's source: it gets SchedMD's fixes alone, none of the distribution's."""
    mended: str = ""
    """The maintainer of the distribution's packages of Slurm, and until when, if it is not built."""
    without_pmix: tuple[str, ...] = ()
    """Releases of these whose packages have no plugin for PMIx."""
    pam_slurm_adopt: bool = False
    """True if it has pam_slurm_adopt."""
    containers: tuple[Containers, ...] = ()
    """Programs that run containers in jobs, the first by default; empty: nothing that this program installs."""
    nccl_tests: bool = False
    """True if nccl-tests is installed: NAME_perf, and NAME_perf_mpi with MPI."""
    slurmrestd: bool = False
    """True if it has slurmrestd, and Slurm's plugin for JSON Web Tokens."""
    sudo: bool = False
    """True if it has sudo without a package of `image.packages`."""


# fmt: off
_ROWS = (
    OperatingSystem(
        name="debian-12", slurm_versions=("22.05",), mended="Debian's LTS team until 2028-06-30",
        source="packages.debian.org/bookworm/slurm-wlm: 22.05.8; wiki.debian.org/LTS"),
    OperatingSystem(
        name="debian-13", slurm_versions=("24.11", "26.05"), without_pmix=("26.05",), pam_slurm_adopt=True,
        slurmrestd=True, mended="Debian until 2028-08-09, then its LTS team until 2030-06-30",
        source="packages.debian.org/trixie/slurm-wlm: 24.11.5; packages.debian.org/forky/slurm-wlm: 26.05.5; "
        "wiki.debian.org/LTS"),
    OperatingSystem(
        name="ubuntu-2404", slurm_versions=("23.11",), sudo=True, containers=("apptainer",),
        # It is in universe: discourse.ubuntu.com/t/ubuntu-pro-faq/34042.
        mended="Ubuntu's community where it does so, and by Canonical for customers of Ubuntu Pro until April 2034",
        source="packages.ubuntu.com/noble/slurm-wlm: 23.11.4"),
    OperatingSystem(
        name="ubuntu-2204", slurm_versions=("26.05", "25.11"), built=True,
        pam_slurm_adopt=True, slurmrestd=True, sudo=True,
        containers=("pyxis", "apptainer"),
        source="ours: built from SchedMD's own packaging at image bake, because Ubuntu 22.04 has 21.08"),
    OperatingSystem(
        name="soperator", slurm_versions=("25.11",), built=True, slurmrestd=True, sudo=True,
        # ansible/run.yml: the role nccl-tests; nebius-solutions-library, soperator/test/quickcheck: both names.
        containers=("pyxis",), nccl_tests=True,
        source="github.com/nebius/soperator, Makefile: the version of Soperator decides"),
)
# fmt: on

IMAGES: dict[str, OperatingSystem] = {row.name: row for row in _ROWS}


def _ubuntu(version: str, point: str, name: str) -> Mapping[str, str]:
    """Return the fields that Ubuntu's base-files writes, without its web addresses."""
    codename = name.partition(" ")[0].lower()
    return {
        "PRETTY_NAME": f"Ubuntu {point} LTS",
        "NAME": "Ubuntu",
        "VERSION_ID": version,
        "VERSION": f"{point} LTS ({name})",
        "VERSION_CODENAME": codename,
        "ID": "ubuntu",
        "ID_LIKE": "debian",
        "UBUNTU_CODENAME": codename,
    }


SYSTEMS: Mapping[str, Mapping[str, str]] = {
    "ubuntu-2204": _ubuntu("22.04", "22.04.5", "Jammy Jellyfish"),  # Source: base-files 12ubuntu4
    "ubuntu-2404": _ubuntu("24.04", "24.04.3", "Noble Numbat"),  # Source: base-files 13ubuntu10.3
}
"""Fields of os-release(5) by the name of the system."""
