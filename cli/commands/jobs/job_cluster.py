"""Parts that commands which run jobs share: the cluster, options, and how they print job scripts and save plots."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from cli import bootstrap, console
from cli.cluster.cluster import connect
from cli.cluster.jobs import Jobs
from cli.errors import CliError
from cli.stack import project, stack_config, stackfile
from cluster.capability import Capability
from cluster.config.cluster import ClusterConfig
from cluster.jobs.script import JobScript
from cluster.report.plot import Curve, save_png

As = Annotated[str | None, Option("--as", metavar="USER", help="Whose jobs they are. Default: the first user.")]
DryRun = Annotated[bool, Option("--dry-run", help="Print the job scripts, and submit nothing.")]
NodeNames = Annotated[str, Option(metavar="NODES", help="Only these: cpu-0, cpu-[0-3,7]. Default: all.")]


def connect_user(stack: str, user: str | None, *needed: Capability) -> Jobs:
    """Return the jobs of a user on a cluster, which must have these capabilities besides RUN. Raises CliError: it is
    not up, or has no such user."""
    cluster = connect(stack, Capability.RUN, *needed)
    return Jobs(cluster, cluster.user(user))


def read_config(stack: str) -> ClusterConfig:
    """Return the configuration of a stack for a dry run: from its file, or from its outputs if it has no file here.
    Raises CliError: it has neither, or the file has errors."""
    file = stackfile.read(project.ROOT, stack)
    return connect_user(stack, "root").config if file.settings is None else stack_config.parse(file)


def print_scripts(scripts: Sequence[JobScript]) -> None:
    """Print job scripts, each with its name if there are several."""
    for number, script in enumerate(scripts):
        if len(scripts) > 1:
            console.line(f"{'' if number == 0 else chr(10)}===== {script.name}")
        console.lines(script.text().splitlines())


def save_plot(curves: Sequence[Curve], png: Path, **axes: Any) -> None:  # noqa: ANN401 - as save_png has them
    """Write a plot as a picture. The first one installs matplotlib. Raises CliError: it can't be installed, or the file
    can't be written. Raises ValueError: there is nothing to plot."""
    try:
        try:
            save_png(curves, png, **axes)
        except ModuleNotFoundError:
            bootstrap.add("matplotlib", "0.1 GB")
            save_png(curves, png, **axes)
    except bootstrap.BootstrapError as error:
        raise CliError(str(error)) from None
    except OSError as error:
        raise CliError(f"can't write {png}: {error.strerror or error}.") from None
    console.note(f"Wrote {png}")
