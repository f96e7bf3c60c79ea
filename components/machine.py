"""Machines as every platform returns them, for Slurm's set-up."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi_command import remote

from cluster.roster import MachineSpec

DIAL_ERROR_LIMIT = 10
PER_DIAL_TIMEOUT = 10
"""Seconds. Machines answer when a platform returns them. Ten tries, ten seconds in all if each is refused, are enough
for an SSH server that is being restarted. One that accepts and never answers is given up after two minutes."""


@dataclass(frozen=True, kw_only=True)
class BootFile:
    """A file that a machine has before its first boot."""

    content: pulumi.Input[str] = ""
    mode: int = 0o644
    owner: str = "root:root"
    """User and group, by names that the image has or by number."""
    link: str | None = None
    """Target, if the file is a symbolic link; the other fields are then ignored."""


Boot = Mapping[str, BootFile]
"""Files by their absolute path. Changing them is an update in place, without a restart."""


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """A jump host, which root logs in to with the same key."""

    host: pulumi.Input[str]
    host_key: pulumi.Input[str]
    """Public half of its SSH host key."""


@dataclass(frozen=True, kw_only=True)
class MachineAccess:
    """The connection to a machine that can't be reached from here at its own address."""

    host: pulumi.Input[str] | None
    """The address; None if the program does not log in to the machine."""
    port: int = 22
    proxy: Callable[[], Proxy] | None = None
    """Returns the jump host. Called when all machines are known, since the jump host may be created later."""
    via: Callable[[], Mapping[str, Any]] | None = None
    """Returns the connection for commands of `./hpc`: {"jump": {...}} or {"iap": {...}}. None: at `host`."""
    dial_error_limit: int = DIAL_ERROR_LIMIT
    per_dial_timeout: int = PER_DIAL_TIMEOUT


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine that answers SSH as root."""

    spec: MachineSpec
    address: pulumi.Input[str]
    """Its address in the cluster's network."""
    instance_id: pulumi.Output[str]
    """Changes only when the machine is recreated."""
    boot_id: pulumi.Output[str]
    """Changes at each start by this program."""
    resource: pulumi.Resource
    """Its resource in the stack. Commands that undo a phase do not run if this is deleted too."""
    host_key: pulumi.Output[str]
    """Public half of its SSH host key, in the form of known_hosts: there is no trust on first use. Empty if the machine
    generates it and reports it in the cluster state."""
    ends: pulumi.Output[int] | None = None
    """The time when the platform deletes it, in seconds since 1970, 0 if it is not known; None if it stays."""
    access: MachineAccess | None = None
    """The connection; None if it can be reached from here at its address."""

    def connection(self, private_key: pulumi.Input[str]) -> remote.ConnectionArgs:
        """Return the connection of remote commands, with the private half of the machine's admin key.

        Raises ValueError for a machine that the program does not log in to.
        """
        access = self.access or MachineAccess(host=self.address)
        if access.host is None:
            raise ValueError(f"{self.spec.name}: the program does not log in to it")
        limits: dict[str, Any]
        limits = {"dial_error_limit": access.dial_error_limit, "per_dial_timeout": access.per_dial_timeout}
        proxy = None
        if access.proxy is not None:
            jump = access.proxy()
            proxy = remote.ProxyConnectionArgs(
                host=jump.host, user="root", private_key=private_key, host_key=jump.host_key, **limits
            )
        return remote.ConnectionArgs(
            host=access.host,
            port=access.port,
            user="root",
            private_key=private_key,
            host_key=self.host_key,
            proxy=proxy,
            **limits,
        )

    @property
    def summary(self) -> Mapping[str, Any]:
        """The machine's row of the stack's output `machines`."""
        if self.access is None:
            return self._row
        if self.access.via is None:
            return {**self._row, "address": self.access.host, "internal": self.address}
        return {**self._row, "via": self.access.via()}

    @property
    def target(self) -> Mapping[str, Any]:
        """The machine's row of the stack's output `targets`, with its connection."""
        via = self.access.via() if self.access and self.access.via else {}
        if "iap" in via:
            return {**self._row, "method": "iap", **via["iap"]}
        if "jump" in via:
            return {**self._row, "method": "ssh", "jump": via["jump"]["name"]}
        return {**self.summary, "method": "ssh", **({} if self.access else {"here": True})}

    @property
    def _row(self) -> dict[str, Any]:
        return {"address": self.address, "roles": list(self.spec.roles), "host_key": self.host_key}


@dataclass(frozen=True, kw_only=True)
class ElasticApi:
    """The API with which the controller creates and deletes machines of elastic nodes, and repairs those of others."""

    cloud: Mapping[str, pulumi.Input[str]]
    """`ReconcileCloud` of scripts/node/interface.py."""
    templates: Mapping[str, Sequence[Mapping[str, pulumi.Input[Any]]]]
    """`way` and `template` of each elastic nodeset, in the order in which they are tried; none for a nodeset without
    elastic nodes that is repaired."""
    token: pulumi.Output[str] | None = None
    """Authenticates the controller: the content of the file `token_file` of `cloud`. None if the controller has an
    identity in the cloud."""


@dataclass(frozen=True, kw_only=True)
class Machines:
    """Machines that answer SSH, and the platform's facts for Slurm's set-up."""

    platform: pulumi.Resource
    """The component whose children all of the platform's resources are."""
    machines: Sequence[Machine]
    """The machines in the roster's order."""
    mounts: Callable[[MachineSpec], Sequence[Mapping[str, pulumi.Input[Any]]]]
    """Shared file systems of a machine: source, target, fs_type, options."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Address of every machine by name if the platform assigns them itself; else empty, and names are resolved."""
    state: Mapping[str, Any] | None = None
    """Folders that the controller keeps on a file system that outlives its machine."""
    exports: Mapping[str, Any] | None = None
    """Folders that the controller shares by NFS."""
    elastic: ElasticApi | None = None
    """None if no node is elastic or repaired."""
    ready: Sequence[pulumi.Resource] = ()
    """Resources after which machines are configured."""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """Outputs of the platform, beside those of all stacks."""
