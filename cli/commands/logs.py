"""`./hpc logs`."""

from typing import Annotated

from typer import Argument, Exit, Option

from cli import options
from cli.access import remote
from cli.cluster.cluster import Cluster, connect
from cli.errors import CliError
from cluster.capability import Capability

_SECONDS = 60
"""Time limit for one machine to send its log, where the log is not followed."""
KINDS = (
    "slurmctld, slurmd, slurmdbd, slurmrestd, reconcile, topology, prometheus, munge, mariadb, prolog, epilog, setup"
)
"""Kinds of logs for `--help`, which does not import cluster.observe.logs."""


def logs(
    stack: options.Stack,
    what: Annotated[str, Argument(metavar="WHAT", help=f"A machine, for all that it says, or {KINDS}.")],
    *,
    follow: Annotated[bool, Option("--follow", "-f", help="Go on as lines come, until Ctrl-C.")] = False,
    lines: Annotated[
        int | None,
        Option(
            "--lines",
            "-n",
            min=0,
            max=100_000,
            metavar="LINES",
            help="The last lines of each machine. Default: 50, or all with --since.",
        ),
    ] = None,
    since: Annotated[
        str | None, Option(metavar="TIME", help="From then on: 15m, 2h, today, 05:30, 2026-11-21T05:30.")
    ] = None,
    on: Annotated[
        list[str] | None,
        Option(
            "--on", metavar="MACHINE", help="Only this machine's; may be repeated.", autocompletion=options.machines
        ),
    ] = None,
) -> None:
    """Show what a machine or a daemon has logged, on all machines that run it.

    Lines of several machines are put in the order of their times, each behind its machine's name. `prolog` and
    `epilog` are what ran before and after jobs, `setup` is how nodes joined. A machine that does not answer is named.

    Of pods these are slurmctld, slurmd, slurmdbd, slurmrestd, munge, mariadb, sshd, populate-jail, sconfigcontroller
    and operator; or a check, a job, or NAMESPACE/POD. Times of day are UTC there.
    """
    from cli import observers
    from cluster.observe.logs import DEFAULT_LINES, LOGS_BY_NAME, script
    from cluster.observe.moment import machine_time
    from cluster.platforms.observer import LogRequest
    from cluster.platforms.observers import observer_of

    cluster = connect(stack, Capability.LOGS)
    if lines is None and not since:
        lines = DEFAULT_LINES
    if observer := observer_of(cluster.outputs):
        asked = LogRequest(what=what, on=on or (), lines=lines, since=since or "", follow=follow)
        raise Exit(observers.print_logs(observer, cluster, asked))
    log, machines = _choose(cluster, what, on or [])
    begin = options.read_time("--since", since, machine_time) if since else ""
    line = script(log, lines=lines, since=begin, follow=follow)
    printer = observers.LogPrinter([machine.name for machine in machines])
    if follow:
        remote.follow(machines, cluster.admin_key, lambda _machine: line, show=printer.lines, note=printer.notes)
        # Following ends by itself only where no log could be followed.
        raise Exit(1)
    answers = remote.gather(machines, cluster.admin_key, line, seconds=_SECONDS)
    printer.lines({name: done.out.rstrip("\n").split("\n") if done.out else [] for name, done in answers.items()})
    when = f" since {since}" if since else ""
    for name, done in answers.items():
        notes = done.err.splitlines()
        if not done.reached:
            printer.notes({name: [f"does not answer: {notes[-1] if notes else 'no reason given'}"]})
        elif notes:
            printer.notes({name: notes})
        elif not done.out and lines != 0:
            printer.notes({name: [f"nothing{when} in {log.place if what in LOGS_BY_NAME else 'its journal'}"]})
    raise Exit(0 if any(done.reached for done in answers.values()) else 1)


def _choose(cluster: Cluster, what: str, on: list[str]):  # noqa: ANN202 - of a module that is imported late
    """Return a log, and the machines that have it: those named in `on`, if any. Raises CliError: there is neither a log
    nor a machine of that name, or a machine in `on` does not have the log."""
    from cluster.observe.logs import JOURNAL, LOGS_BY_NAME

    chosen = [cluster.target(name) for name in on]
    if what not in LOGS_BY_NAME:
        if chosen:
            raise CliError(f"--on narrows {KINDS}; {what} is none of them.")
        try:
            return JOURNAL, [cluster.target(what)]
        except CliError as error:
            raise CliError(f"{error} Or one of: {KINDS}.") from None
    log = LOGS_BY_NAME[what]
    having = [machine for machine in cluster.targets.values() if set(machine.roles) & set(log.roles)]
    if without := [machine.name for machine in chosen if machine not in having]:
        names = ", ".join(machine.name for machine in having) or "none"
        raise CliError(f"{', '.join(without)}: no {what} there. Machines with one: {names}.")
    if not having:
        raise CliError(f"no machine of cluster {cluster.name} has {what}.")
    return log, chosen or having
