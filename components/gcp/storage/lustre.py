"""A Lustre file system, whoever runs its servers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pulumi

from cluster.config import ClusterConfig
from cluster.config.lustre import Lustre
from cluster.platforms.gcp.filesystems.bandwidth import expected
from components.gcp.network.network import Network


class LustreFileSystem(Protocol):
    """What machines and people need to know of it."""

    source: pulumi.Output[str]
    """What is mounted: ADDRESS@tcp:/FSNAME."""
    address: pulumi.Output[str]
    """Address of its management server."""
    facts: Mapping[str, Any]
    """What the stack's outputs say of it."""
    ready: list[pulumi.Resource]
    """What machines that mount it depend on."""


@dataclass(frozen=True, kw_only=True)
class LustreArgs:
    """What to make, and where."""

    config: ClusterConfig
    lustre: Lustre
    network: Network


def facts(lustre: Lustre, address: pulumi.Output[str], source: pulumi.Output[str]) -> dict[str, Any]:
    """What the stack's outputs say of a file system: where it is, how large, and how fast it can be at best."""
    figures = expected(lustre)
    return {
        "kind": lustre.kind,
        "fsname": lustre.fsname,
        "mount": lustre.mount,
        "source": source,
        "server_ip": address,
        "capacity_gib": figures.capacity_gib,
        "bandwidth_mbps": {"read": figures.read_mbps, "write": figures.write_mbps},
    }
