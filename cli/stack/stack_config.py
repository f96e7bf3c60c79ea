"""The configuration and the platform in a stack file.

This module imports every model. Commands that only list stacks or read a state do without it.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from cli.errors import CliError
from cli.stack.stackfile import StackFile
from cluster.config import ClusterConfig
from cluster.findings import PROVIDERS, ROOT, ConfigError, Location
from cluster.load import parse as parse_settings
from cluster.load import parse_output
from cluster.platform_interface import Platform
from cluster.platforms import registry

_OF_FINDING = ("id", "where", "line", "given", "allowed", "todo")


class StackFileError(CliError):
    """A stack file has errors."""

    def __init__(self, file: StackFile, error: ConfigError) -> None:
        root = _compose(file.path)
        findings = [replace(found, line=_line(root, _steps(file, found.at))) for found in error.findings]
        error = ConfigError(findings, more=error.more, unchecked=error.unchecked)
        super().__init__(f"{file.path}: {error}")
        self.document = {
            "errors": [{key: getattr(finding, key) for key in _OF_FINDING} for finding in error.findings],
            "unchecked": error.unchecked,
        }


def _compose(path: Path) -> yaml.Node | None:
    """Return the nodes of a stack file that has been read before, for their lines; None if it can't be read now."""
    with suppress(OSError, UnicodeDecodeError, yaml.YAMLError):
        return yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    return None


def _steps(file: StackFile, at: Location | str) -> Iterable[str | int]:
    """Return the keys and list positions from the top of the stack file to the place of a finding."""
    if isinstance(at, tuple):
        return ("config", f"{at[0]}:{at[1]}") if len(at) == 2 and at[0] in PROVIDERS else ("config", ROOT, *at)
    if at.startswith(f"{ROOT}."):
        return ("config", ROOT, *at.removeprefix(f"{ROOT}.").split("."))
    return (at,) if at in file.beside else ("config", at)


def _line(node: yaml.Node | None, steps: Iterable[str | int]) -> int | None:
    """Return the line of a key or a list entry, or of the nearest one above it that the file has."""
    line = None
    for step in steps:
        below: dict[str | int, tuple[yaml.Node, yaml.Node]] = {}
        if isinstance(node, yaml.MappingNode):
            below = {key.value: (key, value) for key, value in node.value}
        elif isinstance(node, yaml.SequenceNode):
            below = {position: (entry, entry) for position, entry in enumerate(node.value)}
        if step not in below:
            break
        key, node = below[step]
        line = key.start_mark.line + 1
    return line


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
