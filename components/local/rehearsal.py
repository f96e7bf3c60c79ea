"""The rehearsal of a stack whose cluster has machines: the same machines on this host."""

import ipaddress
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from itertools import chain
from typing import Any

from cluster.config import ClusterConfig
from cluster.config.validators import cluster_cidr
from cluster.findings import ConfigError, RefusedError
from cluster.load import parse
from cluster.platforms.local.rehearsal import COUNT, candidates, differences, rehearsed, room, stood_in
from components.local.host import cloud
from components.local.host.network import taken_by
from components.local.host.paths import HostError, host_root
from components.rehearsal import Rehearsal, RehearsalError, Report, Request


def rehearse(config: ClusterConfig, request: Request) -> Rehearsal:
    """Return the rehearsal of a stack."""
    return MachinesRehearsal(config, request)


class MachinesRehearsal(Rehearsal):
    """A local stack with the machines of a cloud stack."""

    ssh = " controller"

    def __init__(self, config: ClusterConfig, request: Request) -> None:
        rxdm = config.slurm.rxdm
        if request.real_prolog and rxdm and not rxdm.file:
            raise RehearsalError(
                f"{request.file}: slurm.rxdm names no file, and a rehearsal has no way out to download its script. "
                "Leave out --real-prolog for its stand-in; or download the script, and name it there: "
                "rxdm: {file: ..., ...}"
            )
        if request.elastic and not any(row.elastic for row in config.nodesets.values()):
            raise RehearsalError(
                f"{request.file} has no elastic nodeset. Leave out --elastic; or make one so: count: {{min: 1, max: 8}}"
            )
        self._section = _section(config, request)
        try:
            local = parse({"hpc:cluster": self._section})
        except ConfigError as error:
            raise RehearsalError(f"the rehearsal of {request.stack} can't be made on this machine: {error}") from None
        self.differences = [
            {
                **{name: value for name, value in asdict(difference).items() if name != "key"},
                "text": str(difference),
                "counted": difference.why == COUNT,
            }
            for difference in differences(config, local)
        ]
        self.stood_in = stood_in(config, nodes=request.nodes, real_prolog=request.real_prolog, elastic=request.elastic)

    def settings(self) -> Mapping[str, Any]:
        return {"hpc:cluster": self._section}

    def play_faults(self) -> int:
        """Run the program of the stand-in that plays a day of faults, on this terminal."""
        return cloud.play_faults(host_root(), self._section["name"])

    def start(self, report: Report) -> None:
        """Do nothing: `up` starts everything."""


def _section(config: ClusterConfig, request: Request) -> dict[str, Any]:
    """Return the rehearsal's `hpc:cluster`, with the requested network, the one of the last time, or a free one."""
    cidr = request.cidr
    if cidr is None:
        cidr = _free_network(config.name, room(config, nodes=request.nodes, elastic=request.elastic), request.kept)
    try:
        cluster_cidr(cidr)
    except RefusedError as error:
        raise RehearsalError(f"--cidr {cidr}: allowed is {error.allowed}; {error.todo}.") from None
    return rehearsed(
        config,
        nodes=request.nodes,
        cidr=cidr,
        real_prolog=request.real_prolog,
        elastic=request.elastic,
        faults=request.faults,
    )


def _free_network(cluster: str, room: int, kept: str | None) -> str:
    """Return a network with room for the machines that nothing else on this host uses; `kept` if possible."""
    first: list[str] = []
    with suppress(ValueError):  # the user has edited the file, which is written again
        first = [kept] if kept and ipaddress.IPv4Network(kept).prefixlen <= room else []
    for cidr in chain(first, candidates(room)):
        try:
            if taken_by(host_root(), cluster, ipaddress.IPv4Network(cidr)) is None:
                return cidr
        except HostError:
            return cidr  # a host without the tools, which can only preview: `up` would report a conflict
    raise RehearsalError(f"no private network of /{room} is free on this machine: give --nodes a smaller N, or --cidr.")
