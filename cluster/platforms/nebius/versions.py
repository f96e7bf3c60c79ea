"""Versions of Kubernetes that Nebius creates clusters of, with NVIDIA's drivers of their node images, and of Soperator.

Kubernetes: a dated copy for previews; `up` asks Nebius itself before it creates anything (components/nebius/preflight).
Soperator: tags of github.com/nebius/soperator. SLURM_VERSION and IMAGE_VERSION of the Makefile give Slurm's release and
the images' suffix; `git tag --contains` of the merge commit gives the first version without a fault.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

LOOKED = "2026-09-23"
"""Date of the answer of ListControlPlaneVersions (nebius/api, mk8s/v1/cluster_service.proto). Driver presets:
nebius-solutions-library, soperator/installations/example/driver_presets.tf."""
KUBERNETES = "1.36"
"""The version of the recipe (nebius-solutions-library 00c54d0, soperator/installations/example/terraform.tfvars)."""
NEWEST_PRESET = "cuda13.0"


@dataclass(frozen=True, kw_only=True)
class KubernetesVersion:
    """A minor version of Kubernetes."""

    name: str
    deprecated: bool = False
    """True if Nebius creates no new clusters of it; existing ones stay."""
    end_of_life: str = ""
    """Date from which Nebius upgrades clusters of it by itself; empty if it is not known."""
    drivers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Presets of drivers, by platform; empty if they are not known."""


_HOPPER = ("gpu-l40s-a", "gpu-l40s-d", "gpu-h100-sxm", "gpu-h200-sxm")
_B200 = ("gpu-b200-sxm", "gpu-b200-sxm-a")
_NEWEST = ("gpu-b300-sxm", "gpu-rtx6000")
_ONLY_13: Mapping[str, tuple[str, ...]] = dict.fromkeys((*_HOPPER, *_B200, *_NEWEST), (NEWEST_PRESET,))

_KUBERNETES_ROWS = (
    KubernetesVersion(
        name="1.30",
        drivers=dict.fromkeys((*_HOPPER, "gpu-b200-sxm"), ("cuda12",)),
    ),
    KubernetesVersion(
        name="1.31",
        deprecated=True,
        end_of_life="2026-09-01",
        drivers={
            **dict.fromkeys(_HOPPER, ("cuda12", "cuda12.4", "cuda12.8")),
            "gpu-b200-sxm": ("cuda12", "cuda12.8"),
            "gpu-b200-sxm-a": ("cuda12.8",),
        },
    ),
    KubernetesVersion(
        name="1.32",
        drivers={**_ONLY_13, **dict.fromkeys((*_HOPPER, *_B200), ("cuda12", "cuda12.8", NEWEST_PRESET))},
    ),
    KubernetesVersion(name="1.33", drivers={**_ONLY_13, "gpu-b200-sxm-a": ("cuda12.8", NEWEST_PRESET)}),
    KubernetesVersion(name="1.34"),
    KubernetesVersion(name="1.35", drivers=_ONLY_13),
    KubernetesVersion(name="1.36", drivers=_ONLY_13),
)

KUBERNETES_VERSIONS: Mapping[str, KubernetesVersion] = {row.name: row for row in _KUBERNETES_ROWS}
"""Oldest first."""
PRESETS = ("cuda12", "cuda12.4", "cuda12.8", NEWEST_PRESET)
"""The known presets of drivers; Nebius adds others."""
_CUDA = ("12.9.0", "13.0.2")
"""Versions of CUDA that Soperator has images of jails and checks for (activeCheckImageTags of
helm-soperator-activechecks, 4.1.0 to 4.1.7)."""
_CUDA_13_DRIVER = 580
"""The first release of NVIDIA's driver that runs programs of CUDA 13 (docs.nvidia.com/cuda/cuda-toolkit-release-notes,
table 3)."""


def cuda_of(driver: str) -> str:
    """Return the version of CUDA of Soperator's images for a preset of drivers, or a release of NVIDIA's driver."""
    major = driver.partition(".")[0]
    older = major == "cuda12" or (major.isdecimal() and int(major) < _CUDA_13_DRIVER)
    return _CUDA[0] if older else _CUDA[1]


Number = tuple[int, int, int]

SOPERATOR = "4.1.11"
"""The newest release that a source names: the recipe's (nebius-solutions-library 00c54d0, autumn of 2026,
soperator/installations/example/terraform.tfvars)."""
FIRST = (4, 1, 4)
"""The oldest accepted version: the first of its series whose workers do not damage GPU libraries in the jail when they
start together (nebius/soperator, pull request 2703). This program follows the newest series and the next."""


RESUME_FAILS = (5, 0, 0)
"""The first version with a ResumeFailProgram, which ends the pod of an elastic node that came too late
(nebius/soperator, pull request 2859)."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """Versions of Soperator from one on up to the next series, with all differences that matter to this program."""

    first: Number
    slurm: str
    """Version of Slurm in its images."""
    cert_manager: str
    """Version of cert-manager of its own installation (helm/soperator-fluxcd/values.yaml): the newest patch."""
    sentinel: str
    """The file in the jail that marks it as populated: the Job writes it last (SENTINEL in
    images/jail/populate_jail_entrypoint.sh, less the mount point /mnt/jail)."""
    cluster_name: str = ""
    """The only name that a cluster can have; empty if it can have any."""
    scripts: str = "${cluster}-slurm-scripts"
    """ConfigMap of helm-slurm-cluster with Slurm's prolog and epilog."""
    gpu_checks: tuple[str, ...]
    """Active checks of minutes, which each worker with GPUs runs alone. They would fail without GPUs."""
    long_checks: tuple[str, ...]
    """The active checks of half an hour and more."""
    long_checks_enabled: bool = True
    """True if the chart's own values have them enabled."""
    prepull: str = ""
    """The check that pulls the image of other checks; empty if there is none."""
    counts_logins: str = ""
    """The check with the number of login nodes as an argument; empty if there is none."""

    @property
    def release(self) -> str:
        """Slurm's release, such as 25.11."""
        return ".".join(self.slurm.split("-")[0].split(".")[:2])


SERIES = (
    Series(
        first=FIRST,
        slurm="25.11.3",
        cert_manager="v1.19.6",
        sentinel="/.populated",  # 4.1.4 to 4.1.7, and the branch soperator-release-4.1 at 9487997c
        # A template of helm-soperator-activechecks has this namespace in place of the cluster's own, and can't be
        # installed without it: run-extensive-check-on-reservations.yaml, gone with commit 3f384ffd.
        cluster_name="soperator",
        scripts="slurm-scripts",
        gpu_checks=(
            "all-reduce-perf-nccl-in-docker",
            "all-reduce-perf-nccl-with-ib",
            "all-reduce-perf-nccl-without-ib",
            "cuda-samples",
            "gpu-fryer",
            "ib-gpu-perf",
            "mem-perf",
        ),
        long_checks=("dcgmi-diag-r2", "dcgmi-diag-r3"),
        prepull="prepull-container-image",
        counts_logins="ssh-check",
    ),
    Series(
        first=(5, 0, 0),
        slurm="26.05.3-nebius-2",
        cert_manager="v1.20.3",
        sentinel="/etc/soperator-jail-populated",
        gpu_checks=("gpu-checks",),
        long_checks=("dcgmi-diag-r3",),
        long_checks_enabled=False,
    ),
)
"""Oldest first. 5.0 is as of commit c238d993: it has no tag yet."""

KNOWN = ((4, 1),)
"""Major and minor numbers of the releases whose charts were read at their tags."""
READ: Number = (4, 1, 7)
"""The newest release whose charts and source were read (nebius/soperator at its tag, 2026-07-30). That later patches
have the same keys of charts, Slurm, names and checks is assumed: the public snapshot of the repository,
c238d993 of 2026-08-21, has no tags of 4.1.8 to 4.1.11. `up` stops before it creates anything if a chart is missing."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A known fault of Soperator. All accepted versions before the correction have it, as far as they were read."""

    corrected: Number
    """The first version without the fault (`git tag --contains` of the merge commit)."""
    pull: int
    """The pull request of nebius/soperator that corrects it."""
    effect: str


FAULTS: Sequence[Fault] = (
    Fault(
        corrected=(4, 1, 7),
        pull=2807,
        effect="a node may be undrained before its machine was recreated: jobs start on a dead node (node-undrained)",
    ),
    # These are on the branch of 5.0 at c238d993, and in no tag up to READ.
    Fault(
        corrected=(5, 0, 0),
        pull=2623,
        effect="slurmctld ends at its start if names of InfiniBand switches end in more than 18 digits",
    ),
    Fault(
        corrected=(5, 0, 0),
        pull=2820,
        effect="nodes of one job import a container image one after the other",
    ),
)


def parse(version: str) -> Number:
    """Parse a version into its three numbers."""
    major, minor, patch = map(int, version.split("."))
    return major, minor, patch


def series(version: str) -> Series:
    """Return the series of a version; the first series for older versions."""
    number = parse(version)
    return next((row for row in reversed(SERIES) if row.first <= number), SERIES[0])


def image_tag(version: str) -> str:
    """Return the tag of a version's images."""
    return f"{version}-slurm{series(version).slurm}"


def is_known(version: str) -> bool:
    """Return whether a version is a known release, or a later patch of one."""
    return parse(version)[:2] in KNOWN


def was_read(version: str) -> bool:
    """Return whether the charts and the source of a version were read; of later patches they are assumed."""
    return parse(version) <= READ


def faults(version: str) -> list[Fault]:
    """Return the known faults of a version. One that was not read may have those of the newest one that was."""
    return [fault for fault in FAULTS if parse(version) < fault.corrected]
