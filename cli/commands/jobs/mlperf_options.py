"""Options that commands on MLPerf share, and the cluster that they are about."""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from typer import Argument, Option

from cli import console
from cli.cluster.cluster import from_outputs
from cli.cluster.jobs import Jobs
from cli.errors import CliError
from cli.stack import outputs, project, stack_config, stackfile
from cluster.catalog.mlperf import GPT3, STABLE_DIFFUSION
from cluster.config.cluster import ClusterConfig
from cluster.findings import Finding, Level
from cluster.jobs import mlperf
from cluster.jobs.script import JobScript
from cluster.load.parse import parse_output
from cluster.platforms.capability import Capability


class Benchmark(str, Enum):
    """A benchmark, as commands have it."""

    STABLE_DIFFUSION = "stable-diffusion"
    GPT3 = "gpt3"

    @property
    def key(self) -> str:
        """As logs have it."""
        return GPT3 if self is Benchmark.GPT3 else STABLE_DIFFUSION


Which = Annotated[Benchmark, Argument(metavar="BENCHMARK", help="stable-diffusion or gpt3.", show_default=False)]
Data = Annotated[
    str,
    Option(
        metavar="FOLDER",
        help="Folder on shared storage. Default: /mlperf-sd, or /gpt3, as in the guide.",
        show_default=False,
    ),
]
As = Annotated[
    str | None, Option("--as", metavar="USER", help="Whose jobs they are. Default: the first user.", show_default=False)
]
Partition = Annotated[str, Option(metavar="NAME", help="Where they run. Default: one that fits.", show_default=False)]
DryRun = Annotated[bool, Option("--dry-run", help="Print the job scripts, and submit nothing.")]


@dataclass(frozen=True, kw_only=True)
class Place:
    """A cluster that is up, for jobs of one user."""

    jobs: Jobs
    config: ClusterConfig


def described(stack: str) -> ClusterConfig:
    """The cluster that a stack's file describes, for a dry run. Raises CliError."""
    return stack_config.parse(stackfile.read(project.ROOT, stack))


def connected(stack: str, user: str | None) -> Place:
    """The cluster of a stack. Raises CliError: it is not up."""
    values = outputs.read(stack, show_secrets=True)
    cluster = from_outputs(stack, values, Capability.RUN)
    if not values.get("config"):
        raise CliError(f"stack {stack} has no output config. Bring it up to date with: ./hpc up {stack}")
    return Place(jobs=Jobs(cluster, stack, cluster.user(user)), config=parse_output(values["config"]))


def check(place: Place, benchmark: Benchmark, data: str, files: tuple[str, ...]) -> tuple[str, ...]:
    """Look at the data folder; those of `files` that are not there. Prints warnings. Raises CliError: every error."""
    jobs = place.jobs
    seen = mlperf.parse_data_folder(jobs.run(mlperf.inspect_command(data, files)))
    found = list(mlperf.data_findings(benchmark.key, jobs.stack, jobs.user, data, seen))
    for one in found:
        if one.level is Level.WARNING:
            console.note(f"warning: {one}")
    refuse([one for one in found if one.level is Level.ERROR])
    return seen.missing


def refuse(found: list[Finding]) -> None:
    """Raise CliError with all of these findings; nothing if there are none."""
    if found:
        raise CliError("\n\n".join(map(str, found)))


def dry_run(scripts: tuple[JobScript, ...]) -> None:
    """Print job scripts, each with its name where there are several."""
    for number, one in enumerate(scripts):
        if len(scripts) > 1:
            console.line(f"{'' if number == 0 else chr(10)}===== {one.name}")
        console.lines(one.text().splitlines())
