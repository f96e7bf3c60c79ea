"""Releases that follow from the configuration, before values of the stack file are laid over them."""

from cluster.platforms.nebius.releases import gen1, gen2, gen3
from cluster.platforms.nebius.releases.backups import backups
from cluster.platforms.nebius.releases.inputs import Inputs
from cluster.platforms.nebius.releases.release import Release

_GENERATIONS = {1: gen1.releases, 2: gen2.releases, 3: gen3.releases}


def configured_releases(inputs: Inputs) -> tuple[Release, ...]:
    """The releases of a cluster, each after those that it needs."""
    return (*_GENERATIONS[inputs.generation](inputs), *backups(inputs))
