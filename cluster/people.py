"""Accounts and Unix groups, as they follow from what the configuration says and leaves unsaid."""

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
    """Users who are in it beside those whose primary group it is."""


def accounts(config: ClusterConfig) -> tuple[Account, ...]:
    """Declared accounts; without any, those that users name."""
    if config.accounting.accounts:
        return config.accounting.accounts
    names = {name for user in config.users for name in (user.account or GENERAL, *user.accounts)}
    return tuple(Account(name=name) for name in sorted(names))


def admits_root(partition: Partition) -> bool:
    """Return whether a job of root's may run in a partition.

    Groups do not keep root out (slurmctld, validate_group). Accounts and QOS do: root has none but its own.
    """
    return not partition.allow_accounts and (not partition.allow_qos or NORMAL in partition.allow_qos)


def qos_names(config: ClusterConfig) -> tuple[str, ...]:
    """Every QOS that Slurm's database has."""
    return (NORMAL, *(level.name for level in config.accounting.qos))


def default_account(config: ClusterConfig, user: User) -> str:
    """Account that a user's jobs are charged to by default."""
    declared = config.accounting.accounts
    return user.account or (declared[0].name if len(declared) == 1 else GENERAL)


def preempts(config: ClusterConfig) -> bool:
    """Return whether jobs of some QOS stop those of another, which slurm.conf must enable."""
    return any(qos.preempt for qos in config.accounting.qos)


def unix_groups(config: ClusterConfig) -> tuple[UnixGroup, ...]:
    """Declared groups, then each user's own group where the primary group is no declared one."""
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
