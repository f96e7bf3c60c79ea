"""`./hpc preview`, `up`, `destroy`, `refresh` and `import`."""

from typing import Annotated

from typer import Argument, Exit, Option

from cli import options
from cli.operation.run_options import Kind, RunOptions, run_options
from cli.stack import project, pulumi_program, stackfile


@run_options("yes", "unprotect", "confirm", "message", "no_check")
def preview(stack: options.Stack, *, chosen: RunOptions) -> None:
    """Show what `up` would do, and do nothing; the last lines say what an edit does to running jobs.

    Needs neither root nor credentials. Exit code 0 also when there are changes, or some that `up` would refuse.
    """
    _run("preview", stack, chosen)


@run_options("unprotect", "confirm")
def up(stack: options.Stack, *, chosen: RunOptions) -> None:
    """Make the cluster what its stack file says.

    Safe to repeat: what is right already is left alone, and an `up` that was stopped half-way goes on where it was.
    On this machine it needs root, and installs the host's missing packages after saying so. In a cloud it first asks
    what `./hpc check cloud` asks, and stops before the first step if something is wrong.
    """
    _run("up", stack, chosen)


@run_options("exclude_dependents", "replace", "diff", "expect_no_changes", "no_check")
def destroy(
    stack: options.Stack,
    *,
    leftovers: Annotated[
        bool, Option("--leftovers", help="Remove what is on this host of a stack whose state is lost.")
    ] = False,
    chosen: RunOptions,
) -> None:
    """Remove everything the stack made.

    Asks first if the stack has deletion_protection or is not a rehearsal on this machine. Data that is protected goes
    with --unprotect only, which prints what will be lost and has the cluster's name typed.
    """
    if leftovers:
        from cli.operation import localhost  # it imports the models

        localhost.remove_leftovers(
            stackfile.read(project.ROOT, stack, chosen.config_file), yes=chosen.yes, json=chosen.json
        )
        return
    _run("destroy", stack, chosen)


@run_options(
    "unprotect", "confirm", "target_dependents", "exclude_dependents", "replace", "refresh", "diff", "no_check"
)
def refresh(stack: options.Stack, *, chosen: RunOptions) -> None:
    """Compare the state with what is really there, and correct the state.

    Changes nothing else: the next `up` mends what has drifted.
    """
    _run("refresh", stack, chosen)


def _run(kind: Kind, stack: str, chosen: RunOptions) -> None:
    # The models and the display take half a second to import, which --help does not wait for.
    from cli.operation.operation import run

    raise Exit(run(kind, stack, chosen))


def import_(
    stack: options.Stack,
    arguments: Annotated[
        list[str], Argument(metavar="-- TYPE NAME ID [OPTION]...", help="What `pulumi import` takes.")
    ],
) -> None:
    """Take something into the stack that exists already, with the Pulumi CLI's `import`.

    The program declares what a stack has, so NAME and --parent are those of a resource that it declares: a preview
    shows them as to be created. The engine built in makes what is on this machine only, of which `up` takes over by
    itself what is there.
    """
    project.require_file(stack)
    pulumi = pulumi_program.require_pulumi("import is the Pulumi CLI's")
    command = [pulumi, "import", "--stack", stack, "--generate-code=false", "--protect=false", *arguments]
    raise Exit(pulumi_program.run_on_terminal(command, stack))
