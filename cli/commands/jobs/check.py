"""`./hpc check jobs`: small jobs on each node, then over all nodes, then the NCCL test."""

import secrets
import shlex
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Exit, Option

from cli import console, options
from cli.access.remote import follow
from cli.access.ssh import shell_line
from cli.cluster.jobs import Jobs, JobState
from cli.cluster.scheduler import Scheduler
from cli.commands.jobs.job_cluster import NodeNames, connect_user
from cli.commands.jobs.nccl import is_built, read_log
from cli.errors import CliError
from cluster.catalog.nccl import default_collective
from cluster.jobs import quickcheck
from cluster.jobs.nccl import LOGS, RUN_MINUTES, NcclRun, launcher, run_script
from cluster.jobs.partition_facts import PartitionFacts, partition_facts
from cluster.jobs.quickcheck import FAIL, NODE, PASS, SKIP, CheckPlan, CheckReport, CheckResult, Event
from cluster.jobs.script import FOLDER
from cluster.platforms.capability import Capability
from cluster.printable import one_line
from cluster.report.nccl_log import NotALogError, read_text
from cluster.report.nccl_result import Outcome
from cluster.report.nccl_result import check as check_log
from scripts.node.slurm.hostlist import compress, expand

_ORDER = ("hello", "home", "shared", "memory", "gpus", "confined", "container", "nccl", "accounting")
"""Order of the table's columns."""
_OUTPUT_LINES = 20
"""Last lines of a failing node's output that are printed."""
_PIPE_SECONDS = 5.0
"""Shortest time between two lines of progress in a pipe."""


Show = Callable[[str], None]


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
    checks = sorted({result.check for result in report.results if result.node}, key=_ORDER.index)
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
    user_jobs = connect_user(stack, user, Capability.NODES)
    config, scheduler, user = user_jobs.config, Scheduler(user_jobs.cluster), user_jobs.user
    start = time.monotonic()
    with _progress(quiet=json) as show:
        show("reading the nodes' states")
        if unknown := [name for name in partition or () if name not in config.partitions]:
            names = ", ".join(config.partitions)
            raise CliError(f"--partition {', '.join(unknown)}: cluster {config.name} has the partitions {names}.")
        facts = tuple(row for row in partition_facts(config) if not partition or row.name in partition)
        only = frozenset(node.name for node in scheduler.find_nodes(expand(nodes))) if nodes else None
        container = suite in ("container", "all")
        pyxis = container and "--container-image" in user_jobs.run("srun --help 2>&1 || true")
        chosen = quickcheck.Options(
            run=secrets.token_hex(4),
            container=container,
            wait=wait,
            exclusive=exclusive,
            seconds=seconds,
            pyxis=pyxis,
            image=_image(image) or (_IMAGE if pyxis else ""),
            mail=user != "root",
            shared_home=user != "root",
            most_nodes={name: row.max_nodes for name, row in config.partitions.items() if row.max_nodes},
            # The prolog of A3 Mega nodes pulls containers for the first job on several nodes.
            prolog_seconds=dict.fromkeys(
                config.slurm.rxdm.partitions if config.slurm.rxdm else (), config.slurm.timers.prolog_epilog
            ),
            rehearsed=user_jobs.is_rehearsal,
        )
        planned = quickcheck.plan(facts, scheduler.nodes(), chosen, only=only)
        events: list[Event] = []
        mail = None
        if planned.expected:
            show("copying the checks to the cluster")
            programs = sorted(_PROGRAMS.glob("*.py"))
            user_jobs.put({f"{_FOLDER}/{path.name}": path.read_text(encoding="utf-8") for path in programs})
            events = run_plan(user_jobs, planned, _event_printer(planned, show))
            first = [next(iter(planned.expected))]
            ended = [event for event in events if event["event"] == "end" and event["key"] == NODE]
            if chosen.mail and any(event["nodes"] == first and event["code"] == 0 for event in ended):
                show("waiting for mail")
                mail = mail_result(scheduler, user, chosen.run)
        nccl = NcclCheck(jobs=user_jobs, facts=facts, planned=planned, binaries=binaries)
        measured = nccl.of_suite(suite, show)
        failed = any(event["event"] == "end" and event["code"] for event in events)
        report = quickcheck.results(
            planned, events, more=(*measured, *([mail] if mail else [])), now=scheduler.nodes() if failed else None
        )
        elapsed = time.monotonic() - start
    if json:
        document = {"passed": report.passed, "user": user, "seconds": round(elapsed, 2)}
        rows = {"results": [asdict(result) for result in report.results]}
        console.json({**document, **rows, "not_checked": [asdict(row) for row in report.not_checked]})
    else:
        print_report(report, stack=stack, user=user, seconds=elapsed)
    if not report.passed:
        raise Exit(1)


def _image(image: str) -> str:
    """Return an image as enroot and pyxis name it, with # after the registry; a path stays as it is."""
    first, slash, rest = image.partition("/")
    registry = "." in first or ":" in first or first == "localhost"
    return f"{first}#{rest}" if slash and registry and not image.startswith("/") and "#" not in image else image


def _event_printer(planned: CheckPlan, show: Show) -> Callable[[Mapping[str, Any]], None]:
    """Return a function that prints the progress which an event of the checks means."""
    pending = list(planned.expected)

    def on_event(event: Mapping[str, Any]) -> None:
        if event["event"] == "note":
            show(str(event["text"]))
        elif event["event"] == "home":
            show("waiting for accounting, which records in rounds of five seconds")
        elif event["event"] == "end" and event["key"] == NODE:
            pending[:] = [node for node in pending if node not in event["nodes"]]
            waiting = f", waiting for {', '.join(pending[:4])}" if pending else ", all nodes together"
            more = " ..." if len(pending) > 4 else ""
            count = len(planned.expected)
            show(f"{count - len(pending)} of {count} nodes answered{waiting}{more}")

    return on_event


@dataclass(frozen=True, kw_only=True)
class NcclCheck:
    """Runs the NCCL test on each node with GPUs, then over all nodes of each partition."""

    jobs: Jobs
    facts: tuple[PartitionFacts, ...]
    planned: CheckPlan
    binaries: str
    """Folder with programs of nccl-tests on the cluster, as for `nccl run`; may be empty."""

    def of_suite(self, suite: _Suite, show: Show) -> list[CheckResult]:
        """Return the results that a suite includes. The test takes whole nodes, so it may be left out of `all`."""
        with_gpus = [row for row in self.facts if row.gpu]
        if suite not in ("nccl", "all") or not with_gpus or not self.planned.expected:
            return []
        if suite == "all" and not self.planned.options.exclusive and not self.jobs.is_rehearsal:
            why = "it takes whole nodes for minutes: ask for it with --suite nccl, or with --exclusive"
            return [CheckResult(check="nccl", status=SKIP, partition=row.name, text=why) for row in with_gpus]
        if not self.jobs.is_rehearsal or self.binaries:
            self.jobs.prepare(LOGS)
        return self.results(show)

    def results(self, show: Show) -> list[CheckResult]:
        """Run the tests, and compare each with its reference. Ctrl-C cancels them. `show` prints progress.

        Raises:
            CliError: sbatch refused a job, or the login machine does not answer.
        """
        checked: list[CheckResult] = []
        submitted: dict[str, tuple[PartitionFacts, tuple[str, ...]]] = {}
        try:
            for row in self.facts:
                if row.gpu:
                    skipped, runs = self._runs(row)
                    checked += skipped
                    earlier: list[str] = []
                    for nodes in runs:
                        earlier.append(self._submit(row, nodes, earlier))
                        submitted[earlier[-1]] = (row, nodes)
            states = self._wait(submitted, show) if submitted else {}
        except BaseException:
            self.jobs.cancel(submitted)
            raise
        return [*checked, *(self._result(row, nodes, job, states.get(job)) for job, (row, nodes) in submitted.items())]

    def _runs(self, row: PartitionFacts) -> tuple[list[CheckResult], list[tuple[str, ...]]]:
        """Return the skipped checks of a partition, and the nodes of each job: each node alone, then all of them."""

        def skip(text: str, node: str = "") -> CheckResult:
            return CheckResult(check="nccl", status=SKIP, node=node, partition=row.name, text=text)

        expected = [
            node for node in self.planned.expected.values() if node.partition == row.name and node.node in row.nodes
        ]
        if not expected:
            return [], []
        if self.jobs.is_rehearsal and not self.binaries:
            return [skip("GPUs of a rehearsal are device files, which compute nothing")], []
        if launcher(self.jobs.config, self.binaries) != "installed" and not is_built(self.jobs, row):
            user, stack = self.jobs.user, self.jobs.stack
            return [skip(f"{user} has no NCCL test yet: ./hpc nccl build {stack} --as {user}")], []
        busy = [skip(why, node.node) for node in expected if (why := node.all_gpus or node.shared)]
        free = [node.node for node in expected if not (node.all_gpus or node.shared)]
        runs: list[tuple[str, ...]] = [(node,) for node in free]
        most = self.planned.options.most_nodes.get(row.name, len(free))
        if len(free[:most]) > 1:
            runs.append(tuple(free[:most]))
        return busy, runs

    def _submit(self, row: PartitionFacts, nodes: tuple[str, ...], earlier: list[str]) -> str:
        run = NcclRun(
            partition=row,
            nodes=len(nodes),
            nodelist=compress(nodes),
            collective=default_collective(len(nodes)),
            binaries=self.binaries,
        )
        options = {"job-name": f"hpc-check-{self.planned.options.run}"}
        if len(nodes) > 1 and earlier:
            # The job would wait for these nodes anyway, and would delay jobs of others meanwhile.
            options["dependency"] = f"afterany:{':'.join(earlier)}"
        return self.jobs.submit(run_script(self.jobs.config, run).text(), options=options)

    def _wait(
        self, submitted: Mapping[str, tuple[PartitionFacts, tuple[str, ...]]], show: Show
    ) -> Mapping[str, JobState]:
        def changed(states: Mapping[str, JobState]) -> None:
            done = sum(state.ended for state in states.values())
            show(f"NCCL test: {done} of {len(submitted)} runs ended")

        rounds = 2 if any(len(nodes) > 1 for _, nodes in submitted.values()) else 1
        states = self.jobs.wait(submitted, changed, seconds=rounds * RUN_MINUTES * 60)
        self.jobs.cancel(job for job, state in states.items() if not state.ended)
        return states

    def _result(self, row: PartitionFacts, nodes: tuple[str, ...], job: str, state: JobState | None) -> CheckResult:
        text = read_log(self.jobs, job)
        node, name = (nodes[0], "nccl") if len(nodes) == 1 else ("", f"nccl over {len(nodes)} nodes")
        status, summary = _outcome(text, job, state)
        todo = f"./hpc nccl report {job} --stack {self.jobs.stack}" if status == FAIL else ""
        output = "\n".join(text.splitlines()[-40:]) if status == FAIL else ""
        return CheckResult(
            check=name, status=status, node=node, partition=row.name, text=summary, output=output, todo=todo
        )


def _outcome(text: str, job: str, state: JobState | None) -> tuple[str, str]:
    """Return the status of a run by its log, with a summary."""
    if state is None or not state.ended:
        return FAIL, f"job {job} did not end in time"
    if not state.completed:
        return FAIL, f"job {job} ended as {state.state}, exit code {state.exit_code}"
    try:
        result = check_log(read_text(text, f"job {job}"))
    except NotALogError as error:
        return FAIL, str(error.finding)
    average = f"average {result.run.average:g} GB/s" if result.run.average is not None else "no average"
    if result.outcome is Outcome.FAIL:
        failed = [reason.text for reason in result.reasons if reason.met is False]
        return FAIL, "; ".join([average, *failed, *map(str, result.findings)][:4])
    if result.outcome is Outcome.NONE:
        return SKIP, f"{average}, and no reference to compare with"
    return PASS, average


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


def run_plan(jobs: Jobs, plan: CheckPlan, on_event: Callable[[Event], None]) -> list[Event]:
    """Run the plan, and return all events; `on_event` is called with each as it arrives. An error or Ctrl-C cancels
    every job of the plan. Raises CliError: the driver on the login machine did not complete."""
    events: list[Event] = []
    errors: list[str] = []

    def show(lines: Mapping[str, list[str]]) -> None:
        for event in quickcheck.parse_events(chain.from_iterable(lines.values())):
            events.append(event)
            on_event(event)

    target, words = jobs.cluster.target(None), ["python3", f"{_FOLDER}/driver.py", plan.spec()]
    line = shell_line(jobs.user, words, terminal=False)
    done = False

    def note(lines: Mapping[str, list[str]]) -> None:
        errors.extend(chain.from_iterable(lines.values()))

    try:
        follow([target], jobs.cluster.admin_key, lambda _: line, show=show, note=note)
        done = any(event["event"] in ("done", "failed") for event in events)
    finally:
        if not done:
            jobs.run(shlex.join(["scancel", "--quiet", f"--name=hpc-check-{plan.options.run}"]))
    if not done:
        text = "\n".join(errors[-20:]) or "it printed nothing"
        raise CliError(f"{target.name}: the checks did not come to their end:\n{text}")
    return events


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
    todo = "./hpc ssh STACK controller -- mailq; ./hpc logs STACK slurmctld" if status == FAIL else ""
    return CheckResult(check="mail", status=status, text=text, todo=todo)
