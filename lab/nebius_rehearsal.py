"""Rehearsal of a stack on Nebius: its own program, against stand-ins for the cloud and for Soperator."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.config import ClusterConfig
from cluster.findings import ROOT, ConfigError
from cluster.load.parse import parse
from cluster.platforms.nebius.section import Nebius
from components.local.host.process import require_host
from components.rehearsal import Rehearsal, RehearsalError, Report, Request
from lab.nebius_supervisor import Place, Supervisor
from lab.soperator import charts

AT_MOST = 4
"""Nodes of each nodeset, by default."""
_NOWHERE = "127.0.0.1:1"
"""The API's address before the first start; a preview asks nobody."""


def rehearse(config: ClusterConfig, request: Request) -> Rehearsal:
    """The rehearsal of a stack."""
    return NebiusRehearsal(config, request)


def resume(folder: Path, report: Report) -> None:
    """Start what stood in at the last start and does not run any more, as after a reboot."""
    Supervisor(folder).resume(report)


def remove(folder: Path, report: Report) -> None:
    """End all that stands in, with the machines."""
    Supervisor(folder).remove(report)


class NebiusRehearsal(Rehearsal):
    """The stack itself, with another address of the API, another credential command and other charts."""

    def __init__(self, config: ClusterConfig, request: Request) -> None:
        section = config.section(Nebius)
        if section is None:
            raise RehearsalError(f"{request.file} has no section nebius")
        for given, option in ((request.cidr, "--cidr"), (request.real_prolog, "--real-prolog")):
            if given:
                raise RehearsalError(f"{option} is for stacks of machines: leave it out, {request.stack} has pods.")
        self._config, self._nebius, self._request = config, section, request
        self._supervisor = Supervisor(request.folder)
        try:
            self._endpoint = self._supervisor.endpoint()
        except FileNotFoundError:
            self._endpoint = _NOWHERE
        written = request.folder / "charts"
        self._charts = written if written.exists() else charts.STAND_INS
        self._counts = {
            name: min(one.count, AT_MOST) if request.nodes is None else request.nodes
            for name, one in config.nodesets.items()
        }
        try:
            parse(self.settings())
        except ConfigError as error:
            raise RehearsalError(f"the rehearsal of {request.stack} can't be brought up: {error}") from None
        self.stood_in = list(self._stood_in())

    def settings(self) -> Mapping[str, Any]:
        """The stack's own, but for where and what stands in."""
        given = self._config.model_dump(mode="json", exclude_unset=True)
        nebius = given["nebius"]
        nodesets = {
            name: {**one, "count": self._counts[name]} | ({"capacity": None} if one.get("capacity") else {})
            for name, one in given["nodesets"].items()
        }
        return {
            ROOT: {
                **given,
                "nodesets": nodesets,
                "partitions": {name: self._partition(name, one) for name, one in given["partitions"].items()},
                "nebius": {
                    **nebius,
                    "endpoint": self._endpoint,
                    "token_command": ["cat", str(self._supervisor.credential)],
                    "soperator": {**nebius.get("soperator", {}), "charts": str(self._charts)},
                },
                "deletion_protection": False,
            }
        }

    def start(self, report: Report) -> None:
        """Start the processes that stand in, where they do not run."""
        require_host()
        section = self._nebius
        place = Place(tenant=section.tenant, project=section.project, region=section.region)
        self._supervisor.start(place, __name__, report)
        self._charts = self._request.folder / "charts"
        charts.write(self._charts, section.soperator.version)
        self._endpoint = self._supervisor.endpoint()

    def _partition(self, name: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """A partition, whose jobs can have no more nodes than there are."""
        there = sum(self._counts[one] for one in set(self._config.partitions[name].nodesets))
        limits = {key: min(given[key], there) for key in ("min_nodes", "max_nodes") if given.get(key) is not None}
        return {**given, **limits}

    def _stood_in(self) -> list[str]:
        lines = [
            f"nodeset {name}: {self._counts[name]} of {one.count} nodes"
            if self._counts[name] < one.count
            else f"nodeset {name}: {self._counts[name]} nodes, where the stack has {one.count}"
            for name, one in self._config.nodesets.items()
            if self._counts[name] != one.count
        ]
        return [
            *lines,
            "Nebius's API: a stand-in on this machine, which speaks its protocol",
            "Kubernetes: a real API server and etcd on this machine; nodes, pods and the kubelet are stand-ins",
            "Soperator and its charts: stand-ins with the same names, values and objects",
            "pods: local machines with real Slurm, which share accounts and /home; /mnt/jail is / of each",
            "GPUs, InfiniBand, containers and active checks: not there",
            "deletion protection: off",
        ]
