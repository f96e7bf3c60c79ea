"""check jobs."""

import secrets
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Annotated, Any

from typer import Exit, Option

from cli import completion, console, options
from cli.cluster import quickcheck
from cli.cluster.cluster import from_outputs
from cli.cluster.jobs import Jobs
from cli.cluster.scheduler import Scheduler
from cli.commands.jobs.check_nccl import NcclCheck
from cli.commands.jobs.nccl_options import Chosen
from cli.display.check_report import print_report, report_document
from cli.display.progress import Progress
from cli.errors import CliError
from cli.stack import outputs, rehearsals
from cluster.config.cluster import ClusterConfig
from cluster.jobs.partition_facts import PartitionFacts, partition_facts
from cluster.jobs.quickcheck_plan import NODE, Options, Plan, parse_rooms, plan
from cluster.jobs.quickcheck_results import SKIP, CheckResult, Event, results
from cluster.load.parse import parse_output
from cluster.observe.nodes import NODES
from cluster.platforms import registry
from cluster.platforms.capability import Capability
from cluster.slurm.hostlist import expand

IMAGE = "redhat/ubi9-minimal"
"""What pyxis and enroot start unless told otherwise: the small image of Soperator's own quickcheck
(nebius-solutions-library, soperator/test/quickcheck/containers.sh)."""


class Suite(str, Enum):
    """What to check."""

    HELLO = "hello"
    CONTAINER = "container"
    NCCL = "nccl"
    ALL = "all"


def jobs(
    stack: options.Stack,
    *,
    suite: Annotated[
        Suite, Option(help="hello: nodes, GPUs, home, accounting, mail. container: also containers. nccl: also "
                      "the NCCL test, on whole nodes. all: all of it, the NCCL test only with --exclusive.")
    ] = Suite.ALL,
    partition: Annotated[
        list[str] | None,
        Option(
            "--partition", "-p", metavar="PARTITION", help="Only its nodes; may be given again.",
            autocompletion=completion.partitions,
        ),
    ] = None,
    nodes: Annotated[
        str, Option(metavar="NODES", help="Only these: cpu-0, cpu-[0-3,7]. Default: all.", show_default=False)
    ] = "",
    user: Annotated[
        str | None,
        Option("--as", metavar="USER", help="Whose jobs. Default: the first configured user.", show_default=False),
    ] = None,
    wait: Annotated[bool, Option("--wait", help="Wait for busy nodes, --seconds at most, too.")] = False,
    exclusive: Annotated[bool, Option("--exclusive", help="Each job has its node to itself.")] = False,
    image: Annotated[
        str, Option(metavar="IMAGE", help="Container image: a registry's name, or a path on the cluster.",
                    show_default=False)
    ] = "",
    binaries: Annotated[
        str, Option(metavar="FOLDER", help="For the NCCL test: programs of nccl-tests on the cluster.",
                    show_default=False)
    ] = "",
    seconds: Annotated[int, Option(min=10, max=3600, metavar="N", help="For one job to start and end.")] = 60,
    json: options.Json = False,
) -> None:  # fmt: skip
    """Check with small jobs that every node works as users need it.

    On each node: it answers with its name; all promised GPUs are there, and a job opens its own only; memory is
    limited; the home is shared both ways; a container starts; accounting has the job. Then one job over all nodes of
    each partition, and mail at a job's end. The NCCL test, on whole nodes, runs on each node with GPUs, then over all.

    Jobs ask for two CPUs and 512 MiB, and start at once or not at all: busy nodes are listed with their jobs, and no
    job of anybody is disturbed. Ctrl-C cancels all that was submitted. Exit code 0: something passed, nothing failed
    and no node is out of service; a check that is skipped has not passed, and its reason is printed.
    """
    cluster = from_outputs(stack, values := outputs.read(stack, show_secrets=True), Capability.RUN, Capability.NODES)
    config = parse_output(values["config"])
    who = cluster.user(user)
    rehearsed = registry.get(config.platform).on_this_host or bool(rehearsals.of(rehearsals.file(stack)))
    on, scheduler = Jobs(cluster, stack, who), Scheduler(cluster, stack)
    with Progress(quiet=json) as progress:
        progress.show("reading the nodes' states")
        facts = _facts(config, partition or [])
        only = frozenset(node.name for node in scheduler.pick(expand(nodes))) if nodes else None
        rooms = parse_rooms(scheduler.ask(NODES))
        suites = frozenset({"hello", "container"} if suite in (Suite.CONTAINER, Suite.ALL) else {"hello"})
        pyxis = "container" in suites and "--container-image" in on.run("srun --help 2>&1 || true")
        chosen = Options(
            run=secrets.token_hex(4), suites=suites, wait=wait, exclusive=exclusive, seconds=seconds, pyxis=pyxis,
            image=_image(image) or (IMAGE if pyxis else ""), mail=who != "root", shared_home=who != "root",
            most_nodes={name: one.max_nodes for name, one in config.partitions.items() if one.max_nodes},
            prolog_seconds=_prolog_seconds(config), rehearsed=rehearsed,
        )  # fmt: skip
        planned = plan(facts, scheduler.nodes(), rooms, chosen, only=only)
        events: list[Event] = []
        mail = None
        if planned.expected:
            progress.show("copying the checks to the cluster")
            quickcheck.put(on)
            events = quickcheck.run(on, planned, _Watch(planned, progress).on_event)
            if chosen.mail and _answered(events, next(iter(planned.expected))):
                progress.show("waiting for mail")
                mail = quickcheck.mail_result(scheduler, who, chosen.run)
        test = NcclCheck(jobs=on, config=config, facts=facts, planned=planned, binaries=binaries, rehearsed=rehearsed)
        measured = _measured(test, suite, progress)
        lost = any(event["event"] == "end" and event["code"] for event in events)
        report = results(
            planned, events, more=(*measured, *([mail] if mail else [])), now=scheduler.nodes() if lost else None
        )
        elapsed = progress.elapsed
    if json:
        console.json(report_document(report, user=who, seconds=elapsed))
    else:
        print_report(report, stack=stack, user=who, seconds=elapsed)
    if not report.passed:
        raise Exit(1)


def _image(given: str) -> str:
    """An image as enroot and pyxis name it, with # behind the registry; a path as it is."""
    first, slash, rest = given.partition("/")
    registry = "." in first or ":" in first or first == "localhost"
    return f"{first}#{rest}" if slash and registry and not given.startswith("/") and "#" not in given else given


def _facts(config: ClusterConfig, partitions: Sequence[str]) -> tuple[PartitionFacts, ...]:
    unknown = [name for name in partitions if name not in config.partitions]
    if unknown:
        there = ", ".join(config.partitions)
        raise CliError(f"--partition {', '.join(unknown)}: cluster {config.name} has the partitions {there}.")
    return tuple(row for row in partition_facts(config) if not partitions or row.name in partitions)


def _measured(test: NcclCheck, suite: Suite, progress: Progress) -> list[CheckResult]:
    """Results of the NCCL test, which needs whole nodes."""
    having = [row for row in test.facts if row.gpu]
    if suite not in (Suite.NCCL, Suite.ALL) or not having or not test.planned.expected:
        return []
    if suite is Suite.ALL and not test.planned.options.exclusive and not test.rehearsed:
        why = "it takes whole nodes for minutes: ask for it with --suite nccl, or with --exclusive"
        return [CheckResult(check="nccl", status=SKIP, partition=row.name, text=why) for row in having]
    if not test.rehearsed or test.binaries:
        Chosen(test.jobs, test.config, having[0]).prepare()
    return test.results(progress.show)


def _prolog_seconds(config: ClusterConfig) -> Mapping[str, int]:
    """The prolog of A3 Mega nodes pulls containers for the first job on several nodes."""
    rxdm = config.slurm.rxdm.partitions if config.slurm.rxdm else ()
    return dict.fromkeys(rxdm, config.slurm.timers.prolog_epilog)


def _answered(events: Sequence[Event], node: str) -> bool:
    return any(
        event["event"] == "end" and event["key"] == NODE and event["nodes"] == [node] and event["code"] == 0
        for event in events
    )


class _Watch:
    """What the live line says."""

    def __init__(self, planned: Plan, progress: Progress) -> None:
        self._pending = list(planned.expected)
        self._count, self._progress = len(self._pending), progress

    def on_event(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "note":
            self._progress.show(str(event["text"]))
        elif event["event"] == "home":
            self._progress.show("waiting for accounting, which records in rounds of five seconds")
        elif event["event"] == "end" and event["key"] == NODE:
            self._pending = [node for node in self._pending if node not in event["nodes"]]
            done = self._count - len(self._pending)
            missing = f", waiting for {', '.join(self._pending[:4])}" if self._pending else ", all nodes together"
            more = " ..." if len(self._pending) > 4 else ""
            self._progress.show(f"{done} of {self._count} nodes answered{missing}{more}")
