"""The rehearsal of a cloud stack: its Slurm cluster on machines of this host."""

import ipaddress
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from cluster.config import ClusterConfig
from cluster.config.validators import cluster_cidr
from cluster.findings import ConfigError, RefusedError
from cluster.load import parse
from cluster.platforms.local.rehearsal import COUNT, candidates, differences, rehearsed, room, stood_in
from components.local.compute_engine import fault_day
from components.local.host.network import taken_by
from components.local.host.paths import HostError, host_root


class RehearsalError(Exception):
    """The stack can't be rehearsed as asked; the text says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The arguments of the command."""

    stack: str
    file: Path
    """The stack's file."""
    nodes: int | None = None
    """Nodes of each nodeset."""
    cidr: str | None = None
    """Network of the machines."""
    kept: str | None = None
    """The network that the rehearsal has from the last time."""
    real_prolog: bool = False
    elastic: bool = False
    """Keep elastic nodesets so."""
    faults: bool = False
    """Faults are going to be played."""


class Rehearsal:
    """A local stack with the machines of a cloud stack."""

    def __init__(self, config: ClusterConfig, request: Request) -> None:
        """Raises RehearsalError and HostError."""
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
        """Differences of Slurm's files, a row each: `text`, and `counted` for what follows from the number of nodes."""
        self.stood_in = stood_in(config, nodes=request.nodes, real_prolog=request.real_prolog, elastic=request.elastic)
        """Other differences from production."""

    def settings(self) -> Mapping[str, Any]:
        """Return what the rehearsal's stack file has under `config`."""
        return {"hpc:cluster": self._section}

    def play_faults(self) -> int:
        """Play a day of faults on the stack, which is up, and print what was lost. Return the exit code."""
        return fault_day.play(host_root(), self._section["name"])


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
