"""An upgrade: which machines this run leaves with the image that they have."""

from collections.abc import Mapping, Sequence

import pulumi

from cluster.config import ClusterConfig
from cluster.impact.upgrade import Step
from cluster.platforms import registry


def begin(config: ClusterConfig, step: Step) -> ClusterConfig:
    """Hold the machines that a later step moves, and return the configuration for the machines as this step finds them.

    Call it before the first resource is registered.
    """
    if not step.number:
        return config
    pulumi.log.info(step.text)
    _hold(step.held(config), registry.get(config.platform).machine_images)
    return config if step.nodes == step.new else config.with_nodes_release(step.nodes)


def _hold(names: frozenset[str], images: Mapping[str, Sequence[str]]) -> None:
    """Have the engine ignore another image of machines. What else is new in them, such as users' files, reaches them.

    By a transformation: each platform creates its machines in its own way.
    """

    def keep_image(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        if args.name not in names or args.type_ not in images:
            return None
        keep = pulumi.ResourceOptions(ignore_changes=list(images[args.type_]))
        return pulumi.ResourceTransformationResult(args.props, pulumi.ResourceOptions.merge(args.opts, keep))

    pulumi.runtime.register_stack_transformation(keep_image)
