"""The rxdm prolog beside the driver of the recipe, where nobody has seen the two together."""

from collections.abc import Iterator

from cluster.catalog.prologs import RXDM_VERSIONS, branch, fitting
from cluster.config.cluster import ClusterConfig
from cluster.findings import Finding, Level, listing
from cluster.platforms.gcp.image.rxdm import of_driver, row_of


def find_warnings(config: ClusterConfig) -> Iterator[Finding]:
    """A version of the prolog that Google has neither qualified with the recipe's driver nor run with its branch.

    What is not known here, a file of one's own for one, is not judged.
    """
    rxdm, row = config.slurm.rxdm, row_of(config)
    if rxdm is None or rxdm.file or row is None:
        return
    version = RXDM_VERSIONS.get(rxdm.sha256) if rxdm.sha256 else of_driver(config)
    driver = row.driver.version
    if version is None or driver in version.drivers or branch(driver) in version.branches:
        return
    known = f"with driver {listing(version.drivers)}" if version.drivers else "with no driver that is known here"
    yield Finding(
        id="rxdm-driver", level=Level.WARNING, at=("slurm", "rxdm"),
        what=f"plugin {version.plugin} and rxdm {version.rxdm} were qualified {known}, and recipe {row.version} has "
        f"{driver}: jobs may fail on the GPUs' devices, after all images were pulled",
        todo=f"remove url and sha256 for the version of {fitting(driver).date}, which goes with that driver",
    )  # fmt: skip
