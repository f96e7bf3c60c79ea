"""All file systems that the machines of a stack share, but the controller's own exports."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from cluster.config import ClusterConfig
from cluster.platforms.gcp.filesystems.mounts import mounts
from cluster.roster import MachineSpec
from components.gcp.network.network import Network
from components.gcp.storage.buckets import Buckets, BucketsArgs
from components.gcp.storage.exascaler import ExascalerLustre
from components.gcp.storage.filestore import FilestoreShare, FilestoreShareArgs
from components.gcp.storage.lustre import LustreArgs, LustreFileSystem
from components.gcp.storage.managed_lustre import ManagedLustre


@dataclass(frozen=True, kw_only=True)
class StorageArgs:
    """What to make, where, and for whom."""

    config: ClusterConfig
    network: Network
    accounts: Mapping[str, pulumi.Input[str]]
    """Email of the service account of each role: controller, login, node."""


class Storage(pulumi.ComponentResource):
    """Lustre, Filestore and buckets, as far as the stack file asks for them."""

    lustre: LustreFileSystem | None
    facts: dict[str, Any]
    """What the stack's outputs say: `lustre`, `filestore` and `buckets`, each where there is one."""
    ready: list[pulumi.Resource]
    """What machines that mount any of it depend on."""

    def __init__(self, name: str, args: StorageArgs, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:gcp:Storage", name, {}, opts)
        config, network = args.config, args.network
        child = pulumi.ResourceOptions(parent=self)
        self._config = config
        self._sources: dict[str, pulumi.Output[str]] = {}
        self.lustre, self.facts, self.ready = None, {}, []
        if config.storage.lustre:
            kind = ExascalerLustre if config.storage.lustre.kind == "exascaler" else ManagedLustre
            made = kind(
                f"{name}-lustre", LustreArgs(config=config, lustre=config.storage.lustre, network=network), opts=child
            )
            self.lustre, self._sources["lustre"] = made, made.source
            self.facts["lustre"], self.ready = made.facts, [*self.ready, *made.ready]
        if config.storage.filestore:
            share = FilestoreShare(
                f"{name}-filestore",
                FilestoreShareArgs(config=config, filestore=config.storage.filestore, network=network),
                opts=child,
            )
            self._sources["filestore"] = share.source
            self.facts["filestore"], self.ready = share.facts, [*self.ready, *share.ready]
        if config.storage.buckets:
            buckets = Buckets(f"{name}-buckets", BucketsArgs(config=config, accounts=args.accounts), opts=child)
            self.facts["buckets"] = {one.name: one.mount for one in config.storage.buckets}
            self.ready += buckets.ready
        self.register_outputs({"facts": self.facts, "sources": self._sources})

    def mounts(self, spec: MachineSpec) -> list[dict[str, pulumi.Input[str]]]:
        """What a machine mounts, parents first, as its set-up wants it: source, target, fs_type, options."""
        return [
            {
                "source": one.source or self._sources[one.kind],
                "target": one.target,
                "fs_type": one.fs_type,
                "options": one.options,
            }
            for one in mounts(self._config, spec)
        ]
