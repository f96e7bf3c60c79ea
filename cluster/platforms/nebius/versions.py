"""Versions of Kubernetes, of NVIDIA's drivers, and of Soperator with the facts of its series.

Which versions of Kubernetes and which drivers there are, `up` asks Nebius (components/nebius/preflight). Facts of
Soperator are those of its tags 4.1.4 to 4.1.7 (github.com/nebius/soperator), each with its file.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.findings import Level

KUBERNETES = "1.36"
"""The version of the recipe (nebius-solutions-library 00c54d0, soperator/installations/example/terraform.tfvars)."""
DRIVERS_PRESET = "cuda13.0"
"""The newest preset of NVIDIA's drivers, and the only one on Kubernetes 1.35 and 1.36 (nebius-solutions-library,
soperator/installations/example/driver_presets.tf)."""
_CUDA = {"cuda12": "12.9.0", "cuda13": "13.0.2"}
"""Versions of CUDA that Soperator has images of jails and checks for (activeCheckImageTags of
helm-soperator-activechecks, 4.1.0 to 4.1.7), by the first part of a preset of drivers."""


def cuda_of(preset: str) -> str:
    """Return the version of CUDA of Soperator's images for a preset of drivers."""
    return _CUDA.get(preset.partition(".")[0], _CUDA["cuda13"])


Number = tuple[int, int, int]

SOPERATOR = "4.1.11"
"""The newest release that a source names: the recipe's (nebius-solutions-library 00c54d0, autumn of 2026,
soperator/installations/example/terraform.tfvars)."""
FIRST, READ, END = (4, 1, 4), (4, 1, 7), (4, 2, 0)
"""The oldest accepted version, the newest one whose charts and source were read, and the first one that is refused.

FIRST is the first of its series whose workers do not damage GPU libraries in the jail when they start together
(nebius/soperator, pull request 2703). That patches after READ have the same keys of charts, Slurm, names and checks is
assumed: the public snapshot of the repository, c238d993 of 2026-08-21, has no tags of 4.1.8 to 4.1.11. `up` stops
before it creates anything if a chart is missing."""
SLURM, SLURM_RELEASE = "25.11.3", "25.11"
"""Version and release of Slurm in the images (SLURM_VERSION of the Makefile)."""
CERT_MANAGER = "v1.19.6"
"""Version of cert-manager (helm/soperator-fluxcd/values.yaml): the newest patch."""
CLUSTER_NAME = "soperator"
"""The only name that a cluster can have: a template of helm-soperator-activechecks has this namespace in place of the
cluster's own, and can't be installed without it (run-extensive-check-on-reservations.yaml)."""
SCRIPTS = "slurm-scripts"
"""ConfigMap of helm-slurm-cluster with Slurm's prolog and epilog."""
GPU_CHECKS = (
    "all-reduce-perf-nccl-in-docker",
    "all-reduce-perf-nccl-with-ib",
    "all-reduce-perf-nccl-without-ib",
    "cuda-samples",
    "gpu-fryer",
    "ib-gpu-perf",
    "mem-perf",
)
"""Active checks of minutes, which each worker with GPUs runs alone (helm-soperator-activechecks). They fail without
GPUs."""
LONG_CHECKS = ("dcgmi-diag-r2", "dcgmi-diag-r3")
"""The active checks of half an hour and more."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A known fault of Soperator. All accepted versions before the correction have it, as far as they were read."""

    pull: int
    """The pull request of nebius/soperator that corrects it."""
    corrected: Number = END
    """The first version without the fault (`git tag --contains` of the merge commit)."""
    clusters: str = "all"
    """The clusters that it affects, a key of checks.AFFECTED."""
    effect: str
    todo: str
    level: Level = Level.INFO


FAULTS: Sequence[Fault] = (
    Fault(
        pull=2807,
        corrected=READ,
        effect="a node may be undrained before its machine was recreated: jobs start on a dead node (node-undrained)",
        todo=f"write {SOPERATOR}",
        level=Level.WARNING,
    ),
    # The corrections of these are in no tag up to READ.
    Fault(
        pull=2623,
        clusters="fabric",
        effect="slurmctld ends at its start if names of InfiniBand switches end in more than 18 digits",
        todo="nothing; if `status` shows known-problem-9, write slurm.topology: none",
    ),
    Fault(
        pull=2683,
        clusters="mixed",
        effect="checks of GPUs are sent to nodes without GPUs too, where they fail, and one that fails on a GPU may be "
        "overlooked",
        todo="compare `./hpc health STACK` with the job of the check that it names",
    ),
    Fault(
        pull=2859,
        clusters="elastic",
        effect="the pod of a node that does not come within 30 minutes goes on to wait for a machine, which joins and "
        "is paid for until it is idle; in Slurm the node is down, and its jobs are requeued",
        todo="nothing where Nebius has room; otherwise name a capacity block as the nodeset's `capacity`",
        level=Level.WARNING,
    ),
    Fault(
        pull=2820,
        effect="nodes of one job import a container image one after the other",
        todo="import a large image before, with ./hpc warm-up STACK --image IMAGE",
    ),
)
"""2683 has a copy for the series, pull request 2997 of 2026-09-17, whose patch is not known."""


def parse(version: str) -> Number:
    """Parse a version into its three numbers."""
    major, minor, patch = map(int, version.split("."))
    return major, minor, patch


def image_tag(version: str) -> str:
    """Return the tag of a version's images."""
    return f"{version}-slurm{SLURM}"
