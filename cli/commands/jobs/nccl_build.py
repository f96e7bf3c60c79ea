"""`./hpc nccl build`, and what the commands on NCCL share."""

import shlex
from typing import Annotated

from typer import Option

from cli import console, options
from cli.cluster.jobs import Jobs, Progress
from cli.commands.jobs.job_cluster import As, DryRun, JobCluster, connected, described, print_scripts
from cli.errors import CliError, hint
from cluster.catalog.nccl import NCCL_TESTS
from cluster.config.cluster import ClusterConfig
from cluster.jobs.nccl import BUILD_NAME, LOGS, build_script, image_file, tests_folder, way
from cluster.jobs.partition_facts import PartitionFacts, partition_facts

PartitionName = Annotated[
    str | None,
    Option("--partition", metavar="NAME", help="Default: the first one with GPUs.", autocompletion=options.partitions),
]
_SHOWN = "^==> "
_TAIL = 40
"""Lines of the log of a failed build that are printed."""


def build(stack: options.Stack, *, partition: PartitionName = None, user: As = None, dry_run: DryRun = False) -> None:
    """Build the NCCL test: import a container image and compile nccl-tests in it, as a job.

    The image (NVIDIA's PyTorch, 18 GB) and the programs go to ~/nccl of the user, on the shared file system. It takes
    about 15 minutes on one node. A second run finds what is there; a run beside another one waits for the same job.
    Ctrl-C cancels the job. Where the nodes have nccl-tests already, there is nothing to build.
    """
    installed = f"The nodes have nccl-tests: there is nothing to build. Next: ./hpc nccl run {stack}"
    if dry_run:
        config = described(stack)
        found = gpu_partition(stack, config, partition)
        if way(config) == "installed":
            console.note(installed)
        else:
            print_scripts([build_script(config, found)])
        return
    cluster, found = gpu_cluster(stack, partition, user)
    if way(cluster.config) == "installed":
        console.line(installed)
        return
    jobs, container = cluster.jobs, found.fabric.container
    folder, image = tests_folder(container), image_file(way(cluster.config), container)
    title = f"nccl-tests {NCCL_TESTS.version} in {container.name}:{container.tag}"
    if is_built(cluster, found):
        console.line(f"{image} and {folder} are there: {title}.")
        console.line(f"Next: ./hpc nccl run {stack}")
        return
    cluster.prepare(LOGS)
    job = jobs.run(f'squeue --noheader --user="$(id -un)" --name={BUILD_NAME} --format=%A').split()
    if job:
        console.note(f"Job {job[0]} of an earlier command is building; waiting for it.")
    number = job[0] if job else jobs.submit(build_script(cluster.config, found).text())
    log = f"{LOGS}/{number}-build.log"
    again = f"./hpc nccl build {stack} --as {jobs.user}"
    state = Progress(jobs, number, log, _SHOWN, again, lambda line: line.removeprefix("==> ")).wait()
    if not state.completed:
        end = jobs.run(f"tail -n {_TAIL} {shlex.quote(log)} 2>/dev/null || true").rstrip()
        raise CliError(
            f"job {number} ended as {state.state} (exit code {state.exit_code}) on {state.nodes or 'no node'}. "
            f"The end of {log}, in the home of {jobs.user}:\n{end or '(empty)'}\n"
            f"What was imported stays. To go on: {again}"
        )
    console.line(f"Built {title}, in {folder} of {jobs.user}.")
    console.line(f"Next: ./hpc nccl run {stack}")


def read_log(jobs: Jobs, job: str, most: int = 5_000_000) -> str:
    """The beginning of the log of a run; empty where there is none."""
    return jobs.run(f"head -c {most} {LOGS}/{job}.log 2>/dev/null || true", seconds=300)


def gpu_cluster(
    stack: str, partition: str | None, user: str | None, *, stand_ins: bool = False
) -> tuple[JobCluster, PartitionFacts]:
    """A cluster that is up, and its nodes with GPUs. `stand_ins`: whether a rehearsal will do.

    Raises:
        CliError: it is not up, has no GPUs, or only stand-ins for them.
    """
    cluster = connected(stack, user)
    found = gpu_partition(stack, cluster.config, partition)
    if cluster.is_rehearsal and not stand_ins:
        raise CliError(
            f"stack {stack} is a rehearsal: its GPUs are device files, which compute nothing, so there is nothing to "
            f"measure. To see the job: --dry-run. To have its slurmctld check it: "
            f"./hpc nccl run {stack} --dry-run | ./hpc run {stack} -- sbatch --test-only"
        )
    return cluster, found


def gpu_partition(stack: str, config: ClusterConfig, name: str | None) -> PartitionFacts:
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


def is_built(cluster: JobCluster, partition: PartitionFacts) -> bool:
    """Return whether the user has image and programs."""
    container = partition.fabric.container
    paths = [image_file(way(cluster.config), container), f"{tests_folder(container)}/build/all_reduce_perf"]
    test = " && ".join(f"test -s {shlex.quote(path)}" for path in paths)
    return cluster.jobs.run(f"{{ {test}; }} && echo built || echo missing").strip() == "built"
