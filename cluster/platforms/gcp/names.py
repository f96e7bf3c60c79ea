"""Names and labels of what a stack makes on Google Cloud."""

from collections.abc import Mapping

from cluster.config.cluster import ClusterConfig
from cluster.platforms.gcp.section import GoogleCloud

LONGEST = 63
"""Characters of a name (RFC 1035) or of a label's value."""

ACCOUNTS: Mapping[str, str] = {
    "controller": "ctl",
    "login": "login",
    "node": "node",
    "builder": "bake",
    "lustre": "lustre",
}
"""Ending of each role's service account: its id may have 30 characters, and a cluster's name has 20 of them."""


def place(config: ClusterConfig) -> GoogleCloud:
    """Project, zone and region: every stack of the platform gcp was parsed with them."""
    section = config.section(GoogleCloud)
    if section is None:
        raise TypeError(f"the cluster {config.name} is not one on Google Cloud")
    return section


def labels(config: ClusterConfig, part: str) -> dict[str, str]:
    """Labels of everything that takes some, by which bills and consoles separate clusters and their parts.

    `part` is controller, login, node, lustre, storage, image or network.
    """
    return {"hpc-cluster": config.name, "hpc-part": part, "managed-by": "pulumi"}


def account_id(config: ClusterConfig, role: str) -> str:
    """Id of a role's service account, 6 to 30 characters."""
    return f"{config.name}-{ACCOUNTS[role]}".ljust(6, "0")
