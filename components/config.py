"""The stack's configuration, read once, by the program and nobody else."""

import pulumi

from cluster.config import ClusterConfig, ConfigError, parse


def load() -> ClusterConfig:
    """The cluster of the selected stack.

    Raises RunError, which the engine shows without a traceback, with every error of the configuration at once.
    """
    cluster = pulumi.Config("hpc").get_object("cluster")
    try:
        return parse({} if cluster is None else {"hpc:cluster": cluster})
    except ConfigError as error:
        raise pulumi.RunError(str(error)) from None
