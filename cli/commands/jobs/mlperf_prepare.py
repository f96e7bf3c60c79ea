"""mlperf prepare."""

import shlex
from collections.abc import Mapping
from typing import Annotated

from typer import Exit, Option

from cli import console, options
from cli.cluster.job_progress import patiently
from cli.cluster.jobs import Jobs, JobState
from cli.commands.jobs import mlperf_options as shared
from cli.commands.jobs.mlperf_news import News
from cli.errors import CliError
from cluster.catalog.mlperf import IMAGE, STABLE_DIFFUSION
from cluster.jobs import mlperf
from cluster.jobs.mlperf import NEEDED_FILES, Preparation, RequestError, image_file, prepare_scripts
from cluster.jobs.script import JobScript

_LOOK_SECONDS = 10.0
_NEVER = "DependencyNeverSatisfied"


def prepare(
    stack: options.Stack,
    benchmark: shared.Which,
    *,
    data: shared.Data = "",
    source: Annotated[
        str,
        Option(
            metavar="PLACE",
            help="Where the data comes from: REMOTE:PATH of rclone, s3://BUCKET/PATH, or mlcommons. Default: the "
            "recipe's public bucket.",
            show_default=False,
        ),
    ] = "",
    endpoint: Annotated[str, Option(metavar="URL", help="Of the object storage, with s3://.", show_default=False)] = "",
    checkpoint: Annotated[
        str,
        Option(metavar="PLACE", help="Of GPT-3: where its checkpoint comes from, or its folder.", show_default=False),
    ] = "",
    image: Annotated[
        str,
        Option(metavar="IMAGE", help="Container image, REGISTRY#NAME:TAG. GPT-3 has no default.", show_default=False),
    ] = "",
    partition: shared.Partition = "",
    user: shared.As = None,
    dry_run: shared.DryRun = False,
) -> None:
    """Prepare code, data and container image of an MLPerf benchmark, by jobs on the cluster.

    A job that was interrupted goes on where it was: run the command again. What is there already is left as it is. Keys
    for private data come from the user's own configuration on the cluster, of rclone or of the AWS CLI.
    """
    place = None if dry_run else shared.connected(stack, user)
    config = place.config if place else shared.described(stack)
    try:
        wish = Preparation(
            benchmark=benchmark.key,
            data=mlperf.check_folder(data, benchmark.key),
            partition=mlperf.any_partition(config, partition),
            source=source,
            endpoint=mlperf.check_endpoint(endpoint),
            checkpoint=checkpoint,
            image=mlperf.check_image(image) if image else "",
        )
        jobs = prepare_scripts(wish)
    except RequestError as error:
        raise CliError(str(error)) from None
    if place is None:
        shared.dry_run(jobs)
        return
    if shared.check(place, benchmark, wish.data, _files(wish)):
        # Somebody removed them, or a source did not have them: look again. What is there is not copied again.
        place.jobs.run(
            f"cd {shlex.quote(wish.data)} && rm -f .hpc/code .hpc/vocabulary .hpc/{{copy,image,published}}-*"
        )
    states = _wait(place.jobs, _submit(place.jobs, wish.data, jobs), wish.data)
    ended = [one for one in states if not states[one].completed]
    failed = [one for one in ended if states[one].state != "CANCELLED"]
    for name in failed:
        _show_end(place.jobs, wish.data, name, states[name])
    if ended:
        others = f" {len(ended) - len(failed)} were cancelled, which may need them." if len(ended) > len(failed) else ""
        raise CliError(
            f"{', '.join(failed) or 'No job'} failed.{others} Run the command again: what is done is not done twice."
        )
    more = f" --image {wish.image}" if wish.image else ""
    more += f" --checkpoint {checkpoint}" if checkpoint.startswith("/") else ""
    console.note(f"All is there. Next: ./hpc mlperf run {stack} {benchmark.value} --data {wish.data}{more} --nodes N")


def _files(wish: Preparation) -> tuple[str, ...]:
    """What is there once all is prepared."""
    image = image_file(wish.image or (IMAGE if wish.benchmark == STABLE_DIFFUSION else ""))
    return (*NEEDED_FILES[wish.benchmark], *([f"images/{image}"] if image else []))


def _submit(jobs: Jobs, data: str, wanted: tuple[JobScript, ...]) -> dict[str, str]:
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
    for one in wanted:
        name = str(one.options["job-name"])
        after = {} if not found else {"dependency": f"singleton,afterok:{next(iter(found.values()))}"}
        found[name] = there.get(name) or jobs.submit(one.text(), options=after)
        console.note(f"{name}: job {found[name]}{' is in the queue already' if name in there else ''}")
    return found


def _wait(jobs: Jobs, ids: Mapping[str, str], data: str) -> dict[str, JobState]:
    """Wait for jobs, by their names; prints what changes, and the last line of those that run."""
    names = {number: name for name, number in ids.items()}
    news = News(names)
    try:
        while True:
            states = patiently(lambda: _look(jobs, news, data))
            if all(one.ended for one in states.values()):
                return {names[number]: state for number, state in states.items()}
    except CliError as error:
        raise CliError(f"{error}\nThe jobs go on: {', '.join(ids)}. Run the command again to see them.") from None
    except KeyboardInterrupt:
        console.note(f"The jobs go on: {', '.join(ids)}. Run the command again to see them.")
        raise Exit(130) from None


def _look(jobs: Jobs, news: News, data: str) -> Mapping[str, JobState]:
    states = jobs.wait(news.names, news.states, _LOOK_SECONDS)
    for number, state in states.items():
        if state.state == "RUNNING":
            news.line(number, _tail(jobs, data, news.names[number], number, 1).strip())
    _end_what_never_runs(jobs, states)
    return states


def _end_what_never_runs(jobs: Jobs, states: Mapping[str, JobState]) -> None:
    """Cancel jobs that wait for one that has failed."""
    jobs.cancel([number for number, one in states.items() if one.reason.startswith(_NEVER)])


def _tail(jobs: Jobs, data: str, name: str, number: str, lines: int) -> str:
    return jobs.run(f"tail -n {lines} -- {shlex.quote(f'{data}/.hpc/{name}-{number}.out')} 2>/dev/null || true")


def _show_end(jobs: Jobs, data: str, name: str, state: JobState) -> None:
    console.note(f"\n{name}, job {state.id}, {state.state.lower()}. The end of its log:")
    console.note(_tail(jobs, data, name, state.id, 15).rstrip())
