"""What an image on Google Cloud is made of: kernel, driver, Slurm and Lustre client that belong together.

A kernel module fits one kernel. So these are not chosen one by one: a recipe is a row, and everything in it is pinned,
by an exact version of a signed repository, by a commit (whose hash is of its content) or by a SHA-256.
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
class Driver:
    """NVIDIA's driver and what must be of the same version."""

    branch: str
    version: str
    package: str
    """Version of its packages, exactly; empty where the distribution's newest of the branch is taken."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One image, of an operating system and for one kind of Lustre."""

    base: str
    """`image.base`."""
    lustre: str
    """Kind of Lustre that it can mount: exascaler, managed or none."""
    image: str
    """Public image that it is made from, or that machines run where nothing is baked: a name, never a family."""
    kernel: str = ""
    """The one kernel it has, as `uname -r` says it; empty: the public image's own."""
    gve: Source | None = None
    """Network driver, where the kernel's own is too old for gVNIC with large frames."""
    driver: Driver
    cuda: str
    """Version of the CUDA toolkit; `distribution` is the distribution's own."""
    dcgm: str = ""
    """Version of DCGM's packages; empty: none."""
    container_toolkit: str = ""
    slurm: Mapping[str, Source] = field(default_factory=dict)
    """For each release that can be built, its source; empty: the distribution's packages."""
    client: Source | None = None
    """The Lustre client; none: the packages of Google's repository that are for the kernel, or no Lustre."""
    enroot: Source | None = None
    pyxis: Source | None = None
    apptainer: Download | None = None
    gcsfuse: str = ""
    """Version of GCS FUSE."""
    source: str


_JAMMY = "projects/ubuntu-os-cloud/global/images/ubuntu-2204-jammy-v20250128"
_NOBLE = "projects/ubuntu-os-cloud/global/images/ubuntu-2404-noble-amd64-v20251205"
_R570 = Driver(branch="570", version="570.133.20", package="570.133.20-0ubuntu1")
_SLURM = {
    "25.05": Source(
        url="https://github.com/SchedMD/slurm",
        version="25.05.8",
        commit="90ff1dd4058b3ec2df25306a3917650efa59537f",
    ),
    "24.11": Source(
        url="https://github.com/SchedMD/slurm",
        version="24.11.7",
        commit="defaf214db2e55326f45ab08f1bde5b2036d9f5d",
    ),
}
_ENROOT = Source(
    url="https://github.com/NVIDIA/enroot", version="3.5.0", commit="c7dc4a6b66e817af5ceb7d5315850696067b3f80"
)
# 0.21 cleans containers up where Slurm 25.05 wants it done; 0.20 leaves them behind there.
_PYXIS = Source(
    url="https://github.com/NVIDIA/pyxis", version="0.21.0", commit="c908f63181e78d6b71a30d71f816009a8709c917"
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


def _jammy(lustre: str, *, kernel: str, source: str, client: Source | None = None, gve: Source | None = None) -> Recipe:
    return Recipe(
        base="ubuntu-2204",
        lustre=lustre,
        image=_JAMMY,
        kernel=kernel,
        gve=gve,
        driver=_R570,
        cuda="12.8.0",
        dcgm="1:4.5.2-1",
        container_toolkit="1.17.8-1",
        slurm=_SLURM,
        client=client,
        enroot=_ENROOT,
        pyxis=_PYXIS,
        apptainer=_APPTAINER,
        gcsfuse="3.11.2",
        source=source,
    )


_ROWS = (
    _jammy(
        "exascaler",
        kernel="5.15.0-1077-gcp",
        client=_LUSTRE,
        gve=_GVE,
        source="EXAScaler 6.3's clients on Ubuntu 22.04 want a kernel from 5.15 to 6.2 (exascaler-cloud-terraform, tag "
        "scripts/2.2.2, gcp/README); Lustre 2.15.8 was tested with 5.15 of Ubuntu 22.04 (its lustre/ChangeLog)",
    ),
    _jammy(
        "managed",
        kernel="6.8.0-1021-gcp",
        source="the kernel of this image, for which Google's repository has the client's modules (cluster-toolkit, "
        "pull request 3937 and examples/pfs-managed-lustre-vm.yaml)",
    ),
    _jammy("none", kernel="6.8.0-1021-gcp", source="as for managed: the kernel that this image has"),
    Recipe(
        base="ubuntu-2404",
        lustre="none",
        image=_NOBLE,
        driver=Driver(branch="535", version="535", package=""),
        cuda="distribution",
        apptainer=_APPTAINER,
        source="packages.ubuntu.com/noble: slurm-wlm, nvidia-driver-535-server, nvidia-cuda-toolkit",
    ),
)

RECIPES: dict[tuple[str, str], Recipe] = {(row.base, row.lustre): row for row in _ROWS}
"""Recipes by `image.base` and kind of Lustre. What is not here can't be made: nobody has matched client and kernel."""
