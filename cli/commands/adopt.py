"""import."""

from typing import Annotated

from typer import Argument, Exit

from cli import options
from cli.stack import project, pulumi_install, pulumi_process


def import_(
    stack: options.Stack,
    arguments: Annotated[
        list[str],
        Argument(metavar="-- TYPE NAME ID [OPTION]...", help="What `pulumi import` takes.", show_default=False),
    ],
) -> None:
    """Take something into the stack that exists already, with the Pulumi CLI's `import`.

    The program declares what a stack has, so NAME and --parent are those of a resource that it declares: a preview
    shows them as to be created. The engine built in makes what is on this machine only, of which `up` takes over by
    itself what is there.
    """
    project.require_file(stack)
    pulumi = pulumi_install.require_pulumi("import is the Pulumi CLI's")
    command = [pulumi, "import", "--stack", stack, "--generate-code=false", "--protect=false", *arguments]
    raise Exit(pulumi_process.run_on_terminal(command, stack))
