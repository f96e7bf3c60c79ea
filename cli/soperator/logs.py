"""Prints logs of pods, those of several merged by their times."""

import datetime as dt
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from cli.access.kubectl import KubeApi, Kubernetes
from cli.access.remote import follow_commands
from cli.cluster.cluster import from_outputs
from cli.display.log_printer import Printer
from cli.errors import CliError
from cli.interrupts import unwound
from cli.observers import Asked
from cluster.observe.moment import MomentError, at
from cluster.platforms.nebius.logs import LOGS, Source, of_kind, of_name, plain

SECONDS = 60.0
_AT_ONCE = 64
"""Containers that are read side by side: each costs a process."""
KINDS = ", ".join(LOGS)


def logs(stack: str, outputs: Mapping[str, Any], asked: Asked) -> int:
    """Print what is asked for; 1 if no container could be read. Raises CliError: nothing is called so, or the cluster
    does not answer."""
    from_outputs(stack, outputs)
    kubernetes = Kubernetes.of(outputs.get("kubernetes"))
    since = _since(asked.since)
    with unwound(), ExitStack() as stack_of_files:
        api = KubeApi(stack_of_files, kubernetes)
        pods = api.ask("get", "pods", "--all-namespaces", "--output=json", seconds=SECONDS)
        if pods.code:
            raise CliError(f"the pods of stack {stack} can't be listed: {pods.why}")
        sources = _chosen(asked, pods.items, kubernetes.namespace)
        names = _names(sources, kubernetes.namespace)
        words = {name: one.words(lines=asked.lines, since=since, follow=asked.follow) for name, one in names.items()}
        say = Printer(list(names), shown=plain)
        if asked.follow:
            commands = {name: api.argv(*line) for name, line in words.items()}
            follow_commands(commands, show=say.lines, note=say.notes, ends_with_input=False)
            # It ends by itself only where nothing could be followed any more.
            return 1
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            answers = dict(
                zip(words, pool.map(lambda line: api.ask(*line, seconds=SECONDS), words.values()), strict=True)
            )
        say.lines({name: one.out.splitlines() for name, one in answers.items()})
        when = f" since {asked.since}" if asked.since else ""
        for name, one in answers.items():
            if one.code:
                say.notes({name: [f"can't be read: {one.why}"]})
            elif not one.out and asked.lines != 0:
                say.notes({name: [f"nothing{when} in its log"]})
        return 0 if any(not one.code for one in answers.values()) else 1


def _since(given: str) -> str:
    """The moment as RFC 3339 has it. Pods have no zone of their own, so a time of day is UTC."""
    if not given:
        return ""
    try:
        return at(given, dt.datetime.now(dt.timezone.utc)).strftime("%Y-%m-%dT%H:%M:%SZ")
    except MomentError as error:
        raise CliError(f"--since: {error}") from None


def _chosen(asked: Asked, pods: Sequence[Mapping[str, Any]], namespace: str) -> list[Source]:
    """The containers that are asked for. Raises CliError: there are none."""
    if asked.what not in LOGS:
        if asked.on:
            raise CliError(f"--on narrows {KINDS}; {asked.what} is none of them.")
        if not (found := of_name(asked.what, pods, namespace) or of_name(f"{asked.what}-0", pods, namespace)):
            raise CliError(f"no pod, check or job of the cluster is called {asked.what!r}. Or one of: {KINDS}.")
        return found
    found = of_kind(LOGS[asked.what], pods, namespace)
    there = ", ".join(one.pod for one in found) or "none"
    if missing := [name for name in asked.on if name not in {one.pod for one in found}]:
        raise CliError(f"{', '.join(missing)}: no {asked.what} there. Pods with one: {there}.")
    if not found:
        raise CliError(f"no pod of the cluster has {asked.what}.")
    return [one for one in found if not asked.on or one.pod in asked.on]


def _names(sources: Sequence[Source], namespace: str) -> dict[str, Source]:
    """Sources by what they are called in front of lines: pods of other namespaces with that."""
    return {one.pod if one.namespace == namespace else f"{one.namespace}/{one.pod}": one for one in sources}
