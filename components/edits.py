"""What an edit of the stack file may not do to a cluster that is there, refused by the program itself."""

from typing import Any

import pulumi
from pulumi.runtime import invoke, is_dry_run

from cluster.config import ClusterConfig
from cluster.config.effects import effects
from cluster.config.refusal import made_with, refusal, refused


def refuse_impossible(config: ClusterConfig) -> None:
    """Nothing, unless the cluster that the stack has made can't become the one in the stack file.

    `./hpc up` refuses such an edit before it starts the program. Under `pulumi up` nobody else would: a new name of the
    cluster would read as all its machines deleted and as many others made. A preview, which changes nothing, shows what
    would be done all the same, and only warns.

    Raises RunError with every field that can't be changed, before anything is registered.
    """
    was = made_with(_last_outputs().get("config"))
    changes = effects(was, config, pulumi.get_stack()) if was else []
    if not refused(changes):
        return
    if is_dry_run():
        fields = "; ".join(change.shown for change in refused(changes))
        pulumi.log.warn(f"`up` refuses this edit, which can't be made on a living cluster: {fields}")
        return
    raise pulumi.RunError(refusal(changes, pulumi.get_stack()))


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
