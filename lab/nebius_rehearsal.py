"""Rehearsal of a stack on Nebius: the stack's own program with stand-ins for the cloud and for Soperator."""

import json
import random
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.config import ClusterConfig
from cluster.findings import ROOT, ConfigError
from cluster.load import parse
from cluster.platforms.nebius import versions
from cluster.platforms.nebius.stack_file_fields import settings_of
from components.local.host.process import require_host
from components.rehearsal import Rehearsal, RehearsalError, Report, Request
from lab.nebius_supervisor import Place, Supervisor

STAND_INS = Path(__file__).parent / "charts" / "repository"
"""The smallest charts with the same releases, values and objects."""
DEFINITIONS_BYTES = 3_500_000
"""Size of the definitions in helm-soperator 4.1.7, whose release record has 952 KB of the 1 MiB of a Secret."""
_DEFINITIONS = 6
_TEXT = "{:.<880}\n"
"""A description whose random beginning makes it compress as well as those of Soperator."""
_OTHER_NAMESPACE = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: extensive-check, namespace: %s}
"""
"""An object of helm-soperator-activechecks that has a namespace of its own, not the release's."""


def write_charts(folder: Path, version: str) -> None:
    """Write the stand-ins for the charts of a version; each call writes the same."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
        new = Path(temporary) / "new"
        shutil.copytree(STAND_INS, new)
        for name in map("ballast{}".format, range(_DEFINITIONS)):
            file = new / "helm-soperator" / "crds" / f"{name}.yaml"
            file.write_text(definition(name, padding=DEFINITIONS_BYTES // _DEFINITIONS), encoding="utf-8")
        if only := versions.series(version).cluster_name:
            elsewhere = new / "helm-soperator-activechecks" / "templates" / "elsewhere.yaml"
            elsewhere.write_text(_OTHER_NAMESPACE % only, encoding="utf-8")
        if folder.exists():
            folder.rename(Path(temporary) / "old")
        new.rename(folder)


def definition(name: str, *fields: str, padding: int = 0) -> str:
    """Return the definition of a kind as YAML, with these fields and about `padding` bytes of others."""
    words = random.Random(name)  # noqa: S311 - the same in each run
    texts = (_TEXT.format(words.randbytes(117).hex()) for _ in range(padding // 1000))
    padded = {f"pad{row}": {"type": "string", "description": text} for row, text in enumerate(texts)}
    properties = {field: {"type": "string"} for field in fields} | padded
    spec = {"type": "object", "properties": properties}
    document = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{name}s.rehearsal.hpc"},
        "spec": {
            "group": "rehearsal.hpc",
            "scope": "Namespaced",
            "names": {"kind": name.title(), "plural": f"{name}s"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
                }
            ],
        },
    }
    # kubectl reads a stream that begins with a brace as JSON alone.
    return f"# {name}\n{json.dumps(document, indent=2)}\n"


AT_MOST = 4
"""Most nodes of each nodeset, by default."""
_NOWHERE = "127.0.0.1:1"
"""The API's address before the first start, which a preview never uses."""


def rehearse(config: ClusterConfig, request: Request) -> Rehearsal:
    """Return the rehearsal of a stack."""
    return NebiusRehearsal(config, request)


def resume(folder: Path, report: Report) -> None:
    """Start the processes of the last start that do not run any more, as after a reboot."""
    Supervisor(folder).resume(report)


def remove(folder: Path, report: Report) -> None:
    """End all processes, and destroy the machines."""
    Supervisor(folder).remove(report)


class NebiusRehearsal(Rehearsal):
    """A stack with another address of the API, another credential command and other charts."""

    def __init__(self, config: ClusterConfig, request: Request) -> None:
        for given, option in (
            (request.cidr, "--cidr"),
            (request.real_prolog, "--real-prolog"),
            (request.elastic, "--elastic"),
        ):
            if given:
                raise RehearsalError(f"{option} is for stacks of machines: leave it out, {request.stack} has pods.")
        self._config, self._nebius, self._request = config, settings_of(config), request
        self._supervisor = Supervisor(request.folder)
        try:
            self._endpoint = self._supervisor.endpoint()
        except FileNotFoundError:
            self._endpoint = _NOWHERE
        written = request.folder / "charts"
        self._charts = written if written.exists() else STAND_INS
        self._counts = {
            name: min(nodeset.most, AT_MOST) if request.nodes is None else request.nodes
            for name, nodeset in config.nodesets.items()
        }
        try:
            parse(self.settings())
        except ConfigError as error:
            raise RehearsalError(f"the rehearsal of {request.stack} can't be brought up: {error}") from None
        self.stood_in = list(self._stood_in())

    def settings(self) -> Mapping[str, Any]:
        """Return the stack's own settings, with the addresses and charts of the stand-ins."""
        given = self._config.model_dump(mode="json", exclude_unset=True)
        nebius = given["nebius"]
        # Elastic nodes are always up, because there are no power programs of Soperator.
        own = {"count", "capacity", "idle"}
        nodesets = {
            name: {key: value for key, value in nodeset.items() if key not in own} | {"count": self._counts[name]}
            for name, nodeset in given["nodesets"].items()
        }
        # Receivers need secrets of the stack.
        metrics = {key: value for key, value in (given.get("monitoring") or {}).items() if key != "receivers"}
        return {
            ROOT: {
                **given,
                **({"monitoring": metrics} if self._config.monitoring else {}),
                "nodesets": nodesets,
                "partitions": {name: self._partition(name, row) for name, row in given["partitions"].items()},
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
        """Start the stand-ins that do not run."""
        require_host()
        section = self._nebius
        place = Place(tenant=section.tenant, project=section.project, region=section.region)
        self._supervisor.start(place, __name__, report)
        self._charts = self._request.folder / "charts"
        write_charts(self._charts, section.soperator.version)
        self._endpoint = self._supervisor.endpoint()

    def _partition(self, name: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a partition whose limits of nodes are at most the number of its nodes."""
        nodes = sum(self._counts[nodeset] for nodeset in set(self._config.partitions[name].nodesets))
        limits = {key: min(given[key], nodes) for key in ("min_nodes", "max_nodes") if given.get(key) is not None}
        return {**given, **limits}

    def _stood_in(self) -> list[str]:
        lines = [
            f"nodeset {name}: {self._counts[name]} of {nodeset.most} nodes"
            if self._counts[name] < nodeset.most
            else f"nodeset {name}: {self._counts[name]} nodes, where the stack has {nodeset.most}"
            for name, nodeset in self._config.nodesets.items()
            if self._counts[name] != nodeset.most
        ]
        elastic = [name for name, nodeset in self._config.nodesets.items() if nodeset.elastic]
        return [
            *lines,
            *(
                f"elastic nodes of {name}: all of them stay, as without Soperator nothing powers them"
                for name in elastic
            ),
            "Nebius's API: a stand-in on this machine, which speaks its protocol",
            "Kubernetes: a real API server and etcd on this machine; nodes, pods and the kubelet are stand-ins",
            "Soperator and its charts: stand-ins with the same names, values and objects",
            "pods: local machines with real Slurm, which share accounts and /home; /mnt/jail is / of each",
            "GPUs, InfiniBand, containers and active checks: not there",
            *(["metrics, alerts and logs: charts alone, which collect nothing"] if self._config.monitoring else []),
            "deletion protection: off",
        ]
