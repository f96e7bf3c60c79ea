"""`./hpc mlperf prepare` and `mlperf run`."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Exit, Option

from cli import console, options
from cli.cluster.jobs import Jobs, retry_while_unreachable
from cli.commands.jobs import job_cluster, mlperf_report
from cli.commands.jobs.job_cluster import As, DryRun
from cli.errors import CliError
from cluster.catalog.mlperf import GPT3, IMAGE, STABLE_DIFFUSION
from cluster.findings import Level
from cluster.jobs import mlperf
from cluster.jobs.mlperf import (
    NEEDED_FILES,
    Preparation,
    RequestError,
    image_file,
    not_prepared,
    prepare_scripts,
)
from cluster.jobs.script import JobScript
from cluster.report.mlperf_log import Interval, NotAnMlperfLogError, read
from cluster.report.mlperf_report import read_report
from scripts.node.slurm.jobs import Job

Benchmark = Literal["stable-diffusion", "gpt3"]
_LOG_NAMES: Mapping[Benchmark, str] = {"stable-diffusion": STABLE_DIFFUSION, "gpt3": GPT3}
"""The names of the benchmarks in logs, and in cluster.jobs.mlperf."""
_Which = Annotated[Benchmark, Argument(metavar="stable-diffusion|gpt3", help="The benchmark.")]
_Data = Annotated[
    str, Option(metavar="FOLDER", help="Folder on shared storage. Default: /mlperf-sd, or /gpt3, as in the guide.")
]
_Partition = Annotated[str, Option(metavar="NAME", help="Where they run. Default: one that fits.")]
_MOST = 1_000_000
_PREPARE_SECONDS, _RUN_SECONDS = 10.0, 15.0
"""Seconds after which the states of jobs are printed again with the end of their logs."""
_NEVER = "DependencyNeverSatisfied"
"""squeue's reason of a job that waits for one that has failed."""


def prepare(
    stack: options.Stack,
    benchmark: _Which,
    *,
    data: _Data = "",
    source: Annotated[
        str,
        Option(
            metavar="PLACE",
            help="Where the data comes from: REMOTE:PATH of rclone, s3://BUCKET/PATH, or mlcommons. Default: the "
            "recipe's public bucket.",
        ),
    ] = "",
    endpoint: Annotated[str, Option(metavar="URL", help="Of the object storage, with s3://.")] = "",
    checkpoint: Annotated[
        str, Option(metavar="PLACE", help="Of GPT-3: where its checkpoint comes from, or its folder.")
    ] = "",
    image: Annotated[
        str, Option(metavar="IMAGE", help="Container image, REGISTRY#NAME:TAG. GPT-3 has no default.")
    ] = "",
    partition: _Partition = "",
    user: As = None,
    dry_run: DryRun = False,
) -> None:
    """Prepare code, data and container image of an MLPerf benchmark, by jobs on the cluster.

    A job that was interrupted goes on where it was: run the command again. What is there already is left as it is. Keys
    for private data come from the user's own configuration on the cluster, of rclone or of the AWS CLI.
    """
    jobs = None if dry_run else job_cluster.connect_user(stack, user)
    config = jobs.config if jobs else job_cluster.read_config(stack)
    name = _LOG_NAMES[benchmark]
    try:
        preparation = Preparation(
            benchmark=name,
            data=mlperf.check_folder(data, name),
            partition=mlperf.any_partition(config, partition),
            source=source,
            endpoint=mlperf.check_endpoint(endpoint),
            checkpoint=checkpoint,
            image=mlperf.check_image(image) if image else "",
        )
        scripts = prepare_scripts(preparation)
    except RequestError as error:
        raise CliError(str(error)) from None
    if jobs is None:
        job_cluster.print_scripts(scripts)
        return
    file = image_file(image or (IMAGE if benchmark == "stable-diffusion" else ""))
    files = (*NEEDED_FILES[name], *([f"images/{file}"] if file else []))
    if _check_data_folder(jobs, name, preparation.data, files):
        # Files were removed, or a source did not have them. Without these marks the jobs check again what they copy.
        jobs.run(
            f"cd {shlex.quote(preparation.data)} && rm -f .hpc/code .hpc/vocabulary .hpc/{{copy,image,published}}-*"
        )
    states = _wait(jobs, _submit(jobs, preparation.data, scripts), preparation.data)
    not_completed = [job for job in states if not states[job].completed]
    failed = [job for job in not_completed if states[job].state != "CANCELLED"]
    for job in failed:
        console.note(f"\n{job}, job {states[job].id}, {states[job].state.lower()}. The end of its log:")
        console.note(_tail(jobs, preparation.data, job, states[job].id, 15).rstrip())
    if not_completed:
        cancelled = len(not_completed) - len(failed)
        others = f" {cancelled} were cancelled, which may need them." if cancelled else ""
        raise CliError(
            f"{', '.join(failed) or 'No job'} failed.{others} Run the command again: what is done is not done twice."
        )
    arguments = f"{stack} {benchmark} --data {preparation.data}"
    arguments += f" --image {preparation.image}" if preparation.image else ""
    arguments += f" --checkpoint {checkpoint}" if checkpoint.startswith("/") else ""
    console.note(f"All is there. Next: ./hpc mlperf run {arguments} --nodes N")


def _submit(jobs: Jobs, data: str, scripts: tuple[JobScript, ...]) -> dict[str, str]:
    """Submit the jobs that are not in the queue yet, and return the ids of all by their names."""
    jobs.run(f"mkdir -p {shlex.quote(data)}/.hpc")
    rows = [row.split("|") for row in jobs.run('squeue --noheader --me --format="%j|%i|%k|%r"').splitlines()]
    # Jobs for another data folder have the same names; the folder is a job's comment.
    own = {row[0]: row[1:] for row in rows if len(row) == 4 and row[2] == data}
    # An interrupted command leaves jobs that wait for one that has failed since.
    lost = [number for number, _, reason in own.values() if reason.startswith(_NEVER)]
    jobs.cancel(lost)
    queued = {name: number for name, (number, *_) in own.items() if number not in lost}
    ids: dict[str, str] = {}
    for script in scripts:
        name = str(script.options["job-name"])
        after = {} if not ids else {"dependency": f"singleton,afterok:{next(iter(ids.values()))}"}
        ids[name] = queued.get(name) or jobs.submit(script.text(), options=after)
        console.note(f"{name}: job {ids[name]}{' is in the queue already' if name in queued else ''}")
    return ids


def _wait(jobs: Jobs, ids: Mapping[str, str], data: str) -> dict[str, Job]:
    """Wait until jobs have ended, and return their states by their names. Prints what changes, and the last line of the
    log of running jobs."""
    names = {number: name for name, number in ids.items()}
    printer = _ProgressPrinter(names)

    def wait_and_print() -> Mapping[str, Job]:
        states = jobs.wait(names, printer.states, _PREPARE_SECONDS)
        for number, state in states.items():
            if state.state == "RUNNING":
                printer.line(number, _tail(jobs, data, names[number], number, 1).strip())
        # Jobs that wait for one that has failed would stay in the queue.
        jobs.cancel([number for number, state in states.items() if state.reason.startswith(_NEVER)])
        return states

    try:
        while True:
            states = retry_while_unreachable(wait_and_print)
            if all(state.ended for state in states.values()):
                return {names[number]: state for number, state in states.items()}
    except CliError as error:
        raise CliError(f"{error}\nThe jobs go on: {', '.join(ids)}. Run the command again to see them.") from None
    except KeyboardInterrupt:
        console.note(f"The jobs go on: {', '.join(ids)}. Run the command again to see them.")
        raise Exit(130) from None


def _tail(jobs: Jobs, data: str, name: str, number: str, lines: int) -> str:
    return jobs.run(f"tail -n {lines} -- {shlex.quote(f'{data}/.hpc/{name}-{number}.out')} 2>/dev/null || true")


def run(
    stack: options.Stack,
    benchmark: _Which,
    *,
    nodes: Annotated[int, Option(min=1, max=10_000, metavar="N", help="Nodes, each with 8 GPUs.")],
    data: _Data = "",
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
    partition: _Partition = "",
    user: As = None,
    png: Annotated[Path | None, Option("--png", metavar="FILE", help="Write a plot too.")] = None,
    no_wait: Annotated[bool, Option("--no-wait", help="Submit the job, and return.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Run an MLPerf benchmark, show the time of its training steps as they are done, and report them.

    The job goes on if you interrupt the command. The exit code is 1 if the run is slower than the published time, or if
    the job failed.
    """
    jobs = None if dry_run else job_cluster.connect_user(stack, user)
    name, is_gpt3 = _LOG_NAMES[benchmark], benchmark == "gpt3"
    try:
        data_folder = mlperf.check_folder(data, name)
        chosen = mlperf.gpu_partition(jobs.config if jobs else job_cluster.read_config(stack), partition, nodes)
        image_path = _image(benchmark, data_folder, image)
        training = mlperf.Training(data=data_folder, partition=chosen, nodes=nodes, image=image_path, minutes=minutes)
        checkpoint = checkpoint or f"{data_folder}/checkpoint"
        if is_gpt3:
            setting = mlperf.gpt3_setting(chosen, nodes, tensor=tensor, pipeline=pipeline, batch=batch, micro=micro)
            script = mlperf.gpt3_script(training, setting, mlperf.check_folder(checkpoint, name))
        else:
            script = mlperf.diffusion_script(training, mlperf.diffusion_config(config, nodes))
    except RequestError as error:
        raise CliError(str(error)) from None
    if jobs is None:
        job_cluster.print_scripts((script,))
        return
    needed = [*NEEDED_FILES[name], *([checkpoint] if is_gpt3 else [])]
    needed += [image_path] if image_path.startswith("/") else []
    if missing := _check_data_folder(jobs, name, data_folder, needed):
        raise CliError(str(not_prepared(stack, benchmark, data_folder, missing)))
    if chosen.gpu and "h100" not in chosen.gpu.type.lower():
        console.note(f"note: published times are of H100, and these GPUs are {chosen.gpu.type}.")
    _train(jobs, script, data_folder, png, no_wait=no_wait)


def _image(benchmark: Benchmark, data: str, image: str) -> str:
    """Return the path at which `prepare` writes the image, or the image if it is a path. Raises RequestError: GPT-3 has
    no default image."""
    if not image and benchmark == "gpt3":
        raise RequestError(
            "GPT-3 needs --image: its recipe has none for this code. Build one from large_language_model/megatron-lm/"
            "Dockerfile in github.com/mlcommons/training, push it to your registry, and name it to prepare and to run"
        )
    image = mlperf.check_image(image or IMAGE)
    name = image_file(image)
    return f"{data}/images/{name}" if name else image


def _train(jobs: Jobs, script: JobScript, data: str, png: Path | None, *, no_wait: bool) -> None:
    jobs.prepare(f"{data}/logs", f"{data}/results")
    number = jobs.submit(script.text())
    log = str(script.options["output"]).replace("%j", number)
    report_command = f"./hpc mlperf report {number} --stack {jobs.stack} --data {data} --as {jobs.user}"
    console.note(f"Job {number}, log {log}")
    if no_wait:
        console.note(f"Report it with: {report_command}")
        return
    try:
        state = _follow(jobs, number, log)
    except CliError as error:
        raise CliError(f"{error}\nJob {number} goes on by itself. Report it with: {report_command}") from None
    except KeyboardInterrupt:
        cancel = f"./hpc run {jobs.stack} --as {jobs.user} -- scancel {number}"
        console.note(f"\nJob {number} goes on. Report it with: {report_command}\nCancel it with: {cancel}")
        raise Exit(130) from None
    # Stable Diffusion trains until its time limit.
    as_planned = state.completed or state.state == "TIMEOUT"
    if not as_planned:
        console.note(f"Job {number} ended as {state.state}. The end of its log:")
        console.note(jobs.run(f"tail -n 15 -- {log} 2>/dev/null || true").rstrip())
    try:
        report = read_report(mlperf_report.fetch_log(jobs, log))
    except NotAnMlperfLogError as error:
        raise CliError(f"{log} {error}.") from None
    mlperf_report.show(report, log, png=png, json=False)
    if not as_planned:
        raise Exit(1)


def _follow(jobs: Jobs, number: str, log: str) -> Job:
    """Wait until the job has ended, and return its state. Prints its state, and the time of each interval as it is
    done."""
    printer, printed = _ProgressPrinter({number: f"job {number}"}), 0

    def read_intervals() -> list[Interval]:
        try:
            run = read(mlperf_report.fetch_log(jobs, log))[0][-1]
        except NotAnMlperfLogError:
            return []
        return run.intervals if not run.step_ms else []  # the last sum of iterations is not complete yet

    while True:
        states = retry_while_unreachable(lambda: jobs.wait([number], printer.states, _RUN_SECONDS))
        intervals = retry_while_unreachable(read_intervals)
        for interval in intervals[printed:]:
            printer.line(number, f"steps {interval.first}-{interval.last}: {interval.ms / 1000:.2f} s")
        printed = len(intervals)
        if states[number].ended:
            return states[number]


def _check_data_folder(jobs: Jobs, benchmark: str, data: str, files: Iterable[str]) -> tuple[str, ...]:
    """Check the data folder, print warnings about it, and return which of these files it lacks. Raises CliError with
    all errors."""
    folder = mlperf.parse_data_folder(jobs.run(mlperf.inspect_command(data, files)))
    findings = list(mlperf.data_findings(benchmark, jobs.stack, jobs.user, data, folder))
    for finding in findings:
        if finding.level is Level.WARNING:
            console.note(f"warning: {finding}")
    if errors := [str(finding) for finding in findings if finding.level is Level.ERROR]:
        raise CliError("\n\n".join(errors))
    return folder.missing


@dataclass
class _ProgressPrinter:
    """Prints the states of jobs, and lines on what they do, where they differ from those printed before."""

    names: Mapping[str, str]
    """Names of the jobs by their ids."""
    _printed: dict[str, str] = field(default_factory=dict)

    def states(self, states: Mapping[str, Job]) -> None:
        """Print the states that changed."""
        for number, job in states.items():
            why = f" ({job.reason})" if job.state == "PENDING" and job.reason not in ("", "None") else ""
            where = f" on {job.nodes}" if job.state == "RUNNING" and job.nodes else ""
            self._print(f"{number} state", number, f"{job.state.lower()}{why}{where}")

    def line(self, number: str, text: str) -> None:
        """Print a line on a job, unless it is the same as the one before."""
        if text:
            self._print(f"{number} line", number, text)

    def _print(self, key: str, number: str, text: str) -> None:
        if self._printed.get(key) != text:
            self._printed[key] = text
            console.note(f"{self.names[number]}: {text}")
