"""Errors and warnings of stacks on Google Cloud, by all its checks."""

from collections.abc import Iterator

from cluster.config.cluster import ClusterConfig
from cluster.findings import Finding
from cluster.platforms.gcp.checks import capacity, customize, disks, image, location, network, rxdm, storage


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    for rules in (network, storage, image, disks, capacity, rxdm, customize):
        yield from rules.find_errors(config)


def find_warnings(config: ClusterConfig) -> Iterator[Finding]:
    for rules in (location, image, capacity, rxdm, storage):
        yield from rules.find_warnings(config)
