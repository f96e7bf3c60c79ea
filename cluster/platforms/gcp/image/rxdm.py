"""Which version of the rxdm prolog goes with the driver that the nodes have."""

from cluster.catalog.prologs import NEWEST, RxdmVersion, fitting
from cluster.catalog.recipes import RECIPES, Recipe
from cluster.config.cluster import ClusterConfig


def of_driver(config: ClusterConfig) -> RxdmVersion:
    """The version that `slurm.rxdm` stages by default: the newest if no recipe says which driver."""
    row = row_of(config)
    return fitting(row.driver.version) if row else NEWEST


def row_of(config: ClusterConfig) -> Recipe | None:
    """Any row of the version and system: their drivers are the same, whatever Lustre."""
    wanted = (config.image.recipe, config.image.base)
    return next((row for (version, base, _), row in RECIPES.items() if (version, base) == wanted), None)
