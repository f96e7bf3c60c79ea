"""Fields of every platform that mean nothing here, and settings that only newer charts can pass on to Slurm."""

from collections.abc import Iterator
from typing import Any

from cluster.catalog.nebius.soperator import DEFAULT, parse
from cluster.config.cluster import ClusterConfig
from cluster.config.metadata import slurm_fields
from cluster.config.section import Section
from cluster.findings import Finding, Level, Location
from cluster.platforms.nebius.defaults import CIDR
from cluster.platforms.nebius.releases.keys import allowed
from cluster.platforms.nebius.section import Nebius

CUSTOM_CONFIG = (1, 23, 0)
"""The first version whose chart has `customSlurmConfig`: text that Soperator's slurm.conf includes at its end."""
_FIXED = ("realmemory",)
"""Parameters of a NodeName line, in lower case, that Soperator writes itself: from the resources of slurmd."""
FIRST_FREE_UID = 1010
"""Users of the image and of Soperator's checks have lower numbers (adduser gives the first free one)."""
_OWN = ("scrontab", "slurmrestd")
"""Settings without which Soperator runs no cluster: they are always on."""


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
    if parse(settings.soperator.version) < CUSTOM_CONFIG:
        yield from _not_passed_on(config, settings)
    elif config.slurm.mpi_default == "none":
        # Left out, which is what it means elsewhere, Soperator's own value would hold.
        yield _unused(("slurm", "mpi_default"), "none", "Soperator's slurm.conf has pmix, and another one can be named")


def find_warnings(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    if parse(settings.soperator.version) < CUSTOM_CONFIG and config.accounting.qos and config.accounting.enforce:
        yield Finding(
            id="nebius-accounting-enforce",
            level=Level.WARNING,
            at=("accounting", "enforce"),
            what=f"Soperator {settings.soperator.version} does not pass AccountingStorageEnforce on to Slurm: limits "
            "of QOS are recorded and not enforced",
            todo=f"write nebius.soperator.version: {DEFAULT}, or `enforce: []` to say so",
        )
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


def _not_passed_on(config: ClusterConfig, settings: Nebius) -> Iterator[Finding]:
    places: list[tuple[Location, Section]] = [
        (("slurm",), config.slurm),
        (("slurm", "timers"), config.slurm.timers),
        (("accounting",), config.accounting),
    ]
    changed = [
        ((*at, key), slurm.parameter, getattr(section, key))
        for at, section in places
        for key, slurm in slurm_fields(section)
        if key not in _OWN and getattr(section, key) != _default(section, key)
    ]
    extra = [(("slurm", "extra", key), key, value) for key, value in config.slurm.extra.items()]
    preempting = [
        (("accounting", "qos", position, "preempt"), "PreemptType", list(one.preempt))
        for position, one in enumerate(config.accounting.qos)
        if one.preempt
    ]
    passed_on = {name.lower() for name in _chart_keys(settings.soperator.version)}
    for at, parameter, value in (*changed, *extra, *preempting):
        if parameter.lower() in passed_on:
            continue
        yield Finding(
            id="nebius-slurm-setting",
            at=at,
            given=str(value),
            allowed=f"nothing with Soperator {settings.soperator.version}: it writes slurm.conf itself, and takes "
            f"further settings from {'.'.join(map(str, CUSTOM_CONFIG))} on",
            todo=f"remove it, or write nebius.soperator.version: {DEFAULT}",
        )


def _chart_keys(version: str) -> tuple[str, ...]:
    """Parameters that a version's chart has keys of its own for."""
    known = allowed("helm-slurm-cluster", version).below
    return tuple(known["slurmConfig"].below) if "slurmConfig" in known else ()


def _default(section: Section, key: str) -> Any:  # noqa: ANN401 - a field may be of any type
    return type(section).model_fields[key].get_default(call_default_factory=True, validated_data={})


def _unused(at: Location, given: str, why: str) -> Finding:
    return Finding(
        id="nebius-unused",
        at=at,
        given=given,
        allowed=f"nothing on Nebius: {why}",
        todo="remove it",
    )
