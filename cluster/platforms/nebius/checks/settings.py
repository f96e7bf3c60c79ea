"""Fields of every platform that mean nothing here."""

from collections.abc import Iterator

from cluster.config.cluster import ClusterConfig
from cluster.findings import Finding, Level, Location
from cluster.platforms.nebius.section import CIDR, Nebius

_FIXED = ("realmemory",)
"""Parameters of a NodeName line, in lower case, that Soperator writes itself: from the resources of slurmd."""
FIRST_FREE_UID = 1010
"""Users of the image and of Soperator's checks have lower numbers (adduser gives the first free one)."""


def find_errors(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    if config.network.cidr != CIDR:
        yield _unused(("network", "cidr"), config.network.cidr, "nodes have addresses of nebius.subnet")
    if config.host_names != "pods":
        yield Finding(
            id="nebius-host-names",
            at=("host_names",),
            given=config.host_names,
            allowed="pods: Soperator names the pods",
            todo="remove it",
        )
    if settings.login.service == "NodePort" and settings.login.exposure == "internal":
        yield Finding(
            id="nebius-login-exposure",
            at=("nebius", "login", "exposure"),
            given="internal, with service NodePort",
            allowed="public with NodePort, whose nodes have public addresses; internal with LoadBalancer",
            todo="write service: LoadBalancer, or remove exposure",
        )
    for name, section in config.nodesets.items():
        for key, value in section.node_conf.items():
            if key.lower() in _FIXED:
                yield _unused(("nodesets", name, "node_conf", key), str(value), "it follows from the machine type")
    if config.slurm.mpi_default == "none":
        # Left out, which is what it means elsewhere, Soperator's own value would hold.
        yield _unused(("slurm", "mpi_default"), "none", "Soperator's slurm.conf has pmix, and another one can be named")


def find_warnings(config: ClusterConfig) -> Iterator[Finding]:
    for position, user in enumerate(config.users):
        if user.uid < FIRST_FREE_UID:
            yield Finding(
                id="nebius-user-uid",
                level=Level.WARNING,
                at=("users", position, "uid"),
                what=f"{user.uid} may be taken: Soperator creates users for its checks with the first free numbers "
                "from 1000 on",
                todo=f"write {FIRST_FREE_UID} or more, unless there are files of that number",
            )


def _unused(at: Location, given: str, why: str) -> Finding:
    return Finding(
        id="nebius-unused",
        at=at,
        given=given,
        allowed=f"nothing on Nebius: {why}",
        todo="remove it",
    )
