"""A stack's network on the host: a bridge with the gateway's address, without a route to the outside, and its firewall.

The alias of a bridge identifies it as one of this program, so that nothing else is ever changed or removed.

Machines reach each other, but not the host: services of the host that listen on all addresses would answer at the
bridge's address. The host reaches the machines, which may answer. These rules are an nftables table with the bridge's
name. With elastic nodes the controller reaches the port of the process that creates their machines.

Container engines have the kernel filter bridged packets with iptables, and drop forwarded ones by default. Then
machines of one bridge can't reach each other. One rule accepts traffic that stays on the bridge; it is removed with it.

Interface names have 15 characters at most, and two stacks may have machines of the same name. So a name that is long,
or belongs to another root than the default, is a digest of (root, stack, machine).
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

_BRIDGE_NF = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")


def allow_bridged_traffic(bridge: str) -> None:
    """Add the iptables rule for `bridge` if it is needed and missing."""
    if _iptables_filters_bridges() and not _has_rule(bridge):
        run(["iptables", "-w", "-I", "FORWARD", *_rule(bridge)])


def remove_bridged_rule(bridge: str) -> None:
    """Remove the iptables rule for `bridge` if it exists."""
    while _iptables_filters_bridges() and _has_rule(bridge):
        run(["iptables", "-w", "-D", "FORWARD", *_rule(bridge)])


def shield(bridge: str, open_to: Mapping[str, int] | None = None) -> None:
    """Refuse connections from the machines on `bridge` to the host. `open_to` has exceptions: a port for the address of
    a machine.

    Connection tracking would slow down every packet between machines. Instead the first packet of a TCP connection is
    refused, and everything else but other packets of TCP, and ICMP, is dropped. Raises HostError: the kernel has no
    nf_tables.
    """
    opened = [f"    ip saddr {address} tcp dport {port} accept\n" for address, port in sorted((open_to or {}).items())]
    rules = (
        # The table is created and deleted first, so that a second run has the same result.
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
    """Return whether the rules for `bridge` exist; True if nft does not work."""
    try:
        return f"inet {bridge}\n" in run(["nft", "list", "tables"])
    except HostError:
        return True


def unshield(bridge: str) -> None:
    """Remove the rules for `bridge` if they exist."""
    if shutil.which("nft") and f"inet {bridge}\n" in run(["nft", "list", "tables"]):
        run(["nft", "delete", "table", "inet", bridge])


def _iptables_filters_bridges() -> bool:
    return _BRIDGE_NF.exists() and _BRIDGE_NF.read_text().strip() == "1" and shutil.which("iptables") is not None


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
    """Return whether an interface of this name exists and is up."""
    try:
        return bool(int((_INTERFACES / bridge / "flags").read_text(), 16) & 1)  # IFF_UP (linux/if.h)
    except FileNotFoundError:
        return False


def is_disconnected(bridge: str, cable: str) -> bool:
    """Return whether the host's end of a machine's cable is not in the bridge, not up, or not connected at its other
    end."""
    port = _INTERFACES / cable
    try:
        plugged = (port / "master").resolve().name == bridge and int((port / "flags").read_text(), 16) & 1
        return not (plugged and (port / "carrier").read_text().strip() == "1")
    except OSError:  # it does not exist, or is down: then its carrier can't be read
        return True


def reconnect(bridge: str, cable: str) -> None:
    """Connect the host's end of a machine's cable to the bridge again, and set it up."""
    run(["ip", "link", "set", "dev", cable, "master", bridge, "up"])


def alias(root: Path, stack: str) -> str:
    """Return the alias of a stack's bridge."""
    return f"{mark(root)}{stack}"


def mark(root: Path) -> str:
    """Return the beginning of the aliases of all stacks under `root`."""
    return f"hpc machines under {root}: "


def ensure(
    bridge: str, root: Path, stack: str, address: ipaddress.IPv4Interface, open_to: Mapping[str, int] | None = None
) -> None:
    """Create the bridge, or correct its address and rules. `open_to` as for `shield`. Raises HostError: another
    interface has the name."""
    if not (_INTERFACES / bridge).exists():
        run(["ip", "link", "add", "dev", bridge, "type", "bridge", "forward_delay", "0"])
    elif _alias_of(bridge) != alias(root, stack) and not _is_half_made(bridge):
        msg = f"network interface {bridge}: exists on this host and was not made for stack {stack}; remove or rename it"
        raise HostError(msg)
    run(["ip", "link", "set", "dev", bridge, "alias", alias(root, stack)])
    # Machines use IPv4 only. A router advertisement of a neighbour must not give them a route to the outside.
    no_ipv6 = Path(f"/proc/sys/net/ipv6/conf/{bridge}/disable_ipv6")
    if no_ipv6.exists():
        no_ipv6.write_text("1")
    for other in _addresses(bridge):
        if other != address:
            run(["ip", "address", "del", str(other), "dev", bridge])
    if address not in _addresses(bridge):
        run(["ip", "address", "add", str(address), "dev", bridge])
    allow_bridged_traffic(bridge)
    shield(bridge, open_to)
    run(["ip", "link", "set", "dev", bridge, "up"])


def remove(bridge: str, root: Path, stack: str) -> None:
    """Remove the stack's bridge, and the rules for it. An interface that is not the stack's stays."""
    if not (_INTERFACES / bridge).exists():
        unshield(bridge)
    if (_INTERFACES / bridge).exists() and _alias_of(bridge) == alias(root, stack):
        remove_bridged_rule(bridge)
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


def bridges_of_root(root: Path) -> list[str]:
    return sorted(path.name for path in _INTERFACES.iterdir() if _alias_of(path.name).startswith(mark(root)))


def taken_by(network: ipaddress.IPv4Network, *, but: str) -> str | None:
    """Return the interface or route, other than `but`, that uses addresses of `network` on this host; None if none
    does."""
    for interface, description, used in [*_interface_networks(), *_routes()]:
        if interface != but and used.overlaps(network):
            return description
    return None


def _interface_networks() -> Iterator[tuple[str, str, ipaddress.IPv4Network]]:
    for interface in _ip("address"):
        for info in interface.get("addr_info", []):
            if info.get("family") == "inet":
                address = ipaddress.IPv4Interface(f"{info['local']}/{info['prefixlen']}")
                yield interface["ifname"], f"interface {interface['ifname']} ({address})", address.network


def _routes() -> Iterator[tuple[str, str, ipaddress.IPv4Network]]:
    for route in _ip("route"):
        if route["dst"] != "default":
            device = route.get("dev", "")
            over = f"over {device}" if device else f"({route.get('type', 'without a device')})"
            yield device, f"the route to {route['dst']} {over}", ipaddress.IPv4Network(route["dst"], strict=False)


def _is_half_made(bridge: str) -> bool:
    """Return whether this is an unused bridge without an alias, as of a run that was killed before it set that."""
    ports = _INTERFACES / bridge / "brif"
    return not _alias_of(bridge) and ports.is_dir() and not any(ports.iterdir()) and not _addresses(bridge)


def _ip(what: str) -> list[dict[str, Any]]:
    return json.loads(run(["ip", "-4", "-json", what, "show"]) or "[]")


def _addresses(bridge: str) -> list[ipaddress.IPv4Interface]:
    return [
        ipaddress.IPv4Interface(f"{info['local']}/{info['prefixlen']}")
        for interface in _ip("address")
        if interface["ifname"] == bridge
        for info in interface.get("addr_info", [])
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
    """Return the name of the stack's bridge, which is unique on the host.

    It is `hpc-<stack>` if that fits, else `hpc_<digest>`: the two forms can't be equal.
    """
    name = PREFIX + stack
    if root == DEFAULT_ROOT and len(name) <= INTERFACE_LIMIT:
        return name
    return PREFIX_DIGEST + _digest(str(root), stack, length=INTERFACE_LIMIT - len(PREFIX_DIGEST))


def machine_id(root: Path, stack: str, machine: str) -> str:
    """Return the machine's name for nspawn. Its interface on the host is `vb-` and this, 15 characters together."""
    return "h" + _digest(str(root), stack, machine, length=11)


def interface_name(root: Path, stack: str, machine: str) -> str:
    """Return the interface at the host's end of the machine's cable, as systemd-nspawn --network-bridge names it."""
    return "vb-" + machine_id(root, stack, machine)


def _digest(*parts: str, length: int) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:length]
