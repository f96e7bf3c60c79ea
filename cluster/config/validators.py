"""Rules for single values. Each function returns the value, or raises Refused with an example of a good one."""

import base64
import binascii
import ipaddress
import re
from collections.abc import Mapping

from cluster.catalog import IMAGES, MACHINE_TYPES
from cluster.catalog.parameters import NODE
from cluster.config.findings import Refused, listing, suggest
from cluster.config.platforms import PLATFORMS, built

_DNS_LABEL = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
_SLURM_NAME = re.compile(r"^[a-z][-_a-z0-9]*$")
_PARTITION = re.compile(r"^[A-Za-z][-_A-Za-z0-9]*$")
_UNIX_NAME = re.compile(r"^[a-z_][-a-z0-9_]{0,31}$")
_FEATURE = re.compile(r"^[A-Za-z0-9_][-A-Za-z0-9_.=:]*$")
_SLURM_TIME = re.compile(r"^(?:\d+-\d+(?::[0-5]?\d){0,2}|\d+(?::[0-5]?\d){0,2}|infinite|INFINITE|UNLIMITED|unlimited)$")
_MEMORY = re.compile(r"^([0-9]+)([MGT])$")
_TRES = re.compile(r"^(cpu|mem|node|billing|energy|fs/disk|gres/gpu(:[a-z0-9_]+)?)$")

RESERVED_USERS = frozenset(
    "root daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc gnats nobody _apt sshd "
    "messagebus systemd-network systemd-resolve systemd-timesync munge slurm mysql postfix adm tty disk sudo".split(),
)
"""Users and groups of the operating system and of the daemons that the cluster runs."""

KEY_TYPES = (
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)

REGULAR_UIDS = ((1000, 60000), (65536, 524287))
"""What Debian's login.defs and systemd (systemd.io/UIDS-GIDS) leave to people; Slurm's own user has 64030."""


LONGEST_CLUSTER_NAME = 20
"""The database's tables are named after the cluster, and MariaDB takes 64 characters: leaves room for any of them."""
LONGEST_NODESET_NAME = 40


def cluster_name(value: str) -> str:
    """A name of a cluster: first part of host names and of the database's tables."""
    return _host_name_part(value, LONGEST_CLUSTER_NAME, "dev")


def _host_name_part(value: str, longest: int, example: str) -> str:
    if not _DNS_LABEL.match(value) or len(value) > longest:
        raise Refused(
            f"1 to {longest} of a-z, 0-9 and -, a letter first and no - last, e.g. {example}",
            "choose a name that can stand in a host name",
        )
    return value


def nodeset_name(value: str) -> str:
    """A name of a nodeset: part of host names, and a NodeSet of slurm.conf."""
    if value in ("controller", "login", "default", "all", "none"):
        raise Refused(
            "any name but controller, login, default, all and none, e.g. cpu",
            "rename the nodeset: its nodes or its NodeSet line would clash with something else of that name",
        )
    return _host_name_part(value, LONGEST_NODESET_NAME, "gpu-large")


def platform(value: str) -> str:
    """A platform, built or to come; the latter are refused when a stack is read."""
    if value not in PLATFORMS:
        raise Refused(listing(built()), suggest(value, built(), "write one of these"))
    return value


def machine_type(value: str) -> str:
    """A machine type of the catalog."""
    if value not in MACHINE_TYPES:
        raise Refused(
            f"a machine type of the catalog: {listing(MACHINE_TYPES)}",
            suggest(value, MACHINE_TYPES, "take one of these; `cluster/catalog/machines.py` has their sizes"),
        )
    return value


def image(value: str) -> str:
    """A base operating system of the catalog."""
    if value not in IMAGES:
        raise Refused(
            f"an operating system of the catalog: {listing(IMAGES)}", suggest(value, IMAGES, "take one of these")
        )
    return value


def node_count(value: int) -> int:
    """Machines in a nodeset."""
    if value < 1:
        raise Refused("a whole number of at least 1, e.g. 2", "raise it, or remove the nodeset and what names it")
    return value


NODE_SIZES = ("CPUs", "Sockets", "CoresPerSocket", "ThreadsPerCore", "RealMemory", "MemSpecLimit")
"""Parameters of a NodeName line that other values are computed from."""


def node_conf(value: Mapping[str, object]) -> Mapping[str, object]:
    """Overrides of a NodeName line: sizes are whole numbers."""
    for key, size in value.items():
        if NODE.canonical(key) in NODE_SIZES and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
            raise Refused(
                f"for {key} a whole number of at least 1, e.g. {{{key}: 2}}",
                f"correct {key}, or leave it out: the machine type has it",
            )
    return value


def slurm_name(value: str) -> str:
    """A name of an account or a QOS; Slurm's database keeps both in lower case."""
    if not _SLURM_NAME.match(value) or len(value) > 40:
        raise Refused(
            "1 to 40 of a-z, 0-9, - and _, a letter first, e.g. research",
            "write it in lower case: Slurm's database would change it",
        )
    return value


def partition_name(value: str) -> str:
    """A partition's name."""
    if not _PARTITION.match(value) or len(value) > 40:
        raise Refused("1 to 40 letters, digits, - and _, a letter first, e.g. gpu", "choose another name")
    if value.lower() in ("default", "all", "none"):
        raise Refused(
            "any name but default, all and none, e.g. batch",
            f"rename the partition: {value.upper()} is a keyword of slurm.conf",
        )
    return value


def unix_name(value: str) -> str:
    """A login name of a person, or a group of people."""
    if not _UNIX_NAME.match(value):
        raise Refused(
            "1 to 32 of a-z, 0-9, - and _, a letter or _ first, e.g. alice",
            "write it as Debian's useradd takes it",
        )
    if value in RESERVED_USERS:
        raise Refused(
            "a name that no system user or daemon has, e.g. alice",
            f"choose another name: {value} belongs to the operating system",
        )
    return value


def regular_id(value: int) -> int:
    """A uid or gid of a person."""
    if not any(first <= value <= last for first, last in REGULAR_UIDS):
        ranges = " or ".join(f"{first} to {last}" for first, last in REGULAR_UIDS)
        raise Refused(f"{ranges}, e.g. 2001", "take a number outside the operating system's own ranges")
    return value


def public_key(value: str) -> str:
    """One line of an authorized_keys file, without options."""
    parts = value.split(None, 2)
    advice = "paste the line of ~/.ssh/id_ed25519.pub (the public key, made with `ssh-keygen -t ed25519`)"
    if "PRIVATE KEY" in value:
        raise Refused(
            "a public key, e.g. ssh-ed25519 AAAAC3... alice@laptop",
            f"take it out and make a new pair, since others may have read this one; {advice}",
        )
    if len(parts) < 2 or parts[0] not in KEY_TYPES or "\n" in value.strip():
        raise Refused(f"one line: type, key, comment; types: {', '.join(KEY_TYPES)}", advice)
    try:
        blob = base64.b64decode(parts[1], validate=True)
    except (binascii.Error, ValueError):
        raise Refused("the key in base64, e.g. ssh-ed25519 AAAAC3... alice@laptop", advice) from None
    kind = parts[0].encode()
    # The blob begins with its own type, length first; a key cut short or pasted under another type shows here.
    if len(blob) < 40 or blob[:4] != len(kind).to_bytes(4, "big") or blob[4 : 4 + len(kind)] != kind:
        raise Refused(f"a whole {parts[0]} key", f"the key is cut short or of another type: {advice}")
    return value.strip()


def private_network(value: str) -> str:
    """A private IPv4 network in CIDR notation, without host bits."""
    example = "a private IPv4 network, e.g. 10.77.0.0/20"
    try:
        network = ipaddress.IPv4Network(value, strict=False)
    except ValueError:
        raise Refused(example, "write four numbers, a slash and the prefix length") from None
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


_SYSTEM_DIRECTORIES = frozenset(
    "/bin /boot /dev /etc /etc/slurm /lib /lib64 /proc /root /run /sbin /sys /tmp /usr /usr/bin /usr/lib /usr/sbin "
    "/var /var/lib /var/log /var/run /var/spool".split(),
)


def mount_point(value: str) -> str:
    """A directory that may be replaced by a shared one."""
    if value in _SYSTEM_DIRECTORIES or value.startswith(("/proc/", "/sys/", "/dev/", "/run/")):
        raise Refused(
            "a directory that the operating system does not need, e.g. /home or /opt/apps",
            f"share another directory: machines could not run with their own {value} hidden",
        )
    return absolute_path(value)


def absolute_path(value: str) -> str:
    """A path from the root."""
    if not re.match(r"^(/[A-Za-z0-9._-]+)+$", value) or any(part in (".", "..") for part in value.split("/")):
        raise Refused(
            "an absolute path of letters, digits, ., _ and -, e.g. /opt/apps",
            "write it from the root, without . and ..",
        )
    return value


def slurm_time(value: str) -> str:
    """A time limit as slurm.conf and sacctmgr read it."""
    if not _SLURM_TIME.match(value):
        raise Refused(
            "minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]] or INFINITE, "
            "e.g. 12:00:00 or 7-00:00:00",
            "write the limit in one of these forms, in quotes",
        )
    return value.upper() if value.isalpha() else value


def memory(value: str) -> str:
    """An amount of memory."""
    match = _MEMORY.match(value)
    if not match or int(match.group(1)) < 1:
        raise Refused("a whole number and M, G or T, e.g. 4G", "give the unit")
    return value


def feature(value: str) -> str:
    """A node feature, as `--constraint` takes it."""
    if not _FEATURE.match(value):
        raise Refused("letters, digits, _, -, . and =, e.g. h100", "remove what --constraint would read as an operator")
    return value


def tres_name(value: str) -> str:
    """A trackable resource that a limit can name."""
    if not _TRES.match(value):
        raise Refused(
            "cpu, mem (in MiB), node, billing, gres/gpu or gres/gpu:TYPE", "name the resource as sacctmgr does"
        )
    return value
