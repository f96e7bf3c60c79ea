"""What becomes of the machines when their operating system is another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster import roster
from cluster.config.consequence import Consequence, Effect, replace
from cluster.config.verdicts.verdict import POSSIBLE, STATE_STAYS, Verdict, among, controller_anew
from cluster.gcp.baking import bakes
from cluster.gcp.recipe import CLOSED_ONLY

if TYPE_CHECKING:
    from cluster.config.cluster import ClusterConfig
    from cluster.config.edits import Edit

_ALL = "every machine is made anew"


@among(Effect.REPLACE)
def system(edit: Edit) -> Consequence:
    """Another image, or another content of it."""
    return _anew(edit, _ALL)


@among(Effect.REPLACE)
def presented(edit: Edit) -> Consequence:
    """Another system that a rehearsal's machines say they are."""
    return _anew(edit, f"{_ALL} as the other system")


@among(Effect.REPLACE)
def slurm(edit: Edit) -> Consequence:
    """Another release of Slurm."""
    return _anew(edit, f"Slurm comes with the machines' image: {_ALL}")


def or_image(verdict: Verdict) -> Verdict:
    """A verdict on something that may want other software in the image that the stack bakes."""

    @among(*POSSIBLE[verdict], *() if Effect.REPLACE in POSSIBLE[verdict] else (Effect.REPLACE,))
    def judged(edit: Edit) -> Consequence:
        if edit.after.platform == "local" or not bakes(edit.before) or not bakes(edit.after):
            return verdict(edit)
        key = "buckets" if edit.pattern.startswith("storage.buckets") else "nodes"
        was, now = (_software(config)[key] for config in (edit.before, edit.after))
        if was == now:
            return verdict(edit)
        return _anew(edit, f"the image gets other software ({', '.join(sorted(was ^ now))}), and {_ALL}")

    return judged


def _software(config: ClusterConfig) -> dict[str, set[str]]:
    """What the image has for some of the stack's parts only (cluster/gcp/recipe.py), by what wants it."""
    kinds = [roster.nodeset_type(config, section) for section in config.nodesets.values()]
    gpus = {gpu.type for section in config.nodesets.values() if (gpu := roster.nodeset_gpu(config, section))}
    return {
        "nodes": {
            *("GPU driver" for _ in gpus),
            *("closed GPU driver" for _ in gpus & CLOSED_ONLY),
            *("TCPXO" for kind in kinds if kind.nics > 1),
            *("local SSDs" for kind in kinds if kind.local_ssds),
        },
        "buckets": {"GCS FUSE" for _ in config.storage.buckets},
    }


def _anew(edit: Edit, how: str) -> Consequence:
    if edit.after.platform == "local":
        ends = "what runs ends with its machine, and batch jobs begin again"
        return replace(f"{how}, all at once: {ends}; {STATE_STAYS}", "./hpc run {stack} -- squeue")
    return controller_anew(edit, f"{how}, nodes when their jobs have ended")
