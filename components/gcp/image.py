"""The image that a cluster's machines boot: one that the stack bakes, one that is there, or the public one."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from cluster.config import ClusterConfig
from cluster.findings import ConfigError
from cluster.platforms.gcp.image import bake_script, bakes, content, digest, recipe, trial_script, versions
from cluster.platforms.gcp.names import labels, place
from components.gcp.bake.design import image_link
from components.gcp.bake.resource import BakedImage, BakeLeftovers
from components.gcp.network import Network


@dataclass(frozen=True, kw_only=True)
class ImageArgs:
    config: ClusterConfig
    network: Network
    """The builder's network, which needs access to package repositories."""
    service_account_email: pulumi.Input[str]
    """The builder's account."""
    after: Sequence[pulumi.Resource] = ()
    """What has to be there before a builder can install."""


class Image(pulumi.ComponentResource):
    """The image of all machines.

    A baked one is named after a hash of all that goes in. Another content (recipe, Slurm, own steps, what the stack's
    parts want) is another image, created before the old one is deleted, and its machines are recreated. A newer
    program alone changes no existing image.
    """

    self_link: pulumi.Output[str]
    """projects/PROJECT/global/images/NAME."""
    baked: bool
    """Whether the stack makes it itself."""

    def __init__(self, name: str, args: ImageArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:gcp:Image", name, {}, opts)
        self.baked = bakes(args.config)
        try:
            link = self._bake(name, args) if self.baked else existing(args.config)
        except ConfigError as error:
            raise pulumi.RunError(str(error)) from None
        self.self_link = pulumi.Output.from_input(link)
        self.register_outputs({"self_link": self.self_link, "baked": self.baked})

    def _bake(self, name: str, args: ImageArgs) -> pulumi.Output[str]:
        config, where, row = args.config, place(args.config), recipe(args.config)
        hashed, builder = digest(config), config.image.builder
        endpoint = pulumi.Config("gcp").get("computeCustomEndpoint") or ""
        opts = pulumi.ResourceOptions(parent=self, depends_on=list(args.after))
        leftovers = BakeLeftovers(
            f"{name}-leftovers",
            project=where.project,
            zone=where.zone,
            cluster=config.name,
            endpoint=endpoint,
            opts=opts,
        )
        return BakedImage(
            f"{name}-bake", project=where.project, zone=where.zone, image=f"{config.name}-{hashed}", digest=hashed,
            content=content(config), labels={**labels(config, "image"), **versions(config)},
            builder_labels=labels(config, "image"),
            description=f"Made for the cluster {config.name} from {row.image}; what is in it stands in its labels",
            source_image=row.image, machine_type=builder.machine_type, size_gb=builder.size_gb,
            minutes=builder.minutes, subnetwork=args.network.system, tag=args.network.tag,
            service_account=args.service_account_email, script=bake_script(config), trial=trial_script(config),
            # Where its machines are, and where an organisation's policies on locations allow it.
            storage_location=where.region, endpoint=endpoint,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[leftovers, *args.after]),
        ).self_link  # fmt: skip


def existing(config: ClusterConfig) -> str:
    """The image of a stack that bakes none: the one it names, else the public one that bakes start from."""
    named = config.image.name
    if named is None:
        return recipe(config).image
    return named if "/" in named else image_link(place(config).project, named)
