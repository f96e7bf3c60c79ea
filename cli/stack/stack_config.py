"""The configuration and the platform in a stack file.

This module imports every model. Commands that only list stacks or read a state do without it.
"""

from collections.abc import Mapping
from typing import Any

from cli.errors import CliError
from cli.stack.stackfile import StackFile
from cluster.config import ClusterConfig
from cluster.findings import ConfigError
from cluster.load import parse as parse_settings
from cluster.load import parse_output
from cluster.platform_interface import Platform
from cluster.platforms import registry

_OF_FINDING = ("id", "where", "given", "allowed", "todo")


class StackFileError(CliError):
    """A stack file has errors."""

    def __init__(self, file: StackFile, error: ConfigError) -> None:
        super().__init__(f"{file.path}: {error}")
        self.document = {
            "errors": [{key: getattr(finding, key) for key in _OF_FINDING} for finding in error.findings],
            "unchecked": error.unchecked,
        }


def parse(file: StackFile) -> ClusterConfig:
    """Return the configuration in a stack file.

    Raises:
        StackFileError: every error of the file at once, under the file's name.
    """
    try:
        return parse_settings(file.settings or {}, file.beside)
    except ConfigError as error:
        raise StackFileError(file, error) from None


def from_outputs(stack: str, outputs: Mapping[str, Any]) -> ClusterConfig:
    """Return the configuration with which a stack was brought up. Raises CliError: its outputs have none."""
    if (config := applied(outputs)) is None:
        raise CliError(f"stack {stack} has no output config. Bring it up to date with: ./hpc up {stack}")
    return config


def applied(outputs: Mapping[str, Any]) -> ClusterConfig | None:
    """Return the configuration of a stack's last `up`; None if its outputs have none. Raises ConfigError."""
    return parse_output(outputs["config"]) if outputs.get("config") else None


def platform_of(file: StackFile) -> Platform | None:
    """Return the platform of a stack; None if its file names none, or one that this version does not have."""
    return registry.get(file.platform) if file.platform in registry.names() else None


def on_this_host(file: StackFile) -> bool:
    """Return whether the cluster's machines run on this host."""
    platform = platform_of(file)
    return platform is not None and platform.on_this_host


def needs_cli(file: StackFile) -> bool:
    """Return whether only the Pulumi CLI can create the resources: their provider logs in, or the platform is
    unknown."""
    platform = platform_of(file)
    return file.platform is not None and (platform is None or platform.login is not None)


def protected(file: StackFile) -> bool:
    """Return whether destroying needs a confirmation: data is protected, or the cluster is not a rehearsal."""
    return file.deletion_protection or not (on_this_host(file) or file.rehearses)
