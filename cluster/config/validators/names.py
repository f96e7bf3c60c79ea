"""Names and numbers: what host names, Slurm's database and Unix accept."""

import re

from cluster.catalog import accounts
from cluster.config.validators.choices import matching
from cluster.findings import Refused

_HOST_NAME_PART = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_PARTITION = re.compile(r"[A-Za-z][-_A-Za-z0-9]*")
_UNIX_NAME = re.compile(r"[a-z_][-a-z0-9_]{0,31}")

LONGEST_CLUSTER_NAME = 20
"""The database's tables are named after the cluster, and MariaDB takes 64 characters: leaves room for any of them."""
LONGEST_NODESET_NAME = 40
LONGEST_WORDS = 255

REGULAR_UIDS = ((1000, 60000), (65536, 524287))
"""What Debian's login.defs and systemd (systemd.io/UIDS-GIDS) leave to people; Slurm's own user has 64030."""


def cluster_name(value: str) -> str:
    """A name of a cluster: first part of host names and of the database's tables."""
    return _host_name_part(value, LONGEST_CLUSTER_NAME, "dev")


def _host_name_part(value: str, longest: int, example: str) -> str:
    if not _HOST_NAME_PART.fullmatch(value) or len(value) > longest:
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
"""A package of Debian or Ubuntu (Debian policy 5.6.1). Not with - at its end, where apt-get reads "remove"."""
feature = matching(
    "[A-Za-z0-9_][-A-Za-z0-9_.=:]*",
    "letters, digits, _, -, . and =, e.g. h100",
    "remove what --constraint would read as an operator",
)


def partition_name(value: str) -> str:
    if not _PARTITION.fullmatch(value) or len(value) > 40:
        raise Refused("1 to 40 letters, digits, - and _, a letter first, e.g. gpu", "choose another name")
    if value.lower() in ("default", "all", "none"):
        raise Refused(
            "any name but default, all and none, e.g. batch",
            f"rename the partition: {value.upper()} is a keyword of slurm.conf",
        )
    return value


def unix_name(value: str) -> str:
    """A login name of a person, or a group of people."""
    if not _UNIX_NAME.fullmatch(value):
        raise Refused(
            "1 to 32 of a-z, 0-9, - and _, a letter or _ first, e.g. alice", "write it as Debian's useradd takes it"
        )
    if value in accounts.PRIVILEGED:
        raise Refused(
            "a name of people who do not become root by it, e.g. alice or ml",
            f"choose another name: the members of group {value} become root, or read what is root's, on some system",
        )
    if accounts.of_the_system(value):
        raise Refused(
            "a name that no system user or daemon has, e.g. alice",
            f"choose another name: {value} belongs to the operating system",
        )
    return value


def regular_id(value: int) -> int:
    if not any(first <= value <= last for first, last in REGULAR_UIDS):
        ranges = " or ".join(f"{first} to {last}" for first, last in REGULAR_UIDS)
        raise Refused(f"{ranges}, e.g. 2001", "take a number outside the operating system's own ranges")
    return value


def words(value: str) -> str:
    """What is said of something, on one line: Slurm's commands print it, and a terminal acts on control characters."""
    if not value.isprintable() or len(value) > LONGEST_WORDS:
        raise Refused(
            f"up to {LONGEST_WORDS} characters that can be printed, on one line, e.g. Everybody in the lab",
            "remove line ends, tabs and control characters" if len(value) <= LONGEST_WORDS else "shorten it",
        )
    return value
