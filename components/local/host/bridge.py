"""A stack's network on the host: a bridge with the gateway's address, without a route to the outside, and its firewall.

Which bridges are ours is written on them (the interface's alias), so that nothing else is ever changed or removed.

Traffic between machines passes, traffic from them to the host does not: a job's traffic stays among the machines, and
services of the host that listen on all its addresses would answer it at the bridge's own. The host reaches the
machines, which may answer. The rules are a table of their own, called as the bridge. Where there are elastic nodes, the
controller reaches the port of the process that creates their machines.

Where the kernel shows bridged packets to iptables (container engines turn that on) and forwards nothing by default
(they set that too), machines of one bridge can't reach each other. One rule for traffic that stays on the bridge
changes that; it is removed with the bridge.

Interface names have 15 characters, and two stacks may each have a machine of the same name, so that a name which is
long, or belongs to another root than the usual one, is shortened to a digest of (root, stack, machine).
"""

import hashlib
import ipaddress
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from components.local.host.paths import DEFAULT_ROOT, HostError
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


def shield(bridge: str, open_to: Mapping[str, int] | None = None) -> None:
    """Refuse connections from the machines on `bridge` to the host, whatever listens there; but for a port each that is
    open to the machines of some addresses.

    Without connection tracking, which would cost every packet between machines: what begins a TCP connection is
    refused, and all else but answers of TCP, and ICMP, is dropped. HostError where the kernel has no nf_tables.
    """
    opened = [f"    ip saddr {address} tcp dport {port} accept\n" for address, port in sorted((open_to or {}).items())]
    rules = (
        # Made and emptied, so that a second time makes the same.
        f"table inet {bridge}\n"
        f"delete table inet {bridge}\n"
        f"table inet {bridge} {{\n"
        "  chain input {\n"
        "    type filter hook input priority filter; policy accept;\n"
        f'    iifname != "{bridge}" accept\n'
        f"{''.join(opened)}"
        "    tcp flags & (fin | syn | rst | ack) == syn reject with tcp reset\n"
        "    meta l4proto != { tcp, icmp } drop\n"
        "  }\n"
        "}\n"
    )
    run(["nft", "--file", "-"], stdin=rules)


def is_shielded(bridge: str) -> bool:
    """Return whether the rules for `bridge` are there; taken for true where that can't be asked."""
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


_INTERFACES = Path("/sys/class/net")


def exists(bridge: str) -> bool:
    """Return whether an interface of this name is there and up."""
    try:
        return bool(int((_INTERFACES / bridge / "flags").read_text(), 16) & 1)  # IFF_UP (linux/if.h)
    except FileNotFoundError:
        return False


def cut(bridge: str, cable: str) -> bool:
    """Return whether the host's end of a machine's cable is not in the bridge, not up, or not connected at its other
    end."""
    port = _INTERFACES / cable
    try:
        plugged = (port / "master").resolve().name == bridge and int((port / "flags").read_text(), 16) & 1
        return not (plugged and (port / "carrier").read_text().strip() == "1")
    except OSError:  # gone, or down: a carrier can't be asked for then
        return True


def plug(bridge: str, cable: str) -> None:
    """Put the host's end of a machine's cable into the bridge again, and set it up."""
    run(["ip", "link", "set", "dev", cable, "master", bridge, "up"])


def alias(root: Path, stack: str) -> str:
    """The mark on a stack's bridge."""
    return f"{mark(root)}{stack}"


def mark(root: Path) -> str:
    """Return how the marks of all stacks under `root` begin."""
    return f"hpc machines under {root}: "


def ensure(
    bridge: str, root: Path, stack: str, address: ipaddress.IPv4Interface, open_to: Mapping[str, int] | None = None
) -> None:
    """Make the bridge, or give it the right address; HostError if another interface has the name. `open_to` as for
    `shield`."""
    if not (_INTERFACES / bridge).exists():
        run(["ip", "link", "add", "dev", bridge, "type", "bridge", "forward_delay", "0"])
    elif _alias_of(bridge) != alias(root, stack) and not _is_half_made(bridge):
        msg = f"network interface {bridge}: exists on this host and was not made for stack {stack}; remove or rename it"
        raise HostError(msg)
    run(["ip", "link", "set", "dev", bridge, "alias", alias(root, stack)])
    # Machines speak IPv4 to each other; no router advertisement of a neighbour may give them a way out.
    no_ipv6 = Path(f"/proc/sys/net/ipv6/conf/{bridge}/disable_ipv6")
    if no_ipv6.exists():
        no_ipv6.write_text("1")
    for given in _addresses(bridge):
        if given != address:
            run(["ip", "address", "del", str(given), "dev", bridge])
    if address not in _addresses(bridge):
        run(["ip", "address", "add", str(address), "dev", bridge])
    let_through(bridge)
    shield(bridge, open_to)
    run(["ip", "link", "set", "dev", bridge, "up"])


def remove(bridge: str, root: Path, stack: str) -> None:
    """Remove the stack's bridge, if it is there and is the stack's, and the rules for it."""
    if not (_INTERFACES / bridge).exists():
        unshield(bridge)
    if (_INTERFACES / bridge).exists() and _alias_of(bridge) == alias(root, stack):
        forget(bridge)
        unshield(bridge)
        run(["ip", "link", "del", "dev", bridge])


def remove_cable(interface: str) -> None:
    """Remove the host's end of a machine's cable; the kernel does so itself a moment after the machine's end."""
    if (_INTERFACES / interface).exists():
        try:
            run(["ip", "link", "del", "dev", interface])
        except HostError:
            if (_INTERFACES / interface).exists():
                raise


def ours(root: Path) -> list[str]:
    return sorted(path.name for path in _INTERFACES.iterdir() if _alias_of(path.name).startswith(mark(root)))


def taken_by(network: ipaddress.IPv4Network, *, but: str) -> str | None:
    """Return which interface or route, other than `but`, uses addresses of `network` on this host; None if none
    does."""
    for interface, what, theirs in [*_own_networks(), *_routes()]:
        if interface != but and theirs.overlaps(network):
            return what
    return None


def _own_networks() -> Iterator[tuple[str, str, ipaddress.IPv4Network]]:
    for interface in _ip("address"):
        for found in interface.get("addr_info", []):
            if found.get("family") == "inet":
                address = ipaddress.IPv4Interface(f"{found['local']}/{found['prefixlen']}")
                yield interface["ifname"], f"interface {interface['ifname']} ({address})", address.network


def _routes() -> Iterator[tuple[str, str, ipaddress.IPv4Network]]:
    for route in _ip("route"):
        if route["dst"] != "default":
            device = route.get("dev", "")
            over = f"over {device}" if device else f"({route.get('type', 'without a device')})"
            yield device, f"the route to {route['dst']} {over}", ipaddress.IPv4Network(route["dst"], strict=False)


def _is_half_made(bridge: str) -> bool:
    """A bare bridge without a mark: what a run leaves that is killed between making and marking it."""
    ports = _INTERFACES / bridge / "brif"
    return not _alias_of(bridge) and ports.is_dir() and not any(ports.iterdir()) and not _addresses(bridge)


def _ip(what: str) -> list[dict[str, Any]]:
    return json.loads(run(["ip", "-4", "-json", what, "show"]) or "[]")


def _addresses(bridge: str) -> list[ipaddress.IPv4Interface]:
    return [
        ipaddress.IPv4Interface(f"{found['local']}/{found['prefixlen']}")
        for interface in _ip("address")
        if interface["ifname"] == bridge
        for found in interface.get("addr_info", [])
    ]


def _alias_of(interface: str) -> str:
    try:
        return (_INTERFACES / interface / "ifalias").read_text().strip()
    except OSError:
        return ""


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
    """Return what nspawn calls the machine; its host-side interface is `vb-` and this, 15 characters together."""
    return "h" + _digest(str(root), stack, machine, length=11)


def interface_name(root: Path, stack: str, machine: str) -> str:
    """The host-side end of the machine's network cable, as systemd-nspawn --network-bridge names it."""
    return "vb-" + machine_id(root, stack, machine)


def _digest(*parts: str, length: int) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:length]
