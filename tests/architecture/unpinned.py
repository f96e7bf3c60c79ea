"""Content from the network that is used without a digest of its own: a name, a version or a tag can get other content.

No source of these digests could be opened on 2026-11-28: no public copy has the registry of Soperator's charts, or the
index of charts.jetstack.io. docs/explanation/security.md has the same rows.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Unpinned:
    """Something that is fetched by a name."""

    name: str
    by: str
    """What it is fetched by."""
    todo: str
    """What a site can do."""
    files: tuple[str, ...]
    """Files of this project that name it."""


UNPINNED: tuple[Unpinned, ...] = (
    Unpinned(
        name="the Pulumi CLI of `./hpc install-pulumi`, and the plugins that it installs",
        by="the installer https://get.pulumi.com/install.sh of the day, and versions, over TLS",
        todo="put a `pulumi` that you have checked on PATH, and plugins by `pulumi plugin install --checksum`",
        files=("cli/stack/pulumi_program.py",),
    ),
    Unpinned(
        name="rxdm's two container images, which the prolog of A3 Mega names",
        by="a tag of Google's registry; the prolog itself has a SHA-256",
        todo="copy the images to a registry of your own, and name a prolog of your own that has their digests",
        files=("cluster/catalog/prologs.py",),
    ),
    Unpinned(
        name="Helm charts of Soperator, and the one of cert-manager",
        by="a version of a registry, and of a repository",
        todo="set `nebius.soperator.charts` to a folder with charts that you have checked",
        files=("cluster/platforms/nebius/releases.py",),
    ),
    Unpinned(
        name="container images of all charts on Nebius",
        by="the tags in the charts' values",
        todo="set `nebius.soperator.charts` to a registry of your own, and images in `nebius.values`",
        files=("cluster/platforms/nebius/releases.py",),
    ),
    Unpinned(
        name="`nvcr.io/nvidia/pytorch:24.04-py3` of NCCL tests, images of the quick check and of `slurm.warm_up`",
        by="a tag",
        todo="import the image once and check it: an existing file is not fetched again",
        files=(
            "cluster/catalog/nccl.py",
            "scripts/jobs/nccl/import-pyxis.sh",
            "scripts/jobs/quickcheck/container.py",
            "scripts/jobs/quickcheck/driver.py",
            "scripts/node/jobs/warm_up.sh",
        ),
    ),
    Unpinned(
        name="MLPerf's data sets, checkpoints and container image",
        by="folders of a public bucket, the scripts of the pinned commit, and a tag",
        todo="copy them once, check them, and name your copy with `--source`, `--checkpoint` and `--image`",
        files=("cluster/catalog/mlperf.py", "scripts/jobs/mlperf/image.sh", "scripts/jobs/mlperf/published.sh"),
    ),
    Unpinned(
        name="examples' images and Python packages (`ubuntu:24.04`, numpy, torch)",
        by="a tag, and the newest version; a user runs them as itself",
        todo="edit the copies in your home",
        files=(
            "scripts/jobs/examples/README-containers.txt",
            "scripts/jobs/examples/apptainer.sh",
            "scripts/jobs/examples/pytorch-container.sh",
            "scripts/jobs/examples/programs/apptainer.def",
            "scripts/jobs/examples/python.sh",
            "scripts/node/system/containers.py",
        ),
    ),
)
VERIFIED = {
    "cluster/catalog/recipes.py": "commits, which git checks, and a SHA-256",
    "scripts/image/library.sh": "a SHA-256, a commit, or a repository whose key has a known fingerprint",
    "scripts/image/finish/94-start.sh": "Ubuntu's archive, signed with its own key",
    "scripts/image/gpu/26-dmabuf.sh": "a repository whose key has a known fingerprint",
    "scripts/image/gpu/27-gib.sh": "a repository whose key has a known fingerprint",
    "scripts/image/storage/41-lustre-managed.sh": "a repository whose key has a known fingerprint",
    "scripts/jobs/mlperf/gpt3-code.sh": "a SHA-256",
    "scripts/jobs/mlperf/code.sh": "a commit, which git checks",
    "scripts/jobs/nccl/build.sh": "a commit, which git checks",
    "cli/bootstrap.py": "hashes of requirements*.txt",
}
"""Files that fetch something else, and what checks it."""
