"""The platform `nebius`: managed Kubernetes with Soperator, which runs Slurm in pods."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.config.cluster import ClusterConfig
from cluster.config.controller import Controller, Login
from cluster.config.nodesets import Nodeset
from cluster.config.slurm import SlurmSettings
from cluster.platforms.base import Capability, Credentials, Limit, Platform, later
from cluster.platforms.nebius.names import CREDENTIALS_VARIABLE, TOKEN_VARIABLE

CIDR = "10.80.0.0/20"
"""The value of `network.cidr`, which has no effect on Nebius: nodes have addresses of their subnet."""


def has_credentials(_: Mapping[str, Any]) -> bool:
    """Return whether there is a token, a service account's file, or a profile of the Nebius CLI."""
    if os.environ.get(TOKEN_VARIABLE):
        return True
    if path := os.environ.get(CREDENTIALS_VARIABLE):
        return Path(path).expanduser().is_file()
    # Where nebius.aio.cli_config.Config of the SDK looks for profiles.
    return (Path.home() / ".nebius" / "config.yaml").is_file()


PLATFORM = Platform(
    name="nebius",
    title="Nebius",
    defaults={
        "nebius": {},
        "host_names": "pods",
        "network": {"cidr": CIDR},
        "storage": {},
        "image": {"base": "soperator"},
        "deletion_protection": True,
    },
    machine_types={
        "controller": "cpu-d3/16vcpu-64gb",
        "login": "cpu-d3/32vcpu-128gb",
        "node": "cpu-d3/16vcpu-64gb",
    },
    images=("soperator",),
    elastic=True,
    # internal/render/common/configmap.go of nebius/soperator.
    limit=Limit(machines=1024, of="Soperator's slurm.conf (MaxNodeCount)"),
    sections={"nebius": "cluster.platforms.nebius.stack_file_fields:Nebius"},
    fields={
        ClusterConfig: frozenset({"host_names", "monitoring"}),
        Controller: frozenset({"disk"}),
        Login: frozenset({"disk"}),
        Nodeset: frozenset({"disk", "capacity"}),
        SlurmSettings: frozenset({"topology"}),
    },
    # Soperator's own check prepull-container-image pulls the one image that its script names: that of other checks
    # (nebius/soperator, internal/e2e/acceptance/steps, PrepullContainerImagePyxis).
    instead={
        "warm_up": "remove it here, and run ./hpc warm-up STACK --image IMAGE after `up`",
        "machine": "remove it: metrics are collected and kept in pods on nodes of nebius.system",
        "web": "remove it: ./hpc dashboard STACK, or kubectl port-forward, leads to VictoriaMetrics and Grafana",
        "spare": "remove it, and write one node more as count: Soperator holds no node back",
    },
    capabilities=frozenset(
        {
            Capability.RUN,
            Capability.SSH,
            Capability.STATUS,
            Capability.NODES,
            Capability.DRIFT,
            Capability.LOGS,
            Capability.USAGE,
        }
    ),
    checks=later("cluster.platforms.nebius.checks:find_errors"),
    warnings=later("cluster.platforms.nebius.checks:find_warnings"),
    impacts=later("cluster.platforms.nebius.impact:TABLE"),
    summary=later("cluster.platforms.nebius.request:describe_request"),
    places=later("cluster.platforms.nebius.request:places"),
    dashboards=later("cluster.platforms.nebius.monitoring:dashboards"),
    job_programs=lambda _: {"pyxis"},
    credentials=Credentials(title="Nebius", found=has_credentials, todo="nebius profile create"),
    observer="cluster.platforms.nebius.observer",
    deploy="components.nebius.deploy",
    environment="components.nebius.environment",
    state_bucket=("nebius", "components.nebius.state"),
)
