"""A way through the host's packet filter for traffic between machines.

Where the kernel shows bridged packets to iptables (container engines turn that on) and forwards nothing unless told to
(they set that too), machines of one bridge can't reach each other. One rule for traffic that stays on the bridge
changes that; it goes with the bridge.
"""

import shutil
from pathlib import Path

from components.local.host.errors import HostError
from components.local.host.process import run

_SHOWN = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")


def let_through(bridge: str) -> None:
    """Add the rule for `bridge`, where there is need and it is not there."""
    if _is_shown() and not _has_rule(bridge):
        run(["iptables", "-w", "-I", "FORWARD", *_rule(bridge)])


def forget(bridge: str) -> None:
    """Remove the rule for `bridge`, if it is there."""
    while _is_shown() and _has_rule(bridge):
        run(["iptables", "-w", "-D", "FORWARD", *_rule(bridge)])


def _is_shown() -> bool:
    return _SHOWN.exists() and _SHOWN.read_text().strip() == "1" and shutil.which("iptables") is not None


def _has_rule(bridge: str) -> bool:
    try:
        run(["iptables", "-w", "-C", "FORWARD", *_rule(bridge)])
    except HostError:
        return False
    return True


def _rule(bridge: str) -> list[str]:
    return ["-i", bridge, "-o", bridge, "-m", "comment", "--comment", "hpc machines", "-j", "ACCEPT"]
