"""Recipes of images on Google Cloud: tested sets of kernel, driver, Slurm and Lustre client.

A kernel module fits one kernel, so these are not chosen separately: a recipe is a row. Everything in it is pinned, by
an exact version of a signed repository, by a commit, by a SHA-256, or by the date of Ubuntu's archive.

A version of the recipes changes only for security, because another content is another image for stacks that are up.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Source:
    """A program that is built from its own source."""

    url: str
    version: str
    commit: str
    """40 hex digits; git accepts no other content for it."""


@dataclass(frozen=True, kw_only=True)
class Download:
    """A file that is fetched as it is."""

    url: str
    version: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class GpuDriver:
    """NVIDIA's driver and what must be of the same version."""

    branch: str
    version: str
    package: str
    """Version of its packages, exactly; empty where the distribution's newest of the branch is taken."""
    cuda: int
    """Major version of CUDA that it reports, by which DCGM chooses its plugins (nvvs/src/TestFramework.cpp)."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A recipe of an image, for an operating system and one kind of Lustre."""

    version: str
    """`image.recipe`."""
    base: str
    """`image.base`."""
    lustre: str
    """Kind of Lustre that it can mount: exascaler, managed or none."""
    image: str
    """Public image that it is made from, or that machines run where nothing is baked: a name, never a family."""
    kernel: str = ""
    """The one kernel it has, as `uname -r` says it; empty: the public image's own."""
    kernel_source: str = ""
    """The kernel's source package and version, as in the name of its .dsc file; empty as above."""
    kernel_day: str
    """YYYY-MM-DD: a day on which it was the newest of its series. Later fixes are missing."""
    snapshot: str
    """State of Ubuntu's archive that has this kernel, and all else where `image.snapshot` says nothing."""
    gve: Source | None = None
    """Network driver, where the kernel's own is too old for gVNIC with large frames."""
    driver: GpuDriver
    rxdm_driver: GpuDriver | None = None
    """The driver of A3 Mega, if it is another: Google qualifies rxdm with single versions."""
    cuda: str
    """Version of the CUDA toolkit; `distribution` is the distribution's own."""
    dcgm: str = ""
    """Version of DCGM's packages; empty: none."""
    dcgm_exporter: str = ""
    """Version of dcgm-exporter's package, where the stack has metrics; empty: none."""
    container_toolkit: str = ""
    slurm: Mapping[str, Download] = field(default_factory=dict)
    """The source of each release that can be built; empty: the distribution's packages."""
    client: Source | None = None
    """The Lustre client; none: the packages of Google's repository, for the kernel or by DKMS, or no Lustre."""
    enroot: Source | None = None
    pyxis: Source | None = None
    apptainer: Download | None = None
    gcsfuse: str = ""
    """Version of GCS FUSE."""
    gib: str = "1.1.0"
    """Version of gIB, NCCL's plugin on A3 Ultra and A4, and of the NCCL that Google's blueprints take with it
    (cluster-toolkit v1.95.0, a3ultra-slurm-blueprint.yaml and a4high-slurm-blueprint.yaml)."""
    nccl: str = "2.27.5-1+cuda12.9"
    source: str


NEWEST = "2026-11"
"""The version of the recipes (ours)."""
SNAPSHOT = "20261121T000000Z"
"""The date of Ubuntu's archive that it takes its packages from, on which snapshot.ubuntu.com has its kernels. A stack
moves its own by `image.snapshot`. Snapshots go back to March 2023, and are kept for two years at least
(snapshot.ubuntu.com)."""
# Source of those for A3 Mega: QUALIFIED in cluster/catalog/prologs.py.
# The newest with an rxdm prolog that is published (the same source), of a branch that NVIDIA supports for long.
# 595.71.05, of the newest prolog, has packages of other names (from 590 on without the branch), and is not known to run
# A3 Mega on Ubuntu.
R580_RXDM = GpuDriver(branch="580", version="580.95.05", package="580.95.05-0ubuntu1", cuda=13)
# The first without known vulnerabilities (cluster/catalog/floors.py). NVIDIA's repository for Ubuntu 22.04 has packages
# of this version by the same names (source: file names and `apt install` lines in public reports, 2026-11).
R580 = GpuDriver(branch="580", version="580.159.03", package="580.159.03-1ubuntu1", cuda=13)
# The patch of a release may change within a version of the recipes, as security requires. It is content of the image
# (cluster/platforms/gcp/image.py), so that `up` brings it to a cluster that is up.
#
# 26.05.5: the SHA-256 of slurm-wlm_26.05.5.orig.tar.gz in Debian's signed index of sources (sid, 2026-10-30). Debian's
# file is GitHub's archive of the tag, byte for byte: that of 22.05.8 has the SHA-256 that Spack's recipe gives for
# .../archive/slurm-22-05-8-1.tar.gz, and those of 22.05.8 and 24.11.5, unpacked, are what `git archive` makes of these
# tags. 25.11.8: gsi-hpc/sind (docker-bake.hcl) and the Dockerfile of another site give the same SHA-256 of SchedMD's
# file.
_SLURM = {
    row.version[:5]: row
    for row in (
        Download(
            url="https://github.com/SchedMD/slurm/archive/refs/tags/slurm-26-05-5-1.tar.gz",
            version="26.05.5",
            sha256="42cc1177e14db84a0f1407ed1e01f7d0e5e12a3cb1a12da3ce00d63e17021bb3",
        ),
        Download(
            url="https://download.schedmd.com/slurm/slurm-25.11.8.tar.bz2",
            version="25.11.8",
            sha256="34ace13f81011add6094569d13bfc4006ad8868201c2236e2905443c7e526393",
        ),
    )
}
_ENROOT = Source(
    url="https://github.com/NVIDIA/enroot", version="3.5.0", commit="c7dc4a6b66e817af5ceb7d5315850696067b3f80"
)
# 0.20 leaves containers behind from Slurm 25.05 on. Soperator ships 0.24.0 with Slurm 25.11 and 26.05 (nebius/soperator
# c238d993, images/worker/slurmd.dockerfile).
_PYXIS = Source(
    url="https://github.com/NVIDIA/pyxis", version="0.24.0", commit="107519944221822ea1dace4db8e7234b2eaa4cd5"
)
_APPTAINER = Download(
    url="https://github.com/apptainer/apptainer/releases/download/v1.4.5/apptainer_1.4.5_amd64.deb",
    version="1.4.5",
    sha256="70f19af846501acfbc2e42e7cfeee9ee11ddbbfa1c3502d0d99cde34e8e0af05",
)
_LUSTRE = Source(
    url="https://github.com/lustre/lustre-release", version="2.15.8", commit="ee228420b7fa12f183bceb9864ff083cb07e8964"
)
_GVE = Source(
    url="https://github.com/GoogleCloudPlatform/compute-virtual-ethernet-linux",
    version="1.4.0",
    commit="4badbd39d531e8dbb0adcf44d5b0b05dc0d780bd",
)


# Source: Packages of jammy-updates (Ubuntu's archive) of 2026-11-20 09:03 UTC, and of 2026-11-27 01:14 UTC.
_KERNELS = {
    "5.15.0-1122-gcp": "linux-gcp_5.15.0-1122.132",
    "6.8.0-1074-gcp": "linux-gcp-6.8_6.8.0-1074.82~22.04.1",
}


def _jammy(
    lustre: str, *, kernel: str, source: str = "", client: Source | None = None, gve: Source | None = None
) -> Recipe:
    return Recipe(
        version=NEWEST,
        base="ubuntu-2204",
        lustre=lustre,
        image="projects/ubuntu-os-cloud/global/images/ubuntu-2204-jammy-v20260906",
        kernel=kernel,
        kernel_source=_KERNELS[kernel],
        kernel_day="2026-11-20",
        snapshot=SNAPSHOT,
        gve=gve,
        driver=R580,
        rxdm_driver=R580_RXDM,
        cuda="12.8.0",
        dcgm="1:4.5.2-1",
        dcgm_exporter="4.8.2-1",
        # NVIDIA's repository has the four packages in this version: public scripts install all four by it.
        container_toolkit="1.19.1-1",
        slurm=_SLURM,
        client=client,
        enroot=_ENROOT,
        pyxis=_PYXIS,
        apptainer=_APPTAINER,
        gcsfuse="3.11.2",
        source=f"jammy-updates of 2026-11-20 09:03 UTC (Ubuntu's archive) has {_KERNELS[kernel]} as its newest{source}",
    )


# Source: DDNStorage/exascaler-cloud-terraform and lustre/ChangeLog.
_EXASCALER = (
    "; EXAScaler 6.3's clients on Ubuntu 22.04 want a kernel from 5.15 to 6.2 (exascaler-cloud-terraform, tag "
    "scripts/2.2.2, gcp/README); Lustre 2.15.8 was tested with 5.15 of Ubuntu 22.04 (its lustre/ChangeLog)"
)
_OF_MANAGED = (
    "; modules for a kernel that Google's repository has none for: its package for DKMS (docs.cloud.google.com, "
    "managed-lustre/docs/dkms; cluster-toolkit, pull request 6168)"
)
_ROWS = (
    _jammy(
        "exascaler",
        kernel="5.15.0-1122-gcp",
        client=_LUSTRE,
        gve=_GVE,
        source=_EXASCALER,
    ),
    _jammy("managed", kernel="6.8.0-1074-gcp", source=_OF_MANAGED),
    _jammy("none", kernel="6.8.0-1074-gcp"),
    # NVIDIA's support for 535, the distribution's default, ended in June 2026.
    Recipe(
        version=NEWEST,
        base="ubuntu-2404",
        lustre="none",
        image="projects/ubuntu-os-cloud/global/images/ubuntu-2404-noble-amd64-v20260901",
        kernel_day="2026-09-01",
        snapshot=SNAPSHOT,
        driver=GpuDriver(branch="580", version="580", package="", cuda=13),
        cuda="distribution",
        apptainer=_APPTAINER,
        source="packages.ubuntu.com/noble: slurm-wlm, nvidia-driver-580-server, nvidia-cuda-toolkit",
    ),
)

RECIPES: dict[tuple[str, str, str], Recipe] = {(row.version, row.base, row.lustre): row for row in _ROWS}
"""Recipes by `image.recipe`, `image.base` and kind of Lustre. What is not here can't be made: no client and
kernel are known to match."""


def any_recipe(version: str, base: str) -> Recipe | None:
    """Return any row of this version and operating system, whose driver does not depend on Lustre; None without one."""
    return next((row for (of, system, _), row in RECIPES.items() if (of, system) == (version, base)), None)
