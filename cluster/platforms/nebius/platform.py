"""The platform `nebius`: managed Kubernetes with Soperator, which runs Slurm in pods."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from cluster.capability import Capability
from cluster.config.cluster import ClusterConfig
from cluster.config.controller import Controller, Login
from cluster.config.impact_annotations import Impact
from cluster.config.nodesets import Nodeset
from cluster.config.section import Section
from cluster.config.slurm import SlurmSettings
from cluster.cost_parts import Part
from cluster.edits import ImpactRule
from cluster.findings import Finding
from cluster.platform_interface import ClusterPlaces, MachineLimit, Platform, ProviderLogin
from cluster.platforms.nebius.names import CIDR, CREDENTIALS_VARIABLE, TOKEN_VARIABLE


class NebiusLogin(ProviderLogin):
    """A token, a service account's file, or a profile of the Nebius CLI."""

    title = "Nebius"
    todo = "nebius profile create"

    def found(self, settings: Mapping[str, Any]) -> bool:  # noqa: ARG002 - the provider is this program's own
        if os.environ.get(TOKEN_VARIABLE):
            return True
        if path := os.environ.get(CREDENTIALS_VARIABLE):
            return Path(path).expanduser().is_file()
        # Where nebius.aio.cli_config.Config of the SDK looks for profiles.
        return (Path.home() / ".nebius" / "config.yaml").is_file()


class SoperatorPlatform(Platform):
    """Nebius, with Soperator."""

    name = "nebius"
    title = "Nebius"
    defaults: ClassVar[Mapping[str, Any]] = {
        "nebius": {},
        "host_names": "pods",
        "network": {"cidr": CIDR},
        "storage": {},
        "image": {"base": "soperator"},
        "deletion_protection": True,
    }
    machine_types: ClassVar[Mapping[str, str]] = {
        "controller": "cpu-d3/16vcpu-64gb",
        "login": "cpu-d3/32vcpu-128gb",
        "node": "cpu-d3/16vcpu-64gb",
    }
    images = ("soperator",)
    installs_slurm = False
    # internal/render/common/configmap.go of nebius/soperator.
    limit = MachineLimit(machines=1024, of="Soperator's slurm.conf (MaxNodeCount)")
    fields: ClassVar[Mapping[type[Section], frozenset[str]]] = {
        ClusterConfig: frozenset({"host_names", "monitoring", "pricing", "budget"}),
        Controller: frozenset({"disk"}),
        Login: frozenset({"disk"}),
        Nodeset: frozenset({"disk", "capacity"}),
        SlurmSettings: frozenset({"topology"}),
    }
    # Soperator's own check prepull-container-image pulls the one image that its script names: that of other checks
    # (nebius/soperator, internal/e2e/acceptance/steps, PrepullContainerImagePyxis).
    instead: ClassVar[Mapping[str, str]] = {
        "warm_up": "remove it here, and run ./hpc warm-up STACK --image IMAGE after `up`",
        "machine": "remove it: metrics are collected and kept in pods on nodes of nebius.system",
        "web": "remove it: ./hpc dashboard STACK, or kubectl port-forward, leads to VictoriaMetrics and Grafana",
        "spare": "remove it, and write one node more as count: Soperator holds no node back",
    }
    capabilities = frozenset(
        {
            Capability.RUN,
            Capability.SSH,
            Capability.STATUS,
            Capability.NODES,
            Capability.DRIFT,
            Capability.LOGS,
            Capability.USAGE,
        }
    )
    login = NebiusLogin()

    def section(self) -> type[Section]:
        from cluster.platforms.nebius.stack_file_fields import Nebius

        return Nebius

    def find_errors(self, config: ClusterConfig) -> Iterator[Finding]:
        from cluster.platforms.nebius import checks

        return checks.find_errors(config)

    def find_warnings(self, config: ClusterConfig) -> Iterator[Finding]:
        from cluster.platforms.nebius import checks

        return checks.find_warnings(config)

    def impacts(self) -> Mapping[str, Impact | ImpactRule]:
        from cluster.platforms.nebius.impact import TABLE

        return TABLE

    def describe_request(self, config: ClusterConfig) -> Sequence[str]:
        from cluster.platforms.nebius import request

        return request.describe_request(config)

    def region(self, config: ClusterConfig) -> str:
        from cluster.platforms.nebius.stack_file_fields import settings_of

        return settings_of(config).region

    def cost_parts(self, config: ClusterConfig) -> Sequence[Part]:
        from cluster.platforms.nebius import cost

        return list(cost.parts(config))

    def places(self, config: ClusterConfig) -> ClusterPlaces:
        from cluster.platforms.nebius import request

        return request.places(config)

    def job_programs(self, config: ClusterConfig) -> Collection[str]:  # noqa: ARG002 - the same on every cluster
        return {"pyxis"}
