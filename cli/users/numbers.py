"""The uid of a new user: the lowest that is free, and never one whose files may still be there."""

from collections.abc import Iterator, Mapping
from itertools import chain

from cluster.config import ClusterConfig
from cluster.config.validators.names import REGULAR_UIDS

FIRST = 2001
"""As in all examples: above what operating systems and Soperator's checks give to their own users."""


def own_number(name: str, config: ClusterConfig, homes: Mapping[str, int]) -> int | None:
    """The uid that somebody of this name had before, by the file or by the home directory on the cluster."""
    former = next((one.uid for one in config.former_users if one.name == name), None)
    if former is not None:
        return former
    uid = homes.get(name)
    return uid if uid is not None and _regular(uid) and uid not in _taken(config) else None


def free_number(config: ClusterConfig, before: ClusterConfig | None, homes: Mapping[str, int]) -> int:
    """The lowest uid from 2001 on that is nobody's: neither in the stack file, nor in the configuration that the
    cluster runs with, nor the owner of a home directory."""
    taken = {*_taken(config), *(_taken(before) if before else ()), *homes.values()}
    ranges = chain.from_iterable(range(max(first, FIRST), last + 1) for first, last in REGULAR_UIDS)
    return next(number for number in ranges if number not in taken)


def _taken(config: ClusterConfig) -> Iterator[int]:
    """Numbers of users and groups: a user's own group has the user's number."""
    for user in config.users:
        yield user.uid
        yield user.primary_gid
    yield from config.groups.values()
    yield from (one.uid for one in config.former_users)


def _regular(uid: int) -> bool:
    return any(first <= uid <= last for first, last in REGULAR_UIDS)
