"""Accounts, QOS and Unix groups of a configuration, with those that it has by default."""

from dataclasses import dataclass

from cluster.config.accounting import Account
from cluster.config.cluster import ClusterConfig
from cluster.config.partitions import Partition
from cluster.config.users import User

GENERAL = "general"
"""Account of users that name none, where no account is declared."""
NORMAL = "normal"
"""The QOS that Slurm's database always has."""


@dataclass(frozen=True, kw_only=True)
class UnixGroup:
    """A group that must exist on every machine."""

    name: str
    gid: int
    members: tuple[str, ...] = ()
    """Its users, except those whose primary group it is."""


def accounts(config: ClusterConfig) -> tuple[Account, ...]:
    """Return the declared accounts; without any, those that users name."""
    if config.accounting.accounts:
        return config.accounting.accounts
    names = {name for user in config.users for name in (user.account or GENERAL, *user.accounts)}
    return tuple(Account(name=name) for name in sorted(names))


def admits_root(partition: Partition) -> bool:
    """Return whether root's jobs may run in a partition.

    `allow_groups` does not apply to root (slurmctld, validate_group). Accounts and QOS do: root has only its own.
    """
    return not partition.allow_accounts and (not partition.allow_qos or NORMAL in partition.allow_qos)


def qos_names(config: ClusterConfig) -> tuple[str, ...]:
    """Return the names of all QOS in Slurm's database."""
    return (NORMAL, *(level.name for level in config.accounting.qos))


def default_account(config: ClusterConfig, user: User) -> str:
    """Return the account that a user's jobs are charged to by default."""
    declared = config.accounting.accounts
    return user.account or (declared[0].name if len(declared) == 1 else GENERAL)


def preempts(config: ClusterConfig) -> bool:
    """Return whether jobs of some QOS may preempt those of another, which slurm.conf must enable."""
    return any(qos.preempt for qos in config.accounting.qos)


def unix_groups(config: ClusterConfig) -> tuple[UnixGroup, ...]:
    """Return the declared groups, then the own groups of users whose primary group is not declared."""
    members: dict[str, dict[str, None]] = {}
    for user in config.users:
        for name in user.groups:
            members.setdefault(name, {})[user.name] = None
    declared = tuple(
        UnixGroup(name=name, gid=gid, members=tuple(members.get(name, ()))) for name, gid in config.groups.items()
    )
    shared = set(config.groups.values())
    own = (UnixGroup(name=user.name, gid=user.primary_gid) for user in config.users if user.primary_gid not in shared)
    return (*declared, *own)
