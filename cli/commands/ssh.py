"""`./hpc run`, `ssh` and `ssh-config`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from cli import console, options
from cli.access import remote
from cli.access.remote import LOOK_UP_SECONDS, driver_of
from cli.access.ssh import quoted
from cli.access.target import Target
from cli.cluster.cluster import Cluster, connect
from cli.errors import CliError
from cluster.capability import Capability

_Command = Annotated[
    list[str] | None, Argument(metavar="[-- COMMAND...]", help="The command, after `--`. Left out: a login shell.")
]
_As = Annotated[str | None, Option("--as", "-u", metavar="USER", help="Who to be. Default: the first configured user.")]


def run(
    stack: options.Stack,
    command: _Command = None,
    *,
    user: _As = None,
    login: Annotated[
        str | None,
        Option(metavar="MACHINE", help="Where. Default: the first login machine.", autocompletion=options.machines),
    ] = None,
) -> None:
    """Run a command as a user of the cluster, on its login machine.

    Input, output, terminal and exit code are the command's own. Its words arrive as given; one quoted word with
    blanks or pipes in it, as in `-- "sinfo | head"`, is a line for the user's shell there. 255 is ssh's own exit
    code: the machine was not reached.
    """
    cluster = connect(stack, Capability.RUN)
    raise Exit(remote.run(cluster.target(login), cluster.admin_key, cluster.user(user), command or ()))


def ssh(
    stack: options.Stack,
    machine: Annotated[
        str | None,
        Argument(
            metavar="[MACHINE]",
            help="Its name, with or without the cluster's: dev-cpu-0, cpu-0, controller. Default: the login machine.",
            autocompletion=options.machines,
        ),
    ] = None,
    command: _Command = None,
    *,
    user: Annotated[str, Option("--as", "-u", metavar="USER", help="Who to be.")] = "root",
    key: Annotated[
        Path | None, Option("-k", metavar="KEY", help="Log in as USER with this private key, not with the stack's.")
    ] = None,
) -> None:
    """Log in to a machine, or run a command there, as root.

    Host keys are pinned: they come from the stack's state, or from the cluster over its own API. One quoted word is a
    line for the shell there, several words arrive as given. Where machines are pods, those that are named are entered
    with kubectl, and without a name it is SSH to the login pods' address.
    """
    words = [word for word in (machine, *(command or ())) if word is not None]
    name = words.pop(0) if words[:1] not in ([], [options.COMMAND_FOLLOWS]) else None
    if options.COMMAND_FOLLOWS in words:
        words.remove(options.COMMAND_FOLLOWS)
    cluster = connect(stack, Capability.SSH)
    target = _target(cluster, name, key)
    if key:
        # The machine may have users that the stack file does not have, so the name is not checked here.
        raise Exit(remote.log_in(target, cluster.admin_key, user, key, words))
    raise Exit(remote.run(target, cluster.admin_key, cluster.user(user), words))


def ssh_config(
    stack: options.Stack,
    *,
    user: Annotated[
        str | None, Option("--as", "-u", metavar="USER", help="Who to log in as. Default: the first user.")
    ] = None,
    admin_key: Annotated[
        bool, Option("--admin-key", help="Log in as root everywhere, with the stack's own key, which is written too.")
    ] = False,
    show: Annotated[bool, Option("--print", help="Print the configuration, and do not keep it.")] = False,
) -> None:
    """Write an ssh_config, so that ssh, scp, rsync and editors reach the cluster as STACK or by a machine's name.

    A user logs in with their own key (`users: keys:` in the stack file) to login machines, and to the nodes of their
    jobs if slurm.pam_slurm_adopt is set. Host keys are pinned. Run it again after machines were added or recreated;
    `destroy` removes what it wrote.
    """
    cluster = connect(stack, Capability.SSH)
    name = "root" if admin_key and user is None else cluster.user(user)
    if (name == "root") != admin_key:
        raise CliError(
            "root is let in with the stack's admin key only: use --admin-key, which writes that key (0600) too, and no "
            "other user. Users log in with their own keys."
        )
    # Other commands of this file do not parse the configuration.
    from cli.cluster import user_config
    from cli.stack import stack_config

    files = user_config.StackFiles(stack)
    config = stack_config.applied(cluster.outputs)
    nodes = bool(config and config.slurm.pam_slurm_adopt)
    text, left_out = user_config.render(cluster, files, user=name, admin=admin_key, nodes=nodes)
    if show:
        console.lines(text.splitlines())
    else:
        user_config.write(files.config, text)
        console.lines([str(files.config)])
        console.note(f"First line of ~/.ssh/config: Include {quoted(files.config)}")
        console.note(f"Then: ssh {stack}    scp FILE {stack}:    rsync -a FOLDER {stack}:")
    for machine, reason in left_out.items():
        console.note(f"{machine} is left out: {reason}")
    if config and not admin_key and not any(user.keys for user in config.users if user.name == name):
        console.note(f"{name} has no `keys` in the stack file, so no key lets {name} in.")


def _target(cluster: Cluster, name: str | None, key: Path | None) -> Target:
    """Return the target of a name. A login pod is reached through its SSH server if no name or a key is given. Raises
    CliError: there is no such target."""
    target = cluster.target(name)
    driver = driver_of(target)
    if driver.own_line is None or (name and not key) or "login" not in target.roles:
        return target
    if not key and not cluster.admin_key:
        raise CliError("the stack has no output admin_key. Give a key of your own: -k KEY, with -u USER.")
    return driver.ssh_target(target, LOOK_UP_SECONDS)
