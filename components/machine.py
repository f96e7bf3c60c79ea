"""A machine as every platform yields it: what Slurm's set-up needs to reach it and to know it again."""

from collections.abc import Mapping
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
class Machine:
    """One machine that answers SSH as root."""

    spec: MachineSpec
    address: pulumi.Input[str]
    instance_id: pulumi.Output[str]
    """New when the machine is made anew, and then only."""
    boot_id: pulumi.Output[str]
    """New at each start that this program made."""
    resource: pulumi.Resource
    """What stands for it in the stack: things on the machine need not be undone when it goes itself."""
    host_key: pulumi.Output[str]
    """Public half of its SSH host key, as known_hosts has it: there is no trust on first use."""

    def connection(self, private_key: pulumi.Input[str]) -> remote.ConnectionArgs:
        """How remote commands reach it, with the private half of the key that it was made with."""
        return remote.ConnectionArgs(
            host=self.address,
            user="root",
            private_key=private_key,
            host_key=self.host_key,
            dial_error_limit=DIAL_ERROR_LIMIT,
            per_dial_timeout=PER_DIAL_TIMEOUT,
        )

    @property
    def summary(self) -> Mapping[str, Any]:
        """What the stack's outputs say of it: enough to log in."""
        return {"address": self.address, "roles": list(self.spec.roles), "host_key": self.host_key}
