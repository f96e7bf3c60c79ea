"""user remove."""

import shlex

from typer import Exit

from cli import console, options
from cli.access import remote
from cli.cluster.cluster import from_outputs
from cli.commands.user.arguments import Apply, Name
from cli.errors import CliError
from cli.stack import outputs, project, stack_config
from cli.stack.run_options import RunOptions
from cli.stack.stackfile import StackFile
from cli.stack.text.items import with_item, without_item
from cli.users import edit
from cli.users.running import Running
from cluster.config import ClusterConfig
from cluster.config.users import User
from cluster.findings import Finding, listing, nearest
from cluster.platforms.capability import Capability

_SECONDS = 30


def remove(
    stack: options.Stack, name: Name, *, apply: Apply = True, engine: options.Engine = None,
    config_file: options.ConfigFile = None, yes: options.Yes = False,
) -> None:  # fmt: skip
    """Remove a user from the stack file, and apply it with `up`.

    The home directory and the accounting records stay. The file keeps the uid under `former_users`, so that nobody else
    gets the files; somebody of the same name gets it again. A user with jobs is not removed; sessions are ended.
    """
    running = Running(stack, config_file)
    config = stack_config.parse(project.require_file(stack, config_file))
    chosen = RunOptions(engine=engine, config_file=config_file, yes=yes)
    if apply:
        running.confirm_other_edits(name, yes=yes)
    if apply and running.has(name) and all(user.name != name for user in config.users):
        console.note(f"{name} is not in the stack file any more.")
        raise Exit(running.apply(chosen))
    user = _user(config, name)
    if running.has(name) and apply:
        _refuse_busy(stack, name)
    _say_what_stays(user, was_there=running.may_have(name))
    if apply and not yes:
        if not console.interactive():
            raise CliError(f"removing {name} without a terminal needs --yes. Nothing was changed.")
        if not console.ask(f"Remove user {name} from stack {stack}?"):
            raise CliError("nothing was changed.")

    def change(_: StackFile, config: ClusterConfig, text: str) -> tuple[str, list[Finding]]:
        current = _user(config, name)
        position = config.users.index(current)
        text = without_item(text, edit.USERS, position)
        # A number that no machine has had needs nobody's memory.
        if running.may_have(name) and name not in {one.name for one in config.former_users}:
            text = with_item(text, edit.FORMER, {"name": name, "uid": current.uid}, after="users")
        return text, []

    edit.edit(stack, config_file, change)
    if apply:
        raise Exit(running.apply(chosen))
    console.note(f"Not applied. To apply it: {running.command}")


def _user(config: ClusterConfig, name: str) -> User:
    found = next((user for user in config.users if user.name == name), None)
    if found is None:
        names = [user.name for user in config.users]
        near = nearest(name, names)
        raise CliError(
            f"the stack file has no user {name!r}.{f' Did you mean {near}?' if near else ''} There are: "
            f"{listing(names)}."
        )
    return found


def _say_what_stays(user: User, *, was_there: bool) -> None:
    if not was_there:
        return
    console.note(f"Of {user.name} stays:")
    console.note(f"  /home/{user.name}, owned by uid {user.uid}; to delete it, once the user is gone: rm -r, as root")
    console.note(f"  uid {user.uid}, which `former_users` of the stack file keeps from everybody else")
    console.note("  records of jobs in the accounting")


def _refuse_busy(stack: str, name: str) -> None:
    """Before the file is edited, what `up` would refuse; where the cluster does not answer, `up` finds out."""
    try:
        cluster = from_outputs(stack, outputs.read(stack, show_secrets=True), Capability.RUN)
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
