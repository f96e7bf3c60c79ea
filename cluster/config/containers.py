"""Containers of users' jobs."""

from typing import Annotated, Literal

from cluster.config.impact import NoEffect
from cluster.config.section import Section

DEFAULT = "node"


class Containers(Section):
    """Containers that enroot and pyxis run (docs/containers.md)."""

    data: Annotated[
        Literal["node", "home"],
        NoEffect("holds for containers that are created from then on; those that exist stay where they are"),
    ] = DEFAULT
    """Where enroot unpacks containers: `node` on the node's local SSDs (in the home where a node has none), fast, and
    a container with a name is found on that node only; `home` in the user's home, so that `srun --container-name=NAME`
    finds it on every machine, and each start without a name unpacks the image onto the shared file system."""
