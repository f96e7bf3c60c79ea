"""A machine as every platform yields it: what Slurm's set-up needs to reach and identify it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi_command import remote

from cluster.roster import MachineSpec

DIAL_ERROR_LIMIT = 10
PER_DIAL_TIMEOUT = 10
"""Seconds. Platforms yield machines that answer; ten tries, over ten seconds where one is refused, outlast an SSH
server that is just being restarted. One that accepts and never answers is given up after two minutes."""


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
    """The connection to a machine that does not answer here at its own address."""

    host: pulumi.Input[str] | None
    """The address; None: the program does not log in to it."""
    port: int = 22
    proxy: Callable[[], Proxy] | None = None
    """Called once all machines are known: the jump host may be created after this one."""
    via: Callable[[], Mapping[str, Any]] | None = None
    """The connection of commands outside of the program: {"jump": {...}} or {"iap": {...}}. None: at `host`."""
    dial_error_limit: int = DIAL_ERROR_LIMIT
    per_dial_timeout: int = PER_DIAL_TIMEOUT


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine that answers SSH as root."""

    spec: MachineSpec
    address: pulumi.Input[str]
    """Among the machines of its cluster."""
    instance_id: pulumi.Output[str]
    """Changes only when the machine is recreated."""
    boot_id: pulumi.Output[str]
    """Changes at each start by this program."""
    resource: pulumi.Resource
    """The machine's resource in the stack: nothing on the machine needs to be undone when it is deleted itself."""
    host_key: pulumi.Output[str]
    """Public half of its SSH host key, as known_hosts has it: there is no trust on first use. Empty where the machine
    generates it itself and reports it in the cluster state."""
    zone: pulumi.Output[str] | None = None
    """Its zone, if that is not the stack's own."""
    ends: pulumi.Output[int] | None = None
    """The time when the platform deletes it, in seconds since 1970, 0 where that is not known; None: it stays."""
    access: MachineAccess | None = None
    """The connection; None: it answers here at its address."""

    def connection(self, private_key: pulumi.Input[str]) -> remote.ConnectionArgs:
        """Return how remote commands reach it, with the private half of the key that it was made with.

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
        """The machine's row of the stack's output `targets`: how it is reached."""
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
class Elastic:
    """The way in which the controller creates and deletes machines of elastic nodes, and repairs those of others."""

    cloud: Mapping[str, pulumi.Input[str]]
    """The API that it calls: `ReconcileCloud` of scripts/node/interface.py."""
    templates: Mapping[str, Sequence[Mapping[str, pulumi.Input[Any]]]]
    """Of each elastic nodeset: `way` and `template`, in the order in which they are tried; of one without elastic nodes
    that is repaired: none."""
    token: pulumi.Output[str] | None = None
    """Authenticates the controller; the content of the file `token_file` of `cloud`. None where it has an identity of
    its own."""


@dataclass(frozen=True, kw_only=True)
class Machines:
    """Machines that answer SSH, and what Slurm's set-up must know of the platform."""

    machines: Sequence[Machine]
    """The machines in the roster's order."""
    mounts: Callable[[MachineSpec], Sequence[Mapping[str, pulumi.Input[Any]]]]
    """Shared file systems of a machine: source, target, fs_type, options."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Address of every machine by name, if the platform has it beforehand; else empty, and names are resolved."""
    state: Mapping[str, Any] | None = None
    """Folders that the controller keeps on a file system that outlives its machine."""
    exports: Mapping[str, Any] | None = None
    """Folders that the controller shares by NFS."""
    elastic: Elastic | None = None
    """None where no node is elastic, and none is repaired."""
    ready: Sequence[pulumi.Resource] = ()
    """Resources after which machines are configured."""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """Outputs of the platform, beside those of all stacks."""
