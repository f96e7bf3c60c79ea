"""The host's packet filter: traffic between machines passes, traffic from them to the host does not.

A job's traffic stays among the machines: services of the host that listen on all its addresses would answer it at the
bridge's own. The host reaches the machines, which may answer. The rules are a table of their own, called as the bridge.

Where the kernel shows bridged packets to iptables (container engines turn that on) and forwards nothing by default
(they set that too), machines of one bridge can't reach each other. One rule for traffic that stays on the bridge
changes that; it is removed with the bridge.
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


def shield(bridge: str) -> None:
    """Refuse connections from the machines on `bridge` to the host, whatever listens there.

    Without connection tracking, which would cost every packet between machines: what begins a TCP connection is
    refused, and all else but answers of TCP, and ICMP, is dropped. HostError where the kernel has no nf_tables.
    """
    rules = (
        # Made and emptied, so that a second time makes the same.
        f"table inet {bridge}\n"
        f"delete table inet {bridge}\n"
        f"table inet {bridge} {{\n"
        "  chain input {\n"
        "    type filter hook input priority filter; policy accept;\n"
        f'    iifname != "{bridge}" accept\n'
        "    tcp flags & (fin | syn | rst | ack) == syn reject with tcp reset\n"
        "    meta l4proto != { tcp, icmp } drop\n"
        "  }\n"
        "}\n"
    )
    run(["nft", "--file", "-"], stdin=rules)


def is_shielded(bridge: str) -> bool:
    """Whether the rules for `bridge` are there; taken for true where that can't be asked."""
    try:
        return f"inet {bridge}\n" in run(["nft", "list", "tables"])
    except HostError:
        return True


def unshield(bridge: str) -> None:
    """Remove the rules for `bridge`, if they are there."""
    if shutil.which("nft") and f"inet {bridge}\n" in run(["nft", "list", "tables"]):
        run(["nft", "delete", "table", "inet", bridge])


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
