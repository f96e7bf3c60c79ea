"""Programs that the image has for jobs."""

from collections.abc import Collection

from cluster.config.cluster import ClusterConfig
from cluster.platforms.base import packaged
from cluster.platforms.gcp.image.recipe import recipe


def job_programs(config: ClusterConfig) -> Collection[str]:
    """Those of the recipe, and those that the stack file asks for. An image that is named has what its recipe says."""
    row = recipe(config)
    found = {"pyxis": row.enroot and row.pyxis, "apptainer": row.apptainer, "mpi": row.slurm}
    return {name for name, there in found.items() if there} | set(packaged(config))
