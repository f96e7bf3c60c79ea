"""user add."""

from typing import Annotated

from typer import Exit, Option

from cli import console, options
from cli.commands.user.arguments import Apply, Name
from cli.stack.run_options import RunOptions
from cli.users import edit, keys
from cli.users.add_request import AddRequest
from cli.users.running import Running

_Key = Annotated[
    list[str] | None,
    Option(
        metavar="FILE|-", show_default=False,
        help="SSH public keys: a .pub file, - for standard input, or the key itself; may be given again.",
    ),
]  # fmt: skip
_Uid = Annotated[
    int | None,
    Option(metavar="N", help="User number. Default: the lowest from 2001 on that nobody had.", show_default=False),
]
_Account = Annotated[
    str | None,
    Option(metavar="A", help="Account that jobs are charged to. Default: the only one there is.", show_default=False),
]
_Accounts = Annotated[
    list[str] | None,
    Option("--accounts", metavar="A", help="Further account to charge; may be given again.", show_default=False),
]
_CreateAccount = Annotated[bool, Option("--create-account", help="Declare accounts that the file does not have.")]
_Qos = Annotated[
    list[str] | None,
    Option(metavar="Q", help="QOS that jobs may have, the default one first; may be given again.", show_default=False),
]
_Group = Annotated[
    list[str] | None,
    Option("--group", metavar="G", help="Further Unix group, of `groups`; may be given again.", show_default=False),
]
_Shell = Annotated[str | None, Option(metavar="PATH", help="Login shell. Default: /bin/bash.", show_default=False)]
_Sudo = Annotated[
    bool | None,
    Option(
        "--sudo/--no-sudo", help="Whether the user becomes root by sudo. Default: as the platform has it.",
        show_default=False,
    ),
]  # fmt: skip
_Containers = Annotated[
    bool | None,
    Option(
        "--containers/--no-containers", show_default=False,
        help="Whether the user may run containers that need a right. Default: as the platform has it.",
    ),
]  # fmt: skip


def add(
    stack: options.Stack, name: Name, *, key: _Key = None, uid: _Uid = None, account: _Account = None,
    accounts: _Accounts = None, create_account: _CreateAccount = False, qos: _Qos = None, group: _Group = None,
    shell: _Shell = None, sudo: _Sudo = None, containers: _Containers = None, apply: Apply = True,
    engine: options.Engine = None, config_file: options.ConfigFile = None, yes: options.Yes = False,
) -> None:  # fmt: skip
    """Add a user to the stack file, and apply it with `up`.

    The file keeps its comments, order and style; the difference is shown. Everything is checked before it is written:
    keys, names, numbers, and that account, QOS and groups are there. The uid is nobody's: not in the file, not of a
    former user, not the owner of a directory in the cluster's /home.

    Jobs are not affected. Run again with the same values, it has nothing to do, or applies what was not applied. A
    cluster that is not up stays so.
    """
    found, wrong = keys.read(key or ())
    given = {
        "uid": uid, "account": account, "accounts": accounts, "qos": qos, "groups": group, "shell": shell,
        "sudo": sudo, "containers": containers, "keys": [one.line for one in found],
    }  # fmt: skip
    given = {field: value for field, value in given.items() if value not in (None, [])}
    running = Running(stack, config_file)
    if apply:
        running.confirm_other_edits(name, yes=yes)
    request = AddRequest(
        name=name, given=given, keys=found, wrong=wrong, before=running.config, homes=running.seen().homes,
        create_account=create_account,
    )  # fmt: skip
    changed = edit.edit(stack, config_file, request.change)
    if not changed:
        console.note(f"{name} is in the stack file already, with these values.")
    if not apply and changed:
        console.note(f"Not applied. To apply it: {running.command}")
    if not apply or (not changed and running.has(name)):
        return
    code = running.apply(RunOptions(engine=engine, config_file=config_file, yes=yes))
    if code == 0 and found and running.config:
        console.line(f"{name} can log in: ./hpc ssh-config {stack} -u {name}, then ssh {stack}")
    raise Exit(code)
