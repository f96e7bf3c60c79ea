"""All file systems that the machines of a stack share, but the controller's own exports."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pulumi

from cluster.config import ClusterConfig
from cluster.platforms.gcp.filesystems.mounts import mounts
from cluster.platforms.gcp.filesystems.registry import file_systems
from cluster.roster import MachineSpec
from components.gcp.network.network import Network
from components.gcp.storage.base import FileSystemArgs, FileSystemComponent


@dataclass(frozen=True, kw_only=True)
class StorageArgs:
    config: ClusterConfig
    network: Network
    accounts: Mapping[str, pulumi.Input[str]]
    """Email of the service account of each role: controller, login, node."""


class Storage(pulumi.ComponentResource):
    """Every kind of file system that the stack file asks for."""

    facts: dict[str, Any]
    """The entries in the stack's outputs, by the key of each kind."""
    ready: list[pulumi.Resource]
    """What machines that mount any of it depend on."""
    probe: pulumi.Output[str] | None
    """A shell command that waits until the file systems answer that do not as soon as they are made."""

    def __init__(self, name: str, args: StorageArgs, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:gcp:Storage", name, {}, opts)
        self._config = args.config
        made: dict[str, FileSystemComponent] = {}
        for kind in file_systems(args.config):
            module, _, component = kind.component.partition(":")
            made[kind.key] = getattr(import_module(module), component)(
                f"{name}-{kind.key}",
                FileSystemArgs(config=args.config, kind=kind, network=args.network, accounts=args.accounts),
                opts=pulumi.ResourceOptions(parent=self),
            )
        self._sources = {key: one.source for key, one in made.items() if one.source is not None}
        self.facts = {key: one.facts for key, one in made.items()}
        self.ready = [resource for one in made.values() for resource in one.ready]
        self.probe = next((one.probe for one in made.values() if one.probe is not None), None)
        self.register_outputs({"facts": self.facts, "sources": self._sources})

    def mounts(self, spec: MachineSpec) -> list[dict[str, pulumi.Input[str]]]:
        """What a machine mounts, parents first, as its set-up takes it: source, target, fs_type, options."""
        return [
            {
                "source": one.source or self._sources[one.kind], "target": one.target, "fs_type": one.fs_type,
                "options": one.options,
            }
            for one in mounts(self._config, spec)
        ]  # fmt: skip
