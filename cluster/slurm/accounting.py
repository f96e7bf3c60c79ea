"""The accounts, users and QOS that the accounting database must hold, as data that scripts on the controller apply."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from cluster.config.accounting import Account, Qos
from cluster.config.cluster import ClusterConfig
from cluster.config.section import Section, slurm_settings
from cluster.config.users import User
from cluster.people import accounts, default_account
from scripts.node.interface import AccountingInput, Restore


def desired(config: ClusterConfig) -> AccountingInput:
    """Return everything that the database must have.

    Accounts come after their parents, and QOS after those that they preempt. Limits have sacctmgr's option
    names, with values as text; without the option there is no limit. The first QOS of a user is the default; a user
    without any has `normal`.
    """
    return {
        "cluster": config.name,
        "accounts": [_account(row) for row in _after_references(accounts(config), lambda row: [row.parent])],
        "users": [_user(config, user) for user in config.users],
        "qos": [_qos(row) for row in _after_references(config.accounting.qos, lambda row: row.preempt)],
    }


def restore_request(file: str, sha256: str, config: ClusterConfig) -> str:
    """Return the input of phase `restore`: an uploaded backup, and what the database must have after it."""
    return json.dumps(Restore(file=file, sha256=sha256, desired=desired(config)))


_Named = TypeVar("_Named", Account, Qos)


def _after_references(members: Sequence[_Named], needs: Callable[[_Named], Iterable[str | None]]) -> list[_Named]:
    """Return each member after those that it names, since sacctmgr refuses a name that it does not have yet."""
    ordered: list[_Named] = []
    waiting = list(members)
    while waiting:
        names = {member.name for member in waiting}
        # Parsing has refused circles, so there is always one.
        ready = [member for member in waiting if not names & set(needs(member))] or waiting
        ordered += ready
        waiting = [member for member in waiting if member not in ready]
    return ordered


def _account(account: Account) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": account.name,
        "parent": account.parent or "root",
        "description": account.description or account.name,
        "organization": account.organization or account.parent or account.name,
    }
    return row | ({"fairshare": account.fairshare} if account.fairshare else {}) | _limits(account.limits)


def _user(config: ClusterConfig, user: User) -> dict[str, Any]:
    default = default_account(config, user)
    return {
        "name": user.name,
        "default_account": default,
        "accounts": [default, *(name for name in user.accounts if name != default)],
        "qos": list(user.qos),
        **_limits(user.limits),
    }


def _qos(qos: Qos) -> dict[str, Any]:
    return {"name": qos.name} | _limits(qos)


def _limits(section: Section) -> dict[str, str]:
    return {name: str(value) for name, value in slurm_settings(section).items() if value is not None}
