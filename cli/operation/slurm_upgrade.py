"""Adds to `./hpc up` the steps of an upgrade: the next one, and the way back where Slurm did not take over."""

import json
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import yaml

from cli.errors import CliError
from cli.operation.run_options import RunOptions
from cli.stack import outputs
from cli.stack.stackfile import StackFile
from cluster.impact import upgrade
from cluster.impact.table import deployed_config

SECONDS = 60
_ASK = "cat /var/lib/hpc/controller/upgrade/release.json; slurmctld -V"
"""Which release has written state and database on the controller (scripts/node/slurm/upgrade.py), and which it has."""
_CLUSTER, _SECTIONS = "hpc:cluster", ("image", "slurm")


def goes_on(stack: str, chosen: RunOptions) -> bool:
    """Return whether an `up` has moved some machines to another image, and leaves others to the next."""
    if not _whole(chosen):
        return False
    found = upgrade.current_boots(outputs.read(stack, show_secrets=False), upgrade.Boot("", ""))
    return not upgrade.is_complete(found)


def put_back(file: StackFile, chosen: RunOptions, release: str) -> str:
    """Return the release that state and database are of, where the controller's machine has another one, which did not
    take over; empty where there is nothing to go back to."""
    if not _whole(chosen):
        return ""
    # Slow to import, and most runs do not fail.
    from cli.access import remote
    from cli.cluster.cluster import from_outputs

    found = outputs.read(file.stack, show_secrets=True)
    was = deployed_config(found.get("config"))
    if was is None or was.slurm_version == release or not found.get("releases"):
        return ""
    reached = from_outputs(file.stack, found)
    done = remote.capture(reached.controller, reached.admin_key, _ASK, seconds=SECONDS)
    record, _, installed = done.out.strip().partition("\n")
    left = record == json.dumps({"release": was.slurm_version})
    return was.slurm_version if left and f" {was.slurm_version}." not in installed else ""


@contextmanager
def as_before(file: StackFile, chosen: RunOptions) -> Generator[RunOptions]:
    """Options for an `up` of the stack file with the image and Slurm's settings that the cluster runs with."""
    was = deployed_config(outputs.read(file.stack, show_secrets=False).get("config"))
    if was is None:
        raise CliError(f"stack {file.stack} has no output of its configuration.")
    document = yaml.safe_load(file.path.read_text(encoding="utf-8"))
    cluster, old = document["config"][_CLUSTER], was.model_dump(mode="json", exclude_unset=True)
    kept = {name: value for name, value in cluster.items() if name not in _SECTIONS}
    document["config"][_CLUSTER] = {**kept, **{name: old[name] for name in _SECTIONS if name in old}}
    with tempfile.TemporaryDirectory(prefix="hpc-before-") as folder:
        path = Path(folder) / file.path.name
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        yield replace(chosen, config_file=path)


def _whole(chosen: RunOptions) -> bool:
    """Return whether the run may go in steps: `--json` and a choice of resources are for one run."""
    return not (chosen.json or chosen.targets or chosen.excludes)
