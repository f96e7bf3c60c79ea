"""A file system that machines share."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import pulumi

from cluster.config import ClusterConfig
from cluster.platforms.gcp.filesystems.base import FileSystem
from components.gcp.network import Network

Kind = TypeVar("Kind", bound=FileSystem)


@dataclass(frozen=True, kw_only=True)
class FileSystemArgs(Generic[Kind]):
    config: ClusterConfig
    kind: Kind
    network: Network
    accounts: Mapping[str, pulumi.Input[str]]
    """Email of the service account of each role: controller, login, node."""


class FileSystemComponent(pulumi.ComponentResource, ABC, Generic[Kind]):
    """What machines and people need to know of a file system."""

    TYPE: ClassVar[str]
    """Type of the resource."""
    source: pulumi.Output[str] | None = None
    """What is mounted, such as ADDRESS:/SHARE, where that is known only once it is made."""
    facts: Any
    """Its entry in the stack's outputs."""
    ready: list[pulumi.Resource]
    """What machines that mount it depend on."""
    probe: pulumi.Output[str] | None = None
    """A shell command that waits until it answers; None where it does as soon as it is made."""

    def __init__(self, name: str, args: FileSystemArgs[Kind], *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(self.TYPE, name, {}, opts)
        self.name, self.args = name, args
        self.make()

    @abstractmethod
    def make(self) -> None:
        """Make its resources, set the above, and register outputs."""
