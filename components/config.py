"""Reads the stack's configuration, and compares it with the one that the cluster runs with."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pulumi
from pulumi.runtime import get_config_env, get_config_secret_keys_env, invoke, is_dry_run

from cluster.config import ClusterConfig
from cluster.config.impact_annotations import Effect
from cluster.findings import ConfigError, Level
from cluster.impact import upgrade
from cluster.impact.table import FieldChange, effects, refusal, refused
from cluster.load import deployed_config, find_warnings, parse, provider_keys
from cluster.platforms import registry
from cluster.slurm.script_tree import Tree, tree
from components.platforms import machine_image

PROJECT = Path(__file__).parents[1]


def load() -> ClusterConfig:
    """Return the configuration of the selected stack, and log its warnings.

    Raises RunError, which the engine shows without a traceback, with every error of the configuration.
    """
    hpc = pulumi.Config("hpc")
    try:
        cluster = hpc.get_object("cluster")
    except pulumi.ConfigTypeError:
        cluster = hpc.get("cluster")  # `parse` reports the wrong type; this error would print the whole value
    provider = {
        f"{namespace}:{key}": value
        for namespace, keys in provider_keys().items()
        for key in keys
        if (value := pulumi.Config(namespace).get(key))
    }
    # What a stack file has beside hpc:cluster reaches the program only so; `./hpc` has read it in the file.
    secrets = get_config_secret_keys_env()
    settings: dict[str, object] = {
        key: "an encrypted value" if key in secrets else value
        for key, value in get_config_env().items()
        if key.startswith("hpc:") and key != "hpc:cluster"
    }
    try:
        config = parse({**settings, **provider, **({} if cluster is None else {"hpc:cluster": cluster})})
    except ConfigError as error:
        raise pulumi.RunError(str(error)) from None
    for finding in find_warnings(config):
        (pulumi.log.info if finding.level is Level.INFO else pulumi.log.warn)(str(finding))
    return config


def load_scripts(config: ClusterConfig) -> Tree:
    """Return the scripts that run before and after jobs, with the content of those that are files of the project.

    Raises RunError with every file that is missing or is no script, before anything is created.
    """
    try:
        return tree(config, PROJECT)
    except ConfigError as error:
        raise pulumi.RunError(str(error)) from None


def accept_edits(config: ClusterConfig) -> tuple[ClusterConfig, upgrade.UpgradeStep]:
    """Return the configuration with values that the running cluster keeps, such as addresses, and this run's step of an
    upgrade. Refuse edits that can't be made on a running cluster.

    `./hpc up` refuses such an edit before it starts the program. `pulumi up` would run it: a new name of the cluster
    would delete all machines and create others. A preview changes nothing, so it only warns.

    Raises RunError with every field that can't be changed, before anything is registered.
    """
    last = _last_outputs()
    was = deployed_config(last.get("config"))
    kept = registry.get(config.platform).keep(was, config)
    changes = effects(was, config, pulumi.get_stack()) if was else []
    found, new = _boots(last, was, config)
    step = upgrade.next_step(found, new)
    if why := refusal(changes, pulumi.get_stack()):
        fields = "; ".join(change.shown for change in refused(changes))
        _refuse(why, f"`up` refuses this edit, which can't be made on a running cluster: {fields}")
    elif step.number and (why := upgrade.refusal(found, new.release) or _beside_upgrade(changes)):
        _refuse(why, f"`up` refuses this edit: {why}")
    return kept, step


def _boots(
    last: Mapping[str, Any], was: ClusterConfig | None, config: ClusterConfig
) -> tuple[dict[str, upgrade.Boot], upgrade.Boot]:
    """Return what machines boot by the last run's outputs, none of a platform without machines; and what the stack file
    asks for."""
    new = old = upgrade.Boot(config.slurm_version, machine_image(config))
    if not new.image:
        return {}, new
    if was is not None:
        # A file that it names may be gone: then it counts as the same image.
        with suppress(pulumi.RunError):
            old = upgrade.Boot(was.slurm_version, machine_image(was))
    return upgrade.current_boots(last, old), new


def _refuse(why: str, warning: str) -> None:
    """Stop a run; a preview changes nothing, so it only warns."""
    if not is_dry_run():
        raise pulumi.RunError(why)
    pulumi.log.warn(warning)


def _beside_upgrade(changes: list[FieldChange]) -> str:
    """Return why the edit can't be made in one with that of the image; empty where it can.

    The controller that would drain nodes for it is recreated by the same run.
    """
    others = [change for change in changes if not change.by_image and change.effect.harm >= Effect.DRAIN.harm]
    if not (others and any(change.by_image for change in changes)):
        return ""
    fields = "; ".join(change.shown for change in others)
    return (
        "`up` drains no nodes in the run that gives the controller another image. Make these edits before that of the "
        f"image, or after it: {fields}"
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
    except Exception as error:  # noqa: BLE001 - the SDK raises Exception itself, with the engine's message
        pulumi.log.warn(f"the stack's last configuration can't be read, so impossible edits are not refused: {error}")
        return {}
    return (found or {}).get("outputs") or {}
