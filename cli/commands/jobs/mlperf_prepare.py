"""`./hpc mlperf prepare`, and what the commands on MLPerf share."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

from typer import Argument, Exit, Option

from cli import console, options
from cli.cluster.jobs import Jobs, JobState, retry_while_unreachable
from cli.commands.jobs import job_cluster
from cli.commands.jobs.job_cluster import As, DryRun, JobCluster
from cli.errors import CliError
from cluster.catalog.mlperf import GPT3, IMAGE, STABLE_DIFFUSION
from cluster.findings import Level
from cluster.jobs import mlperf
from cluster.jobs.mlperf import NEEDED_FILES, Preparation, RequestError, image_file, prepare_scripts
from cluster.jobs.script import JobScript


class Benchmark(str, Enum):
    """A benchmark, as commands have it."""

    STABLE_DIFFUSION = "stable-diffusion"
    GPT3 = "gpt3"

    @property
    def key(self) -> str:
        """The benchmark's name in logs."""
        return GPT3 if self is Benchmark.GPT3 else STABLE_DIFFUSION


Which = Annotated[Benchmark, Argument(metavar="stable-diffusion|gpt3", help="The benchmark.")]
Data = Annotated[
    str, Option(metavar="FOLDER", help="Folder on shared storage. Default: /mlperf-sd, or /gpt3, as in the guide.")
]
Partition = Annotated[str, Option(metavar="NAME", help="Where they run. Default: one that fits.")]
_WAIT_SECONDS = 10.0
_NEVER = "DependencyNeverSatisfied"


def prepare(
    stack: options.Stack,
    benchmark: Which,
    *,
    data: Data = "",
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
    partition: Partition = "",
    user: As = None,
    dry_run: DryRun = False,
) -> None:
    """Prepare code, data and container image of an MLPerf benchmark, by jobs on the cluster.

    A job that was interrupted goes on where it was: run the command again. What is there already is left as it is. Keys
    for private data come from the user's own configuration on the cluster, of rclone or of the AWS CLI.
    """
    cluster = None if dry_run else job_cluster.connected(stack, user)
    config = cluster.config if cluster else job_cluster.described(stack)
    try:
        wanted = Preparation(
            benchmark=benchmark.key,
            data=mlperf.check_folder(data, benchmark.key),
            partition=mlperf.any_partition(config, partition),
            source=source,
            endpoint=mlperf.check_endpoint(endpoint),
            checkpoint=checkpoint,
            image=mlperf.check_image(image) if image else "",
        )
        jobs = prepare_scripts(wanted)
    except RequestError as error:
        raise CliError(str(error)) from None
    if cluster is None:
        job_cluster.print_scripts(jobs)
        return
    file = image_file(image or (IMAGE if benchmark is Benchmark.STABLE_DIFFUSION else ""))
    files = (*NEEDED_FILES[benchmark.key], *([f"images/{file}"] if file else []))
    if check_data_folder(cluster, benchmark, wanted.data, files):
        # Somebody removed them, or a source did not have them: the jobs check again. What is there is not copied again.
        cluster.jobs.run(
            f"cd {shlex.quote(wanted.data)} && rm -f .hpc/code .hpc/vocabulary .hpc/{{copy,image,published}}-*"
        )
    states = _wait(cluster.jobs, _submit(cluster.jobs, wanted.data, jobs), wanted.data)
    ended = [name for name in states if not states[name].completed]
    failed = [name for name in ended if states[name].state != "CANCELLED"]
    for name in failed:
        console.note(f"\n{name}, job {states[name].id}, {states[name].state.lower()}. The end of its log:")
        console.note(_tail(cluster.jobs, wanted.data, name, states[name].id, 15).rstrip())
    if ended:
        others = f" {len(ended) - len(failed)} were cancelled, which may need them." if len(ended) > len(failed) else ""
        raise CliError(
            f"{', '.join(failed) or 'No job'} failed.{others} Run the command again: what is done is not done twice."
        )
    more = f" --image {wanted.image}" if wanted.image else ""
    more += f" --checkpoint {checkpoint}" if checkpoint.startswith("/") else ""
    console.note(f"All is there. Next: ./hpc mlperf run {stack} {benchmark.value} --data {wanted.data}{more} --nodes N")


def _submit(jobs: Jobs, data: str, scripts: tuple[JobScript, ...]) -> dict[str, str]:
    """Ids of the jobs by their names. Those that are in the queue already are not submitted again."""
    jobs.run(f"mkdir -p {shlex.quote(data)}/.hpc")
    rows = [row.split("|") for row in jobs.run('squeue --noheader --me --format="%j|%i|%k|%r"').splitlines()]
    # Those of another folder have the same names.
    mine = {row[0]: row[1:] for row in rows if len(row) == 4 and row[2] == data}
    # An interrupted command leaves those that wait for a job that has failed since.
    lost = [number for number, _, reason in mine.values() if reason.startswith(_NEVER)]
    jobs.cancel(lost)
    there = {name: number for name, (number, *_) in mine.items() if number not in lost}
    found: dict[str, str] = {}
    for script in scripts:
        name = str(script.options["job-name"])
        after = {} if not found else {"dependency": f"singleton,afterok:{next(iter(found.values()))}"}
        found[name] = there.get(name) or jobs.submit(script.text(), options=after)
        console.note(f"{name}: job {found[name]}{' is in the queue already' if name in there else ''}")
    return found


def _wait(jobs: Jobs, ids: Mapping[str, str], data: str) -> dict[str, JobState]:
    """Wait for jobs, by their names; prints what changes, and the last line of those that run."""
    names = {number: name for name, number in ids.items()}
    news = News(names)

    def wait_a_while() -> Mapping[str, JobState]:
        states = jobs.wait(names, news.states, _WAIT_SECONDS)
        for number, state in states.items():
            if state.state == "RUNNING":
                news.line(number, _tail(jobs, data, names[number], number, 1).strip())
        # Jobs that wait for one that has failed would stay in the queue.
        jobs.cancel([number for number, state in states.items() if state.reason.startswith(_NEVER)])
        return states

    try:
        while True:
            states = retry_while_unreachable(wait_a_while)
            if all(state.ended for state in states.values()):
                return {names[number]: state for number, state in states.items()}
    except CliError as error:
        raise CliError(f"{error}\nThe jobs go on: {', '.join(ids)}. Run the command again to see them.") from None
    except KeyboardInterrupt:
        console.note(f"The jobs go on: {', '.join(ids)}. Run the command again to see them.")
        raise Exit(130) from None


def _tail(jobs: Jobs, data: str, name: str, number: str, lines: int) -> str:
    return jobs.run(f"tail -n {lines} -- {shlex.quote(f'{data}/.hpc/{name}-{number}.out')} 2>/dev/null || true")


def check_data_folder(cluster: JobCluster, benchmark: Benchmark, data: str, files: Iterable[str]) -> tuple[str, ...]:
    """Check the data folder, and print warnings about it; the files of `files` that it lacks. Raises CliError: every
    error."""
    jobs = cluster.jobs
    folder = mlperf.parse_data_folder(jobs.run(mlperf.inspect_command(data, files)))
    findings = list(mlperf.data_findings(benchmark.key, jobs.stack, jobs.user, data, folder))
    for finding in findings:
        if finding.level is Level.WARNING:
            console.note(f"warning: {finding}")
    if errors := [str(finding) for finding in findings if finding.level is Level.ERROR]:
        raise CliError("\n\n".join(errors))
    return folder.missing


@dataclass
class News:
    """Prints the state of jobs, and lines on what they do, each once."""

    names: Mapping[str, str]
    """Names of the jobs by their ids."""
    _shown: dict[str, str] = field(default_factory=dict)

    def states(self, states: Mapping[str, JobState]) -> None:
        """Print states that changed."""
        for number, one in states.items():
            why = f" ({one.reason})" if one.state == "PENDING" and one.reason not in ("", "None") else ""
            where = f" on {one.nodes}" if one.state == "RUNNING" and one.nodes else ""
            self._print(f"{number} state", number, f"{one.state.lower()}{why}{where}")

    def line(self, number: str, text: str) -> None:
        """Print a line on a job, unless it is the same as the one before."""
        if text:
            self._print(f"{number} line", number, text)

    def _print(self, key: str, number: str, text: str) -> None:
        if self._shown.get(key) != text:
            self._shown[key] = text
            console.note(f"{self.names[number]}: {text}")
