"""The platform `nebius`: managed Kubernetes with Soperator, which runs Slurm in pods."""

from collections.abc import Iterator

from cluster.config.cluster import ClusterConfig
from cluster.config.machines import Controller, Login, Nodeset
from cluster.findings import Finding
from cluster.platforms.base import Capability, Credentials, Limit, Platform
from cluster.platforms.nebius import checks, credentials
from cluster.platforms.nebius.impact import TABLE
from cluster.platforms.nebius.request import describe_request
from cluster.platforms.nebius.section import DEFAULTS, MACHINE_TYPES, Nebius

NODES = 1024
"""MaxNodeCount of the slurm.conf that Soperator writes (internal/render/common/configmap.go)."""


def _checks(config: ClusterConfig) -> Iterator[Finding]:
    if section := config.section(Nebius):
        for rules in (checks, checks, checks, checks, checks, checks):
            yield from rules.find_errors(config, section)


def _warnings(config: ClusterConfig) -> Iterator[Finding]:
    if section := config.section(Nebius):
        yield from checks.soperator_warnings(section)
        yield from checks.gpu_warnings(config, section)
        yield from checks.filesystem_warnings(section)
        yield from checks.setting_warnings(config)


PLATFORM = Platform(
    name="nebius",
    title="Nebius",
    defaults=DEFAULTS,
    machine_types=MACHINE_TYPES,
    images=("soperator",),
    limit=Limit(machines=NODES, of="Soperator's slurm.conf (MaxNodeCount)"),
    sections={"nebius": Nebius},
    fields={
        ClusterConfig: frozenset({"host_names"}),
        Controller: frozenset({"disk"}),
        Login: frozenset({"disk"}),
        Nodeset: frozenset({"disk", "capacity"}),
    },
    # Soperator's own check prepull-container-image pulls the one image that its script names: that of other checks
    # (nebius/soperator, internal/e2e/acceptance/steps, PrepullContainerImagePyxis).
    instead={"warm_up": "remove it here, and run ./hpc warm-up STACK --image IMAGE after `up`"},
    capabilities=frozenset(
        {
            Capability.RUN,
            Capability.SSH,
            Capability.STATUS,
            Capability.NODES,
            Capability.DRIFT,
            Capability.LOGS,
            Capability.USAGE,
            Capability.REHEARSE,
        }
    ),
    checks=_checks,
    warnings=_warnings,
    impacts=TABLE,
    summary=describe_request,
    job_programs=lambda _: {"pyxis"},
    credentials=Credentials(title="Nebius", found=credentials.credentials, todo="nebius profile create"),
    observer="soperator",
    deploy="components.nebius.deploy",
    rehearsal="lab.nebius_rehearsal",
    environment="components.nebius.environment",
)
