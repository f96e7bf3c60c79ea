"""The accounts, users and QOS that the accounting database must hold, as data that scripts on the controller apply."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from cluster.config.accounting import Account, Qos
from cluster.config.cluster import ClusterConfig
from cluster.config.section import slurm_settings
from cluster.config.users import User
from cluster.people import accounts, default_account
from scripts.node.interface import Accounting, Restore


def desired(config: ClusterConfig) -> Accounting:
    """Everything the database must hold.

    Accounts come after their parents, and QOS after those that they preempt. Limits of a QOS carry sacctmgr's own
    option names, with their values as text; an option that is not there is not limited. A user's QOS come default
    first; without any, the user has `normal`.
    """
    return {
        "cluster": config.name,
        "accounts": [_account(row) for row in _in_order(accounts(config), lambda row: [row.parent])],
        "users": [_user(config, user) for user in config.users],
        "qos": [_qos(row) for row in _in_order(config.accounting.qos, lambda row: row.preempt)],
    }


def restore_request(file: str, sha256: str, config: ClusterConfig) -> str:
    """Input of phase `restore`: an uploaded backup, and what the database must hold of the stack then."""
    return json.dumps(Restore(file=file, sha256=sha256, desired=desired(config)))


_Named = TypeVar("_Named", Account, Qos)


def _in_order(given: Sequence[_Named], needs: Callable[[_Named], Iterable[str | None]]) -> list[_Named]:
    """Each member after those that it names, since sacctmgr refuses a name that it does not have yet."""
    ordered: list[_Named] = []
    waiting = list(given)
    while waiting:
        late = {member.name for member in waiting}
        ready = [
            member for member in waiting if not late & set(needs(member))
        ] or waiting  # parsing has refused circles
        ordered += ready
        waiting = [member for member in waiting if member not in ready]
    return ordered


def _account(account: Account) -> dict[str, Any]:
    known: dict[str, Any] = {
        "name": account.name,
        "parent": account.parent or "root",
        "description": account.description or account.name,
        "organization": account.organization or account.parent or account.name,
    }
    return known | ({"fairshare": account.fairshare} if account.fairshare else {})


def _user(config: ClusterConfig, user: User) -> dict[str, Any]:
    default = default_account(config, user)
    return {
        "name": user.name,
        "default_account": default,
        "accounts": [default, *(name for name in user.accounts if name != default)],
        "qos": list(user.qos),
    }


def _qos(qos: Qos) -> dict[str, Any]:
    return {"name": qos.name} | {name: str(value) for name, value in slurm_settings(qos).items() if value is not None}
