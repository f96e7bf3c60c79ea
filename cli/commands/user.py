"""`./hpc user add`, `remove` and `list`."""

import shlex
from dataclasses import asdict
from typing import Annotated, Any

from typer import Argument, Exit, Option

from cli import console, options
from cli.access import remote
from cli.cluster.cluster import connect
from cli.errors import CliError
from cli.operation.run_options import RunOptions
from cli.stack import outputs, project, stack_config
from cli.stack.edits import with_item, without_item
from cli.stack.stackfile import StackFile
from cli.users import (
    FORMER,
    USERS,
    AddRequest,
    ClusterUsers,
    RunningCluster,
    UserInEffect,
    edit_file,
    fingerprint,
    read_in_effect,
    read_keys,
)
from cluster import people
from cluster.capability import Capability
from cluster.config import ClusterConfig
from cluster.config.users import User
from cluster.findings import Finding, listing, nearest

_SECONDS = 30
_HEADING = ("NAME", "UID", "ACCOUNT", "QOS", "GROUPS", "KEYS", "SUDO", "CLUSTER")
_SUDO = {True: "yes", False: "no", None: "-"}


def list_(stack: options.Stack, *, json: options.Json = False, config_file: options.ConfigFile = None) -> None:
    """List the users of a stack file, and what is in effect of them on the cluster.

    A cluster that is up is asked for uid, account, QOS, keys and sudo; a value that differs from the file's follows it
    in brackets. Keys that users added themselves count there.

    JSON: {stack, asked, users [{name, uid, account, accounts, qos, groups, shell, sudo, containers, keys [fingerprint],
    in_effect}], former_users [{name, uid}]}; in_effect is null of a user whom the cluster does not have, and of all if
    `asked` is false.
    """
    config = stack_config.parse(project.require_file(stack, config_file))
    reported, why = None, ""
    try:
        reported = read_in_effect(stack, outputs.read(stack, show_secrets=True), [user.name for user in config.users])
    except CliError as error:
        why = f"Shown is the stack file alone: {error}"
    if json:
        in_effect = reported.users if reported else {}
        users = [_document(config, user, in_effect.get(user.name)) for user in config.users]
        former = [{"name": user.name, "uid": user.uid} for user in config.former_users]
        console.json({"stack": stack, "asked": reported is not None, "users": users, "former_users": former})
        return
    if config.users:
        console.table([_HEADING, *(_row(config, user, reported) for user in config.users)], right={1})
    else:
        console.note("The stack file has no users.")
    if config.former_users:
        console.line(f"Former: {', '.join(f'{user.name} ({user.uid})' for user in config.former_users)}", style="dim")
    if why:
        console.note(why)


def _row(config: ClusterConfig, user: User, reported: ClusterUsers | None) -> list[str]:
    """Return the file's values, each with the cluster's in brackets where that differs."""

    def both(file: str, cluster: str) -> str:
        return file if reported_user is None or cluster in ("", file) else f"{file} ({cluster})"

    reported_user = reported.users.get(user.name) if reported else None
    in_effect = reported_user or UserInEffect(uid=user.uid, shell="", sudo=user.sudo, keys=())
    sudo = _SUDO[in_effect.sudo] if user.sudo is None else both(_SUDO[user.sudo], _SUDO[in_effect.sudo])
    return [
        user.name,
        both(str(user.uid), str(in_effect.uid)),
        both(people.default_account(config, user), in_effect.account),
        both(",".join(user.qos or [people.NORMAL]), ",".join(in_effect.qos)),
        ",".join(user.groups) or "-",
        both(str(len(user.keys)), str(len(in_effect.keys))),
        sudo,
        "-" if reported is None else "there" if reported_user else "missing",
    ]


def _document(config: ClusterConfig, user: User, in_effect: UserInEffect | None) -> dict[str, Any]:
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
        "in_effect": asdict(in_effect) if in_effect else None,
    }


_Name = Annotated[str, Argument(metavar="NAME", help="The user's login name.")]
_Apply = Annotated[bool, Option("--apply/--no-apply", help="Whether `up` is run after the edit.", show_default=False)]


def add(
    stack: options.Stack,
    name: _Name,
    *,
    key: Annotated[
        list[str] | None,
        Option(
            metavar="FILE|-",
            help="SSH public keys: a .pub file, - for standard input, or the key itself; may be given again.",
        ),
    ] = None,
    uid: Annotated[
        int | None, Option(metavar="N", help="User number. Default: the lowest from 2001 on that nobody had.")
    ] = None,
    account: Annotated[
        str | None, Option(metavar="A", help="Account that jobs are charged to. Default: the only one there is.")
    ] = None,
    accounts: Annotated[
        list[str] | None, Option("--accounts", metavar="A", help="Further account to charge; may be given again.")
    ] = None,
    create_account: Annotated[
        bool, Option("--create-account", help="Declare accounts that the file does not have.")
    ] = False,
    qos: Annotated[
        list[str] | None, Option(metavar="Q", help="QOS that jobs may have, the default one first; may be given again.")
    ] = None,
    group: Annotated[
        list[str] | None, Option("--group", metavar="G", help="Further Unix group, of `groups`; may be given again.")
    ] = None,
    shell: Annotated[str | None, Option(metavar="PATH", help="Login shell. Default: /bin/bash.")] = None,
    sudo: Annotated[
        bool | None,
        Option("--sudo/--no-sudo", help="Whether the user becomes root by sudo. Default: as the platform has it."),
    ] = None,
    containers: Annotated[
        bool | None,
        Option(
            "--containers/--no-containers",
            help="Whether the user may run containers that need a right. Default: as the platform has it.",
        ),
    ] = None,
    apply: _Apply = True,
    engine: options.Engine = None,
    config_file: options.ConfigFile = None,
    yes: options.Yes = False,
) -> None:
    """Add a user to the stack file, and apply it with `up`.

    The file keeps its comments, order and style; the difference is shown. Everything is checked before it is written:
    keys, names, numbers, and that account, QOS and groups are there. The uid is nobody's: not in the file, not of a
    former user, not the owner of a directory in the cluster's /home.

    Jobs are not affected. Run again with the same values, it has nothing to do, or applies what was not applied. A
    cluster that is not up stays so.
    """
    keys, key_errors = read_keys(key or ())
    fields = {
        "uid": uid,
        "account": account,
        "accounts": accounts,
        "qos": qos,
        "groups": group,
        "shell": shell,
        "sudo": sudo,
        "containers": containers,
        "keys": [public.line for public in keys],
    }
    running = RunningCluster(stack, config_file)
    if apply:
        running.confirm_other_edits(name, yes=yes)
    request = AddRequest(
        name=name,
        fields={field: value for field, value in fields.items() if value not in (None, [])},
        keys=keys,
        key_errors=key_errors,
        running_config=running.config,
        homes=running.home_owners(),
        create_account=create_account,
    )
    changed = edit_file(stack, config_file, request.change)
    if not changed:
        console.note(f"{name} is in the stack file already, with these values.")
    if not apply and changed:
        console.note(f"Not applied. To apply it: {running.command}")
    if not apply or (not changed and running.has(name)):
        return
    code = running.apply(RunOptions(engine=engine, config_file=config_file, yes=yes))
    if code == 0 and keys and running.config:
        console.line(f"{name} can log in: ./hpc ssh-config {stack} -u {name}, then ssh {stack}")
    raise Exit(code)


def remove(
    stack: options.Stack,
    name: _Name,
    *,
    apply: _Apply = True,
    engine: options.Engine = None,
    config_file: options.ConfigFile = None,
    yes: options.Yes = False,
) -> None:
    """Remove a user from the stack file, and apply it with `up`.

    The home directory and the accounting records stay. The file keeps the uid under `former_users`, so that nobody else
    gets the files; somebody of the same name gets it again. A user with jobs is not removed; sessions are ended.
    """
    running = RunningCluster(stack, config_file)
    config = stack_config.parse(project.require_file(stack, config_file))
    run_options = RunOptions(engine=engine, config_file=config_file, yes=yes)
    if apply:
        running.confirm_other_edits(name, yes=yes)
    if apply and running.has(name) and all(user.name != name for user in config.users):
        console.note(f"{name} is not in the stack file any more.")
        raise Exit(running.apply(run_options))
    user = _require_user(config, name)
    if running.has(name) and apply:
        _refuse_busy(stack, name)
    was_there = running.may_have(name)
    if was_there:
        console.note(f"Of {name} stays:")
        console.note(f"  /home/{name}, owned by uid {user.uid}; to delete it, once the user is gone: rm -r, as root")
        console.note(f"  uid {user.uid}, which `former_users` of the stack file keeps from everybody else")
        console.note("  records of jobs in the accounting")
    if apply and not yes:
        question = f"Remove user {name} from stack {stack}?"
        console.confirm(question, doing=f"removing {name}", hint="--yes. Nothing was changed.")

    def change(_: StackFile, config: ClusterConfig, text: str) -> tuple[str, list[Finding]]:
        current = _require_user(config, name)
        position = config.users.index(current)
        text = without_item(text, USERS, position)
        # A uid that no machine has had can be used again.
        if was_there and name not in {former_user.name for former_user in config.former_users}:
            text = with_item(text, FORMER, {"name": name, "uid": current.uid}, after="users")
        return text, []

    edit_file(stack, config_file, change)
    if apply:
        raise Exit(running.apply(run_options))
    console.note(f"Not applied. To apply it: {running.command}")


def _require_user(config: ClusterConfig, name: str) -> User:
    users = {user.name: user for user in config.users}
    if name not in users:
        near = nearest(name, users)
        meant = f" Did you mean {near}?" if near else ""
        raise CliError(f"the stack file has no user {name!r}.{meant} There are: {listing(users)}.")
    return users[name]


def _refuse_busy(stack: str, name: str) -> None:
    """Raise CliError if the user has jobs, as `up` would after the file is edited. If the cluster does not answer, this
    is left to `up`."""
    try:
        cluster = connect(stack, Capability.RUN)
        line = f"squeue --noheader --user={shlex.quote(name)} --format='%i %P %T %M %R'"
        done = remote.capture(cluster.target(None), cluster.admin_key, line, seconds=_SECONDS)
    except CliError:
        return
    jobs = [row for row in done.out.splitlines() if row.strip()] if done.code == 0 else []
    if jobs:
        shown = "\n".join(f"  {row}" for row in jobs[:20]) + (f"\n  and {len(jobs) - 20} more" if jobs[20:] else "")
        raise CliError(
            f"{name} has jobs, and nothing was changed:\n{shown}\n"
            f"Wait for them, or end them: ./hpc run {stack} --as root -- scancel --user={name}"
        )
