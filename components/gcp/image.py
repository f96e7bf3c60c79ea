"""The image that a cluster's machines boot: one that the stack bakes, one that is there, or the public one."""

from collections.abc import Sequence

import pulumi

from cluster.config import ClusterConfig
from cluster.findings import ConfigError
from cluster.platforms.gcp.image import bake_script, bakes, content, digest, recipe, trial_script, versions
from cluster.platforms.gcp.names import labels, place
from components.gcp.bake.design import image_link
from components.gcp.bake.resource import BakedImage, BakeLeftovers
from components.gcp.network import Network


class Image(pulumi.ComponentResource):
    """The image of all machines.

    A baked one is named after a hash of all that goes in. Another content (recipe, Slurm, own steps, what the stack's
    parts want) is another image, created before the old one is deleted, and its machines are recreated. A newer
    program alone changes no existing image.
    """

    self_link: pulumi.Output[str]
    """projects/PROJECT/global/images/NAME."""
    baked: bool
    """True if the stack makes it itself."""

    def __init__(
        self,
        name: str,
        config: ClusterConfig,
        network: Network,
        account: pulumi.Input[str],
        after: Sequence[pulumi.Resource] = (),
        *,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """The builder is in `network`, which needs access to package repositories, and acts as the service account
        with the email `account`. `after` has what has to be there before it can install.
        """
        super().__init__("hpc:gcp:Image", name, {}, opts)
        self.baked = bakes(config)
        self._after = list(after)
        try:
            link = self._bake(name, config, network, account) if self.baked else existing(config)
        except ConfigError as error:
            raise pulumi.RunError(str(error)) from None
        self.self_link = pulumi.Output.from_input(link)
        self.register_outputs({"self_link": self.self_link, "baked": self.baked})

    def _bake(
        self, name: str, config: ClusterConfig, network: Network, account: pulumi.Input[str]
    ) -> pulumi.Output[str]:
        row, hashed, builder = recipe(config), digest(config), config.image.builder
        where = {
            "project": place(config).project,
            "zone": place(config).zone,
            "endpoint": pulumi.Config("gcp").get("computeCustomEndpoint") or "",
        }
        after = pulumi.ResourceOptions(parent=self, depends_on=self._after)
        leftovers = BakeLeftovers(f"{name}-leftovers", {**where, "cluster": config.name}, after)
        made = {
            **where,
            "image": f"{config.name}-{hashed}",
            "digest": hashed,
            "content": content(config),
            "labels": {**labels(config, "image"), **versions(config)},
            "builder_labels": labels(config, "image"),
            "description": f"Made for the cluster {config.name} from {row.image}; what is in it stands in its labels",
            "source_image": row.image,
            "machine_type": builder.machine_type,
            "size_gb": builder.size_gb,
            "minutes": builder.minutes,
            "subnetwork": network.system,
            "tag": network.tag,
            "service_account": account,
            "script": bake_script(config),
            "trial": trial_script(config),
            # Where its machines are, and where an organisation's policies on locations allow it.
            "storage_location": place(config).region,
        }
        after = pulumi.ResourceOptions(parent=self, depends_on=[leftovers, *self._after])
        return BakedImage(f"{name}-bake", made, after).self_link


def existing(config: ClusterConfig) -> str:
    """The image of a stack that bakes none: the one it names, else the public one that bakes start from."""
    named = config.image.name
    if named is None:
        return recipe(config).image
    return named if "/" in named else image_link(place(config).project, named)
