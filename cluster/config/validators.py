"""Validators of single values: what host names, Slurm's database and files, Unix and the catalog accept."""

import ipaddress
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any
from urllib.parse import urlsplit

from cluster.catalog import DISK_TYPES, IMAGES, MACHINE_TYPES, SYSTEMS, base_system, bounds
from cluster.catalog.machine_types import ARM64
from cluster.catalog.recipes import NEWEST
from cluster.catalog.slurm_releases import NODE
from cluster.findings import RefusedError, listing, suggest

Validator = Callable[[str], str]


def one_of(known: Collection[str], what: str, todo: str = "take one of these") -> Validator:
    """Return a validator of names of a table."""

    def check(value: str) -> str:
        if value not in known:
            raise RefusedError(f"{what}: {listing(known)}", suggest(value, known, todo))
        return value

    return check


def matching(pattern: str, allowed: str, todo: str) -> Validator:
    """Return a validator of texts that match a pattern as a whole."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise RefusedError(allowed, todo)
        return value

    return check


ZONE = "[a-z]+-[a-z]+[0-9]+-[a-z]"
"""Zones of Google Cloud."""
zone = matching(
    ZONE, "a zone, e.g. us-central1-a", "write region, - and the zone's letter: `gcloud compute zones list`"
)
"""Checks only the form. Another check compares a zone with those of the machine types."""
CLOUD_NAME = "[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
"""Names of Google Cloud's resources (RFC 1035)."""
CLOUD_PROJECT = "[a-z][-a-z0-9]{4,28}[a-z0-9]"
"""Ids of Google Cloud's projects, which are neither their names nor their numbers."""


def cloud_resource(kind: str, place: str, example: str, *, parts: Sequence[str] = ()) -> Validator:
    """Return a validator of resources of Google Cloud, by name, or by project and path (`place`, such as
    `regions/REGION/subnetworks`). `gcloud compute KIND list` prints them. `parts` are the kinds of resources within
    one, each within the one before, that may follow it."""
    form = f"projects/PROJECT/{place}/NAME"
    pattern = (
        form.replace("PROJECT", CLOUD_PROJECT).replace("NAME", CLOUD_NAME).replace("REGION", "[a-z]+-[a-z]+[0-9]+")
    )
    within, follows = "", ""
    for part in reversed(parts):
        within = f"(/{part}/{CLOUD_NAME}{within})?"
        follows = f"[/{part}/NAME{follows}]"
    return matching(
        f"({CLOUD_NAME}|{pattern}){within}",
        f"a name of 1 to 63 of a-z, 0-9 and -, e.g. {example}, or {form}"
        + (f", or more: NAME{follows}" if parts else ""),
        f"copy it from `gcloud compute {kind} list`",
    )


def is_utc_time(value: str) -> bool:
    """Return whether a text is a time in UTC, YYYYMMDDTHHMMSSZ."""
    try:
        datetime.strptime(value, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return False
    return re.fullmatch("[0-9]{8}T[0-9]{6}Z", value) is not None


def no_list(allowed: str, todo: str) -> Callable[[Any], Any]:
    """Return a validator that refuses a list, for a key that has one value."""

    def check(value: Any) -> Any:  # noqa: ANN401 - what stands in the file may have any shape
        if isinstance(value, list):
            raise RefusedError(allowed, todo)
        return value

    return check


_machine_type = one_of(
    MACHINE_TYPES,
    "a machine type of the catalog",
    "take one of these; `cluster/catalog/machine_types.py` has their sizes",
)


def machine_type(value: str) -> str:
    """Check a machine type: one of the catalog, and none of arm64."""
    if value.partition("/")[0] in ARM64:
        raise RefusedError(
            "machine types of x86-64: all nodes of a cluster share one jail, which is populated on an x86-64 node, as "
            "login pods are, so programs of an arm64 node would not run",
            "write a machine type of x86-64, such as gpu-b300-sxm/8gpu-192vcpu-2768gb",
        )
    return _machine_type(value)


disk_type = one_of(DISK_TYPES, "a disk type of the catalog")
base_image = one_of(IMAGES, "an operating system of the catalog")
recipe = one_of((NEWEST,), "a version of the recipes")
system = one_of(SYSTEMS, "a system of the catalog")


_HOST_NAME_PART = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_PARTITION = re.compile(r"[A-Za-z][-_A-Za-z0-9]*")
_UNIX_NAME = re.compile(r"[a-z_][-a-z0-9_]{0,31}")

LONGEST_CLUSTER_NAME = 20
"""The database's tables have the cluster's name in theirs, which MariaDB limits to 64 characters."""
LONGEST_NODESET_NAME = 40
LONGEST_WORDS = 255

REGULAR_UIDS = ((1000, 60000), (65536, 524287))
"""Uids for people by Debian's login.defs and systemd (systemd.io/UIDS-GIDS); Slurm's own user has 64030."""


def cluster_name(value: str) -> str:
    """Check the name of a cluster, which is the first part of host names and of the database's tables."""
    return _host_name_part(value, LONGEST_CLUSTER_NAME, "dev")


def _host_name_part(value: str, longest: int, example: str) -> str:
    if not _HOST_NAME_PART.fullmatch(value) or len(value) > longest:
        raise RefusedError(
            f"1 to {longest} of a-z, 0-9 and -, a letter first and no - last, e.g. {example}",
            "choose a name that can stand in a host name",
        )
    return value


def nodeset_name(value: str) -> str:
    """Check the name of a nodeset, which is part of host names, and a NodeSet of slurm.conf."""
    if value in ("controller", "login", "default", "all", "none"):
        raise RefusedError(
            "any name but controller, login, default, all and none, e.g. cpu",
            "rename the nodeset: its nodes or its NodeSet line would clash with something else of that name",
        )
    return _host_name_part(value, LONGEST_NODESET_NAME, "gpu-large")


slurm_name = matching(
    "[a-z][-_a-z0-9]{0,39}",
    "1 to 40 of a-z, 0-9, - and _, a letter first, e.g. research",
    "write it in lower case: Slurm's database would change it",
)
"""An account or a QOS: Slurm's database keeps both in lower case."""
package_name = matching(
    "[a-z0-9][a-z0-9+.-]{0,98}[a-z0-9+.]",
    "2 to 100 of a-z, 0-9, +, - and ., a letter or digit first and no - last, e.g. python3-mpi4py",
    "write one package in each place of the list, without version: `apt-cache search WORD` finds its name",
)
"""A package of Debian or Ubuntu (Debian policy 5.6.1). With a - at its end, apt-get would remove it."""
feature = matching(
    "[A-Za-z0-9_][-A-Za-z0-9_.=:]*",
    "letters, digits, _, -, . and =, e.g. h100",
    "remove what --constraint would read as an operator",
)


lustre_name = matching(
    "[A-Za-z0-9]{1,8}",
    "1 to 8 letters and digits, e.g. exacloud",
    "shorten it: Lustre puts it into every target's label",
)
"""At most eight characters (lustre/include/uapi: LUSTRE_MAXFSNAME)."""


def partition_name(value: str) -> str:
    if not _PARTITION.fullmatch(value) or len(value) > 40:
        raise RefusedError("1 to 40 letters, digits, - and _, a letter first, e.g. gpu", "choose another name")
    if value.lower() in ("default", "all", "none"):
        raise RefusedError(
            "any name but default, all and none, e.g. batch",
            f"rename the partition: {value.upper()} is a keyword of slurm.conf",
        )
    return value


def unix_name(value: str) -> str:
    """Check the login name of a person, or the name of a group of people."""
    if not _UNIX_NAME.fullmatch(value):
        raise RefusedError(
            "1 to 32 of a-z, 0-9, - and _, a letter or _ first, e.g. alice", "write it as Debian's useradd takes it"
        )
    if value in base_system.PRIVILEGED:
        raise RefusedError(
            "a name of people who do not become root by it, e.g. alice or ml",
            f"choose another name: the members of group {value} become root, or read what is root's, on some system",
        )
    if base_system.is_system_name(value):
        raise RefusedError(
            "a name that no system user or daemon has, e.g. alice",
            f"choose another name: {value} belongs to the operating system",
        )
    return value


def regular_id(value: int) -> int:
    if not any(first <= value <= last for first, last in REGULAR_UIDS):
        ranges = " or ".join(f"{first} to {last}" for first, last in REGULAR_UIDS)
        raise RefusedError(f"{ranges}, e.g. 2001", "take a number outside the operating system's own ranges")
    return value


def one_line_text(value: str) -> str:
    """Check that a text is one line without control characters, since Slurm's commands print it on terminals."""
    if not value.isprintable() or len(value) > LONGEST_WORDS:
        raise RefusedError(
            f"up to {LONGEST_WORDS} characters that can be printed, on one line, e.g. Everybody in the lab",
            "remove line ends, tabs and control characters" if len(value) <= LONGEST_WORDS else "shorten it",
        )
    return value


container_image = matching(
    "[a-z0-9]([a-z0-9._-]*[a-z0-9])?(:[0-9]+)?(/[a-z0-9]([a-z0-9._-]*[a-z0-9])?)*"
    "(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@sha256:[0-9a-f]{64})?",
    "an image as registries name it, e.g. nvcr.io/nvidia/pytorch:24.04-py3",
    "write it with / after the registry, and without docker://",
)
"""Checks only the form (distribution/reference, its grammar of references)."""


_PATH = re.compile(r"(/[A-Za-z0-9._-]+)+")
_SYSTEM = "/bin /boot /dev /etc /lib /lib32 /lib64 /libx32 /proc /root /run /sbin /snap /sys /tmp /usr /var".split()
"""Folders that the Filesystem Hierarchy Standard 3.0 gives to the operating system, with all that lies below."""
_SITE_FOLDERS = ("/var/mail", "/var/local")
"""Folders below these that it leaves to sites."""
_HPC_FOLDERS = ("/opt/apps/adm", "/srv/shared", "/srv/state")
"""Folders of the cluster state and of scripts (cluster_state.py, prologs.py), of rehearsals and of the state disk."""


def read_network(value: str, allowed: str) -> ipaddress.IPv4Network:
    """Parse a network, without regard to host bits. Raises RefusedError."""
    try:
        return ipaddress.IPv4Network(value, strict=False)
    except ValueError:
        raise RefusedError(allowed, "write four numbers, a slash and the prefix length") from None


def private_network(value: str) -> str:
    """Check a private IPv4 network in CIDR notation, without host bits."""
    example = "a private IPv4 network, e.g. 10.77.0.0/20"
    network = read_network(value, example)
    if "/" not in value:
        raise RefusedError(example, f"add the prefix length, e.g. {network.network_address}/20")
    if str(network) != value:
        raise RefusedError(example, f"write the network's first address: {network}")
    blocks = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
    if not any(network.subnet_of(ipaddress.IPv4Network(block)) for block in blocks):
        raise RefusedError(f"a network inside {', '.join(blocks)}, e.g. 10.77.0.0/20", "take a private range")
    return value


def source_network(value: str) -> str:
    """Check a network that connections come from, without host bits."""
    example = "an IPv4 network, e.g. 10.0.0.0/8 or 203.0.113.7/32"
    network = read_network(value, example)
    if str(network) != value:
        raise RefusedError(example, f"write the network's first address: {network}")
    return value


def public_network(value: str) -> str:
    """Check a network from which people log in, which must not be the whole internet."""
    example = "the networks of those who log in, e.g. 203.0.113.7/32"
    network = read_network(value, example)
    if network.prefixlen < 8:
        raise RefusedError(
            f"{example}, /8 at the widest", "name the networks that people come from: SSH is never open to the world"
        )
    return source_network(value)


def server_address(value: str) -> str:
    """Check the private IPv4 address of a server."""
    try:
        address = ipaddress.IPv4Address(value)
    except ValueError:
        address = None
    if address is None or not address.is_private or address.is_loopback or address.is_link_local:
        raise RefusedError(
            "a private IPv4 address, e.g. 10.128.0.3",
            "write the address at which machines of the network reach the server, without @tcp and without a path",
        )
    return value


def cluster_cidr(value: str) -> str:
    """Check a private network that is large enough for a cluster's address plan."""
    prefix = ipaddress.IPv4Network(private_network(value)).prefixlen
    if prefix > 26:
        raise RefusedError("a private IPv4 network of /8 to /26, e.g. 10.77.0.0/20", "take a larger network")
    return value


def mount_point(value: str) -> str:
    """Check a directory over which a shared one can be mounted."""
    path = absolute_path(value)
    taken = path == "/srv" or any(is_within(path, folder) for folder in (*_SYSTEM, *_HPC_FOLDERS))
    if taken and not any(is_within(path, folder) for folder in _SITE_FOLDERS):
        raise RefusedError(
            "a directory that neither the operating system nor the set-up needs: at the top, or below /home, /opt, "
            "/mnt, /media or /srv, e.g. /data or /opt/apps",
            f"share another directory: machines could not run with their own {path} hidden",
        )
    return path


def is_within(inner: str, outer: str) -> bool:
    """Return whether a path is another one, or below it."""
    return inner == outer or inner.startswith(f"{outer}/")


def absolute_path(value: str) -> str:
    """Check an absolute path."""
    if not _PATH.fullmatch(value) or any(part in (".", "..") for part in value.split("/")):
        raise RefusedError(
            "an absolute path of letters, digits, ., _ and -, e.g. /opt/apps",
            "write it from the root, without . and ..",
        )
    return value


_SLURM_TIME = re.compile(
    r"(?:[0-9]+-[0-9]+(?::[0-5]?[0-9]){0,2}|[0-9]+(?::[0-5]?[0-9]){0,2}|infinite|INFINITE|UNLIMITED|unlimited)"
)
# No line ends and blanks of any program except the space. # begins a comment, and a \ at the end joins two lines.
_PLAIN = re.compile(r"[ !$-~]*[ !$-\[\]-~]")

_LONGEST_TIME = 40
NODE_SIZES = ("CPUs", "Sockets", "CoresPerSocket", "ThreadsPerCore", "RealMemory", "MemSpecLimit")
"""Parameters of a NodeName line from which other values are computed."""


def quoted(value: Any) -> Any:  # noqa: ANN401 - whatever YAML made of it
    """Refuse numbers: YAML 1.1 readers turn an unquoted 12:00:00 into 43200, which Slurm would read as minutes."""
    if isinstance(value, int | float):
        raise RefusedError(
            'a time in quotes, e.g. "12:00:00", "7-00:00:00" or "30" (minutes)', "put the value in quotes"
        )
    return value


def scalar(value: Any) -> Any:  # noqa: ANN401 - whatever YAML made of it
    """Check a value of a parameter of slurm.conf."""
    if not isinstance(value, str | int):
        raise RefusedError(
            "text, a whole number, true or false, e.g. 10", "write the value as slurm.conf should have it"
        )
    if isinstance(value, str) and (not value.strip() or not _PLAIN.fullmatch(value)):
        raise RefusedError(
            'text of printable ASCII on one line, without # and ", with no \\ at its end, e.g. 10',
            "write the value as slurm.conf should have it",
        )
    return value


def node_count(value: int) -> int:
    if value < 1:
        raise RefusedError("a whole number of at least 1, e.g. 2", "raise it, or remove the nodeset and what names it")
    if value > bounds.MOST_NODES:
        raise RefusedError(f"at most {bounds.MOST_NODES}, as many as Slurm can have, e.g. 2", "lower it")
    return value


def node_conf(value: Mapping[str, object]) -> Mapping[str, object]:
    """Check overrides of a NodeName line: sizes are whole numbers."""
    for key, size in value.items():
        name = NODE.canonical(key)
        if name not in NODE_SIZES:
            continue
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= bounds.NUMBERS[name]:
            raise RefusedError(
                f"for {key} a whole number, 1 to {bounds.NUMBERS[name]}, e.g. {{{key}: 2}}",
                f"correct {key}, or leave it out: the machine type has it",
            )
    return value


_DURATION = re.compile(r"([1-9][0-9]{0,6})([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST_DURATION = 365 * 86400


def duration(value: Any) -> Any:  # noqa: ANN401 - whatever YAML made of it
    if not isinstance(value, str) or not _DURATION.fullmatch(value) or duration_seconds(value) > _LONGEST_DURATION:
        raise RefusedError("a time of up to 365d: a number with s, m, h or d, e.g. 10m", "write it so")
    return value


def duration_seconds(value: str) -> int:
    """Return the seconds of a time such as 10m; 0 if it is not one."""
    match = _DURATION.fullmatch(value)
    return int(match[1]) * _UNITS[match[2]] if match else 0


def slurm_time(value: str) -> str:
    """Check a time limit of slurm.conf and sacctmgr, and return it in upper case if it is a word."""
    if len(value) > _LONGEST_TIME or not _SLURM_TIME.fullmatch(value):
        raise RefusedError(
            "minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]] or INFINITE, "
            "e.g. 12:00:00 or 7-00:00:00",
            "write the limit in one of these forms, in quotes",
        )
    if value[0].isalpha():
        return value.upper()
    if minutes(value) > bounds.MINUTES:
        raise RefusedError(
            f"a time of at most {bounds.MINUTES // 1440} days, or INFINITE",
            "write INFINITE, or a shorter time: Slurm counts its seconds in 32 bits",
        )
    return value


def minutes(limit: str) -> float:
    """Return a time limit of Slurm in minutes; infinity for none."""
    if limit in ("INFINITE", "UNLIMITED"):
        return float("inf")
    days, _, rest = limit.rpartition("-") if "-" in limit else ("", "", limit)
    fields = [int(field) for field in rest.split(":")]
    if days:
        hours, minute, second = (*fields, 0, 0)[:3]
        return int(days) * 1440 + hours * 60 + minute + second / 60
    if len(fields) == 3:
        return fields[0] * 60 + fields[1] + fields[2] / 60
    return fields[0] + (fields[1] / 60 if len(fields) == 2 else 0)


tres_name = matching(
    "(cpu|mem|node|billing|energy|fs/disk|gres/gpu(:[a-z0-9_]+)?)",
    "cpu, mem (in MiB), node, billing, gres/gpu or gres/gpu:TYPE",
    "name the resource as sacctmgr does",
)


_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_FILE = re.compile(r"/?[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")

RXDM = "rxdm"
"""Name of the script that `slurm.rxdm` stages; no other script can have it."""

HEALTH, HEALTH_LAST = "00-hpc-health", "zz-hpc-health"
"""Names of the script that `slurm.health` stages; no other script can have them."""
GPU_JOBS = "zz-hpc-gpu-jobs"
"""Name of the script that `monitoring` stages for clusters with GPUs; no other script can have it."""


def script_name(value: str) -> str:
    """Check the name of a script, which is a file name. Scripts run in the order of their names."""
    if not _NAME.fullmatch(value):
        raise RefusedError(
            "1 to 63 of a-z, 0-9, - and _, a letter or digit first, e.g. 10-gpu-check",
            "choose a name that can be a file's, without path and ending; scripts run in the order of their names",
        )
    if value == RXDM:
        raise RefusedError(f"any name but {RXDM}, e.g. 10-gpu-check", f"use `slurm.{RXDM}`, or rename the script")
    if value == GPU_JOBS:
        raise RefusedError(
            f"any name but {value}, e.g. 10-gpu-check", "rename the script: `monitoring` stages this one"
        )
    if value in (HEALTH, HEALTH_LAST):
        raise RefusedError(f"any name but {value}, e.g. 10-gpu-check", "use `slurm.health`, or rename the script")
    return value


def script_file(value: str) -> str:
    """Check a path from the project's folder, or an absolute one on the machine that `up` runs on."""
    if not _FILE.fullmatch(value) or any(part in (".", "..") for part in value.split("/")):
        raise RefusedError(
            "a path of letters, digits, ., _ and -, from the project's folder or from the root, e.g. scripts/check.sh",
            "write it without . and .., and move the file to where such a path leads",
        )
    return value


def script_url(value: str) -> str:
    example = "https://HOST/PATH without user and password, e.g. https://example.org/2f0f03f/check.sh"
    try:
        parts = urlsplit(value)
        complete = parts.scheme == "https" and parts.hostname and parts.path.strip("/")
        excess = parts.username or parts.password or parts.fragment
        _ = parts.port
    except ValueError:
        raise RefusedError(example, "write the address as a browser shows it") from None
    if not complete or excess or not value.isascii() or any(not char.isprintable() or char == " " for char in value):
        raise RefusedError(example, "write an https address; others could be read or changed on the way")
    return value


sha256 = matching(
    "[0-9a-f]{64}", "64 of 0-9 and a-f", "write what `sha256sum FILE` prints for the script that you have read"
)


def script_text(value: str) -> str:
    if not is_script(value):
        raise RefusedError(
            "a script whose first line names its interpreter, e.g. #!/bin/bash",
            "write #!/bin/bash as the first line, below `text: |`",
        )
    return value


LUA_FUNCTIONS = ("slurm_job_submit", "slurm_job_modify")
"""Functions without which slurmctld does not start (req_fxns of src/plugins/job_submit/lua)."""


def lua_text(value: str) -> str:
    """Check a job_submit.lua for characters and functions. Its grammar is checked by Lua on the controller."""
    hidden = sorted({char for char in value if not char.isprintable() and char not in "\t\n"})
    if hidden:
        raise RefusedError("lines of printable characters", f"remove {', '.join(ascii(char) for char in hidden)}")
    if missing := [name for name in LUA_FUNCTIONS if name not in value]:
        raise RefusedError(
            f"Lua that defines {' and '.join(LUA_FUNCTIONS)}",
            f"add {' and '.join(missing)}; one that lets everything pass is `function {missing[0]}() return "
            "slurm.SUCCESS end`",
        )
    return value


def is_script(text: str) -> bool:
    """Return whether the kernel can start a text as a program: its first line has an interpreter."""
    return text.startswith("#!/") and "\0" not in text
