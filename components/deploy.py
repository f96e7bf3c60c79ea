"""The result of deploying a cluster on its platform, and the stack's outputs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pulumi

from cluster.config import ClusterConfig
from cluster.config.monitoring import SECRETS
from cluster.impact.upgrade import UpgradeStep
from cluster.platforms import registry


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """The result of deploying a platform, as commands need it."""

    login: pulumi.Input[str]
    """The target that users log in to."""
    targets: Mapping[str, Mapping[str, Any]]
    """The connection of each target, by name. `method` names the driver of cli/access, `roles` are its roles
    (controller, login, node). The rest is for the driver:

    - ssh: `address`, `host_key`, and `port` if it is not 22. `jump` names the target that is its jump host.
    - iap: `address`, `host_key`; `instance`, `project` and `zone` on Google Cloud.
    - kubectl: `pod`, `container`, `namespace`; `jail` is the path of what users see as `/`, empty where it is the
      container's own root. What they share is the output `kubernetes`: `server`, `certificate_authority`, `command`
      (which prints an ExecCredential), `context`, `namespace`.
    """
    config: pulumi.Input[str]
    """The stack file's configuration, known when the cluster runs with it. Later edits are compared with it."""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """Other outputs of the stack."""


def export(config: ClusterConfig, deployment: Deployment, step: UpgradeStep) -> None:
    """Export what commands read from the state."""
    platform = registry.get(config.platform)
    outputs = {
        "cluster": config.name,
        "platform": {
            "name": platform.name,
            "title": platform.title,
            "capabilities": sorted(capability.value for capability in platform.capabilities),
        },
        "users": [user.name for user in config.users],
        "login": deployment.login,
        "targets": deployment.targets,
        "config": deployment.config,
        **deployment.outputs,
    }
    for name, value in step.outputs.items() if step.after else ():
        # Like `config`, this is exported when the cluster runs with it.
        outputs[name] = pulumi.Output.from_input(deployment.config).apply(lambda _, value=value: value)
    for name, value in outputs.items():
        pulumi.export(name, value)


def config_text(config: ClusterConfig) -> str:
    """Return the stack file's configuration as text for the output `config`."""
    return config.model_dump_json(exclude_unset=True)


def monitoring_secrets(config: ClusterConfig) -> dict[str, pulumi.Output[str]]:
    """Return the secrets of monitoring, by their encrypted setting. Raises RunError: one is missing or not valid."""
    secrets: dict[str, pulumi.Output[str]] = {}
    for name in config.monitoring.secrets if config.monitoring else ():
        settings, key = pulumi.Config(name.partition(":")[0]), name.partition(":")[2]
        value = settings.get(key)
        pattern, allowed = SECRETS[name]
        if value is None or not re.fullmatch(pattern, value):
            given = "nothing" if value is None else "a text of another form (not shown)"
            todo = f"./hpc config set {pulumi.get_stack()} {name} --secret"
            raise pulumi.RunError(f"{name}\n  given:   {given}\n  allowed: {allowed}\n  to do:   {todo}")
        secrets[name] = pulumi.Output.secret(value)
    return secrets
