"""`./hpc mlperf run`."""

from pathlib import Path
from typing import Annotated

from typer import Exit, Option

from cli import console, options
from cli.cluster.jobs import Jobs, JobState, retry_while_unreachable
from cli.commands.jobs import job_cluster, mlperf_report
from cli.commands.jobs.job_cluster import As, DryRun, JobCluster
from cli.commands.jobs.mlperf_prepare import Benchmark, Data, News, Partition, Which, check_data_folder
from cli.errors import CliError
from cluster.catalog.mlperf import IMAGE
from cluster.jobs import mlperf
from cluster.jobs.mlperf import NEEDED_FILES, RequestError, Sizes, image_file, not_prepared
from cluster.jobs.script import JobScript
from cluster.report.mlperf_log import Interval, NotAnMlperfLogError
from cluster.report.mlperf_report import report_of

_WAIT_SECONDS = 15.0
_MOST = 1_000_000


def run(
    stack: options.Stack,
    benchmark: Which,
    *,
    nodes: Annotated[int, Option(min=1, max=10_000, metavar="N", help="Nodes, each with 8 GPUs.")],
    data: Data = "",
    config: Annotated[str, Option(metavar="NAME", help="Of Stable Diffusion: 01x08x08, 02x08x08, 32x08x02 ...")] = "",
    image: Annotated[str, Option(metavar="IMAGE", help="A file (*.sqsh), or REGISTRY#NAME:TAG.")] = "",
    checkpoint: Annotated[str, Option(metavar="FOLDER", help="Of GPT-3. Default: FOLDER/checkpoint of --data.")] = "",
    tensor: Annotated[
        int | None, Option(min=1, max=_MOST, metavar="N", help="Of GPT-3: parts of each layer. Default: 8.")
    ] = None,
    pipeline: Annotated[
        int | None, Option(min=1, max=_MOST, metavar="N", help="Of GPT-3: groups of layers. Default: 8.")
    ] = None,
    batch: Annotated[
        int | None, Option(min=1, max=_MOST, metavar="N", help="Of GPT-3: samples of a training step.")
    ] = None,
    micro: Annotated[
        int | None, Option("--micro-batch", min=1, max=_MOST, metavar="N", help="Of GPT-3: samples at a time.")
    ] = None,
    minutes: Annotated[
        int | None, Option(min=1, max=_MOST, metavar="N", help="Longest run time. Default: 4 hours; GPT-3: 20 hours.")
    ] = None,
    partition: Partition = "",
    user: As = None,
    png: Annotated[Path | None, Option("--png", metavar="FILE", help="Write a plot too.")] = None,
    no_wait: Annotated[bool, Option("--no-wait", help="Submit the job, and return.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Run an MLPerf benchmark, show the time of its training steps as they are done, and report them.

    The job goes on if you interrupt the command. The exit code is 1 if the run is slower than the published time, or if
    the job failed.
    """
    cluster = None if dry_run else job_cluster.connected(stack, user)
    is_gpt3 = benchmark is Benchmark.GPT3
    try:
        data_folder = mlperf.check_folder(data, benchmark.key)
        chosen = mlperf.gpu_partition(cluster.config if cluster else job_cluster.described(stack), partition, nodes)
        image_path = _image(benchmark, data_folder, image)
        training = mlperf.Training(data=data_folder, partition=chosen, nodes=nodes, image=image_path, minutes=minutes)
        checkpoint = checkpoint or f"{data_folder}/checkpoint"
        if is_gpt3:
            sizes = Sizes(tensor=tensor, pipeline=pipeline, batch=batch, micro=micro)
            setting = mlperf.gpt3_setting(chosen, nodes, sizes)
            script = mlperf.gpt3_script(training, setting, mlperf.check_folder(checkpoint, benchmark.key))
        else:
            script = mlperf.diffusion_script(training, mlperf.diffusion_config(config, nodes))
    except RequestError as error:
        raise CliError(str(error)) from None
    if cluster is None:
        job_cluster.print_scripts((script,))
        return
    needed = [*NEEDED_FILES[benchmark.key], *([checkpoint] if is_gpt3 else [])]
    needed += [image_path] if image_path.startswith("/") else []
    if missing := check_data_folder(cluster, benchmark, data_folder, needed):
        raise CliError(str(not_prepared(stack, benchmark.value, data_folder, missing)))
    if chosen.gpu and "h100" not in chosen.gpu.type.lower():
        console.note(f"note: published times are of H100, and these GPUs are {chosen.gpu.type}.")
    _train(cluster, script, data_folder, png, no_wait=no_wait)


def _image(benchmark: Benchmark, data: str, given: str) -> str:
    """The image as a file of the data folder, where `prepare` leaves it. Raises RequestError: GPT-3 has no default."""
    if not given and benchmark is Benchmark.GPT3:
        raise RequestError(
            "GPT-3 needs --image: its recipe has none for this code. Build one from large_language_model/megatron-lm/"
            "Dockerfile in github.com/mlcommons/training, push it to your registry, and name it to prepare and to run"
        )
    image = mlperf.check_image(given or IMAGE)
    name = image_file(image)
    return f"{data}/images/{name}" if name else image


def _train(cluster: JobCluster, script: JobScript, data: str, png: Path | None, *, no_wait: bool) -> None:
    jobs = cluster.jobs
    cluster.prepare(f"{data}/logs", f"{data}/results")
    number = jobs.submit(script.text())
    log = str(script.options["output"]).replace("%j", number)
    later = f"./hpc mlperf report {number} --stack {jobs.stack} --data {data} --as {jobs.user}"
    console.note(f"Job {number}, log {log}")
    if no_wait:
        console.note(f"Report it with: {later}")
        return
    try:
        state = _follow(jobs, number, log)
    except CliError as error:
        raise CliError(f"{error}\nJob {number} goes on by itself. Report it with: {later}") from None
    except KeyboardInterrupt:
        cancel = f"./hpc run {jobs.stack} --as {jobs.user} -- scancel {number}"
        console.note(f"\nJob {number} goes on. Report it with: {later}\nCancel it with: {cancel}")
        raise Exit(130) from None
    # Stable Diffusion trains until its time is over.
    as_planned = state.completed or state.state == "TIMEOUT"
    if not as_planned:
        console.note(f"Job {number} ended as {state.state}. The end of its log:")
        console.note(jobs.run(f"tail -n 15 -- {log} 2>/dev/null || true").rstrip())
    try:
        with mlperf_report.fetched_log(jobs, log) as file:
            found = report_of(file)
    except NotAnMlperfLogError as error:
        raise CliError(f"{log} {error}.") from None
    mlperf_report.show(found, log, png=png, plot=console.interactive(), json=False)
    if not as_planned:
        raise Exit(1)


def _follow(jobs: Jobs, number: str, log: str) -> JobState:
    """Wait until the job has ended; prints its state, and the time of each interval as it is done."""
    news, done = News({number: f"job {number}"}), 0

    def read_intervals() -> tuple[Interval, ...]:
        try:
            with mlperf_report.fetched_log(jobs, log) as file:
                return report_of(file).log.runs[-1].intervals
        except NotAnMlperfLogError:
            return ()

    while True:
        states = retry_while_unreachable(lambda: jobs.wait([number], news.states, _WAIT_SECONDS))
        intervals = retry_while_unreachable(read_intervals)
        for interval in intervals[done:]:
            news.line(number, f"steps {interval.first}-{interval.last}: {interval.ms / 1000:.2f} s")
        done = len(intervals)
        if states[number].ended:
            return states[number]
