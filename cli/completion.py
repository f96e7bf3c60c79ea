"""What Tab completes of a stack that is up: its machines, nodes and partitions.

Nothing is asked of a machine, and what can't be read completes nothing: a shell shows no errors there.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from typer import Context

from cli.stack import outputs


def _of_the_stack(read: Callable[[Mapping[str, Any]], Iterable[str]]) -> Callable[[Context, str], list[str]]:
    def complete(context: Context, incomplete: str) -> list[str]:
        # Arguments are not parsed yet where an option waits for its value.
        stack = context.params.get("stack") or next(iter(context.args), "")
        # Whatever is wrong with the state, the command itself reports it.
        with suppress(Exception):
            values = outputs.read(stack, show_secrets=False)
            prefix = f"{values.get('cluster')}-"
            names = [name.removeprefix(prefix) for name in read(values)]
            return [name for name in names if name.startswith(incomplete)]
        return []

    return complete


def _nodes(values: Mapping[str, Any]) -> list[str]:
    return [name for name, row in (values.get("targets") or {}).items() if "node" in (row.get("roles") or ())]


def _partitions(values: Mapping[str, Any]) -> list[str]:
    from cluster.load.parse import parse_output  # commands that have a partition do not wait for it

    return list(parse_output(values["config"]).partitions)


machines = _of_the_stack(lambda values: list(values.get("targets") or {}))
nodes = _of_the_stack(_nodes)
partitions = _of_the_stack(_partitions)
