"""Deploy a cluster on its platform: one row for each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pulumi

from cluster.config import ClusterConfig
from cluster.impact.upgrade import UpgradeStep
from cluster.slurm.script_tree import Tree
from components.deploy import Deployment


def _no_image(_: ClusterConfig) -> str:
    return ""


@dataclass(frozen=True, kw_only=True)
class Deployer:
    """Deployment of clusters on one platform."""

    deploy: Callable[[ClusterConfig, Tree], Deployment]
    machine_image: Callable[[ClusterConfig], str] = _no_image
    """Returns the id of the machines' image; empty if this program does not install Slurm on the platform."""
    image_inputs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Types of resources that are machines or their templates, each with the inputs of its image, which an upgrade
    changes in steps."""


def _gcp() -> Deployer:
    from components.gcp import deploy

    return Deployer(deploy=deploy.deploy, machine_image=deploy.machine_image, image_inputs=deploy.IMAGE_INPUTS)


def _local() -> Deployer:
    from components.local import deploy

    return Deployer(deploy=deploy.deploy, machine_image=deploy.machine_image, image_inputs=deploy.IMAGE_INPUTS)


def _nebius() -> Deployer:
    from components.nebius import deploy

    return Deployer(deploy=deploy.deploy)


DEPLOYERS: dict[str, Callable[[], Deployer]] = {"gcp": _gcp, "local": _local, "nebius": _nebius}
"""Functions that import a platform's modules, for its own stacks only, and return its deployer."""


def deploy(config: ClusterConfig, scripts: Tree) -> Deployment:
    """Deploy a cluster."""
    return DEPLOYERS[config.platform]().deploy(config, scripts)


def machine_image(config: ClusterConfig) -> str:
    """Return the id of the machines' image. Empty if this program does not install Slurm on the platform."""
    return DEPLOYERS[config.platform]().machine_image(config)


def begin(config: ClusterConfig, step: UpgradeStep) -> ClusterConfig:
    """Keep the image of machines that a later step changes, and return the configuration for this step.

    Call it before the first resource is registered.
    """
    if not step.number:
        return config
    pulumi.log.info(step.text)
    _hold(step.held(config), DEPLOYERS[config.platform]().image_inputs)
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
