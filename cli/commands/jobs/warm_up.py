"""`./hpc warm-up`."""

import json
import shlex
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated

from typer import Exit, Option

from cli import console, options
from cli.access.remote import driver_of, follow
from cli.cluster.cluster import Cluster
from cli.cluster.scheduler import Scheduler
from cli.commands.jobs.job_cluster import NodeNames, connect_user
from cli.errors import CliError
from cluster.capability import Capability
from cluster.config import validators
from cluster.config.cluster import ClusterConfig
from cluster.config.slurm import WarmUp
from cluster.findings import RefusedError
from cluster.jobs import warm_up as payload
from cluster.jobs.script import FOLDER
from scripts.node.slurm.hostlist import expand

_NODE_SCRIPTS = Path(__file__).parents[3] / "scripts" / "node"
_FOLDER = f"{FOLDER}/warm_up"


def warm_up(
    stack: options.Stack,
    *,
    nodes: NodeNames = "",
    image: Annotated[
        list[str] | None,
        Option(
            metavar="IMAGE",
            help="A container image, as nvcr.io/nvidia/pytorch:24.04-py3; may be given again. Default: those of "
            "slurm.warm_up.",
        ),
    ] = None,
    seconds: Annotated[
        int | None,
        Option(min=60, max=86_400, metavar="N", help="How long all of it may take. Default: slurm.warm_up.seconds."),
    ] = None,
) -> None:
    """Have nodes download what their first job would wait minutes for.

    On A3 Mega these are the images that rxdm's prolog pulls before the first job on several nodes; everywhere,
    container images: each node puts them below /var/lib/hpc/images, for all users, with enroot or apptainer. A stack
    with slurm.warm_up does so at the end of each `up`.

    A small job of the lowest priority does it on each node that takes jobs. A node that is busy is waited for a minute.
    What a node has is not downloaded again. Ctrl-C cancels these jobs. Exit code 1: some nodes are not warm.
    """
    jobs = connect_user(stack, "root", Capability.NODES)
    settings = _settings(jobs.config, image or [], seconds)
    only = {node.name for node in Scheduler(jobs.cluster).find_nodes(expand(nodes))} if nodes else None
    request = payload.warm_up(jobs.config, settings, only=only)
    if not request["images"] and not any(partition["rxdm"] for partition in request["partitions"]):
        raise CliError(
            f"stack {stack}: there is nothing to download: rxdm runs in none of these partitions, and no image is "
            "named. Name one with --image, or under slurm.warm_up.containers in the stack file."
        )
    programs = [_NODE_SCRIPTS / "jobs" / name for name in ("warm_up.py", "warm_up.sh")]
    jobs.put({f"{_FOLDER}/{program.name}": program.read_text(encoding="utf-8") for program in programs})
    if _run(jobs.cluster, json.dumps(request)):
        raise Exit(1)


def _settings(config: ClusterConfig, images: list[str], seconds: int | None) -> WarmUp:
    """Return the settings of the stack file, with the command line's in their place. Raises CliError: an image has a
    wrong name."""
    changes: dict[str, object] = {"seconds": seconds} if seconds else {}
    for image in images:
        try:
            validators.container_image(image)
        except RefusedError as error:
            raise CliError(f"--image {image!r}: allowed is {error.allowed}. To do: {error.todo}.") from None
    if images:
        changes["containers"] = tuple(images)
    return (config.slurm.warm_up or WarmUp()).model_copy(update=changes)


def _run(cluster: Cluster, request: str) -> int:
    """Run the program on the login machine, and return its exit code."""
    target = cluster.target(None)
    own = driver_of(target).own_line

    def show(lines: Mapping[str, list[str]]) -> None:
        console.lines(chain.from_iterable(lines.values()))

    def note(lines: Mapping[str, list[str]]) -> None:
        for line in chain.from_iterable(lines.values()):
            # kubectl prints the program's exit code, which this command returns.
            if not (own and own.match(line)):
                console.note(line)

    line = shlex.join(["python3", f"{_FOLDER}/warm_up.py", request])
    return follow([target], cluster.admin_key, lambda _: line, show=show, note=note)[target.name]
