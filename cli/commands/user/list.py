"""user list."""

from collections.abc import Sequence
from typing import Any

from cli import console, options
from cli.errors import CliError
from cli.stack import outputs, project, stack_config
from cli.users.in_effect import InEffect, Seen, fingerprint, look
from cluster import people
from cluster.config import ClusterConfig
from cluster.config.users import User


def list_(stack: options.Stack, *, json: options.Json = False, config_file: options.ConfigFile = None) -> None:
    """List the users of a stack file, and what is in effect of them on the cluster.

    A cluster that is up is asked for uid, account, QOS, keys and sudo; a value that differs from the file's follows it
    in brackets. Keys that users added themselves count there.

    JSON: {stack, asked, users [{name, uid, account, accounts, qos, groups, shell, sudo, containers, keys [fingerprint],
    in_effect}], former_users [{name, uid}]}; in_effect is null of a user whom the cluster does not have, and of all if
    `asked` is false.
    """
    config = stack_config.parse(project.require_file(stack, config_file))
    seen, why = _seen(stack, [user.name for user in config.users])
    if json:
        console.json(_document(stack, config, seen))
        return
    if config.users:
        console.table([_HEAD, *(_row(config, user, seen) for user in config.users)], right={1})
    else:
        console.note("The stack file has no users.")
    if config.former_users:
        console.line(f"Former: {', '.join(f'{one.name} ({one.uid})' for one in config.former_users)}", style="dim")
    if why:
        console.note(why)


_HEAD = ("NAME", "UID", "ACCOUNT", "QOS", "GROUPS", "KEYS", "SUDO", "CLUSTER")


def _seen(stack: str, names: Sequence[str]) -> tuple[Seen | None, str]:
    """What the cluster has; None and the reason if it can't be asked."""
    try:
        return look(stack, outputs.read(stack, show_secrets=True), names), ""
    except CliError as error:
        return None, f"Shown is the stack file alone: {error}"


def _row(config: ClusterConfig, user: User, seen: Seen | None) -> list[str]:
    found = seen.users.get(user.name) if seen else None
    account, qos = people.default_account(config, user), list(user.qos) or [people.NORMAL]
    return [
        user.name,
        _both(str(user.uid), str(found.uid) if found else ""),
        _both(account, found.account if found else ""),
        _both(",".join(qos), ",".join(found.qos) if found else ""),
        ",".join(user.groups) or "-",
        _both(str(len(user.keys)), str(len(found.keys)) if found else ""),
        _both(_SUDO[user.sudo], _SUDO[found.sudo] if found else "", same=user.sudo is None),
        "-" if seen is None else "there" if found else "missing",
    ]


_SUDO = {True: "yes", False: "no", None: "-"}


def _both(file: str, there: str, *, same: bool = False) -> str:
    """What the file says, and what is there if that differs; only this, if the file says nothing."""
    if not there or there == file:
        return file
    return there if same else f"{file} ({there})"


def _document(stack: str, config: ClusterConfig, seen: Seen | None) -> dict[str, Any]:
    return {
        "stack": stack,
        "asked": seen is not None,
        "users": [_user(config, user, seen.users.get(user.name) if seen else None) for user in config.users],
        "former_users": [{"name": one.name, "uid": one.uid} for one in config.former_users],
    }


def _user(config: ClusterConfig, user: User, found: InEffect | None) -> dict[str, Any]:
    return {
        "name": user.name,
        "uid": user.uid,
        "account": people.default_account(config, user),
        "accounts": list(user.accounts),
        "qos": list(user.qos) or [people.NORMAL],
        "groups": list(user.groups),
        "shell": user.shell,
        "sudo": user.sudo,
        "containers": user.containers,
        "keys": [fingerprint(key) for key in user.keys],
        "in_effect": None
        if found is None
        else {
            "uid": found.uid,
            "shell": found.shell,
            "account": found.account,
            "accounts": list(found.accounts),
            "qos": list(found.qos),
            "sudo": found.sudo,
            "keys": list(found.keys),
        },
    }
