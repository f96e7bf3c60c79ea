"""The rxdm prolog and the nodes that need it: GPUs whose network is TCPXO."""

from collections.abc import Iterator

from cluster.catalog import MACHINE_TYPES
from cluster.catalog.prologs import RXDM_VERSIONS, branch, fitting
from cluster.config.cluster import ClusterConfig
from cluster.findings import Finding, Level, listing
from cluster.platforms.gcp.image.rxdm import of_driver, row_of
from cluster.roster import nodeset_type

_TCPXO = tuple(one.name for one in MACHINE_TYPES.values() if one.family.fabric.rxdm)
_TIMERS = {"prolog_epilog": "Slurm ends the prolog and drains the node", "batch_start": "Slurm requeues the batch job"}
_SECONDS = 600
"""What the configuration that Google ships with rxdm gives both: etc/long-prolog-slurm.conf.tpl of slurm-gcp."""


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    """Partitions of other machines, where the prolog does nothing, which fails jobs on two or more nodes."""
    for at, name in enumerate(config.slurm.rxdm.partitions if config.slurm.rxdm else ()):
        nodesets = config.partitions[name].nodesets if name in config.partitions else ()
        given = {
            nodeset: nodeset_type(config, config.nodesets[nodeset])
            for nodeset in nodesets
            if nodeset in config.nodesets
        }
        if others := {one: kind.name for one, kind in given.items() if not kind.family.fabric.rxdm}:
            yield Finding(
                id="rxdm-nodes",
                at=("slurm", "rxdm", "partitions", at),
                given=f"{name}, with " + listing(f"{one} of {kind}" for one, kind in others.items()),
                allowed=f"partitions of {listing(_TCPXO)} alone",
                todo="give the other nodesets a partition of their own",
            )


def find_warnings(config: ClusterConfig) -> Iterator[Finding]:
    """Partitions that would do without rxdm, and timers that are too short for its first prolog."""
    runs = config.slurm.rxdm.partitions if config.slurm.rxdm else ()
    for name, partition in config.partitions.items():
        kinds = {nodeset: nodeset_type(config, config.nodesets[nodeset]) for nodeset in partition.nodesets}
        mega = [one for one, kind in kinds.items() if kind.family.fabric.rxdm]
        if mega and name not in runs:
            yield Finding(
                id="rxdm-partition-missing",
                level=Level.WARNING,
                at=("slurm", "rxdm"),
                what=f"jobs of partition {name} use plain TCP between the A3 Mega nodes of {listing(mega)}, at a "
                "fraction of their bandwidth",
                todo=f"add {name} to slurm.rxdm.partitions",
            )
    for key, then in _TIMERS.items() if runs else ():
        if (seconds := getattr(config.slurm.timers, key)) < _SECONDS:
            yield Finding(
                id="rxdm-timers",
                level=Level.WARNING,
                at=("slurm", "timers", key),
                what=f"the first prolog on a node pulls containers of several GB; after {seconds} s {then}",
                todo=f"write {_SECONDS}",
            )
    yield from _driver_warnings(config)


def _driver_warnings(config: ClusterConfig) -> Iterator[Finding]:
    """A version that Google has neither qualified with the recipe's driver nor run with its branch.

    Nothing is said of a file of one's own, or of an unknown version.
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
        id="rxdm-driver",
        level=Level.WARNING,
        at=("slurm", "rxdm"),
        what=f"plugin {version.plugin} and rxdm {version.rxdm} were qualified {known}, and recipe {row.version} has "
        f"{driver}: jobs may fail on the GPUs' devices, after all images were pulled",
        todo=f"remove url and sha256 for the version of {fitting(driver).date}, which goes with that driver",
    )
