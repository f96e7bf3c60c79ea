"""`./hpc health`."""

import json as jsons
import shlex
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from typer import Exit, Option

from cli import console, observers, options
from cli.access import remote
from cli.cluster.cluster import Cluster, connect
from cli.cluster.observation import EACH
from cli.cluster.scheduler import Scheduler
from cli.display import status_screen
from cli.errors import CliError
from cli.stack import stack_config
from cluster.capability import Capability
from cluster.config.slurm import HealthChecks
from cluster.findings import ClusterFinding
from cluster.observe.health_check_results import MEASURE, NOW, PHASE, NodeHealth, findings, results
from cluster.platforms.observers import observer_of
from cluster.printable import counted
from scripts.node.slurm.hostlist import compress
from scripts.node.slurm.nodes import Node

_MEASURE_SECONDS = 1800
"""Time limit of a measurement between pairs of nodes: rounds of jobs of some seconds, each after its prologs."""
_SECONDS = 90
"""Time limit of all checks of one node: slurmd's own is 60 (HealthCheckProgram in slurm.conf's manual)."""


def health(
    stack: options.Stack,
    names: Annotated[
        list[str] | None, options.node_names("Names or ranges, with or without the cluster's; default: all.")
    ] = None,
    *,
    run: Annotated[bool, Option("--run", help="Run all checks now; measure idle nodes.")] = False,
    json: options.Json = False,
) -> None:
    """Show the last health check of every node: what failed, with figures, who must act, and how.

    Nodes are checked by slurmd if the stack file has `slurm: {health: {}}`, and drained if a check fails; running jobs
    go on. --run runs the checks of the given nodes now, beside their jobs, and measures those that are idle. Exit code
    0 when all is well, 1 when there is something to look at.

    Of a cluster of pods: drained nodes with who must act, and the last results of its operator's checks.

    JSON: {stack, ok, nodes [{node, state, reason, result, age, checks {kind: {state, text}}, measured, failing}],
    findings [{id, severity, where, what, todo, note, since}]}; age in seconds. Kinds of checks are kept from version to
    version.
    """
    cluster = connect(stack, Capability.NODES)
    if observer := observer_of(cluster.outputs):
        if run or names:
            raise CliError(
                f"stack {stack}: {observer.operator} runs its checks by itself. To do: leave out NODES and --run."
            )
        with observers.open_access(cluster) as access:
            report = observer.health(access)
        raise Exit(observers.print_report(report, json=json))
    config = stack_config.applied(cluster.outputs)
    checked = config.slurm.health if config else None
    if checked is None:
        raise CliError(
            f"stack {stack} has no health checks. To do: write `slurm: {{health: {{}}}}` into its stack file, and run: "
            f"./hpc up {stack}"
        )
    scheduler = Scheduler(cluster)
    chosen = scheduler.find_nodes(names) if names else list(scheduler.nodes().values())
    if off := [node.name for node in chosen if node.asleep or node.booting]:
        # Their last results are of machines that no longer exist.
        console.note(f"left out, as their machines are off: {compress(off)}")
        chosen = [node for node in chosen if node.name not in off]
    if run:
        _run_checks(cluster, chosen)
        _measure_idle(cluster, chosen, checked)
        nodes = scheduler.nodes()
        chosen = [nodes[node.name] for node in chosen if node.name in nodes]
    health_of_nodes = read_results(cluster, chosen, checked.interval)
    problems = findings(stack, health_of_nodes)
    if json:
        console.json(_document(stack, health_of_nodes, problems))
    else:
        _print(stack, health_of_nodes, problems)
    raise Exit(1 if problems else 0)


def read_results(cluster: Cluster, nodes: Sequence[Node], interval: int) -> list[NodeHealth]:
    """Return the stored results of these nodes. Raises CliError: the controller does not answer, or has no set-up."""
    line = f"date +%s.%N; python3 /usr/local/lib/hpc/node {PHASE}"
    done = remote.capture(cluster.controller, cluster.admin_key, line, seconds=_SECONDS)
    clock, _, text = done.out.partition("\n")
    try:
        stored = jsons.loads(text) if not done.code else None
    except ValueError:
        stored = None
    if not isinstance(stored, dict):
        why = (done.err.strip().splitlines() or ["no answer"])[-1]
        raise CliError(f"the controller gave no results of health checks: {why}")
    by_name = {node.name: node for node in nodes}
    return results(by_name, by_name, stored, now=float(clock or time.time()), interval=interval)


def _run_checks(cluster: Cluster, nodes: Sequence[Node]) -> None:
    """Run all checks of these nodes, and print which nodes do not answer: their last results stay."""
    targets = [cluster.targets[node.name] for node in nodes if node.name in cluster.targets]
    console.note(f"running the checks of {counted(len(targets), 'node')} ...")
    answers = remote.gather(targets, cluster.admin_key, NOW, seconds=max(_SECONDS, EACH * len(targets)))
    if failed := {name: done for name, done in answers.items() if done.code}:
        why = (next(iter(failed.values())).err.strip().splitlines() or ["no answer"])[-1]
        console.note(f"not checked: {compress(failed)}: {why}")


def _measure_idle(cluster: Cluster, nodes: Sequence[Node], checked: HealthChecks) -> None:
    """Measure these nodes as far as they are idle, where the stack has measurements."""
    if not (checked.network or checked.nccl):
        return
    idle = [node.name for node in nodes if node.states - {"CLOUD"} == {"IDLE"}]
    if others := [node.name for node in nodes if node.name not in idle]:
        console.note(f"not measured, because they are not idle: {compress(others)}")
    if not idle:
        return
    minutes = checked.nccl.minutes if checked.nccl else 0
    console.note(f"measuring idle nodes ({compress(idle)}); jobs of users go first ...")
    line = shlex.join([MEASURE, *idle])
    done = remote.capture(cluster.controller, cluster.admin_key, line, seconds=_MEASURE_SECONDS + 60 * minutes)
    for text in (done.out + done.err).strip().splitlines():
        console.note(text)


def table(nodes: Sequence[NodeHealth]) -> list[tuple[str, ...]]:
    """Return a table of the last result of each node."""
    rows: list[tuple[str, ...]] = [("NODE", "STATE", "HEALTH", "CHECKED", "FIGURES")]
    for node in nodes:
        failing = "; ".join(f"{kind}: {text}" for kind, text in node.failing.items())
        state = node.node.word if node.node else "-"
        checked = "-" if node.age is None else f"{status_screen.ago(node.age)} ago"
        rows.append((node.name, state, node.word, checked, status_screen.cut(failing or _summary(node), 100)))
    return rows


def _summary(node: NodeHealth) -> str:
    """Return the counts and figures of a node without failures."""
    every: Mapping[str, Mapping[str, Any]] = {**node.checks, **node.measured}
    states = [outcome["state"] for outcome in every.values()]
    figures = [f"{kind}: {text}" for kind, text in node.noted.items()]
    figures += [f"{kind}: {outcome['text']}" for kind, outcome in node.measured.items()]
    return "; ".join([f"{states.count('ok')} ok, {states.count('skipped')} skipped", *figures]) if every else "-"


def _print(stack: str, nodes: Sequence[NodeHealth], problems: Sequence[ClusterFinding]) -> None:
    bad = sum(1 for node in nodes if node.word not in ("ok", "warning") or node.reason)
    end = f"{bad} to look at." if problems else "all is well."
    sentence = f"{stack}: {counted(len(nodes), 'node')}, {end}"
    console.line(sentence, style="bold red" if problems else "bold green")
    console.line()
    console.table(table(nodes))
    now = time.time()
    for finding in problems:
        console.line()
        status_screen.show_finding(finding, now)


def _document(stack: str, nodes: Sequence[NodeHealth], problems: Sequence[ClusterFinding]) -> dict[str, Any]:
    rows = [
        {
            "node": node.name,
            "state": node.node.word if node.node else None,
            "reason": node.reason or None,
            "result": node.word,
            "age": None if node.age is None else round(node.age, 1),
            "checks": node.checks,
            "measured": node.measured,
            "failing": node.failing,
        }
        for node in nodes
    ]
    return {"stack": stack, "ok": not problems, "nodes": rows, "findings": [vars(finding) for finding in problems]}
