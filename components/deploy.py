"""Deploy a cluster on its platform and export the stack's outputs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import pulumi

from cluster.config import ClusterConfig
from cluster.config.monitoring import SECRETS
from cluster.impact.upgrade import Step
from cluster.platforms import registry
from cluster.slurm.script_tree import Tree


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


def deploy(config: ClusterConfig, scripts: Tree) -> Deployment:
    """Deploy a cluster. A platform's modules are imported for its own stacks only."""
    return import_module(registry.get(config.platform).deploy).deploy(config, scripts)


def machine_image(config: ClusterConfig) -> str:
    """Return the id of the machines' image. Empty if this program does not install Slurm on the platform."""
    platform = registry.get(config.platform)
    return import_module(platform.deploy).machine_image(config) if platform.machine_images else ""


def export(config: ClusterConfig, deployment: Deployment, step: Step) -> None:
    """Export what commands read from the state."""
    platform = registry.get(config.platform)
    outputs = {
        "cluster": config.name,
        "platform": {
            "name": platform.name,
            "title": platform.title,
            "capabilities": sorted(capability.value for capability in platform.capabilities),
            **({"observer": platform.observer} if platform.observer else {}),
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


def begin(config: ClusterConfig, step: Step) -> ClusterConfig:
    """Keep the image of machines that a later step changes, and return the configuration for this step.

    Call it before the first resource is registered.
    """
    if not step.number:
        return config
    pulumi.log.info(step.text)
    _hold(step.held(config), registry.get(config.platform).machine_images)
    return config if step.nodes == step.new else config.with_nodes_release(step.nodes)


def _hold(names: frozenset[str], images: Mapping[str, Sequence[str]]) -> None:
    """Have the engine ignore a change of the image of these machines. Other changes are applied.

    This is a transformation of the stack, since each platform creates its machines in its own way.
    """

    def keep_image(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        if args.name not in names or args.type_ not in images:
            return None
        keep = pulumi.ResourceOptions(ignore_changes=list(images[args.type_]))
        return pulumi.ResourceTransformationResult(args.props, pulumi.ResourceOptions.merge(args.opts, keep))

    pulumi.runtime.register_stack_transformation(keep_image)


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
