"""The stack's configuration, read once by the program."""

from pathlib import Path

import pulumi

from cluster.checks.run import find_warnings
from cluster.config import ClusterConfig
from cluster.findings import ConfigError, Level
from cluster.load.parse import parse, provider_keys
from cluster.slurm.script_tree import Tree, tree

PROJECT = Path(__file__).parents[1]


def load() -> ClusterConfig:
    """The cluster of the selected stack.

    Logs its warnings. Raises RunError, which the engine shows without a traceback, with every error of the
    configuration at once.
    """
    hpc = pulumi.Config("hpc")
    try:
        cluster = hpc.get_object("cluster")
    except pulumi.ConfigTypeError:
        cluster = hpc.get("cluster")  # parse reports its type; this error would show all of its text
    provider = {
        f"{namespace}:{key}": value
        for namespace, keys in provider_keys().items()
        for key in keys
        if (value := pulumi.Config(namespace).get(key))
    }
    try:
        config = parse(provider if cluster is None else {"hpc:cluster": cluster, **provider})
    except ConfigError as error:
        raise pulumi.RunError(str(error)) from None
    for finding in find_warnings(config):
        (pulumi.log.info if finding.level is Level.INFO else pulumi.log.warn)(str(finding))
    return config


def load_scripts(config: ClusterConfig) -> Tree:
    """The scripts that run before and after jobs, with the files read that are beside the project.

    Raises RunError with every file that is missing or is no script, before anything is created.
    """
    try:
        return tree(config, PROJECT)
    except ConfigError as error:
        raise pulumi.RunError(str(error)) from None
