"""Networks and paths."""

import ipaddress
import re

from cluster.findings import Refused

_PATH = re.compile(r"(/[A-Za-z0-9._-]+)+")
_SYSTEM = "/bin /boot /dev /etc /lib /lib32 /lib64 /libx32 /proc /root /run /sbin /snap /sys /tmp /usr /var".split()
"""What the Filesystem Hierarchy Standard 3.0 gives to the operating system, with all that lies below. /tmp and /var/tmp
are emptied at boot; our own set-up is in /usr/local/lib/hpc, slurmd's spool in /var."""
_SITES_OWN = ("/var/mail", "/var/local")
"""What it gives to sites below these."""
_OURS = ("/opt/apps/adm", "/srv/shared", "/srv/state")
"""Cluster state and scripts (cluster_state.py, prologs.py), folders of the rehearsal and of the state disk."""


def read_network(value: str, allowed: str) -> ipaddress.IPv4Network:
    """The network that a text names, host bits ignored."""
    try:
        return ipaddress.IPv4Network(value, strict=False)
    except ValueError:
        raise Refused(allowed, "write four numbers, a slash and the prefix length") from None


def private_network(value: str) -> str:
    """A private IPv4 network in CIDR notation, without host bits."""
    example = "a private IPv4 network, e.g. 10.77.0.0/20"
    network = read_network(value, example)
    if "/" not in value:
        raise Refused(example, f"add the prefix length, e.g. {network.network_address}/20")
    if str(network) != value:
        raise Refused(example, f"write the network's first address: {network}")
    blocks = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
    if not any(network.subnet_of(ipaddress.IPv4Network(block)) for block in blocks):
        raise Refused(f"a network inside {', '.join(blocks)}, e.g. 10.77.0.0/20", "take a private range")
    return value


def cluster_cidr(value: str) -> str:
    """A private network big enough for a cluster's address plan."""
    prefix = ipaddress.IPv4Network(private_network(value)).prefixlen
    if prefix > 26:
        raise Refused("a private IPv4 network of /8 to /26, e.g. 10.77.0.0/20", "take a larger network")
    return value


def mount_point(value: str) -> str:
    """A directory that may be replaced by a shared one."""
    path = absolute_path(value)
    taken = path == "/srv" or any(is_within(path, one) for one in (*_SYSTEM, *_OURS))
    if taken and not any(is_within(path, one) for one in _SITES_OWN):
        raise Refused(
            "a directory that neither the operating system nor the set-up needs: at the top, or below /home, /opt, "
            "/mnt, /media or /srv, e.g. /data or /opt/apps",
            f"share another directory: machines could not run with their own {path} hidden",
        )
    return path


def is_within(inner: str, outer: str) -> bool:
    """Whether a path is another one, or below it."""
    return inner == outer or inner.startswith(f"{outer}/")


def absolute_path(value: str) -> str:
    """A path from the root."""
    if not _PATH.fullmatch(value) or any(part in (".", "..") for part in value.split("/")):
        raise Refused(
            "an absolute path of letters, digits, ., _ and -, e.g. /opt/apps",
            "write it from the root, without . and ..",
        )
    return value
