"""Prologs and epilogs, staged on the controller before slurm.conf names them."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from cluster.catalog.prologs import ACTIONS
from cluster.config import ClusterConfig
from cluster.roster import controller_name, node_names
from cluster.slurm.script_tree import Tree
from components.slurm import setup
from scripts.node.interface import Mount, Prologs, Rxdm, StateDisk

STAGE, UNSTAGE = "prologs", "no-prologs"
PATCH, UNPATCH = "rxdm", "no-rxdm"
"""Phases of the set-up: what makes something, and what undoes it."""


def staged(
    config: ClusterConfig, tree: Tree, *, mounts: Sequence[Mapping[str, Any]], state: Mapping[str, Any] | None = None
) -> str:
    """Standard input of `prologs`: the whole tree, and what has to be mounted for it."""
    controller = controller_name(config)
    hosted = [name for name in config.nodesets if node_names(config, name) == (controller,)]
    payload: Prologs = {
        "cluster": config.name,
        "controller_nodeset": hosted[0] if hosted else "",
        "mounts": [cast("Mount", dict(mount)) for mount in mounts],
        "scripts": {name: dict(source) for name, source in tree.scripts.items()},
        "rxdm": dict(tree.rxdm) if tree.rxdm else None,
        "links": dict(tree.links),
        "setup": setup.version(),
    }
    if state:
        payload["state"] = cast("StateDisk", dict(state))
    return setup.as_lines(payload)


def patched(tree: Tree) -> str:
    """Standard input of `rxdm`: whose original it is, where it runs, and what is known of its versions."""
    original = tree.rxdm["sha256"] if tree.rxdm else ""
    payload: Rxdm = {
        "sha256": original, "links": dict(tree.rxdm_links), "known": ACTIONS, "setup": setup.version(),
    }  # fmt: skip
    return setup.as_lines(payload)


def digest(tree: Tree) -> str:
    """A hash of all that runs: partitions are tried again when any of it changes."""
    return hashlib.sha256(setup.as_lines(asdict(tree)).encode()).hexdigest()[:16]


def undone(phase: str) -> str:
    """The shell command that undoes a phase; nothing to do on a machine that has no set-up any more."""
    return f"test ! -e {setup.TARGET} || {setup.command(phase)}"
