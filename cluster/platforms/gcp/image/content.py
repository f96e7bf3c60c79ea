"""What is in an image, as far as somebody chose it: the recipe's version and what the stack file asks for.

This decides whether machines get another image. The text of our own steps is not part of it: a newer program would
otherwise take every cluster down for a mended comment. What a version of the recipes contains does not change.
"""

import hashlib

from cluster.catalog.fabrics import FABRICS
from cluster.catalog.gpus import ACCELERATORS
from cluster.config.cluster import ClusterConfig
from cluster.platforms.gcp.fabric import fabrics
from cluster.platforms.gcp.filesystems.registry import lustre_client
from cluster.platforms.gcp.image.program import Step
from cluster.roster import nodeset_gpu, nodeset_type


def gpu_types(config: ClusterConfig) -> set[str]:
    return {gpu.type for section in config.nodesets.values() if (gpu := nodeset_gpu(config, section))}


def open_driver(config: ClusterConfig) -> bool:
    """Whether NVIDIA's open kernel modules support all GPUs that nodes have."""
    return all(ACCELERATORS[gpu].open_driver for gpu in gpu_types(config) if gpu in ACCELERATORS)


def local_ssds(config: ClusterConfig) -> bool:
    return any(nodeset_type(config, section).family.local_ssds for section in config.nodesets.values())


def packages(config: ClusterConfig) -> list[str]:
    """Packages that the stack asks for, `image.packages`: their order does not count."""
    return sorted(set(config.image.packages))


def parts(config: ClusterConfig) -> dict[str, str]:
    """Parts that only some stacks need in their image, by the part of the stack; empty where none does."""
    wanted = {fabric.key for fabric in fabrics(config)}
    return {
        "gpus": ("open" if open_driver(config) else "closed") if gpu_types(config) else "",
        **{fabric.key: "yes" if fabric.key in wanted else "" for fabric in FABRICS if fabric.key},
        "local_ssds": "yes" if local_ssds(config) else "",
        "gcsfuse": "yes" if config.storage.buckets else "",
    }


def content(config: ClusterConfig, snapshot: str, own: list[Step]) -> dict[str, str]:
    """All of it, by name: equal contents are one image, and a preview shows which of these another one comes from.

    `snapshot` is the date of Ubuntu's archive, `own` are the stack's own steps.
    """
    found = {
        "recipe": config.image.recipe,
        "base": config.image.base,
        "snapshot": snapshot,
        "size_gb": str(config.image.builder.size_gb),
        "lustre": lustre_client(config),
        "slurm": config.slurm_version,
        "packages": " ".join(packages(config)),
        **parts(config),
        **{step.name: hashlib.sha256(step.text.encode()).hexdigest()[:16] for step in own},
    }
    return {name: value for name, value in found.items() if value}
