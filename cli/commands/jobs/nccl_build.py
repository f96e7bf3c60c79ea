"""nccl build."""

import shlex

from cli import console, options
from cli.cluster.job_progress import Progress
from cli.commands.jobs import nccl_options as common
from cli.errors import CliError
from cluster.catalog.nccl_tests import IMAGE, NCCL_TESTS
from cluster.jobs.nccl import BUILD_NAME, LOGS, build_script, image_file, tests_folder, way

_SHOWN = "^==> "
_TAIL = 40
"""Lines of the log of a failed build that are printed."""


def build(
    stack: options.Stack,
    *,
    partition: common.PartitionName = None,
    user: common.As = None,
    dry_run: common.DryRun = False,
) -> None:
    """Build the NCCL test: import a container image and compile nccl-tests in it, as a job.

    The image (NVIDIA's PyTorch, 18 GB) and the programs go to ~/nccl of the user, on the shared file system. It takes
    about 15 minutes on one node. A second run finds what is there; a run beside another one waits for the same job.
    Ctrl-C cancels the job. Where the nodes have nccl-tests already, there is nothing to build.
    """
    if dry_run:
        config, found = common.planned(stack, partition)
        if way(config) == "installed":
            console.note(_installed(stack))
            return
        console.lines(build_script(config, found).text().splitlines())
        return
    chosen = common.chosen(stack, partition, user)
    if way(chosen.config) == "installed":
        console.line(_installed(stack))
        return
    jobs, kind = chosen.jobs, way(chosen.config)
    folder, image = tests_folder(), image_file(kind)
    if is_built(chosen):
        console.line(f"{image} and {folder} are there: {_title()}.")
        console.line(f"Next: ./hpc nccl run {stack}")
        return
    chosen.prepare()
    job = jobs.run(f'squeue --noheader --user="$(id -un)" --name={BUILD_NAME} --format=%A').split()
    if job:
        console.note(f"Job {job[0]} of an earlier command is building; waiting for it.")
    number = job[0] if job else jobs.submit(build_script(chosen.config, chosen.partition).text())
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
    console.line(f"Built {_title()}, in {folder} of {jobs.user}.")
    console.line(f"Next: ./hpc nccl run {stack}")


def is_built(chosen: common.Chosen) -> bool:
    """Whether the user has image and programs."""
    paths = [image_file(way(chosen.config)), f"{tests_folder()}/build/all_reduce_perf"]
    test = " && ".join(f"test -s {shlex.quote(path)}" for path in paths)
    return chosen.jobs.run(f"{{ {test}; }} && echo built || echo missing").strip() == "built"


def _title() -> str:
    return f"nccl-tests {NCCL_TESTS.version} in {IMAGE.name}:{IMAGE.tag}"


def _installed(stack: str) -> str:
    return f"The nodes have nccl-tests: there is nothing to build. Next: ./hpc nccl run {stack}"
