"""A machine as every platform yields it: what Slurm's set-up needs to reach it and to know it again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_command import remote

from cluster.roster import MachineSpec

DIAL_ERROR_LIMIT = 10
PER_DIAL_TIMEOUT = 10
"""Seconds. Platforms yield machines that answer; ten tries, over ten seconds where one is refused, outlast an SSH
server that is just being restarted, and one that accepts and never speaks is given up after two minutes."""


@dataclass(frozen=True, kw_only=True)
class BootFile:
    """A file that a machine has before its first boot."""

    content: pulumi.Input[str] = ""
    mode: int = 0o644
    owner: str = "root:root"
    """User and group, by names that the image has or by number."""
    link: str | None = None
    """Target, if the file is a symbolic link; the rest is then without meaning."""


Boot = Mapping[str, BootFile]
"""Files by their absolute path. Changing them is an update in place, without a restart."""


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """A machine between here and there, which root enters with the same key."""

    host: pulumi.Input[str]
    host_key: pulumi.Input[str]
    """Public half of its SSH host key."""


@dataclass(frozen=True, kw_only=True)
class Reach:
    """How a machine is reached that does not answer here at its own address."""

    host: pulumi.Input[str] | None
    """None: the program does not log in to it."""
    port: int = 22
    proxy: Callable[[], Proxy] | None = None
    """Asked for once all machines are known: the one in between may be made after this one."""
    via: Callable[[], Mapping[str, Any]] | None = None
    """The same for who enters from outside of the program: {"jump": {...}} or {"iap": {...}}. None: at `host`."""
    dial_error_limit: int = DIAL_ERROR_LIMIT
    per_dial_timeout: int = PER_DIAL_TIMEOUT


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One machine that answers SSH as root."""

    spec: MachineSpec
    address: pulumi.Input[str]
    """Among the machines of its cluster."""
    instance_id: pulumi.Output[str]
    """New when the machine is made anew, and then only."""
    boot_id: pulumi.Output[str]
    """New at each start that this program made."""
    resource: pulumi.Resource
    """What stands for it in the stack: things on the machine need not be undone when it goes itself."""
    host_key: pulumi.Output[str]
    """Public half of its SSH host key, as known_hosts has it: there is no trust on first use. Empty where the machine
    makes it by itself, and tells it on the cluster's board."""
    reach: Reach | None = None
    """None: it answers here at its address."""

    def connection(self, private_key: pulumi.Input[str]) -> remote.ConnectionArgs:
        """How remote commands reach it, with the private half of the key that it was made with.

        Raises ValueError for a machine that the program does not log in to.
        """
        reach = self.reach
        if reach is None:
            return remote.ConnectionArgs(
                host=self.address,
                user="root",
                private_key=private_key,
                host_key=self.host_key,
                dial_error_limit=DIAL_ERROR_LIMIT,
                per_dial_timeout=PER_DIAL_TIMEOUT,
            )
        if reach.host is None:
            raise ValueError(f"{self.spec.name}: the program does not log in to it")
        return remote.ConnectionArgs(
            host=reach.host,
            port=reach.port,
            user="root",
            private_key=private_key,
            host_key=self.host_key,
            dial_error_limit=reach.dial_error_limit,
            per_dial_timeout=reach.per_dial_timeout,
            proxy=_proxy(reach, private_key),
        )

    @property
    def summary(self) -> Mapping[str, Any]:
        """Its row of the stack's output `machines`."""
        if self.reach is None:
            return self._row
        if self.reach.via is None:
            return {**self._row, "address": self.reach.host, "internal": self.address}
        return {**self._row, "via": self.reach.via()}

    @property
    def target(self) -> Mapping[str, Any]:
        """Its row of the stack's output `targets`: how it is reached."""
        via = self.reach.via() if self.reach and self.reach.via else {}
        if "iap" in via:
            return {**self._row, "method": "iap", **via["iap"]}
        if "jump" in via:
            return {**self._row, "method": "ssh", "jump": via["jump"]["name"]}
        return {**self.summary, "method": "ssh"}

    @property
    def _row(self) -> dict[str, Any]:
        return {"address": self.address, "roles": list(self.spec.roles), "host_key": self.host_key}


def _proxy(reach: Reach, private_key: pulumi.Input[str]) -> remote.ProxyConnectionArgs | None:
    if reach.proxy is None:
        return None
    proxy = reach.proxy()
    return remote.ProxyConnectionArgs(
        host=proxy.host,
        user="root",
        private_key=private_key,
        host_key=proxy.host_key,
        dial_error_limit=reach.dial_error_limit,
        per_dial_timeout=reach.per_dial_timeout,
    )
