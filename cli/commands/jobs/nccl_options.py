"""What `nccl build` and `nccl run` have in common: options, the cluster, the partition with GPUs."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from typer import Option

from cli import completion
from cli.cluster.cluster import from_outputs
from cli.cluster.jobs import Jobs
from cli.errors import CliError
from cli.stack import outputs, project, rehearsals, stack_config, stackfile
from cluster.config.cluster import ClusterConfig
from cluster.jobs.environment import environment
from cluster.jobs.nccl import LOGS
from cluster.jobs.partition_facts import PartitionFacts, partition_facts
from cluster.jobs.script import ENV
from cluster.load.parse import parse_output
from cluster.platforms import registry
from cluster.platforms.capability import Capability

PartitionName = Annotated[
    str | None,
    Option(
        "--partition",
        metavar="NAME",
        help="Default: the first one with GPUs.",
        show_default=False,
        autocompletion=completion.partitions,
    ),
]
As = Annotated[
    str | None,
    Option("--as", metavar="USER", help="Whose job it is. Default: the first user.", show_default=False),
]
DryRun = Annotated[bool, Option("--dry-run", help="Print the job script, and submit nothing.")]


@dataclass(frozen=True)
class Chosen:
    """A cluster that is up, and the nodes for the test."""

    jobs: Jobs
    config: ClusterConfig
    partition: PartitionFacts

    def prepare(self) -> None:
        """Write the environment of jobs, and the folder for their logs."""
        self.jobs.put({ENV: environment(self.config)})
        self.jobs.run(f"mkdir -p {LOGS}")


def planned(stack: str, partition: str | None) -> tuple[ClusterConfig, PartitionFacts]:
    """A stack's cluster, by its file, or by its outputs where it has no file here.

    Raises:
        CliError: there is no such stack, or no partition with GPUs.
    """
    file = stackfile.read(project.ROOT, stack)
    if file.settings is not None:
        config = stack_config.parse(file)
    else:
        config = parse_output(outputs.read(stack, show_secrets=True)["config"])
    return config, choose(stack, config, partition)


def chosen(stack: str, partition: str | None, user: str | None, *, stand_ins: bool = False) -> Chosen:
    """A cluster that is up. `stand_ins`: whether a rehearsal will do.

    Raises:
        CliError: it is not up, has no GPUs, or only stand-ins for them.
    """
    values = outputs.read(stack, show_secrets=True)
    cluster = from_outputs(stack, values, Capability.RUN)
    config = parse_output(values["config"])
    found = choose(stack, config, partition)
    rehearsed = registry.get(config.platform).on_this_host or rehearsals.of(rehearsals.file(stack))
    if rehearsed and not stand_ins:
        raise CliError(
            f"stack {stack} is a rehearsal: its GPUs are device files, which compute nothing, so there is nothing to "
            f"measure. To see the job: --dry-run. To have its slurmctld check it: "
            f"./hpc nccl run {stack} --dry-run | ./hpc run {stack} -- sbatch --test-only"
        )
    return Chosen(Jobs(cluster, stack, cluster.user(user)), config, found)


def choose(stack: str, config: ClusterConfig, name: str | None) -> PartitionFacts:
    """The nodes with GPUs of a partition: of the one named, else of the first that has some.

    Raises:
        CliError: there is no partition of the name, or it has no GPUs.
    """
    rows = partition_facts(config)
    if name is not None and name not in config.partitions:
        raise CliError(
            f"stack {stack} has no partition {name!r}.{hint(name, tuple(config.partitions))} "
            f"There are: {', '.join(config.partitions)}."
        )
    having = [row for row in rows if row.gpu and name in (None, row.name)]
    if having:
        return having[0]
    others = list(dict.fromkeys(row.name for row in rows if row.gpu))
    where = f"partition {name} of stack {stack}" if name else f"stack {stack}"
    there = f" These have some: {', '.join(others)}." if others else ""
    raise CliError(f"{where} has no GPUs, and NCCL moves data between GPUs.{there}")


def hint(given: str, known: Sequence[str]) -> str:
    """`Did you mean ...?`, with a blank before it, where a known name is near."""
    near = difflib.get_close_matches(given, known, n=1)
    return f" Did you mean {near[0]}?" if near else ""
