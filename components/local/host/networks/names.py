"""Names that the host's kernel sees: bridges, network interfaces, nspawn machines, control groups.

Interface names have 15 characters, and two stacks may each have a machine of the same name, so that a name which is
long, or belongs to another root than the usual one, is shortened to a digest of (root, stack, machine).
"""

import hashlib
from pathlib import Path

from components.local.host.paths import DEFAULT_ROOT

INTERFACE_LIMIT = 15  # IFNAMSIZ (linux/if.h) less the closing zero
PREFIX = "hpc-"
PREFIX_DIGEST = "hpc_"


def bridge_name(root: Path, stack: str) -> str:
    """The stack's bridge, and, as nothing else on the host is called so, the stack's name on the host.

    `hpc-<stack>` where that fits, else `hpc_<digest>`: the two can't meet.
    """
    name = PREFIX + stack
    if root == DEFAULT_ROOT and len(name) <= INTERFACE_LIMIT:
        return name
    return PREFIX_DIGEST + _digest(str(root), stack, length=INTERFACE_LIMIT - len(PREFIX_DIGEST))


def machine_id(root: Path, stack: str, machine: str) -> str:
    """What nspawn calls the machine; its host-side interface is `vb-` and this, 15 characters together."""
    return "h" + _digest(str(root), stack, machine, length=11)


def interface_name(root: Path, stack: str, machine: str) -> str:
    """The host-side end of the machine's network cable, as systemd-nspawn --network-bridge names it."""
    return "vb-" + machine_id(root, stack, machine)


def _digest(*parts: str, length: int) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:length]
