"""What can't be changed on a running cluster: the edits of a stack file that are refused, and the message.

`./hpc up` asks before it starts an engine, and the program itself for whoever starts it with `pulumi up`.
"""

from collections.abc import Sequence
from typing import Any

from cluster.config.cluster import ClusterConfig
from cluster.config.impact import Effect
from cluster.findings import ConfigError
from cluster.impact.table import FieldChange
from cluster.load.parse import parse_output

WAY_OUT = "Put the old value back; or, if the cluster may go with all its data: ./hpc destroy {0} && ./hpc up {0}"


def made_with(exported: Any) -> ClusterConfig | None:  # noqa: ANN401 - an output may be anything
    """What a cluster runs with, from the stack's output `config`; None where nothing is known of it: a new stack, or
    one that an older version of this program made."""
    if exported is None:
        return None
    try:
        return parse_output(exported)
    except ConfigError:
        return None


def refused(changes: Sequence[FieldChange]) -> list[FieldChange]:
    """The edits that a running cluster can't take."""
    return [change for change in changes if change.effect is Effect.REFUSED]


def refusal(changes: Sequence[FieldChange], stack: str) -> str:
    """Which fields can't be changed, why, and the way out; empty if all can."""
    found = refused(changes)
    if not found:
        return ""
    body = [f"  {change.shown}\n    {change.reason}{todo(change, stack)}" for change in found]
    return "\n".join([Effect.REFUSED.sentence, *body, WAY_OUT.format(stack)])


def todo(change: FieldChange, stack: str) -> str:
    """The command, on a line of its own, where it is another one than the `up` that follows every preview, or than the
    way out that stands below all that is refused."""
    plain = (f"./hpc up {stack}", f"./hpc destroy {stack} && ./hpc up {stack}")
    return "" if change.command in plain else f"\n      to do: {change.command}"
