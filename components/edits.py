"""What an edit of the stack file may not do to a cluster that is there, refused by the program itself."""

from typing import Any

import pulumi
from pulumi.runtime import invoke, is_dry_run

from cluster.config import ClusterConfig
from cluster.impact.refusal import made_with, refusal, refused
from cluster.impact.table import effects

MUNGE_KEY = "munge_key"
"""The output that tells which MUNGE key the cluster has, by its fingerprint."""


def refuse_impossible(config: ClusterConfig) -> None:
    """Nothing, unless the cluster that the stack has made can't become the one in the stack file.

    `./hpc up` refuses such an edit before it starts the program. Under `pulumi up` nobody else would: a new name of the
    cluster would read as all its machines deleted and as many others made. A preview, which changes nothing, shows what
    would be done all the same, and only warns.

    Raises RunError with every field that can't be changed, before anything is registered.
    """
    last = _last_outputs()
    was = made_with(last.get("config"))
    if was and MUNGE_KEY not in last:
        _tell_of_another_key()
    changes = effects(was, config, pulumi.get_stack()) if was else []
    if not refused(changes):
        return
    if is_dry_run():
        fields = "; ".join(change.shown for change in refused(changes))
        pulumi.log.warn(f"`up` refuses this edit, which can't be made on a running cluster: {fields}")
        return
    raise pulumi.RunError(refusal(changes, pulumi.get_stack()))


def _tell_of_another_key() -> None:
    """Stacks of earlier versions had their MUNGE key in the state in clear, as the id of a resource."""
    pulumi.log.warn(
        "The MUNGE key of this cluster stands in its state in clear, and in all copies of it: `up` draws another one. "
        "Controller and login machines are configured once more, and nodes change to it within seconds of the "
        "controller, on Google Cloud within a minute or two; no machine is made anew, and jobs go on. Commands of "
        "Slurm's may fail meanwhile. The key in copies of the state from before opens nothing afterwards."
    )


def _last_outputs() -> dict[str, Any]:
    """The stack's outputs as the last run left them, none of a new stack.

    By the engine's own function, the one behind StackReference, and not by a StackReference to the stack itself: that
    one is a resource, which would keep a second copy of all outputs in the state, and whose answer comes when the
    program has registered everything.
    """
    name = f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"
    try:
        found = invoke("pulumi:pulumi:readStackOutputs", {"name": name}).value
    except Exception as error:  # noqa: BLE001 - the SDK raises Exception itself, with what the engine said
        pulumi.log.warn(f"what this stack was made with can't be read, so nobody refuses impossible edits: {error}")
        return {}
    return (found or {}).get("outputs") or {}
