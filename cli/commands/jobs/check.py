"""`./hpc check jobs`: small jobs on each node, then over all nodes, then the NCCL test."""

import json as jsons
import secrets
import shlex
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Exit, Option

from cli import console, options
from cli.access.remote import follow
from cli.access.ssh import shell_line
from cli.cluster.jobs import Jobs
from cli.cluster.scheduler import Scheduler
from cli.commands.jobs.job_cluster import NodeNames, connect_user
from cli.commands.jobs.nccl import Measured, is_built, measure_all, on_nodes
from cli.errors import CliError
from cluster.capability import Capability
from cluster.catalog.nccl import default_collective
from cluster.jobs import quickcheck
from cluster.jobs.nccl import LOGS, RUN_MINUTES, NcclRun, launcher
from cluster.jobs.quickcheck import CHECKS, FAIL, PASS, SKIP, CheckPlan, CheckReport, CheckResult
from cluster.jobs.script import FOLDER
from cluster.printable import one_line
from scripts.node.slurm.hostlist import compress, expand

_OUTPUT_LINES = 20
"""Last lines of a failing node's output that are printed."""
_PIPE_SECONDS = 5.0
"""Shortest time between two lines of progress in a pipe."""


Show = Callable[[str], None]
Row = Mapping[str, Any]
"""A line of the driver's output (scripts/jobs/quickcheck/driver.py)."""


@contextmanager
def _progress(*, quiet: bool) -> Generator[Show]:
    """Yield a function that prints the current step on standard error: on a terminal in one line that changes, in a
    pipe in a line now and then, or not if `quiet`."""
    start, last = time.monotonic(), 0.0
    terminal = console.stderr().is_terminal
    with console.stderr().status("") if terminal else nullcontext() as status:

        def show(text: str) -> None:
            nonlocal last
            text, elapsed = one_line(text), time.monotonic() - start
            if status:
                status.update(f"{text} ({elapsed:.0f} s)")
            elif not quiet and elapsed - last > _PIPE_SECONDS:
                last = elapsed
                console.note(text)

        yield show


def print_report(report: CheckReport, *, stack: str, user: str, seconds: float) -> None:
    checks = sorted({result.check for result in report.results if result.node}, key=[*CHECKS].index)
    by_node: dict[str, dict[str, CheckResult]] = {}
    for result in report.results:
        if result.node:
            by_node.setdefault(result.node, {})[result.check] = result
    if by_node:
        table = [("NODE", "PARTITION", *(check.upper() for check in checks))]
        for node, node_results in by_node.items():
            partition = next(iter(node_results.values())).partition
            table.append((node, partition, *(_word(node_results.get(check)) for check in checks)))
        console.table(table)
    for result in report.results:
        if not result.node:
            where = f" (partition {result.partition})" if result.partition else ""
            console.line(f"{result.check}{where}: {_word(result)}{f', {result.text}' if result.text else ''}")
    _print_failures([result for result in report.results if result.status == FAIL], stack)
    skipped: dict[tuple[str, str], list[str]] = {}
    for result in report.results:
        if result.node and result.status == SKIP:
            skipped.setdefault((result.check, result.text), []).append(result.node)
    if skipped:
        console.line()
    for (check, text), nodes in skipped.items():
        console.line(f"skipped: {check} on {compress(nodes)}: {text}")
    if report.not_checked:
        console.line()
    for row in report.not_checked:
        todo = f" To do: {row.todo.replace('STACK', stack)}." if row.todo else ""
        console.line(f"not checked: {row.node} ({row.partition}): {row.why}.{todo}")
    console.line()
    counts = {word: sum(result.status == word for result in report.results) for word in (PASS, FAIL, SKIP)}
    text = f"{counts[PASS]} passed, {counts[FAIL]} failed, {counts[SKIP]} skipped"
    missing = len(report.not_checked)
    text += f", {missing} node{'s' if missing > 1 else ''} not checked" if missing else ""
    console.line(f"{text}, in {seconds:.1f} s, as {user}", style="bold")


def _word(result: CheckResult | None) -> str:
    return "-" if result is None else "FAIL" if result.status == FAIL else result.status


def _print_failures(results: list[CheckResult], stack: str) -> None:
    """Print failures. Nodes with the same failure are printed together, with the output of the first."""
    groups: dict[tuple[str, str, str], list[CheckResult]] = {}
    for result in results:
        groups.setdefault((result.check, result.text, "" if result.node else result.partition), []).append(result)
    for (check, text, partition), group in groups.items():
        first, nodes = group[0], [result.node for result in group if result.node]
        console.line()
        console.line(f"{compress(nodes) or partition or 'cluster'}: {check} failed: {text}", style="bold")
        lines = first.output.splitlines()
        if lines and len(nodes) > 1:
            console.line(f"  output of {first.node} (--json has those of all nodes):")
        for line in lines[-_OUTPUT_LINES:]:
            console.line(f"  | {line}")
        if len(lines) > _OUTPUT_LINES:
            console.line(f"  (the last {_OUTPUT_LINES} of {len(lines)} lines)")
        if first.todo:
            console.line(f"  to do: {first.todo.replace('STACK', stack)}")


_IMAGE = "redhat/ubi9-minimal"
"""The image that pyxis and enroot start without --image: the small one of Soperator's own quickcheck
(nebius-solutions-library, soperator/test/quickcheck/containers.sh)."""


_Suite = Literal["hello", "container", "nccl", "all"]


def jobs(
    stack: options.Stack,
    *,
    suite: Annotated[
        _Suite,
        Option(
            help="hello: nodes, GPUs, home, accounting, mail. container: also containers. nccl: also "
            "the NCCL test, on whole nodes. all: all of it, the NCCL test only with --exclusive."
        ),
    ] = "all",
    partition: Annotated[
        list[str] | None,
        Option(
            "--partition",
            "-p",
            metavar="PARTITION",
            help="Only its nodes; may be given again.",
            autocompletion=options.partitions,
        ),
    ] = None,
    nodes: NodeNames = "",
    user: Annotated[
        str | None, Option("--as", metavar="USER", help="Whose jobs. Default: the first configured user.")
    ] = None,
    wait: Annotated[bool, Option("--wait", help="Wait for busy nodes, --seconds at most, too.")] = False,
    exclusive: Annotated[bool, Option("--exclusive", help="Each job has its node to itself.")] = False,
    image: Annotated[
        str, Option(metavar="IMAGE", help="Container image: a registry's name, or a path on the cluster.")
    ] = "",
    binaries: Annotated[
        str, Option(metavar="FOLDER", help="For the NCCL test: programs of nccl-tests on the cluster.")
    ] = "",
    seconds: Annotated[int, Option(min=10, max=3600, metavar="N", help="For one job to start and end.")] = 60,
    json: options.Json = False,
) -> None:
    """Check with small jobs that every node works as users need it.

    On each node: it answers with its name; all promised GPUs are there, and a job opens its own only; memory is
    limited; the home is shared both ways; a container starts; accounting has the job. Then one job over all nodes of
    each partition, and mail at a job's end. The NCCL test, on whole nodes, runs on each node with GPUs, then over all.

    Jobs ask for two CPUs and 512 MiB, and start at once or not at all: busy nodes are listed with their jobs, and no
    job of anybody is disturbed. Ctrl-C cancels all that was submitted. Exit code 0: something passed, nothing failed
    and no node is out of service; a check that is skipped has not passed, and its reason is printed.
    """
    cluster_jobs = connect_user(stack, user, Capability.NODES)
    config, scheduler, user = cluster_jobs.config, Scheduler(cluster_jobs.cluster), cluster_jobs.user
    if unknown := [name for name in partition or () if name not in config.partitions]:
        names = ", ".join(config.partitions)
        raise CliError(f"--partition {', '.join(unknown)}: cluster {config.name} has the partitions {names}.")
    start = time.monotonic()
    with _progress(quiet=json) as show:
        show("reading the nodes' states")
        only = frozenset(node.name for node in scheduler.find_nodes(expand(nodes))) if nodes else None
        container = suite in ("container", "all")
        pyxis = container and "--container-image" in cluster_jobs.run("srun --help 2>&1 || true")
        chosen = quickcheck.Options(
            run=secrets.token_hex(4),
            container=container,
            wait=wait,
            exclusive=exclusive,
            seconds=seconds,
            pyxis=pyxis,
            image=_image(image) or (_IMAGE if pyxis else ""),
            shared_home=user != "root",
        )
        rehearsed = cluster_jobs.is_rehearsal
        now = scheduler.nodes()
        plan = quickcheck.plan(config, now, chosen, partitions=partition, only=only, rehearsed=rehearsed)
        rows: list[Row] = []
        more: list[CheckResult] = []
        if plan.expected:
            show("copying the checks to the cluster")
            programs = _PROGRAMS.glob("*.py")
            cluster_jobs.put({f"{_FOLDER}/{path.name}": path.read_text(encoding="utf-8") for path in programs})
            rows = run_plan(cluster_jobs, plan, show)
            first = {"node": next(iter(plan.expected)), "check": "hello", "status": PASS}
            if chosen.shared_home and any(first.items() <= row.items() for row in rows):
                show("waiting for mail")
                more.append(mail_result(scheduler, user, chosen.run))
            if suite in ("nccl", "all"):
                more += nccl_results(cluster_jobs, plan, binaries, whole=suite == "nccl" or exclusive or rehearsed)
        report = quickcheck.evaluate(plan, rows, more)
    elapsed = time.monotonic() - start
    if json:
        document = {"passed": report.passed, "user": user, "seconds": round(elapsed, 2)}
        console.json({**document, **asdict(report)})
    else:
        print_report(report, stack=stack, user=user, seconds=elapsed)
    if not report.passed:
        raise Exit(1)


def _image(image: str) -> str:
    """Return an image as enroot and pyxis name it, with # after the registry; a path stays as it is."""
    first, slash, rest = image.partition("/")
    registry = "." in first or ":" in first or first == "localhost"
    return f"{first}#{rest}" if slash and registry and not image.startswith("/") and "#" not in image else image


def nccl_results(jobs: Jobs, plan: CheckPlan, binaries: str, *, whole: bool) -> list[CheckResult]:
    """Run the NCCL test on each node with GPUs, then over all of each partition. `whole`: it may take whole nodes.

    Raises:
        CliError: sbatch refused a job, or the login machine does not answer.
    """
    results: list[CheckResult] = []
    alone: list[NcclRun] = []
    together: list[NcclRun] = []
    for row in plan.facts:
        own = [name for name in row.nodes if name in plan.expected]
        own = [name for name in own if plan.expected[name].partition == row.name]
        why = ""
        if not whole:
            why = "it takes whole nodes for minutes: ask for it with --suite nccl, or with --exclusive"
        elif jobs.is_rehearsal and not binaries:
            why = "GPUs of a rehearsal are device files, which compute nothing"
        elif row.gpu and own and launcher(jobs.config, binaries) != "installed" and not is_built(jobs, row):
            why = f"{jobs.user} has no NCCL test yet: ./hpc nccl build {jobs.stack} --as {jobs.user}"
        if row.gpu and own and why:
            results.append(CheckResult(check="nccl", status=SKIP, partition=row.name, text=why))
        if not row.gpu or why:
            continue
        taken = {name: plan.expected[name].busy_gpus or plan.expected[name].shared for name in own}
        results += [
            CheckResult(check="nccl", status=SKIP, node=name, partition=row.name, text=text)
            for name, text in taken.items()
            if text
        ]
        free = [name for name in own if not taken[name]]
        run = NcclRun(partition=row, nodes=1, collective=default_collective(1), binaries=binaries)
        alone += [on_nodes(run, [name]) for name in free]
        if len(most := free[: plan.most_nodes.get(row.name)]) > 1:
            together.append(on_nodes(replace(run, collective=default_collective(len(most))), most))
    if alone:
        jobs.prepare(LOGS)
    for runs in filter(None, (alone, together)):
        measured = measure_all(jobs, runs, f"NCCL test on {len(runs)} sets of nodes", seconds=RUN_MINUTES * 60)
        results += [_nccl_result(jobs, row) for row in measured]
    return results


def _nccl_result(jobs: Jobs, measured: Measured) -> CheckResult:
    nodes = measured.run.nodes
    return CheckResult(
        check="nccl" if nodes == 1 else f"nccl over {nodes} nodes",
        status=FAIL if measured.failure else PASS if measured.compared else SKIP,
        node=measured.run.nodelist if nodes == 1 else "",
        partition=measured.run.partition.name,
        text=measured.text,
        output="\n".join(measured.log.splitlines()[-40:]) if measured.failure else "",
        todo=f"./hpc nccl report {measured.state.id} --stack {jobs.stack}" if measured.failure else "",
    )


_PROGRAMS = Path(__file__).parents[3] / "scripts" / "jobs" / "quickcheck"
_FOLDER = f"{FOLDER}/checks"
_MAIL_SECONDS = 20
"""Time limit for mail to be delivered on the controller: slurmctld starts the mailer when the job has ended."""


# The mailbox is the user's own file, so it is read as the user. $1: the user, $2: a part of the subject.
_MAIL = """\
mailer=$(scontrol show config | sed -n 's/^MailProg *= *//p')
[ -n "$mailer" ] && [ -x "$mailer" ] && [ -d /var/mail ] || { echo none; exit; }
home=$(getent passwd "$1" | cut -d: -f6)
[ ! -e "$home/.forward" ] || { echo sent; exit; }
if runuser -u "$1" -- grep -qs -- "$2" "/var/mail/$1"; then echo came; else echo missing; fi
"""


def run_plan(jobs: Jobs, plan: CheckPlan, show: Show) -> list[Row]:
    """Run the driver on the login machine, and return its lines; `show` prints progress. An error or Ctrl-C cancels
    every job of the plan. Raises CliError: the driver did not complete."""
    rows: list[Row] = []
    errors: list[str] = []
    pending = dict.fromkeys(plan.expected)

    def read(lines: Mapping[str, list[str]]) -> None:
        for row in parse_rows(chain.from_iterable(lines.values())):
            rows.append(row)
            pending.pop(row.get("node", ""), None)
            count = len(plan.expected) - len(pending)
            waiting = f"waiting for {', '.join([*pending][:4])}" if pending else "all nodes together, then accounting"
            show(row.get("note") or f"{count} of {len(plan.expected)} nodes answered, {waiting}")

    def note(lines: Mapping[str, list[str]]) -> None:
        errors.extend(chain.from_iterable(lines.values()))

    target = jobs.cluster.target(None)
    line = shell_line(jobs.user, ["python3", f"{_FOLDER}/driver.py", plan.spec], terminal=False)
    done = False
    try:
        follow([target], jobs.cluster.admin_key, lambda _: line, show=read, note=note)
        done = any("done" in row for row in rows)
    finally:
        if not done:
            jobs.run(shlex.join(["scancel", "--quiet", f"--name=hpc-check-{plan.options.run}"]))
    if not done:
        text = "\n".join(errors[-20:]) or "it printed nothing"
        raise CliError(f"{target.name}: the checks did not come to their end:\n{text}")
    return rows


def parse_rows(lines: Iterable[str]) -> Iterator[Row]:
    """Yield the driver's lines of JSON; others of its output are left out."""
    for line in lines:
        try:
            row = jsons.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def mail_result(scheduler: Scheduler, user: str, run: str) -> CheckResult:
    """Check that mail about the end of a job of this run is in the user's mailbox on the controller."""
    line = shlex.join(["bash", "-c", _MAIL, "mail", user, f"Name=hpc-check-{run} "])
    deadline = time.monotonic() + _MAIL_SECONDS
    while (state := scheduler.run(line).strip()) == "missing" and time.monotonic() < deadline:
        time.sleep(0.5)
    status, text = {
        "came": (PASS, f"in /var/mail/{user}"),
        "none": (SKIP, "the controller has no mailer that delivers on the cluster"),
        "sent": (SKIP, f"{user} has mail sent on by ~/.forward"),
    }.get(state, (FAIL, f"not in /var/mail/{user} on the controller after {_MAIL_SECONDS} s"))
    return CheckResult(check="mail", status=status, text=text)
